package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"deepwork/catalog/jsontext"
)

// imported is why a review in progress is void in an imported session.
const imported = "the session was imported while its review ran"

// DecodeExport decodes the export of a session, which anybody may have edited, and validates it.
func DecodeExport(data []byte) (*State, error) {
	var head struct {
		SessionID string `json:"session_id"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("it is not the file of a session: %w", err)
	}
	if !IsSessionID(head.SessionID) {
		return nil, errors.New("it is not the file of a session: it has no session_id")
	}
	s, err := Decode(head.SessionID, data)
	if err != nil {
		return nil, err
	}
	s.Replies = nil // as if their callers had never retried
	if faults := s.Faults(); len(faults) > 0 {
		return nil, fmt.Errorf("it was not written by deepwork, or was edited: %s", faults[0])
	}
	return s, nil
}

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

// A Claim counts what an export says, and what does not count once it is imported.
type Claim struct {
	Steps     int // finished
	Reviews   int // by reviewers, with a verdict
	Decisions int // of people and of agents that went on without a reviewer's verdict
}

// Claim counts what is in an export.
func (s *State) Claim() (c Claim) {
	for _, entry := range s.StepProgress {
		p := entry.Value
		if p.Done() {
			c.Steps++
		}
		for _, a := range p.Attempts {
			switch {
			case a.ByPerson():
				c.Decisions++
			case a.Counts():
				c.Reviews++
			}
		}
		c.Decisions += len(p.Overrides)
		if p.HasGrant() {
			c.Decisions++
		}
		if p.Question != nil && !p.Question.Open() && p.Question.Answer.Passed {
			c.Decisions++
		}
	}
	return c
}
