package load

import (
	"fmt"
	"slices"

	"deepwork/session/workflow"
)

// A model is what a session must be after the transitions of its account: the
// rules of a load's one workflow, written once more and apart from the engine.
type model struct {
	entries   [][]string
	status    workflow.SessionStatus
	entry     int
	done      map[string]*event
	withdrawn []withdrawn
	reason    string // why it was aborted
}

// A withdrawn is what one go_to_step cleared.
type withdrawn struct {
	from, to string
	steps    []string
	done     map[string]*event
}

func newModel(group int) *model {
	return &model{entries: entries(group), status: workflow.Active, done: map[string]*event{}}
}

// apply makes a transition; the error says why it cannot have been one.
func (m *model) apply(e *event) error {
	if m.status != workflow.Active {
		return fmt.Errorf("%s of %q was acknowledged, and it had ended (%s)", e.did, e.step, m.status)
	}
	switch e.did {
	case didAbort:
		m.status, m.reason = workflow.Aborted, e.notes
	case didFinish:
		if m.done[e.step] != nil {
			return fmt.Errorf("step %s was acknowledged as finished twice", e.step)
		}
		if !slices.Contains(m.entries[m.entry], e.step) {
			return fmt.Errorf("step %s was acknowledged as finished, and %v was current", e.step, m.entries[m.entry])
		}
		m.done[e.step] = e
		for _, id := range m.entries[m.entry] {
			if m.done[id] == nil {
				return nil
			}
		}
		if m.entry+1 == len(m.entries) {
			m.status = workflow.Completed
		} else {
			m.entry++
		}
	case didGoTo:
		to := slices.IndexFunc(m.entries, func(entry []string) bool { return slices.Contains(entry, e.step) })
		if to < 0 || to > m.entry {
			return fmt.Errorf("going to %s was acknowledged, and %v was current", e.step, m.entries[m.entry])
		}
		w := withdrawn{from: m.current(), to: e.step, done: map[string]*event{}}
		for _, id := range slices.Concat(m.entries[to : m.entry+1]...) {
			w.steps = append(w.steps, id)
			if d := m.done[id]; d != nil {
				w.done[id] = d
				delete(m.done, id)
			}
		}
		m.withdrawn = append(m.withdrawn, w)
		m.entry = to
	}
	return nil
}

// current is the step that the file names as current.
func (m *model) current() string { return m.entries[m.entry][0] }

// open are the members of the current entry that are not finished.
func (m *model) open() (ids []string) {
	for _, id := range m.entries[m.entry] {
		if m.done[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// outputs are those of all finished steps, in the workflow's order.
func (m *model) outputs() workflow.Outputs {
	all := workflow.Outputs{}
	for _, id := range slices.Concat(m.entries...) {
		if e := m.done[id]; e != nil {
			for _, o := range e.outputs {
				all = all.Set(o.Key, o.Value)
			}
		}
	}
	return all
}

// model replays an account; with are those of the transitions that were never
// acknowledged that are taken to have been made.
func (a *account) model(group int, with []*event) (*model, error) {
	m := newModel(group)
	for _, e := range a.events {
		if !e.acked.IsZero() || slices.Contains(with, e) {
			if err := m.apply(e); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}
