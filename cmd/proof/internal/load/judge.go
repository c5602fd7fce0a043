package load

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"deepwork/session/workflow"
)

// What the judge calls the things that it finds.
const (
	wrongFile       = "a file that cannot be read"
	wrongLost       = "a lost update"
	wrongDoubled    = "a doubled step"
	wrongOrder      = "steps out of order"
	wrongRecord     = "a session that is another than was started"
	wrongDefinition = "a wrong definition"
	wrongUnasked    = "a session that nobody started"
	wrongOwners     = "two owners"
)

// A judge compares the session files of a project with the ledger.
type judge struct {
	root   string
	ledger *ledger
	book   *book
	wrong
}

// run reads every session file and compares. others are the sessions that were
// there before.
func (j *judge) run(ctx context.Context, others map[string]bool) (checked int, err error) {
	archive, err := workflow.OpenArchive(j.root, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, fmt.Errorf("opening the session files: %w", err)
	}
	defer func() {
		if cerr := archive.Close(); err == nil {
			err = cerr
		}
	}()
	infos, err := archive.List(ctx)
	if err != nil {
		return 0, err
	}
	states := map[string]*workflow.State{}
	for _, i := range infos {
		if others[i.SessionID] {
			continue
		}
		s, err := archive.Read(i.SessionID)
		if err != nil {
			j.add(wrongFile, fmt.Sprintf("session %s: %v", i.SessionID, err))
			continue
		}
		states[i.SessionID] = s
	}
	damaged, err := archive.Damaged()
	if err != nil {
		return 0, err
	}
	for _, path := range damaged {
		j.add(wrongFile, fmt.Sprintf("%s was set aside as damaged", filepath.Base(path)))
	}
	j.compare(states)
	return len(states), nil
}

// compare judges the states, by session id.
func (j *judge) compare(states map[string]*workflow.State) {
	j.ledger.mu.Lock()
	accounts := slices.Clone(j.ledger.accounts)
	j.ledger.mu.Unlock()
	left := map[string]*workflow.State{}
	for id, s := range states {
		left[id] = s
	}
	unknown := map[string]*account{} // whose start was never acknowledged
	for _, a := range accounts {
		if a.id == "" {
			unknown[a.goal] = a
			continue
		}
		s := states[a.id]
		delete(left, a.id)
		if s == nil {
			j.add(wrongLost, fmt.Sprintf("session %s (%s) was started, and has no file", a.id, a.goal))
			continue
		}
		j.session(a, s)
	}
	for id, s := range left {
		if a := unknown[s.Goal]; a != nil && s.JobName == jobName(a.job) {
			delete(unknown, s.Goal) // it was asked for, and once
			continue
		}
		j.add(wrongUnasked, fmt.Sprintf("session %s of %s, goal %q", id, s.JobName, s.Goal))
	}
	j.ledger.owners(j.wrong)
}

// mostOpen is of how many transitions that were never acknowledged all the
// possibilities are tried.
const mostOpen = 10

// session judges one.
func (j *judge) session(a *account, s *workflow.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j.record(a, s)
	var open []*event
	for _, e := range a.events {
		if e.acked.IsZero() {
			open = append(open, e)
		}
	}
	if len(open) > mostOpen {
		open = open[len(open)-mostOpen:]
	}
	var first []finding
	for set := range 1 << len(open) {
		var with []*event
		for i, e := range open {
			if set&(1<<i) != 0 {
				with = append(with, e)
			}
		}
		m, err := a.model(j.ledger.group, with)
		if err != nil {
			if set == 0 {
				j.add(wrongDoubled, fmt.Sprintf("session %s: %v", a.id, err))
				return
			}
			continue
		}
		found := m.compare(s)
		if len(found) == 0 {
			j.order(a, s)
			return
		}
		if set == 0 {
			first = found
		}
	}
	for _, f := range first {
		j.add(f.kind, fmt.Sprintf("session %s (%s): %s", a.id, a.goal, f.text))
	}
}

// record judges what does not change, and the definition.
func (j *judge) record(a *account, s *workflow.State) {
	parent := ""
	if s.ParentSessionID != nil {
		parent = *s.ParentSessionID
	}
	if s.SessionID != a.id || s.Goal != a.goal || s.JobName != jobName(a.job) || s.WorkflowName != workflowName || parent != a.parent {
		j.add(wrongRecord, fmt.Sprintf("session %s: started as %s/%s, goal %q, parent %q; its file says %s, %s/%s, goal %q, parent %q",
			a.id, jobName(a.job), workflowName, a.goal, a.parent, s.SessionID, s.JobName, s.WorkflowName, s.Goal, parent))
	}
	switch save := j.book.saveOf(a.job, s.Definition.Source); {
	case save == 0:
		j.add(wrongDefinition, fmt.Sprintf("session %s: its file names a job.yml that was never written (%s)", a.id, s.Definition.Source))
	case save < a.served:
		j.add(wrongDefinition, fmt.Sprintf("session %s: its file names save %d of job.yml, and a step was begun with save %d", a.id, save, a.served))
	}
}

// order judges that what followed one another in the client's eyes does so in
// the file's.
func (j *judge) order(a *account, s *workflow.State) {
	var before *event
	events := a.events
	for i, e := range a.events {
		if e.did == didGoTo {
			events = a.events[i+1:] // what it cleared was done again, at other times
		}
	}
	for _, e := range events {
		if e.did != didFinish || e.acked.IsZero() {
			continue
		}
		if before != nil && before.acked.Before(e.sent) {
			x, _ := s.StepProgress.Get(before.step)
			y, _ := s.StepProgress.Get(e.step)
			if x != nil && y != nil && x.CompletedAt != nil && y.CompletedAt != nil && e.step != before.step && y.CompletedAt.Before(*x.CompletedAt) {
				j.add(wrongOrder, fmt.Sprintf("session %s: %s was finished after %s, and its file has it the other way round", a.id, e.step, before.step))
			}
		}
		before = e
	}
}

type finding struct{ kind, text string }

// compare tells how a file differs from the model.
func (m *model) compare(s *workflow.State) (found []finding) {
	differs := func(kind, format string, args ...any) {
		found = append(found, finding{kind, fmt.Sprintf(format, args...)})
	}
	if s.Status != m.status {
		differs(wrongLost, "it is %s, and was acknowledged as %s", s.Status, m.status)
	}
	if m.status != workflow.Completed && s.CurrentStepID != m.current() {
		kind := wrongLost
		if at := m.indexOf(s.CurrentStepID); at > m.entry {
			kind = wrongDoubled
		}
		differs(kind, "it is at step %s, and %s was acknowledged", s.CurrentStepID, m.current())
	}
	if m.status == workflow.Aborted && (s.AbortReason == nil || *s.AbortReason != m.reason) {
		differs(wrongLost, "the reason of its end is %v, and %q was acknowledged", s.AbortReason, m.reason)
	}
	var begun []string
	for _, p := range s.StepProgress {
		begun = append(begun, p.Key)
		m.compareStep(p.Value, m.done[p.Key], "", differs)
	}
	if want := slices.Concat(m.entries[:m.entry+1]...); !slices.Equal(begun, want) {
		kind := wrongLost
		if len(begun) > len(want) {
			kind = wrongDoubled
		}
		differs(kind, "the steps that were begun are %v, and %v were acknowledged", begun, want)
	}
	for i, w := range m.withdrawn {
		if i >= len(s.History) {
			differs(wrongLost, "going back to %s was acknowledged, and is not in its history", w.to)
			continue
		}
		h := s.History[i]
		var steps []string
		for _, p := range h.Progress {
			steps = append(steps, p.Key)
			m.compareStep(p.Value, w.done[p.Key], " (in its history)", differs)
		}
		if h.From != w.from || h.To != w.to || !slices.Equal(steps, w.steps) {
			differs(wrongLost, "its history has it go from %s to %s, clearing %v, and from %s to %s, clearing %v, was acknowledged", h.From, h.To, steps, w.from, w.to, w.steps)
		}
	}
	if len(s.History) > len(m.withdrawn) {
		differs(wrongDoubled, "it went back %d times, and %d were acknowledged", len(s.History), len(m.withdrawn))
	}
	return found
}

func (m *model) compareStep(p *workflow.StepProgress, e *event, where string, differs func(kind, format string, args ...any)) {
	switch {
	case e == nil && (p.CompletedAt != nil || p.Unreported):
		differs(wrongDoubled, "step %s%s is finished, and that was not acknowledged", p.StepID, where)
	case e == nil:
	case p.CompletedAt == nil:
		differs(wrongLost, "step %s%s was acknowledged as finished, and is not", p.StepID, where)
	case encoded(p.Outputs) != encoded(e.outputs) || p.Notes == nil || *p.Notes != e.notes:
		notes := "null"
		if p.Notes != nil {
			notes = *p.Notes
		}
		differs(wrongLost, "step %s%s has outputs %s and notes %q, and %s and %q were acknowledged", p.StepID, where, encoded(p.Outputs), notes, encoded(e.outputs), e.notes)
	}
}

func (m *model) indexOf(step string) int {
	return slices.IndexFunc(m.entries, func(entry []string) bool { return slices.Contains(entry, step) })
}

func encoded(o workflow.Outputs) string {
	data, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
