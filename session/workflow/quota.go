package workflow

import (
	"context"
	"sync"
	"time"

	"deepwork/session"
)

// reviewRetrySeconds is when a caller with too many reviews is told to call again.
const reviewRetrySeconds = 30

// takeReview takes a place among the reviews of the caller of a call, until release is called. If the
// caller has as many as it may, nothing has changed yet. The user has no limit, and neither has a
// review that replaces the one of the same step.
func (e *Engine) takeReview(ctx context.Context, stepID string, limit int, replaces bool) (release func(), err error) {
	who := session.CallerOf(ctx)
	if who.Owner || limit == 0 {
		return func() {}, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.reviewsOf[who.Identity]; n >= limit && !replaces {
		return nil, session.NotNow("too_many_reviews", "The review of step '%s' is not begun: %d reviews of %s run or wait already, as many as one caller may have (http.quotas.reviews). Nothing has changed, and no attempt is spent. Make the same call again in %d seconds, or when another of your reviews has ended.",
			stepID, n, who.Identity, reviewRetrySeconds).With("retry_after_seconds", reviewRetrySeconds).Wait(reviewRetrySeconds * time.Second)
	}
	e.reviewsOf[who.Identity]++
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.reviewsOf[who.Identity]--; e.reviewsOf[who.Identity] == 0 {
			delete(e.reviewsOf, who.Identity)
		}
	}), nil
}
