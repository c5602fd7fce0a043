package attempt

import (
	"context"
	"fmt"
	"time"

	"deepwork/session"
)

// TailAttempt returns lines of what an attempt's agents wrote, and can wait for
// new ones.
func (e *Engine) TailAttempt(ctx context.Context, identity string, a TailArgs) (*TailReply, error) {
	b, id, err := e.openAttempt(ctx, a.Target)
	if err != nil {
		return nil, err
	}
	limit, err := within("limit", a.Limit, DefaultTail, 1, MaxTail)
	if err != nil {
		return nil, err
	}
	if a.AfterIndex != nil && *a.AfterIndex < -1 {
		return nil, session.Wrong("out_of_range", "after_index is %d, and is to be the next_index of a reply, or -1 to begin at the first entry.", *a.AfterIndex).With("argument", "after_index").With("value", *a.AfterIndex)
	}
	var wait time.Duration
	if a.Wait != nil {
		if !(*a.Wait >= 0 && *a.Wait <= MaxWait) { // NaN too
			return nil, session.Wrong("out_of_range", "wait is %v seconds, and is to be from 0 to %d.", *a.Wait, MaxWait).With("argument", "wait").With("value", fmt.Sprint(*a.Wait))
		}
		wait = time.Duration(*a.Wait * float64(time.Second))
	}
	after := a.AfterIndex
	for until := time.Now().Add(wait); ; {
		at, err := b.Attempt(ctx, id) // before the log: what has ended has written all
		if err != nil {
			return nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
		}
		left := time.Until(until)
		if !at.State.Open() {
			left = 0
		}
		entries, next, err := e.executor.Tail(ctx, id, after, limit, max(0, min(left, 500*time.Millisecond)))
		if err != nil {
			return nil, fmt.Errorf("reading the attempt's log: %w", err)
		}
		if len(entries) > 0 || left <= 0 {
			return &TailReply{AttemptID: id, Entries: list(entries), NextIndex: next, State: string(at.State)}, nil
		}
		after = &next // only what is new counts now
	}
}
