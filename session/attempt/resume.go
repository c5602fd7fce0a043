package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// ResumeRun continues a run that has ended, with its budgets changed by change. Its agents get the advice,
// unless it is blank.
func (e *Engine) ResumeRun(
	ctx context.Context, who session.Caller, id, advice string, change func(*board.Run),
) (*board.RunReply, error) {
	if err := board.CheckText("advice", advice, board.MaxPrompt); err != nil {
		return nil, err
	}

	b, id, err := e.ViewFor(ctx, who, "run_id", id)
	if err != nil {
		return nil, err
	}

	if err := e.MayStart(b.Who); err != nil {
		return nil, err
	}

	at, run, err := e.RunOnBoard(ctx, b.View, id)
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
		return nil, session.NotNow(codes.NoSession,
			"The run %s ended before it began%s, so it cannot go on. Start another one.", id,
			why).With("attempt_id", id)
	}
	if board.OrEmpty(at.WorkflowStatus) == board.WorkflowAborted {
		return nil, session.NotNow(codes.NoSession,
			"The workflow of the run %s was aborted, so it cannot go on. Start another one.", id).With("attempt_id", id)
	}

	was := *run
	change(run)
	if err := run.CheckBudgets(); err != nil {
		return nil, err
	}

	goesOn := session.NotNow(codes.AttemptRunning,
		"The run %s goes on, and takes neither other budgets nor advice meanwhile.", id).
		Next("stop it first, and resume it with them", "stop_attempt", "attempt_id", id).By("run stop").
		With("attempt_id", id)
	led, err := e.isLed(ctx, b.View, id)
	if err != nil {
		return nil, err
	}

	if !at.State.Open() {
		if err := withinRunBudget(ctx, b, at, run); err != nil {
			return nil, err
		}
	}
	changed := !reflect.DeepEqual(was, *run)
	if at.State.Open() && (advice != "" || led && changed) {
		return nil, goesOn
	}
	if at.State.Open() && !led && run.MaxTime > 0 {
		run.Resumed, changed = time.Now(), true
	}
	if changed {
		data, err := json.Marshal(run)
		if err != nil {
			return nil, err
		}
		if err := e.Database.Board().SetRun(ctx, id, data); err != nil {
			return nil, board.Fault("recording the run", err)
		}
	}

	if !at.State.Open() {
		err := e.beginFollowUp(ctx, b.View, FollowUpArgs{Prompt: &advice}, *at.LatestSessionID, at, task.Request{})
		switch raced := errors.Is(err, task.ErrRunning); { // another call has just resumed it
		case raced && (changed || advice != ""):
			return nil, goesOn
		case err != nil && !raced:
			return nil, board.RunFault("resuming the run", err, id)
		}
	}

	e.wakeUp()
	return e.RunReply(ctx, b, id)
}

// withinRunBudget refuses to resume a run that would pause at once, because one of its own budgets is used
// up.
func withinRunBudget(ctx context.Context, v board.View, at *task.Attempt, run *board.Run) error {
	cost, err := v.Cost(ctx, at.TaskID, at.ID)
	if err != nil {
		return board.Fault("reading the cost of the run", err)
	}
	larger := run.LargerBudget(cost)
	if larger == "" {
		return nil
	}
	return session.NotNow(codes.BudgetReached,
		"The run %s would pause at once, since its budget is used up. Nothing was resumed. Resume it with a larger "+
			"one: deepwork run resume %s%s", at.ID, board.Short(at.ID), larger).With("run_id", at.ID)
}

// isLed reports whether a process leads a run; that process then has the budgets in memory.
func (e *Engine) isLed(ctx context.Context, b store.View, id string) (bool, error) {
	x, err := b.LatestExecution(ctx, id)
	if err != nil {
		return false, board.Fault("reading the run", err)
	}
	running := x.State.Open() && x.State != task.Waiting
	return running && (x.Owner == e.Members.ID() || x.Elsewhere(e.Here) || e.Members.Alive(x.Owner)), nil
}

// notComplete refuses to continue a run whose workflow is complete: its leader would have nothing to do.
func notComplete(at *task.Attempt) error {
	run := board.Run{}
	if at.Run == nil || json.Unmarshal(at.Run, &run) != nil || run.End == nil || run.End.State != board.Completed {
		return nil
	}
	return session.NotNow(codes.RunComplete, "The run %s is complete. Start another one for more work.",
		at.ID).With("run_id", at.ID)
}
