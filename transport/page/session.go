package page

import (
	"context"
	"net/http"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// A sessionPage shows one session.
type sessionPage struct {
	workflow.SessionInfo
	State    *machine.State
	Above    []workflow.SessionInfo // its parents, the outermost first
	Children []workflow.SessionInfo
	Steps    []stepView
}

// A stepView is an entry of the timeline: a step, or the members of a group side by side.
type stepView struct {
	Members []memberView
}

type memberView struct {
	ID      string
	Current bool
	*machine.StepProgress
}

func (s *Site) session(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	id := r.PathValue("id")
	all, err := s.sessions(ctx, who)
	if err != nil {
		return nil, err
	}
	p := &sessionPage{}
	by := make(map[string]workflow.SessionInfo, len(all))
	for _, i := range all {
		by[i.SessionID] = i
		if i.Parent == id {
			p.Children = append(p.Children, i)
		}
	}
	i, ok := by[id]
	if !ok {
		return nil, session.Wrong("unknown_session", "There is no session %s here.", id)
	}
	p.SessionInfo = i
	for up := i.Parent; up != ""; {
		parent, ok := by[up]
		if !ok {
			break
		}
		p.Above = append([]workflow.SessionInfo{parent}, p.Above...)
		up = parent.Parent
	}
	if i.Err == nil {
		if p.State, err = s.Sessions.Read(id); err != nil {
			return nil, err
		}
		for _, e := range p.State.StepProgress {
			p.Steps = append(p.Steps, stepView{[]memberView{{e.Key, p.State.IsCurrent(e.Key), e.Value}}})
		}
	}
	return &shown{view: "session", title: i.Goal, data: p, on: []string{store.SessionChanged + ":" + id, store.SessionChanged}}, nil
}
