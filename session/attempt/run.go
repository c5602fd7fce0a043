package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/actor"
	"deepwork/catalog/task"
	"deepwork/session/attempt/runner"
	"deepwork/session/store"
)

// A run is one execution while this server sees to it. Its actor owns it; make
// and wait run beside the actor, read nothing that it changes, and report to it.
type run struct {
	engine *Engine
	ctx    context.Context // ends when this server has no more to do with it
	exec   task.Execution
	done   actor.Reply[struct{}]

	making     context.Context // of what make does; ends with stop and with Close
	stopMaking context.CancelFunc

	proc     *runner.Process // nil: not known yet, or never started
	recorded bool            // the board says that it runs
	end      *outcome        // nil: it has not ended
	stopping bool
	stopped  []actor.Reply[bool] // who waits for its end
	failures int                 // of the board, one after another
}

// An outcome is how a run ended, as the board is to record it.
type outcome struct {
	task.Ending
	// again: the agent never ran and is to: it goes back to what waits.
	again bool
	// drop: it is not this server's to see to any more; nothing is recorded.
	drop bool
}

// failed is the outcome of an agent that could not be run.
func failed(format string, args ...any) *outcome {
	return &outcome{Ending: task.Ending{State: task.Failed, Error: new(fmt.Sprintf(format, args...))}}
}

// recordsGone is the outcome of a run whose folder somebody removed.
func recordsGone() *outcome {
	return &outcome{Ending: task.Ending{State: task.Interrupted,
		Error: new("The records of the agent's run are gone, so it is not known how it ended.")}}
}

// outcomeOf says what an exit means: only an agent that ended by itself, and said
// that all is well, has completed.
func outcomeOf(x runner.Exit) *outcome {
	o := &outcome{Ending: task.Ending{FinalMessage: orNull(x.FinalMessage)}}
	if !x.EndedAt.IsZero() {
		o.EndedAt = &x.EndedAt
	}
	switch {
	case x.Stopped && x.NotStarted != "":
		o.State = task.Stopped // before it ran
	case x.NotStarted != "":
		o.State, o.Error = task.Failed, new("The agent could not be started: "+x.NotStarted)
	case x.Stopped:
		o.State, o.ExitCode = task.Stopped, new(x.Code)
	case x.Interrupted:
		o.State = task.Interrupted
		o.Error = new("The agent was cut short: what watched over it was killed, or the machine went down.")
	case x.Code == 0 && x.Signal == "":
		o.State, o.ExitCode = task.Completed, new(x.Code)
	default:
		o.State, o.ExitCode = task.Failed, new(x.Code)
		if x.Signal != "" {
			o.Error = new("The agent was ended by " + x.Signal + ".")
		}
	}
	return o
}

// record writes to the board what it does not have yet; over: that was the end.
func (r *run) record(ctx context.Context) (over bool, err error) {
	b, err := r.engine.board(ctx)
	if err != nil {
		return false, err
	}
	if r.proc != nil && r.proc.PID() != 0 && !r.recorded {
		a, err := b.Attempt(ctx, r.exec.AttemptID)
		if err != nil {
			return r.gone(err)
		}
		if _, err := b.StartExecution(ctx, r.exec.ID, a.Executor, r.proc.PID(), r.proc.StartedAt()); err != nil {
			return r.gone(err)
		}
		r.recorded = true
		r.engine.stats.started.Add(1)
	}
	switch {
	case r.end == nil:
		return false, nil
	case r.end.drop:
		return true, nil
	case r.end.again && !r.stopping:
		_, err := b.Release(ctx, r.exec.ID, r.engine.member.ID())
		return err == nil || errors.Is(err, task.ErrNotFound), ignoreGone(err)
	case r.end.again:
		r.end.again = false // stopped before it ran
	}
	ending := r.end.Ending
	if ending.Task, err = r.taskAfter(ctx, b, ending.State); err != nil {
		return r.gone(err)
	}
	_, ended, err := b.EndExecution(ctx, r.exec.ID, ending)
	if err != nil {
		return r.gone(err)
	}
	if ended {
		r.engine.stats.count(ending.State)
		r.engine.log.Info("attempt ended", "attempt", r.exec.AttemptID, "execution", r.exec.ID, "state", ending.State)
	}
	drop(r.engine.stopMark(r.exec))
	return true, nil
}

// gone handles the board's refusal: what has ended, or was deleted, by somebody
// else needs no record, but its process is to end too.
func (r *run) gone(err error) (over bool, _ error) {
	if !errors.Is(err, task.ErrEnded) && !errors.Is(err, task.ErrNotFound) {
		return false, err
	}
	if r.end != nil {
		return true, nil
	}
	r.recorded = true // there is nothing to record
	r.stopping = true
	r.stop()
	return false, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, task.ErrNotFound) {
		return nil
	}
	return err
}

// taskAfter is what the task becomes: it is to be reviewed once its agent has
// completed, and where it names a workflow, once that is complete. What somebody
// made of it meanwhile stays.
func (r *run) taskAfter(ctx context.Context, b store.Board, state task.AttemptState) (task.Status, error) {
	if state != task.Completed {
		return "", nil
	}
	a, err := b.Attempt(ctx, r.exec.AttemptID)
	if err != nil {
		return "", err
	}
	t, err := b.Task(ctx, a.TaskID)
	if err != nil {
		return "", err
	}
	if t.Status != task.InProgress {
		return "", nil
	}
	if t.WorkflowName != nil && (a.WorkflowStatus == nil || *a.WorkflowStatus != WorkflowCompleted) {
		return "", nil
	}
	return task.InReview, nil
}

// again has record tried again, the later the more often it failed.
func (r *run) again(err error) {
	if r.failures == 0 {
		r.engine.log.Error("the board does not take what became of an attempt; trying again until it does",
			"attempt", r.exec.AttemptID, "execution", r.exec.ID, "error", err)
	}
	pause := min(200*time.Millisecond<<min(r.failures, 5), 5*time.Second)
	r.failures++
	r.engine.beside.do(func() {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
			r.tell(againMessage{r})
		case <-r.ctx.Done():
		}
	})
}

// tell reports to the run's actor. That it is gone is no concern of who reports:
// the board says what is left to do.
func (r *run) tell(m message) {
	if err := r.engine.attempts.For(r.exec.AttemptID).Tell(r.ctx, m); err != nil && r.ctx.Err() == nil {
		r.engine.log.Warn("an attempt's actor cannot be told", "attempt", r.exec.AttemptID, "error", err)
	}
}

// wait reports the end of the process.
func (r *run) wait(proc *runner.Process) {
	for {
		exit, err := proc.Wait(r.ctx)
		if err == nil {
			r.tell(exitMessage{r, outcomeOf(exit)})
			return
		}
		if !r.engine.pause(r.ctx, time.Second) {
			return // the agent goes on without this server
		}
		r.engine.log.Error("cannot tell whether an agent runs; looking again", "attempt", r.exec.AttemptID, "error", err)
		if found, end := r.find(); found == nil && end == nil {
			r.tell(exitMessage{r, recordsGone()})
			return
		}
	}
}

// stop ends the process with its whole group; wait reports that.
func (r *run) stop() {
	proc := r.proc
	r.engine.beside.do(func() {
		for {
			_, err := proc.Stop(r.ctx, r.engine.o.Grace)
			if err == nil || !r.engine.pause(r.ctx, time.Second) {
				return
			}
			r.engine.log.Error("an agent cannot be stopped; trying again", "attempt", r.exec.AttemptID, "error", err)
		}
	})
}

// pause waits; false: ctx ended before.
func (e *Engine) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
