package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/job"
	"deepwork/session/workflow/machine"
)

// step returns the position of a session, without moving it (get_step). With a stepID it describes
// that member of the current group alone.
func (a *sessionActor) step(ctx context.Context, who caller, stepID *string) (*machine.StepReply, error) {
	if _, err := a.repetition(who); err != nil {
		return nil, err
	}
	if a.state.Status != machine.Active {
		return nil, a.state.Ended()
	}
	if err := a.branched(ctx, who); err != nil {
		return nil, err
	}
	def, err := a.definition(ctx)
	if err != nil {
		return nil, err
	}
	_, entry, pending := a.state.Position(def)
	shown := entry
	if stepID != nil {
		if shown = (job.Entry{*stepID}); !slices.Contains(entry, *stepID) {
			return nil, a.state.NotShown(def, *stepID, pending)
		}
	}
	running, err := a.running(ctx, entry)
	if err != nil {
		return nil, err
	}
	texts, err := a.engine.definitions.Texts(def, shown)
	if err == nil {
		return a.reading(def, entry, shown, pending, texts, running), nil
	}
	// The step has begun, so its text is stored: reading it does not depend on the file or its
	// current size.
	texts, lost := a.engine.definitions.KeptTexts(a.state.Definition, shown)
	if lost != nil {
		return nil, err
	}
	r := a.reading(def, entry, shown, pending, texts, running)
	r.Notice = machine.Notice(r.Notice, fmt.Sprintf("The instructions are those the step began with; those of now cannot be used: %v.", errors.Unwrap(err)))
	return r, nil
}

// running returns the members of an entry whose reviews run, in any process.
func (a *sessionActor) running(ctx context.Context, entry job.Entry) (steps []string, err error) {
	for _, id := range entry {
		if a.reviews[id] != nil {
			steps = append(steps, id)
		} else if a.state.Progress(id).Newest().Open() {
			r, err := a.runs(ctx, id)
			if err != nil {
				return nil, err
			}
			if r != nil {
				steps = append(steps, id)
			}
		}
	}
	return steps, nil
}

// reading makes get_step's reply, without the stack. It describes the members of shown.
func (a *sessionActor) reading(def *machine.Definition, entry, shown job.Entry, pending []string, texts machine.Instructions, running []string) *machine.StepReply {
	s := a.state.In(a.engine.Place)
	r := &machine.StepReply{Goal: s.Goal, CompletedSteps: s.CompletedSteps(def), Notice: machine.Notice(nil, def.Notice)}
	d := s.Describe(def, shown, texts)
	r.BeginStep, r.ConcurrentSteps, r.ConcurrentGroup = d.First, d.Others, d.Group
	for _, id := range entry {
		m := machine.Member{StepID: id, State: "started", ReviewRunning: slices.Contains(running, id)}
		if p := s.Progress(id); p != nil {
			m.StartedAt = new(p.StartedAt.Format(time.RFC3339Nano))
			m.QualityAttempts, m.FailedChecks = p.QualityAttempts, p.FailedChecks
			if p.CompletedAt != nil {
				m.State, m.CompletedAt = "completed", new(p.CompletedAt.Format(time.RFC3339Nano))
			}
		}
		r.Members = append(r.Members, m)
	}
	if len(entry) > 1 {
		r.PendingConcurrentSteps = pending
		if len(pending) == 0 {
			r.PendingConcurrentSteps = []string{}
			r.Notice = machine.Notice(r.Notice, "Every member of this group is finished, because the job was edited. Call finished_step once more for one of them, with its step_id and outputs, to go on.")
		} else if done := finishedOf(shown, pending); len(done) > 0 {
			r.Notice = machine.Notice(r.Notice, fmt.Sprintf("Finished already, do not do again: %s. Still to do: %s.", strings.Join(done, ", "), strings.Join(pending, ", ")))
		}
	}
	return r
}

// finishedOf returns those of shown that are not pending.
func finishedOf(shown job.Entry, pending []string) []string {
	return slices.DeleteFunc(slices.Clone(shown), func(id string) bool { return slices.Contains(pending, id) })
}
