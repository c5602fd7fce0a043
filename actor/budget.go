package actor

import (
	"slices"
	"time"
)

// A budget records when an actor crashed. The zero value means that it never did.
type budget struct {
	crashes []time.Time // within the window, oldest first
	verdict error       // not nil: the budget is used up
}

// spend counts a crash and reports whether a restart is allowed.
func (b *budget) spend(now time.Time, restarts int, within time.Duration) bool {
	b.crashes = append(slices.DeleteFunc(b.crashes, func(t time.Time) bool { return now.Sub(t) >= within }), now)
	return len(b.crashes) <= max(restarts, 0)
}

// over reports whether all crashes have left the window: the actor starts afresh.
func (b *budget) over(now time.Time, within time.Duration) bool {
	return now.Sub(b.crashes[len(b.crashes)-1]) >= within
}
