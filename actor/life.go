package actor

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// run is the cell's goroutine: it runs one incarnation after another until the cell is idle.
func (c *cell[M]) run() {
	for {
		b, ok := c.begin()
		if !ok {
			return
		}
		if crash := c.live(b); crash != nil {
			if !c.survive(crash) {
				return
			}
			continue
		}
		c.end(b)
		if c.rest() {
			return
		}
	}
}

// guard calls f and returns its error, or a *PanicError if it panicked, which is logged.
func (c *cell[M]) guard(f func() error) (panicked bool, err error) {
	defer func() {
		if value := recover(); value != nil {
			p := &PanicError{Actor: c.title(), Value: value, Stack: debug.Stack()}
			c.options.Logger.Error("actor panicked", slog.String("actor", p.Actor),
				slog.Any("panic", value), slog.String("trace", string(p.Stack)))
			panicked, err = true, p
		}
	}()
	return false, f()
}

// begin creates an incarnation and starts it. If that fails, all waiting messages fail with the
// error, ok is false, and the goroutine must end.
func (c *cell[M]) begin() (b Behavior[M], ok bool) {
	panicked, err := c.guard(func() (err error) {
		if b, err = c.birth(); err != nil {
			return err
		}
		if s, is := b.(Starter); is {
			err = s.Start(c.ctx)
		}
		return err
	})
	if panicked {
		if verdict := c.spend(err); verdict != nil {
			err = verdict
		}
	}
	if err != nil {
		c.abandon(err)
	}
	return b, err == nil
}

// live passes messages to the incarnation until it crashes or must end in order; then it returns
// nil.
func (c *cell[M]) live(b Behavior[M]) error {
	rests := false
	for {
		e, ok := c.next(rests)
		if !ok {
			return nil
		}
		panicked, err := c.guard(func() error { return b.Receive(c.ctx, e.message) })
		if rests = err == ErrRest; err != nil && !rests {
			if !panicked {
				c.options.Logger.Error("actor failed", slog.String("actor", c.title()), slog.Any("error", err))
				err = fmt.Errorf("actor %s failed and lost its state in memory: %w", c.title(), err)
			}
			if e.ask != nil {
				e.ask.fail(err)
			}
			return err
		}
		if e.ask != nil && !e.ask.answered() {
			c.keep(e.ask)
		}
	}
}

// next removes the oldest message, waiting for one. It returns false if the incarnation must end in
// order and the mailbox is empty; rests means that it must when no ask is open.
func (c *cell[M]) next(rests bool) (e envelope[M], ok bool) {
	c.mu.Lock()
	for {
		if e, ok = c.box.take(); ok {
			c.idle = time.Time{}
			break
		}
		if c.closing {
			break
		}
		if len(c.open) == 0 && (rests || c.options.Idle > 0 && c.rested()) {
			break
		}
		c.parked = true
		c.mu.Unlock()
		<-c.wake // woken by a message, an answer, the timer or close
		c.mu.Lock()
	}
	c.mu.Unlock()
	return e, ok
}

// rested reports whether the actor has been idle long enough, and otherwise makes sure that this is
// checked again in time. The caller holds the lock.
func (c *cell[M]) rested() bool {
	now := time.Now()
	if c.idle.IsZero() {
		c.idle = now
	}
	left := c.options.Idle - now.Sub(c.idle)
	switch {
	case left <= 0:
		return true
	case c.armed: // it fires no later than this and checks again
	case c.timer == nil:
		c.timer = time.AfterFunc(left, c.tick)
	default:
		c.timer.Reset(left)
	}
	c.armed = true
	return false
}

// tick is called by the timer.
func (c *cell[M]) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	c.nudge()
}

// end ends an incarnation in order, even if its Stop panics.
func (c *cell[M]) end(b Behavior[M]) {
	if s, ok := b.(Stopper); ok {
		c.guard(func() error { s.Stop(c.ctx); return nil })
	}
	c.failOpen(stoppedError)
}

// rest ends the goroutine's work if no message has arrived since the incarnation began to end;
// otherwise the next one must start. It checks under the lock that senders take, so no message is
// lost.
func (c *cell[M]) rest() bool {
	c.mu.Lock()
	if len(c.box.queue) > 0 {
		c.mu.Unlock()
		return false
	}
	c.leave()
	return true
}

// survive reports whether another incarnation must start after a crash. It returns false if the
// actor was stopping or has used up its budget.
func (c *cell[M]) survive(crash error) bool {
	c.failOpen(func(string) error { return crash })
	if verdict := c.spend(crash); verdict != nil {
		c.abandon(verdict)
		return false
	}
	c.mu.Lock()
	if c.closing && len(c.box.queue) == 0 {
		c.leave()
		return false
	}
	c.mu.Unlock()
	c.options.Logger.Info("actor restarts", slog.String("actor", c.title()))
	return true
}

// spend counts a crash. If that was one too many it returns the reason to stop the actor.
func (c *cell[M]) spend(crash error) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.budget.spend(now, c.options.Restarts, c.options.Within) {
		return nil
	}
	verdict := fmt.Errorf("actor %s: %w: more than %d within %v; the last crash: %w", c.title(), ErrTooManyRestarts,
		max(c.options.Restarts, 0), c.options.Within, crash)
	c.budget.verdict, c.cause = verdict, verdict
	return verdict
}

// abandon fails all waiting messages; the goroutine must end.
func (c *cell[M]) abandon(err error) {
	c.mu.Lock()
	queued := c.box.queue
	c.box.queue = nil
	told := c.box.refuse(err)
	stopped, dies := c.cause != nil, c.quit()
	c.mu.Unlock()

	lost := 0
	for _, e := range queued {
		if e.ask == nil {
			lost++
			continue
		}
		e.ask.fail(err)
		told++
	}
	switch logger, name := c.options.Logger, slog.String("actor", c.title()); {
	case stopped:
		logger.Error("actor stopped: too many restarts", name, slog.Int("messages_lost", lost), slog.Any("error", err))
	case lost > 0 || told == 0: // otherwise every asker has the error
		logger.Warn("actor did not start", name, slog.Int("messages_lost", lost), slog.Any("error", err))
	}
	if dies {
		close(c.ended)
	}
}
