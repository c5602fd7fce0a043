package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/source"
	"deepwork/session/store"
)

// follow polls the source for the status until the run or ctx has ended (seed 003, 7.1 to
// 7.5). It continues to ask a source that is away, for as long as the run may take.
func (e *Engine) follow(ctx context.Context, n *entry) outcome {
	interval := e.statusInterval(ctx)
	pause := min(interval, firstPoll)
	failed, refused := 0, 0 // consecutive polls
	asked := false          // it has reported a status once
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
			if a.Progress != nil {
				n.advance(*a.Progress)
			}
			pause, failed, refused, asked = interval, 0, 0, true
			continue
		}
		if ctx.Err() != nil {
			return e.broken(ctx, n.rec)
		}
		failed++
		_, is := errors.AsType[*source.RefusedError](err)
		switch {
		case errors.Is(err, source.ErrUnsupported) && !asked:
			return outcome{blind: true}
		case is, errors.Is(err, source.ErrUnknown), errors.Is(err, source.ErrUnsupported):
			// A source that is starting again may not have all its tools at once.
			if refused++; refused == refusals {
				return outcome{state: Unknown, words: fmt.Sprintf("its source could not be asked for its state, %d times in a row: %v", refused, err)}
			}
		default:
			refused = 0
		}
		if failed == 1 {
			n.log().Warn("the status of a remote run cannot be had; trying again", "error", err)
		}
		pause = min(interval<<min(failed-1, 10), max(maxPause, interval))
		if errors.Is(err, source.ErrAway) && !errors.Is(err, source.ErrLost) {
			pause = interval // nothing was sent, and it may be back soon
		}
	}
}

// silent returns the error of an answer with neither a status nor progress: a run must not
// wait forever for a source that answers something else.
func silent(a *source.Answer) error {
	said := cmp.Or(a.Error, string(a.Output), "nothing")
	return &source.RefusedError{Text: "its answer has no status; it says " + clip(said, maxMessage)}
}

// broken ends a run that must not continue: it cancels it at its source, if that is possible
// (seed 003, 7.5). If the server is closing, the run continues.
func (e *Engine) broken(ctx context.Context, x *store.Execution) outcome {
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
	switch {
	case errors.Is(err, source.ErrUnsupported):
		o.words += "; its source has no cancel tool, so it may go on there"
		o.unsure = true
	case err != nil:
		e.log.Warn("a remote run could not be cancelled at its source", "source", x.Source, "source_execution_id", *x.SourceExecutionID, "error", err)
		o.words += "; it could not be cancelled at its source and may go on there: " + err.Error()
		o.unsure = true
	case a == nil:
		o.words += " and was cancelled at its source"
	case a.State == source.Completed:
		// It completed before it was cancelled: its result is not thrown away.
		if a.Output == nil {
			if b, err := e.sources.Status(ctx, x.Source, x.WorkflowID, *x.SourceExecutionID); err == nil && b.State == source.Completed {
				a = b
			}
		}
		return outcome{state: Completed, result: valid(a.Output), progress: a.Progress}
	case a.State == source.Failed: // it failed, or the cancellation did
		o.words += "; its source was asked to cancel it, and answered that it failed: " + words(a.Error)
		o.unsure = true
	case a.State == source.Running:
		o.words += "; its source was asked to cancel it, and said that it still runs there"
		o.unsure = true
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
