package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	definition "deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/limit"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/why"
)

// A job is a step that needs an agent.
type job struct {
	stepRef
	state      *machine.State
	reply      *replies.Step
	executions []task.Execution // of this step, newest first
	ended      []*machine.State // workflows that its agents have started and that have ended since
	// why a person cannot pass the outputs, or why outputs that they passed were refused; or ""
	refusal string
}

// dueWork is the work that can be done now.
type dueWork struct {
	steps     []job
	recheckAt time.Time // when to look again; zero means once something has changed
	waits     []board.RunWait
	moved     bool             // a session has changed during the look
	open      map[stepRef]bool // the steps that are not finished
}

// lookAt has the leader look again at a time, or earlier.
func (now *dueWork) lookAt(t time.Time) {
	if now.recheckAt.IsZero() || t.Before(now.recheckAt) {
		now.recheckAt = t
	}
}

// due finds the steps that need an agent in a session and those nested in it.
func (d *leader) due(ctx context.Context, root *machine.State) (now dueWork, err error) {
	now.open = map[stepRef]bool{}
	if err := d.walk(ctx, root, &now); err != nil || now.moved { // the walk has not seen all steps
		return now, err
	}
	for p, a := range d.agents {
		if !now.open[p] {
			a.finished()
		}
	}
	maps.DeleteFunc(d.failed, func(p stepRef, _ why.Why) bool { return !now.open[p] }) // a person has finished it
	return now, nil
}

// called handles the step of a nested workflow. If the workflow is complete and the step is not, because a
// person has to say how to go on, called finishes the step as an agent would, which asks the person.
func (d *leader) called(ctx context.Context, s *machine.State, p stepRef, id string, now *dueWork) error {
	const remedy = "Begin the step again on the page of session %s, then resume the run."
	child, err := d.workplace.State(ctx, id)
	if session.CodeOf(err) == codes.UnknownSession {
		d.failed[p] = why.Why{Kind: codes.UnknownSession, Said: fmt.Sprintf(
			"the session %s of its workflow is gone: it was pruned or removed. "+remedy, id, p.session)}
		return nil
	}
	if err != nil {
		return err
	}
	if child.Status == machine.Active { // its steps have agents of their own
		return d.walk(ctx, child, now)
	}
	if at, err := d.workplace.State(ctx, s.SessionID); err != nil || at.Revision != s.Revision {
		now.moved = err == nil // it ended together with the workflow, a moment ago
		return err
	}
	if child.Status == machine.Aborted {
		d.failed[p] = why.Why{Kind: why.Other, Said: fmt.Sprintf("its workflow was aborted. "+remedy, p.session)}
		return nil
	}
	if _, waits, err := d.person(ctx, s, p, now); waits || err != nil {
		return err
	}
	// its outputs are those of its workflow
	r, err := d.workplace.Finish(ctx, p.session, p.step, new(judging.Submission))
	if _, refused := errors.AsType[*session.Error](err); refused && !board.Passing(err) {
		d.failed[p] = whyOf(err)
		return nil
	}
	if err != nil {
		return err
	}
	if now.moved = r.Status != replies.NeedsWork || r.Waiting() != nil; !now.moved {
		d.failed[p] = why.Why{Kind: why.Other, Said: why.Line(deref(r.Feedback))}
	}
	return nil
}

func (d *leader) walk(ctx context.Context, s *machine.State, now *dueWork) error {
	reply, err := d.workplace.Step(ctx, s.SessionID, nil)
	if outdated(err) {
		now.moved = true
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range reply.Members {
		p := stepRef{s.SessionID, m.StepID}
		a := d.agents[p]
		if m.State == "completed" {
			continue
		}

		now.open[p] = true
		if of := s.Progress(m.StepID); of != nil && of.Child != "" {
			if err := d.called(ctx, s, p, of.Child, now); err != nil || now.moved {
				return err
			}
			continue
		}
		if w := checksFailed(s.Progress(m.StepID), d.attemptLead.Since); w.Kind != "" {
			d.failed[p] = w
			if a != nil {
				a.cancel() // it would only fail again
			}
			continue
		}
		told, waits, err := d.person(ctx, s, p, now)
		if err != nil {
			return err
		}
		if waits || a != nil || d.failed[p].Kind != "" {
			continue
		}

		if definition.IsMerge(p.step) {
			if told = d.unmerged[p]; told == "" {
				if mayMerge(p.step, reply.Members) {
					now.steps = append(now.steps, job{stepRef: p, state: s})
				}
				continue
			}
		}
		children, ended, err := d.children(ctx, p)
		if err != nil {
			return err
		}
		if len(children) > 0 { // the agent has ended: others do the nested workflow
			for _, c := range children {
				if err := d.walk(ctx, c, now); err != nil {
					return err
				}
			}
			continue
		}
		before, err := d.executions(ctx, p)
		if err != nil {
			return err
		}
		if of := s.Progress(m.StepID); of != nil { // earlier executions belong to an earlier round
			i := slices.IndexFunc(before, func(x task.Execution) bool { return x.CreatedAt.Before(of.StartedAt) })
			if i >= 0 {
				before = before[:i]
			}
			ended = slices.DeleteFunc(ended, func(c *machine.State) bool { return c.StartedAt.Before(of.StartedAt) })
		}
		j := job{p, s, reply, before, ended, told}
		if w := d.exhausted(j); w.Kind != "" {
			d.failed[p] = w
			continue
		}
		if until := limit.Over(j.executions, d.attemptLead.Since); until.After(time.Now()) {
			now.lookAt(until)
			now.waits = append(now.waits, d.limited(j, until))
			continue
		}
		now.steps = append(now.steps, j)
	}

	return nil
}

// executions returns the executions of a step, newest first. It reads them only once.
func (d *leader) executions(ctx context.Context, p stepRef) ([]task.Execution, error) {
	if before, known := d.before[p]; known {
		return before, nil
	}
	before, err := d.attemptLead.Steps(ctx, p.session, p.step)
	if err == nil {
		d.before[p] = before
	}
	return before, err
}

// limited says that a step waits for the limit that ended its newest agent.
func (d *leader) limited(j job, until time.Time) board.RunWait {
	w := board.RunWait{
		Kind:      board.WaitsForLimit,
		SessionID: j.session,
		StepID:    j.step,
		Since:     *j.executions[0].EndedAt,
		Until:     &until,
	}
	if !limit.Known(&j.executions[0]) {
		w.Tries = limit.Row(j.executions, d.attemptLead.Since)
	}
	return w
}

// children returns the workflows that agents of a step have started: the active ones, and the ended ones.
func (d *leader) children(ctx context.Context, p stepRef) (active, ended []*machine.State, err error) {
	d.mu.Lock()
	ids := slices.Clone(d.attemptLead.Run.Children[p.session+"/"+p.step])
	d.mu.Unlock()
	for _, id := range ids {
		s, err := d.workplace.State(ctx, id)
		if session.CodeOf(err) == codes.UnknownSession {
			continue // it was pruned
		}
		if err != nil {
			return nil, nil, err
		}

		if s.Status == machine.Active {
			active = append(active, s)
		} else {
			ended = append(ended, s)
		}
	}
	return active, ended, nil
}

// adopt records a workflow that the agent of a step has started, perhaps for a step of another workflow.
func (d *leader) adopt(ctx context.Context, p stepRef, parent, id string) error {
	if parent != p.session {
		s, err := d.workplace.State(ctx, parent)
		if err != nil {
			return err
		}
		p = stepRef{parent, s.CurrentStepID}
	}

	d.mu.Lock()
	if d.attemptLead.Run.Children == nil {
		d.attemptLead.Run.Children = map[string][]string{}
	}
	key := p.session + "/" + p.step
	if known := d.attemptLead.Run.Children[key]; !slices.Contains(known, id) {
		d.attemptLead.Run.Children[key] = append(slices.Clone(known), id)
	}
	d.mu.Unlock()
	return d.save(ctx)
}

// find adopts workflows that agents of the run have started and that the leader does not know, because an
// earlier leader was killed before recording them. It searches the sessions that it knows and those nested in
// them. Reading these also exports again spans that the earlier leader may not have sent.
func (d *leader) find(ctx context.Context) error {
	known, look := map[string]bool{}, []string{d.attemptLead.Run.SessionID}
	d.mu.Lock()
	for _, ids := range d.attemptLead.Run.Children {
		look = append(look, ids...)
	}
	d.mu.Unlock()
	for ; len(look) > 0; look = look[1:] {
		if known[look[0]] {
			continue
		}
		known[look[0]] = true
		s, err := d.workplace.State(ctx, look[0])
		if session.CodeOf(err) == codes.UnknownSession {
			continue // it was removed
		} else if err != nil {
			return err
		}
		for _, p := range s.StepProgress {
			if p.Value.Child != "" {
				look = append(look, p.Value.Child)
			}
		}
	}
	started, err := d.workplace.Started(ctx, known)
	for _, s := range started {
		if err == nil && !known[s.SessionID] && known[s.Session] {
			err = d.adopt(ctx, stepRef{s.Session, s.Step}, s.Parent, s.SessionID)
		}
	}

	return err
}
