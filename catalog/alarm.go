package catalog

import (
	"context"
	"time"
)

// An alarm wakes the catalog when something is due: a job that vanished and is
// to go, content that was too young to be believed.
type alarm struct {
	changed chan struct{} // capacity 1, never closed: the time is another
}

func newAlarm() *alarm { return &alarm{changed: make(chan struct{}, 1)} }

// set says that due gives another time now. It never blocks.
func (a *alarm) set() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// backoff is how long the alarm is silent when ringing changed nothing.
const backoff = 100 * time.Millisecond

// run calls ring each time that due gives has come, until ctx ends.
func (a *alarm) run(ctx context.Context, due func() time.Time, ring func(context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		rang := false
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		case <-timer.C:
			if t := due(); !t.IsZero() && !time.Now().Before(t) {
				ring(ctx)
				rang = true
			}
		}
		switch t := due(); {
		case t.IsZero():
			timer.Stop()
		case rang && !time.Now().Before(t):
			timer.Reset(backoff)
		default:
			timer.Reset(max(time.Until(t), 0))
		}
	}
}
