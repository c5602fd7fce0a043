package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// ResumeRun lets a run that has ended go on, with its budgets changed by change. Its agents are given the
// advice, if it is not blank.
func (e *Engine) ResumeRun(ctx context.Context, who session.Caller, id, advice string, change func(*Run)) (*RunReply, error) {
	if err := checkText("advice", advice, MaxPrompt); err != nil {
		return nil, err
	}
	b, id, err := e.open(ctx, who, "run_id", id)
	if err != nil {
		return nil, err
	}
	if err := e.mayStart(b.who); err != nil {
		return nil, err
	}
	at, run, err := e.runOnBoard(ctx, b.View, id)
	if err != nil {
		return nil, err
	}
	if err := notComplete(at); err != nil {
		return nil, err
	}
	if at.LatestSessionID == nil && !at.State.Open() {
		why := ""
		if at.Error != nil {
			why = " (" + *at.Error + ")"
		}
		return nil, session.NotNow(codes.NoSession, "The run %s ended before it began%s, so it cannot go on. Start another one.", id, why).With("attempt_id", id)
	}
	was := *run
	change(run)
	if err := run.checkBudgets(); err != nil {
		return nil, err
	}
	goesOn := session.NotNow(codes.AttemptRunning, "The run %s goes on, and its budgets cannot be changed meanwhile. Stop it with stop_attempt, and resume it with the new ones.", id).With("attempt_id", id)
	changed := !reflect.DeepEqual(was, *run)
	if changed {
		if led, err := e.isLed(ctx, b.View, id); err != nil {
			return nil, err
		} else if led {
			return nil, goesOn
		}
		data, err := json.Marshal(run)
		if err != nil {
			return nil, err
		}
		if err := e.db.Board().SetRun(ctx, id, data); err != nil {
			return nil, fault("recording the run", err)
		}
	}
	if !at.State.Open() {
		err := e.beginFollowUp(ctx, b.View, FollowUpArgs{Prompt: &advice}, *at.LatestSessionID, at)
		switch raced := errors.Is(err, task.ErrRunning); { // another call has just resumed it
		case raced && (changed || advice != ""):
			return nil, goesOn
		case err != nil && !raced:
			return nil, found("resuming the run", err, "run", "run_id", id, remedyAttempt)
		}
	}
	e.kick()
	return e.runReply(ctx, b, id)
}

// isLed reports whether a process leads a run, which then has its budgets in memory.
func (e *Engine) isLed(ctx context.Context, b store.View, id string) (bool, error) {
	x, err := b.LatestExecution(ctx, id)
	if err != nil {
		return false, fault("reading the run", err)
	}
	running := x.State.Open() && x.State != task.Waiting
	return running && (x.Owner == e.member.ID() || x.Elsewhere(e.here) || e.member.Alive(x.Owner)), nil
}

// notComplete refuses to let a run go on whose workflow is complete: its leader would have nothing to do.
func notComplete(at *task.Attempt) error {
	run := Run{}
	if at.Run == nil || json.Unmarshal(at.Run, &run) != nil || run.End == nil || run.End.State != RunComplete {
		return nil
	}
	return session.NotNow(codes.RunComplete, "The run %s is complete. Start another one for more work.", at.ID).With("run_id", at.ID)
}
