package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	definition "deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/codes"
	"deepwork/session/machine"

	"github.com/google/uuid"
)

// plan says what to run for a step.
func (d *leader) plan(ctx context.Context, j job) (*attempt.Agent, error) {
	r, at := &d.attemptLead.Run, d.attemptLead.Attempt
	a := &attempt.Agent{Execution: task.Execution{
		ID:                uuid.NewString(),
		LogID:             uuid.NewString(),
		WorkflowSessionID: j.session,
		StepID:            j.step,
		Executor:          at.Executor,
		Variant:           at.Variant,
	}}
	x := &a.Execution
	p := j.state.Progress(j.step)
	// The agent must count for the step as it is now, even if the clock was set back since the step began, or
	// if the board has another clock.
	x.CreatedAt = d.since(p)
	if p != nil && p.StartedAt.After(x.CreatedAt) {
		x.CreatedAt = p.StartedAt
	}
	def, err := d.workplace.Defined(ctx, j.state, j.step)
	if err != nil {
		return nil, err
	}
	if def.Call != nil { // get_step has begun its workflow
		_, err := d.workplace.Step(ctx, j.session, &j.step)
		return nil, cmp.Or(err, error(session.NotNow(codes.StepNotCurrent, "Its workflow has begun.")))
	}
	a.Workspace = j.state.RootOf(at.Workspace, j.step)
	a.Model = def.Model
	a.Timeout = def.Timeout
	a.IdleTimeout = def.IdleTimeout
	if def.Executor != "" {
		name, variant, has := strings.Cut(def.Executor, ":")
		x.Executor, x.Variant = name, nil
		if has {
			x.Variant = &variant
		}
	}
	reply, err := d.workplace.Step(ctx, j.session, &j.step)
	if err != nil {
		return nil, err
	}
	step := reply.BeginStep
	if step == nil {
		return nil, fmt.Errorf("the step is not described; look at its session")
	}

	var before *task.Execution
	if len(j.executions) > 0 {
		if before = &j.executions[0]; before.Executor == x.Executor { // it has the log
			x.LogID = before.LogID
		}
		if before.Executor == x.Executor && before.Conversation != nil &&
			d.attemptLead.Continues(ctx, x.Executor, x.Variant) {
			x.Conversation = before.Conversation
			left := leftBy(before, j.ended)
			switch {
			case definition.IsMerge(j.step):
				a.Prompt = mergePrompt(step, j.refusal)
			case j.refusal != "" || failedSince(p, before):
				a.Prompt = againPrompt(step, j.state, j.refusal)
			case len(left) > 0:
				a.Prompt = childPrompt(step, left)
			case before.LimitedUntil != nil:
				a.Prompt = limitPrompt(step)
			default:
				a.Prompt = againPrompt(step, j.state, "")
			}
			a.Prompt = adviceFor(a.Prompt+limitReached(before), d.attemptLead.Advice)
			return a, nil
		}
	} else if r.Resume && len(j.reply.Members) == 1 && j.state.RootOf("", j.step) == "" {
		x.Conversation = d.previous(ctx, j, x.Executor)
	}
	if definition.IsMerge(j.step) {
		a.Prompt = mergePrompt(step, j.refusal)
	} else if a.Prompt, err = firstPrompt(j.state.Goal, j.state, step, otherSteps(j), before, j.refusal,
		!r.InPlace); err == nil && len(j.ended) > 0 {
		a.Prompt += "\n" + childPrompt(step, j.ended)
	}
	a.Prompt = adviceFor(a.Prompt+limitReached(before), d.attemptLead.Advice)
	return a, err
}

// otherSteps returns the steps that other agents do in the same folder.
func otherSteps(j job) (all []string) {
	for _, m := range j.reply.Members {
		if m.StepID != j.step && m.State != "completed" && j.state.RootOf("", m.StepID) == j.state.RootOf("", j.step) {
			all = append(all, m.StepID)
		}
	}
	return all
}

// previous returns the conversation of the previous step, if the same executor did it and can continue it.
// There is none after a group, whose members each had their own.
func (d *leader) previous(ctx context.Context, j job, executor string) *string {
	if len(j.reply.CompletedSteps) == 0 {
		return nil
	}

	last := j.reply.CompletedSteps[len(j.reply.CompletedSteps)-1].StepID
	if !isSingle(j.state, last) {
		return nil
	}
	done, err := d.attemptLead.Steps(ctx, j.session, last)
	if err != nil || len(done) == 0 || done[0].Executor != executor || done[0].Conversation == nil ||
		!d.attemptLead.Continues(ctx, done[0].Executor, done[0].Variant) {
		return nil
	}
	return done[0].Conversation
}

// isSingle reports whether a step belongs neither to a group, whose members begin at the same time, nor to
// items.
func isSingle(s *machine.State, stepID string) bool {
	done := s.Progress(stepID) // nil for the steps of items
	return done != nil && !slices.ContainsFunc(s.StepProgress, func(p jsontext.Pair[*machine.StepProgress]) bool {
		return p.Key != stepID && p.Value.StartedAt.Equal(done.StartedAt)
	})
}
