package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"deepwork/actor"
	"deepwork/catalog/source"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// An outcome is the end of a run, as found by its driver.
type outcome struct {
	state    State
	result   json.RawMessage
	words    string // what went wrong; "" if nothing did
	code     string // of the error, if the state does not determine it; else ""
	blind    bool   // it continues, but its status cannot be queried
	unsure   bool   // it may have been carried out or may continue, whatever the state
	sourceID string // the source's id, if the actor does not have it yet
	left     bool   // it continues, and another server follows it

	progress *source.Progress // as reported by the source with the end; nil if it was not
}

// drive starts the actor and the driver of a run. The driver runs work on its own goroutine,
// with a slot or with a ticket to wait for one. It reports false if the engine is closed.
func (e *Engine) drive(n *entry, x *store.Execution, work func(context.Context, *entry) (o outcome, slot bool)) bool {
	ctx, cancel := context.WithCancelCause(e.ctx)
	n.cancel = cancel
	first := x
	n.ref = actor.Spawn(e.system, actor.Options{Name: "remote run " + n.id, Logger: e.log}, func() (actor.Behavior[message], error) {
		a := &runActor{engine: e, entry: n, rec: x}
		x = nil // after a crash, an incarnation trusts only the store
		return a, nil
	})
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
		defer cancel()
		return n.ref.Stop(ctx)
	}
	if !e.entries.add(n) {
		cancel(errClosing)
		_ = stop() // it has nothing to do
		return false
	}
	e.drivers.Go(func() {
		defer close(n.done)
		defer cancel(nil)
		o, slot := e.guarded(ctx, n, work)
		if slot {
			e.slots.leave(nil, first) // before the callers know, so that their next call finds it free
		}
		if !o.left {
			if err := e.ask(n, func(r actor.Reply[struct{}]) message { return endMessage{o, r} }); err != nil && !errors.Is(err, actor.ErrStopped) {
				e.log.Error("a remote run has ended, and its actor could not be told", "execution_id", n.id, "state", o.state, "error", err)
			}
		}
		if o.left && context.Cause(ctx) != errLost {
			return // Close notifies the waiting callers
		}
		if err := stop(); err != nil {
			e.log.Error("the actor of a remote run does not stop", "execution_id", n.id, "error", err)
		}
	})
	return true
}

// guarded prevents a panic, such as over a source's answer, from ending the process.
func (e *Engine) guarded(ctx context.Context, n *entry, work func(context.Context, *entry) (outcome, bool)) (o outcome, slot bool) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("the driver of a remote run panicked", "execution_id", n.id, "panic", p, "trace", string(debug.Stack()))
			// Whether it had a slot is not known here: only a waiting one has none.
			o, slot = outcome{state: Unknown, words: fmt.Sprintf("this server failed while it followed the execution: %v; whether the workflow continues at its source is not known", p)}, true
		}
	}()
	return work(ctx, n)
}

// ask sends a message to a run's actor and waits until it is handled, even while the engine
// closes. A message that crashed an incarnation is sent again to the next; the number of crashes is
// bounded.
func (e *Engine) ask(n *entry, build func(actor.Reply[struct{}]) message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), writeTime)
	defer cancel()
	for {
		_, err := actor.Ask(ctx, n.ref, build)
		if _, crashed := errors.AsType[*actor.PanicError](err); !crashed || ctx.Err() != nil {
			return err
		}
	}
}

// execute drives a new run: it waits for a slot, starts it at the source and polls its status
// until the end (seed 003, 7.1). If t is nil it already has a slot; a timeout of 0 means none.
func (e *Engine) execute(ctx context.Context, n *entry, w *source.Workflow, input json.RawMessage, t ticket, timeout time.Duration) (o outcome, slot bool) {
	if t != nil {
		if err := e.slots.wait(ctx, t); err != nil {
			return notStarted(err), false
		}
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimedOut)
		defer cancel()
	}
	if t != nil {
		deadline := e.deadline(timeout)
		err := e.ask(n, func(r actor.Reply[struct{}]) message { return startMessage{deadline, r} })
		if err != nil {
			return outcome{state: Failed, code: codes.RunNotSaved, words: fmt.Sprintf("it was not started, because its record could not be saved: %v", err)}, true
		}
	}
	a, err := e.sources.Execute(ctx, w, input, func(p source.Progress) { e.progress(ctx, n, p) })
	if err != nil {
		return e.notExecuted(ctx, w, timeout, err), true
	}
	if o, over := ended(a); over {
		o.sourceID = a.ExecutionID
		return o, true
	}
	switch {
	case !w.Async && a.State == "":
		return outcome{state: Completed, result: valid(a.Output), sourceID: a.ExecutionID}, true
	case a.ExecutionID == "" && a.State == "":
		return outcome{state: Failed, result: valid(a.Output), words: "its source answered with neither a status nor an execution_id, so its end cannot be waited for. If the workflow gives its result at once, have the source list it with executionType: sync", unsure: true}, true
	case a.ExecutionID == "":
		return outcome{blind: true}, true
	}
	if err := e.ask(n, func(r actor.Reply[struct{}]) message { return acceptMessage{a.ExecutionID, r} }); err != nil {
		e.log.Error("the actor of a remote run could not be told its source's id", "execution_id", n.id, "error", err)
	}
	if a.Progress != nil {
		e.progress(ctx, n, *a.Progress)
	}
	return e.follow(ctx, n, target{w.Source, w.ID, a.ExecutionID, timeout}), true
}

// progress sends the run's progress to the actor.
func (e *Engine) progress(ctx context.Context, n *entry, p source.Progress) {
	p.Message = clip(p.Message, maxMessage)
	// On an error the run or the server is ending, and progress is useless.
	_ = n.ref.Tell(ctx, progressMessage{p})
}

// notStarted is the outcome of a run that never got a slot.
func notStarted(cause error) outcome {
	if cause == ErrCancelled {
		return outcome{state: Cancelled, words: "it was cancelled by its caller while it waited for a slot; nothing was started"}
	}
	return outcome{state: Failed, code: codes.ShuttingDown, words: "the server shut down while it waited for a slot; nothing was started. Call again"}
}

// notExecuted is the outcome if Execute returned an error.
func (e *Engine) notExecuted(ctx context.Context, w *source.Workflow, timeout time.Duration, err error) outcome {
	refused, ok := errors.AsType[*source.RefusedError](err)
	switch {
	case ok:
		return outcome{state: Failed, words: words(refused.Text), unsure: refused.Garbled}
	case ctx.Err() != nil:
		switch context.Cause(ctx) {
		case errTimedOut:
			return outcome{state: TimedOut, words: fmt.Sprintf("it was not answered within %v; its source was told that the request is cancelled", timeout), unsure: true}
		case ErrCancelled:
			return outcome{state: Cancelled, words: "it was cancelled by its caller; its source was told that the request is cancelled", unsure: true}
		}
		return outcome{state: Unknown, code: codes.ShuttingDown, words: "this server shut down before the source had answered; whether the workflow was executed is not known. Look at its source before you call again"}
	case errors.Is(err, source.ErrLost):
		return outcome{state: Unknown, words: fmt.Sprintf("whether it was executed is not known: %v", err)}
	case errors.Is(err, source.ErrAway):
		return outcome{state: Failed, code: codes.SourceAway, words: fmt.Sprintf("nothing was started: %v", err)}
	case errors.Is(err, source.ErrUnknown):
		return outcome{state: Failed, code: codes.SourceAway, words: fmt.Sprintf("source '%s' is no longer configured in workflow_tools.sources", w.Source)}
	case errors.Is(err, source.ErrUnsupported):
		return outcome{state: Failed, words: fmt.Sprintf("source '%s' has no tool that executes workflows (execute_tool in workflow_tools.sources)", w.Source)}
	}
	return outcome{state: Failed, words: words(err.Error()), unsure: true}
}

// ended returns the outcome in an answer; it reports false if there is none.
func ended(a *source.Answer) (outcome, bool) {
	o := outcome{result: valid(a.Output), progress: a.Progress}
	switch a.State {
	case source.Completed:
		o.state = Completed
	case source.Failed:
		o.state, o.words = Failed, words(a.Error)
	case source.Cancelled:
		o.state, o.words = Cancelled, "it was cancelled at its source"
		if a.Error != "" {
			o.words += ": " + a.Error
		}
	default:
		return outcome{}, false
	}
	return o, true
}

// words returns the source's description of what went wrong, if any.
func words(said string) string {
	if said == "" {
		return "its source says that it failed, and not why"
	}
	return said
}

// valid returns a result as JSON; other text becomes a JSON string.
func valid(result json.RawMessage) json.RawMessage {
	if len(result) == 0 || json.Valid(result) {
		return result
	}
	text, err := json.Marshal(string(result))
	if err != nil {
		return nil
	}
	return text
}

// deadline returns when a run that starts now must end; nil means never.
func (e *Engine) deadline(timeout time.Duration) *time.Time {
	if timeout <= 0 {
		return nil
	}
	return new(e.time().Add(timeout))
}
