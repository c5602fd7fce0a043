package attempt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"deepwork/actor/telemetry"
	"deepwork/catalog/task"
	"deepwork/session/board"
	"deepwork/session/spans"
	"deepwork/session/store"
)

// Spans of attempts come only from the board: the process that records the end of an execution exports its
// span, always with the same id.

// RefOf returns the span to which the sessions and agents of an attempt belong: that of its run or, without
// one, the caller's.
func RefOf(a *task.Attempt) telemetry.Ref {
	of := telemetry.Parse(a.Trace)
	if a.Run == nil {
		return of
	}
	return telemetry.Derive(of, spans.Run, a.ID)
}

// AgentRef returns the span of an execution.
func AgentRef(a *task.Attempt, executionID string) telemetry.Ref {
	return telemetry.Derive(telemetry.Parse(a.Trace), spans.Agent, executionID)
}

// export exports the spans of an attempt's ended executions that which selects. They are lost if the board
// cannot be read. It returns what RefOf does.
func (e *Engine) export(
	ctx context.Context, b store.Board, attemptID string, which func(executionID string, end, newest time.Time) bool,
) (of telemetry.Ref) {
	if !telemetry.On() {
		return of
	}

	a, err := b.Attempt(ctx, attemptID)
	if err != nil || a.Trace == "" {
		return of
	}
	all, newest := endedSpans(ctx, b, a)
	for _, span := range all {
		if which(span.id, span.End, newest) {
			telemetry.Export(span.Span)
		}
	}

	return RefOf(a)
}

// exportEnd exports the span of an execution that has just ended, and those of earlier ones whose cost that
// has changed: their agents had ended before they reported the totals of their conversation. It returns what
// export does.
func (e *Engine) exportEnd(ctx context.Context, b store.Board, x *task.Execution) (of telemetry.Ref) {
	if !telemetry.On() {
		return of
	}

	ended := map[string]bool{x.ID: true}
	used, _ := b.Used(ctx, x.AttemptID) // on an error the others keep their cost in the trace
	own := slices.IndexFunc(used, func(u task.Use) bool {
		return u.ExecutionID == x.ID && u.Totals != nil && u.Thread != ""
	})
	for _, u := range used {
		if own >= 0 && !x.Lead && u.Thread == used[own].Thread && u.Totals == nil {
			ended[u.ExecutionID] = true
		}
	}

	return e.export(ctx, b, x.AttemptID, func(id string, _, _ time.Time) bool { return ended[id] })
}

// exportAgain exports again the spans that ended in the last minute before an earlier leader was killed, as
// far as the board knows when that was.
func (e *Engine) exportAgain(ctx context.Context, b store.Board, attemptID string) {
	e.export(ctx, b, attemptID, func(_ string, end, newest time.Time) bool {
		return end.After(newest.Add(-time.Minute))
	})
}

// exportEnded does so for the attempts that ended in the last minute and that nobody leads any more.
func (e *Engine) exportEnded(ctx context.Context, b store.Board) {
	if !telemetry.On() {
		return
	}

	all, _ := b.AllAttempts(ctx) // what cannot be read is lost
	for _, a := range all {
		if !a.State.Open() && time.Since(a.UpdatedAt) < time.Minute {
			e.exportAgain(ctx, b, a.ID)
		}
	}
}

// An endedSpan is the span of an execution.
type endedSpan struct {
	id string // of the execution
	telemetry.Span
}

// endedSpans returns the spans of what has ended of an attempt, and when it was last known to be at work.
func endedSpans(ctx context.Context, b store.Board, a *task.Attempt) (all []endedSpan, newest time.Time) {
	own, err := b.Executions(ctx, a.ID)
	steps, stepsErr := b.Steps(ctx, a.ID)
	used, usedErr := b.Used(ctx, a.ID)
	if errors.Join(err, stepsErr, usedErr) != nil { // the spans are lost
		return nil, newest
	}

	uses := map[string]*task.Use{}
	for i := range used {
		uses[used[i].ExecutionID] = &used[i]
	}

	last := map[[2]string]*task.Execution{} // of each step, the next execution
	for _, x := range append(own, steps...) {
		for _, at := range []*time.Time{&x.CreatedAt, x.StartedAt, x.EndedAt} {
			if at != nil && at.After(newest) {
				newest = *at
			}
		}

		next := last[[2]string{x.WorkflowSessionID, x.StepID}]
		if x.LimitedUntil != nil && x.EndedAt != nil && next != nil && next.StartedAt != nil {
			all = append(all, endedSpan{next.ID, telemetry.Span{
				Name:       spans.Limit,
				Ref:        telemetry.Derive(RefOf(a), spans.Limit, x.ID),
				Parent:     RefOf(a),
				Start:      *x.EndedAt,
				End:        *next.StartedAt,
				Attributes: spanAttributes(a, &x),
			}})
		}
		last[[2]string{x.WorkflowSessionID, x.StepID}] = &x
		if x.StartedAt != nil && x.EndedAt != nil {
			all = append(all, endedSpan{x.ID, executionSpan(a, &x, uses[x.ID])})
		}
		delete(uses, x.ID)
	}
	for id, u := range uses { // of executors that reviewed
		if u.EndedAt.After(newest) {
			newest = u.EndedAt
		}
		all = append(all, endedSpan{id, telemetry.Span{
			Name:   spans.Agent + " " + u.Executor,
			Ref:    AgentRef(a, id),
			Parent: RefOf(a),
			Start:  u.EndedAt,
			End:    u.EndedAt,
			Attributes: append(usage(u),
				spans.Operation.String(spans.Agent), spans.AgentName.String(u.Executor), spans.RunID.String(a.ID),
				spans.ExecutionID.String(id)),
		}})
	}
	return all, newest
}

// spanAttributes returns the attributes of everything about an execution.
func spanAttributes(a *task.Attempt, x *task.Execution) []attribute.KeyValue {
	if x.StepID == "" {
		return []attribute.KeyValue{spans.RunID.String(a.ID)}
	}
	return []attribute.KeyValue{spans.RunID.String(a.ID), spans.SessionID.String(x.WorkflowSessionID),
		spans.StepID.String(x.StepID)}
}

// executionSpan returns the span of an execution that has ended. u may be nil.
func executionSpan(a *task.Attempt, x *task.Execution, u *task.Use) telemetry.Span {
	s := telemetry.Span{
		Parent:     RefOf(a),
		Start:      *x.StartedAt,
		End:        *x.EndedAt,
		Attributes: append(spanAttributes(a, x), spans.ExecutionID.String(x.ID), spans.Outcome.String(string(x.State))),
	}

	switch {
	case !x.Lead:
		name := x.Executor
		if x.Variant != nil {
			name += ":" + *x.Variant
		}
		s.Name, s.Ref = spans.Agent+" "+name, AgentRef(a, x.ID)
		s.Attributes = append(append(s.Attributes, usage(u)...), spans.Operation.String(spans.Agent),
			spans.AgentName.String(name))
	case x.FollowUp: // a run that was resumed
		s.Name, s.Ref = spans.Run, telemetry.Derive(RefOf(a), spans.Run, x.ID)
	default:
		s.Name = spans.Run
		s.Ref = RefOf(a)
		s.Parent = telemetry.Parse(a.Trace)
	}
	if x.State == task.Failed || x.State == task.Interrupted {
		s.Error = string(x.State)
	}
	return s
}

// usage returns what an agent used, as far as known. u may be nil.
func usage(u *task.Use) (all []attribute.KeyValue) {
	u = cmp.Or(u, &task.Use{})
	if u.InputTokens+u.CachedTokens+u.OutputTokens > 0 {
		all = append(all, spans.Input.Int64(u.InputTokens+u.CachedTokens), spans.Cached.Int64(u.CachedTokens),
			spans.Output.Int64(u.OutputTokens))
	}
	if u.MicroUSD != nil {
		all = append(all, spans.Cost.Float64(board.USD(*u.MicroUSD)))
	}
	return all
}
