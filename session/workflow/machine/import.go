package machine

import (
	"slices"
	"time"

	"deepwork/catalog/jsontext"
)

// imported is why a review in progress is void in an imported session.
const imported = "the session was imported while its review ran"

// Imported returns the state of a decoded export as that of a session that is imported at a time. What
// reviewers and people decided stays for people to read, and finishes no step: verdicts and evidence are
// marked, and what the next finished_step would rely on is dropped. It belongs to no attempt and place.
func (s *State) Imported(at time.Time) *State {
	n := s.Next(at)
	n.ImportedAt, n.AttemptID, n.Place, n.BranchDue = &at, "", nil, false
	n.StepProgress = importedSteps(s.StepProgress, at)
	n.History = slices.Clone(s.History)
	for i, w := range n.History {
		n.History[i] = &Withdrawal{At: w.At, From: w.From, To: w.To, Progress: importedSteps(w.Progress, at)}
	}
	return n
}

func importedSteps(steps jsontext.OrderedMap[*StepProgress], at time.Time) jsontext.OrderedMap[*StepProgress] {
	all := slices.Clone(steps)
	for i, entry := range all {
		p := entry.Value.clone()
		p.Granted, p.Question, p.Shown, p.Place = nil, nil, nil, nil
		p.Evidence = p.Evidence.imported()
		p.Attempts, p.QualityAttempts = slices.Clone(p.Attempts), 0
		for j, was := range p.Attempts {
			a := *was
			a.Imported, a.Collected = true, true
			if a.Open() {
				a.State, a.Error = AttemptVoid, new(imported)
			}
			if a.ClosedAt == nil {
				a.ClosedAt = &at
			}
			if a.Counts() {
				p.QualityAttempts++
			}
			p.Attempts[j] = &a
		}
		all[i].Value = p
	}
	return all
}

// imported returns a copy that is marked. e may be nil.
func (e *Evidence) imported() *Evidence {
	if e == nil {
		return nil
	}
	n := *e
	n.Imported, n.Others = true, e.Others.imported()
	return &n
}
