package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/replies"
)

// What connections do to a session, which they name by its id.

// Finish reports a step of a session as finished. It waits for reviews and checks as long as the reply may take.
func (e *Engine) Finish(ctx context.Context, id string, c FinishCall) (*Finished, error) {
	return e.finish(ctx, id, &finishCall{
		Caller:   c.Caller,
		args:     c.Args,
		until:    c.Arrived.Add(c.Within),
		waited:   c.Waited,
		step:     c.Step,
		repeats:  c.Repeats,
		untold:   c.Untold,
		from:     ctx,
		progress: c.Progress,
		moved:    c.Moved,
	})
}

// Abort ends a session.
func (e *Engine) Abort(ctx context.Context, id string, who Caller, explanation string) (*replies.Abort, error) {
	return leaving(ctx, e, id, func(_ context.Context, a *sessionActor) (*replies.Abort, error) {
		return a.abort(who, explanation)
	})
}

// GoTo goes back to an earlier step of a session, or restarts the current one.
func (e *Engine) GoTo(ctx context.Context, id string, who Caller, stepID string, all bool) (*replies.GoTo, error) {
	return leaving(ctx, e, id, func(ctx context.Context, a *sessionActor) (*replies.GoTo, error) {
		return a.goTo(ctx, who, stepID, all)
	})
}

// leaving is like ask for a transition that may leave sessions: it waits for their end, else the stack in the reply
// would still list them.
func leaving[R any](
	ctx context.Context, e *Engine, id string, do func(context.Context, *sessionActor) (*R, error),
) (*R, error) {
	r, err := ask(ctx, e, id, do)
	if err == nil {
		e.ended(ctx, id)
	}
	return r, err
}

// GetStep returns the current step of a session, which does not move.
func (e *Engine) GetStep(ctx context.Context, id string, who Caller, args StepArgs) (*replies.Step, error) {
	return ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*replies.Step, error) {
		return a.step(ctx, who, args)
	})
}

// Replay returns the stored reply to an earlier call with this request_id.
func (e *Engine) Replay(ctx context.Context, id string, who Caller) (*machine.StoredReply, error) {
	return ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*machine.StoredReply, error) {
		return a.replay(ctx, who)
	})
}

// Pending returns the unfinished steps of a session's current group.
func (e *Engine) Pending(ctx context.Context, id string) ([]string, error) {
	return ask(ctx, e, id, func(ctx context.Context, a *sessionActor) ([]string, error) { return a.pending(ctx), nil })
}

// Settled reports whether a step no longer waits for a person's decision about the outputs with this digest: somebody
// has answered, or the session has moved on, at any server.
func (e *Engine) Settled(ctx context.Context, id, stepID, digest string) bool {
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return false
	}
	_, err = r.State.ToAnswer(stepID, digest)
	return err != nil
}

// askedEvery is how often an open question is checked when nothing wakes the check.
const askedEvery = 5 * time.Second

// AwaitSettled waits until a question is settled, or ctx or the engine ends.
func (e *Engine) AwaitSettled(ctx context.Context, id, stepID, digest string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	for changed := e.follower.changed(id); !e.Settled(ctx, id, stepID, digest); changed = e.follower.changed(id) {
		if wait.Until(ctx, askedEvery, changed) != nil {
			return
		}
	}
}

// Decline records that a client's user closed the form about outputs, so that they are not asked again about them.
func (e *Engine) Decline(ctx context.Context, id, stepID, digest, identity string) error {
	return e.actFor(ctx, id, "", func(_ context.Context, a *sessionActor, _ Caller) error {
		next, err := a.state.Decline(stepID, digest, identity, e.now())
		if err != nil || next == a.state {
			return err
		}
		return a.commit(nil, next, nil)
	})
}

// step returns the position of a session without moving it (get_step). With a step_id it describes only that
// member of the current group.
func (a *sessionActor) step(ctx context.Context, who Caller, args StepArgs) (*replies.Step, error) {
	if _, err := a.repetition(who); err != nil {
		return nil, err
	}
	if a.state.Status != machine.Active {
		return nil, a.state.Ended()
	}
	if err := a.branched(ctx, who); err != nil {
		return nil, err
	}

	def, err := a.pin.Definition(ctx, a.state)
	if err != nil {
		return nil, err
	}
	if err := a.beginDue(ctx, def); err != nil {
		return nil, err
	}
	_, members, pending := a.state.Position(def)
	entry := a.state.Shown(def)
	shown, next, err := pageOf(entry, args.Cursor)
	if err != nil {
		return nil, err
	}
	if stepID := args.StepID; stepID != nil {
		shown, next = (job.Entry{*stepID}), nil
		if !slices.Contains(members, *stepID) {
			return nil, a.state.NotShown(def, *stepID, pending)
		}
	}
	running, err := a.running(ctx, entry)
	if err != nil {
		return nil, err
	}

	how, _ := a.pin.Reviewing(ctx, a.state) // a config with errors should not hide the session's position
	texts, err := a.engine.definitions.Texts(def, shown)
	if err == nil {
		r := a.reading(def, entry, shown, pending, texts, running, how.MaxTries)
		r.NextCursor = next
		return r, nil
	}

	// The step has begun, so its text is stored: neither the file nor its current size matters.
	texts, lost := a.engine.definitions.KeptTexts(a.state.Definition, shown)
	if lost != nil {
		return nil, err
	}
	r := a.reading(def, entry, shown, pending, texts, running, how.MaxTries)
	r.NextCursor = next
	r.Notice = replies.Notice(r.Notice,
		fmt.Sprintf("The instructions are those the step began with; the current ones cannot be used: %v.",
			errors.Unwrap(err)))
	return r, nil
}

// pageOf returns the steps that a reply describes from a cursor on, and the next cursor, or nil. A concurrent
// group is never divided, whatever its size.
func pageOf(entry job.Entry, cursor *string) (shown job.Entry, next *string, err error) {
	from := 0
	if cursor != nil {
		from, err = strconv.Atoi(*cursor)
		if err != nil || from < 0 || from >= len(entry) {
			return nil, nil, session.Wrong(codes.BadCursor,
				"cursor %q is not one that get_step gave for the steps as they are now: leave it out.",
				*cursor).With("argument", "cursor")
		}
	}
	shown = entry[from:]
	if _, _, item := job.SplitItem(entry[0]); item && len(shown) > machine.ShownItems {
		shown, next = shown[:machine.ShownItems], new(strconv.Itoa(from+machine.ShownItems))
	}
	return shown, next, nil
}

// running returns the members of an entry that are under review, in any process.
func (a *sessionActor) running(ctx context.Context, entry job.Entry) (steps []string, err error) {
	for _, id := range entry {
		if a.state.Judged(id) == nil {
			continue
		}
		row, err := a.judgingRow(ctx, id)
		if err != nil {
			return nil, err
		}
		if row != nil {
			steps = append(steps, id)
		}
	}
	return steps, nil
}

// reading returns get_step's reply, without the stack. It describes the members of shown.
func (a *sessionActor) reading(
	def *machine.Definition, entry, shown job.Entry, pending []string, texts machine.Instructions,
	running []string, most int,
) *replies.Step {
	s := a.state.In(a.engine.Place)
	r := &replies.Step{
		Goal:           s.Goal,
		CompletedSteps: s.CompletedSteps(def),
		Notice:         replies.Notice(nil, def.Notice),
	}
	d := s.Describe(def, shown, texts)
	r.BeginStep = d.First
	r.ConcurrentSteps = d.Others
	r.ConcurrentGroup = d.Group
	for _, id := range entry {
		m := replies.Member{StepID: id, State: "started", ReviewRunning: slices.Contains(running, id)}
		if p := s.Progress(id); p != nil {
			m.StartedAt = new(p.StartedAt.Format(time.RFC3339Nano))
			m.QualityTries, m.FailedChecks = p.QualityTries, p.FailedChecks
			m.Review = standing(s.SessionID, p, m.ReviewRunning, max(most-p.FailedTries(), 0))
			if p.CompletedAt != nil {
				m.State, m.CompletedAt = "completed", new(p.CompletedAt.Format(time.RFC3339Nano))
			}
		}
		r.Members = append(r.Members, m)
	}
	if _, _, item := job.SplitItem(entry[0]); item {
		r.PendingConcurrentSteps = pending[:min(len(pending), machine.ShownItems)]
	} else if len(entry) > 1 || len(pending) == 0 {
		r.PendingConcurrentSteps = pending
		if len(pending) == 0 {
			r.PendingConcurrentSteps = []string{}
			r.Notice = replies.Notice(r.Notice,
				"Every member of this group is finished, because the job was edited. Call finished_step once more "+
					"for one of them, with its step_id and outputs, to go on.")
		} else if done := finishedOf(shown, pending); len(done) > 0 {
			r.Notice = replies.Notice(r.Notice,
				fmt.Sprintf("Finished already, do not do again: %s. Still to do: %s.", strings.Join(done, ", "),
					strings.Join(pending, ", ")))
		}
	}
	return r
}

// standing returns the state of a step's review, or nil if nothing was handed in.
func standing(sessionID string, p *machine.StepProgress, running bool, left int) *replies.Standing {
	last := p.Newest()
	if q := p.AsksPerson(); q != nil {
		return &replies.Standing{
			State:     "waiting_for_you",
			Outputs:   q.Outputs,
			TriesLeft: left,
			Command:   session.AwaitingStep{SessionID: sessionID, Step: p.StepID, Review: true}.Command(),
		}
	}
	if last == nil {
		return nil
	}
	r := &replies.Standing{State: string(last.State), Outputs: last.Outputs, TriesLeft: left}
	switch {
	case running:
		r.State = "running"
	case last.State == machine.TryFailed:
		r.Feedback = combined(last.Failed())
	case last.Error != nil:
		r.Feedback = *last.Error
	}
	if last.State == machine.TryOpen && !running {
		r.State = string(machine.TryVoid) // interrupted
	}
	return r
}

// finishedOf returns the members of shown that are not pending.
func finishedOf(shown job.Entry, pending []string) []string {
	return slices.DeleteFunc(slices.Clone(shown), func(id string) bool { return slices.Contains(pending, id) })
}
