package page

import (
	"context"
	"slices"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

func (s *Site) readSession(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	all, err := s.sessions(ctx, who)
	if err != nil {
		return nil, err
	}
	p := &sessionPage{engine: s.Engine}
	if p.find(all, id) {
		return p, p.read(ctx)
	}
	return s.readInWorkspace(ctx, who, id)
}

func unknownSession(id string) error {
	return session.Wrong(codes.UnknownSession, "There is no session %q here.", id)
}

// readInWorkspace reads a session of an attempt's agent. A caller that sees the attempt sees it.
func (s *Site) readInWorkspace(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	i, err := s.Engine.Info(ctx, id)
	if err != nil || s.Board == nil || i.AttemptID == "" {
		return nil, unknownSession(id)
	}
	if _, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: board.Target{AttemptID: &i.AttemptID}}); err != nil {
		return nil, unknownSession(id)
	}
	list, err := s.Engine.List(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*workflow.SessionInfo, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	p := &sessionPage{engine: s.Engine}
	if !p.find(all, id) {
		return nil, unknownSession(id)
	}
	return p, p.read(ctx)
}

// find finds a session among others, and reports whether it is there.
func (p *sessionPage) find(all []*workflow.SessionInfo, id string) bool {
	by := make(map[string]*workflow.SessionInfo, len(all))
	for _, i := range all {
		by[i.ID] = i
		if i.Parent == id {
			p.Children = append(p.Children, i)
		}
	}
	i, ok := by[id]
	if !ok {
		return false
	}
	p.SessionInfo, p.Attempt = i, i.AttemptID
	for up := i.Parent; up != "" && len(p.Above) < len(all); up = p.Above[0].Parent {
		parent, ok := by[up]
		if !ok {
			break
		}
		p.Above = slices.Insert(p.Above, 0, parent)
	}
	return true
}

// read reads the record of the session and its definition, if they can be read.
func (p *sessionPage) read(ctx context.Context) (err error) {
	if p.State, err = p.engine.Read(ctx, p.ID); err != nil {
		return err
	}
	def, err := p.engine.Definition(p.State)
	if err != nil {
		p.Fault = err.Error()
		for _, e := range p.State.StepProgress {
			p.Timeline = append(p.Timeline, []stepView{p.step(nil, e.Key)})
		}
		return nil
	}
	for _, entry := range def.Workflow.Entries {
		var group []stepView
		for _, step := range entry {
			group = append(group, p.step(def.Job.Step(step), step))
		}
		p.Timeline = append(p.Timeline, group)
	}
	return nil
}

func (p *sessionPage) step(step *job.Step, id string) stepView {
	v := stepView{Step: step, Progress: p.State.Progress(id), ID: id, Current: p.State.Status == machine.Active && p.State.IsCurrent(id)}
	if v.Reviewed() {
		v.Digest, v.Files = workflow.GivenFor(p.State, id)
		v.Answer = answerFormOf(p.engine, p.State, id)
	}
	return v
}
