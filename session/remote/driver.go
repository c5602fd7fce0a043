package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/source"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// An outcome is the end of a run, as found by its driver.
type outcome struct {
	state     State
	result    json.RawMessage
	words     string // what went wrong; "" if nothing did
	code      string // of the error, if the state does not determine it; else ""
	blind     bool   // it continues, but nobody can ask for its status
	uncertain bool   // it may have been carried out or may continue, whatever the state
	sourceID  string // the source's id, if the actor does not have it yet
	left      bool   // it continues, and another server follows it

	progress *source.Progress // reported by the source together with the end; nil if none was
}

// error returns the message that is stored as the run's error, or nil. For an uncertain outcome it ends with
// seeFirst, so that later callers get that advice, too.
func (o outcome) error() *string {
	switch said := clip(o.words, maxWords); {
	case o.words == "":
		return nil
	case o.uncertain:
		return new(said + ". " + seeFirst)
	default:
		return &said
	}
}

// execute drives a new run: it waits for a slot, starts the run at the source, and polls its status until the
// end (seed 003, 7.1). If t is nil, the run already has a slot. A timeout of 0 means no limit.
func (e *Engine) execute(
	ctx context.Context, n *entry, w *source.Workflow, input json.RawMessage, t ticket, timeout time.Duration,
) (o outcome, slot bool) {
	if t != nil {
		// At the end of this process, runs that end leave slots to those that wait.
		if err := cmp.Or(wait.Done(ctx, t), n.task.Closing().Err()); err != nil {
			e.slots.leave(t, n.rec)
			if err == ErrCancelled {
				return outcome{
					state: Cancelled,
					words: "it was cancelled by its caller while it waited for a slot; nothing was started",
				}, false
			}
			return outcome{
				state: Failed,
				code:  codes.ShuttingDown,
				words: "the server shut down while it waited for a slot; nothing was started. Call again",
			}, false
		}
	}

	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimedOut)
		defer cancel()
	}

	if t != nil {
		next := *n.rec
		next.State, next.Deadline = store.RemoteStarting, deadline(timeout)
		if err := n.save(&next); err != nil { // nothing was sent yet
			return outcome{
				state: Failed,
				code:  codes.RunNotSaved,
				words: fmt.Sprintf("it was not started, because its record could not be saved: %v", err),
			}, true
		}

		n.log().InfoContext(ctx, "remote run started")
		n.show(nil)
	}

	a, err := e.sources.Execute(ctx, w, input, n.advance)
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
		return outcome{
			state:  Failed,
			result: valid(a.Output),
			words: "its source answered with neither a status nor an execution_id, so its end cannot be waited for. " +
				"If the workflow gives its result at once, have the source list it with executionType: sync",
			uncertain: true,
		}, true
	case a.ExecutionID == "":
		return outcome{blind: true}, true
	}
	n.accept(a.ExecutionID)
	if a.Progress != nil {
		n.advance(*a.Progress)
	}
	return e.follow(ctx, n, false), true
}

// notExecuted is the outcome if Execute returned an error.
func (e *Engine) notExecuted(ctx context.Context, w *source.Workflow, timeout time.Duration, err error) outcome {
	refused, ok := errors.AsType[*source.RefusedError](err)
	switch {
	case ok:
		return outcome{state: Failed, words: words(refused.Text), uncertain: refused.Garbled}
	case ctx.Err() != nil:
		switch context.Cause(ctx) {
		case errTimedOut:
			return outcome{
				state: TimedOut,
				words: fmt.Sprintf("it was not answered within %v; its source was told that the request is "+
					"cancelled", timeout),
				uncertain: true,
			}
		case ErrCancelled:
			return outcome{
				state:     Cancelled,
				words:     "it was cancelled by its caller; its source was told that the request is cancelled",
				uncertain: true,
			}
		}

		return outcome{
			state: Unknown,
			code:  codes.ShuttingDown,
			words: "this server shut down before the source had answered; whether the workflow was executed is not " +
				"known. Look at its source before you call again",
		}
	case errors.Is(err, source.ErrLost):
		return outcome{state: Unknown, words: fmt.Sprintf("whether it was executed is not known: %v", err)}
	case errors.Is(err, source.ErrAway):
		return outcome{state: Failed, code: codes.SourceAway, words: fmt.Sprintf("nothing was started: %v", err)}
	case errors.Is(err, source.ErrUnknown):
		return outcome{
			state: Failed,
			code:  codes.SourceAway,
			words: fmt.Sprintf("source '%s' is no longer configured in workflow_tools.sources", w.Source),
		}
	case errors.Is(err, source.ErrUnsupported):
		return outcome{
			state: Failed,
			words: fmt.Sprintf("source '%s' has no tool that executes workflows (execute_tool in "+
				"workflow_tools.sources)", w.Source),
		}
	}

	return outcome{state: Failed, words: words(err.Error()), uncertain: true}
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
func words(said string) string { return cmp.Or(said, "its source says that it failed, and not why") }

// valid returns a result as JSON; other text becomes a JSON string.
func valid(result json.RawMessage) json.RawMessage {
	if len(result) == 0 || json.Valid(result) {
		return result
	}
	return jsontext.Quote(string(result))
}

// deadline returns when a run that starts now must end; nil means never.
func deadline(timeout time.Duration) *time.Time {
	if timeout <= 0 {
		return nil
	}
	return new(now().Add(timeout))
}

// follow polls the source for the status until the run or ctx has ended (seed 003, 7.1 to 7.5). If the source
// is away or not in the config, it keeps asking for as long as the run may take. taken means that another
// server has followed the run before.
func (e *Engine) follow(ctx context.Context, n *entry, taken bool) outcome {
	interval := e.statusInterval(ctx)
	pause := min(interval, firstPoll)
	failed, refused := 0, 0 // consecutive polls
	asked := false          // the source has reported a status
	for {
		if wait.For(ctx, pause) != nil {
			return e.broken(ctx, n.rec)
		}

		bounded, cancel := context.WithTimeout(ctx, pollTime)
		a, err := e.sources.Status(bounded, n.rec.Source, n.rec.WorkflowID, *n.rec.SourceExecutionID)
		cancel()

		interval = e.statusInterval(ctx)
		if err == nil && a.State == "" && a.Progress == nil {
			err = silent(a)
		}
		if err == nil {
			if o, over := ended(a); over {
				return o
			}

			if was := n.view.Load().Progress; a.Progress != nil {
				n.advance(*a.Progress)
			} else if was != nil && was.Asks != "" { // the question was answered
				n.advance(source.Progress{})
			}

			if n.rec.State != n.stored {
				_ = n.saveFact(n.rec)
			}
			pause = max(interval, a.Pause)
			failed = 0
			refused = 0
			asked = true
			continue
		}
		if ctx.Err() != nil {
			return e.broken(ctx, n.rec)
		}
		failed++

		_, ok := errors.AsType[*source.RefusedError](err)
		switch {
		case errors.Is(err, source.ErrUnsupported) && !asked && (!taken || refused == refusals-1):
			return outcome{blind: true}
		case ok, errors.Is(err, source.ErrUnreadable), errors.Is(err, source.ErrUnsupported):
			// A source that is restarting may not have all its tools at once.
			refused++
			if refused == refusals {
				return outcome{
					state: Unknown,
					words: fmt.Sprintf("its source could not be asked for its state, %d times in a row: %v",
						refused, err),
				}
			}
		default:
			refused = 0
		}

		if failed == 1 {
			n.log().Warn("the status of a remote run cannot be had; trying again", "error", err)
		}
		pause = min(interval<<min(failed-1, 10), max(maxPause, interval))
		switch {
		case refused > 0: // the time for this does not depend on the interval
			pause = max(pause, time.Second<<refused)
		case errors.Is(err, source.ErrUnknown), errors.Is(err, source.ErrAway) && !errors.Is(err, source.ErrLost):
			pause = interval // nothing was sent; it may be back soon, e.g. after switching branches back and forth
		}
	}
}

// silent returns the error of an answer with neither a status nor progress: a run must not
// wait forever for a source that answers something else.
func silent(a *source.Answer) error {
	said := cmp.Or(a.Error, string(a.Output), "nothing")
	return &source.RefusedError{Text: "its answer has no status; it says " + clip(said, maxMessage)}
}

// broken ends a run that must not continue: it cancels it at its source if possible (seed 003, 7.5). If the
// server is closing, the run continues.
func (e *Engine) broken(ctx context.Context, x *store.RemoteRun) outcome {
	var o outcome
	switch context.Cause(ctx) {
	case errTimedOut:
		o = outcome{state: TimedOut, words: fmt.Sprintf("it did not end within %v", x.Timeout)}
	case ErrCancelled:
		o = outcome{state: Cancelled, words: "it was cancelled by its caller"}
	default:
		return outcome{left: true}
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	a, err := e.sources.Cancel(ctx, x.Source, x.WorkflowID, *x.SourceExecutionID)
	_, refused := errors.AsType[*source.RefusedError](err)
	if refused || errors.Is(err, source.ErrUnsupported) ||
		a != nil && (a.State == source.Failed || a.State == source.Completed && a.Output == nil) {
		// The run may have ended before it was cancelled: do not throw its result away.
		if b, err := e.sources.Status(ctx, x.Source, x.WorkflowID, *x.SourceExecutionID); err == nil {
			if ended, over := ended(b); over {
				return ended
			}
		}
	}

	switch {
	case errors.Is(err, source.ErrUnsupported):
		o.words += "; its source has no cancel tool, so it may go on there"
		o.uncertain = true
	case err != nil:
		e.log.Warn("a remote run could not be cancelled at its source", "source", x.Source, "source_execution_id",
			*x.SourceExecutionID, "error", err)
		o.words += "; it could not be cancelled at its source and may go on there: " + err.Error()
		o.uncertain = true
	case a == nil:
		o.words += " and was cancelled at its source"
	case a.State == source.Completed && a.Output != nil:
		return outcome{state: Completed, result: valid(a.Output), progress: a.Progress}
	case a.State == source.Completed: // the cancelling completed: the source, asked, has not said that the run ended
		o.words += "; its source was asked to cancel it and answered that this is done, but not that the run has " +
			"ended: it may go on there"
		o.uncertain = true
	case a.State == source.Failed: // either the run or the cancelling failed
		o.words += "; its source was asked to cancel it, and answered that it failed: " + words(a.Error)
		o.uncertain = true
	case a.State == source.Running:
		o.words += "; its source was asked to cancel it, and said that it still runs there"
		o.uncertain = true
	default:
		o.words += " and was cancelled at its source"
	}
	return o
}

// statusInterval returns the configured pause between polls.
func (e *Engine) statusInterval(ctx context.Context) time.Duration {
	if cfg := e.config(ctx); cfg != nil && cfg.StatusInterval > 0 {
		return cfg.StatusInterval
	}
	return 2 * time.Second
}
