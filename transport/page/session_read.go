package page

import (
	"context"
	"errors"
	"slices"

	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

func (s *Site) readSession(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	all, err := s.sessions(ctx, who)
	if err != nil {
		return nil, err
	}
	p := &sessionPage{root: s.Root, archive: s.Sessions}
	if p.find(all, id) {
		return p, p.read()
	}
	if s.Board != nil && machine.IsSessionID(id) {
		return s.readInWorkspace(ctx, who, id)
	}
	return nil, unknownSession(id)
}

func unknownSession(id string) error {
	return session.Wrong("unknown_session", "There is no session %q here.", id)
}

// readInWorkspace reads a session of an attempt's agent, which is among the files of its workspace. A
// caller that sees the attempt sees it.
func (s *Site) readInWorkspace(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	workspaces, err := s.Sessions.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range workspaces {
		p, err := s.lookInto(ctx, w, id)
		if err != nil {
			s.Logger.Debug("the sessions in a workspace cannot be read", "workspace", w.Path, "error", err)
		}
		if p == nil {
			continue
		}
		if _, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: attempt.Target{AttemptID: &w.AttemptID}}); err == nil {
			return p, nil
		}
	}
	return nil, unknownSession(id)
}

// lookInto reads a session if it is in a workspace, and returns nil if not.
func (s *Site) lookInto(ctx context.Context, w task.Workspace, id string) (p *sessionPage, err error) {
	a, done, err := workflow.OpenWorkspace(w.Path, s.Logger)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if _, err := a.Info(id); err != nil {
		if session.CodeOf(err) == "unknown_session" {
			err = nil
		}
		return nil, err
	}
	list, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*workflow.SessionInfo, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	p = &sessionPage{Attempt: w.AttemptID, root: w.Path, archive: a}
	if !p.find(all, id) {
		return nil, nil
	}
	return p, p.read()
}

// find finds a session among others, and reports whether it is there.
func (p *sessionPage) find(all []*workflow.SessionInfo, id string) bool {
	by := make(map[string]*workflow.SessionInfo, len(all))
	for _, i := range all {
		by[i.SessionID] = i
		if i.Parent == id {
			p.Children = append(p.Children, i)
		}
	}
	i, ok := by[id]
	if !ok {
		return false
	}
	p.SessionInfo = i
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
func (p *sessionPage) read() (err error) {
	if p.Err != nil {
		return nil
	}
	if p.State, err = p.archive.Read(p.SessionID); err != nil {
		return err
	}
	def, err := p.archive.Definition(p.State)
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
		v.Digest, v.Files = p.archive.GivenFor(p.State, id)
		v.Answer = answerFormOf(p.archive, p.State, id)
	}
	return v
}
