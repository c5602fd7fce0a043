package actor

import (
	"log/slog"
	"runtime/debug"
	"time"
)

// run is the cell's goroutine: incarnation after incarnation while there is
// something to do. crash, where it is not nil, is what ended the one before.
func (c *cell[M]) run(crash error) {
	var lost error
	defer func() {
		// A Behavior that calls runtime.Goexit (as testing.T.FailNow does) takes
		// the goroutine with it; another one goes on from the crash.
		if lost != nil {
			go c.run(lost)
		}
	}()
	for crash == nil || c.survive(crash) {
		b, ok := c.bear()
		if !ok {
			return
		}
		if crash = c.live(b, &lost); crash != nil {
			continue
		}
		c.bury(b, &lost)
		if c.rest() {
			return
		}
	}
}

// bear makes an incarnation and starts it. Where that fails, whoever waits has
// been told, the cell is left, and ok is false.
func (c *cell[M]) bear() (b Behavior[M], ok bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		b, ok = nil, false
		err := c.caught(recover())
		if verdict := c.spend(err); verdict != nil {
			err = verdict
		}
		c.abandon(err)
	}()
	b, err := c.birth()
	if s, is := b.(Starter); is && err == nil {
		err = s.Start(c.ctx)
	}
	returned = true
	if err != nil {
		c.abandon(err)
		return nil, false
	}
	return b, true
}

// live gives the incarnation its messages, until it has to end in order (nil) or
// crashes. lost is set while a crash may be taking the goroutine with it.
func (c *cell[M]) live(b Behavior[M], lost *error) error {
	for {
		e, ok := c.next()
		if !ok {
			return nil
		}
		if err := c.receive(b, e, lost); err != nil {
			*lost = nil
			return err
		}
		if e.ask != nil && !e.ask.answered() {
			c.keep(e.ask)
		}
	}
}

// receive handles one message. The asker of one that crashes is told here,
// because after runtime.Goexit nothing but deferred calls runs.
func (c *cell[M]) receive(b Behavior[M], e envelope[M], lost *error) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = c.caught(recover())
			*lost = err
		}
		if err != nil && e.ask != nil {
			e.ask.fail(err)
		}
	}()
	err = b.Receive(c.ctx, e.message)
	returned = true
	if err != nil {
		c.options.Logger.Error("actor failed", slog.String("actor", c.title()), slog.Any("error", err))
		err = crashError(c.title(), err)
	}
	return err
}

// next takes the oldest message, waiting for one; false: the incarnation has to
// end in order, and the mailbox was empty.
func (c *cell[M]) next() (e envelope[M], ok bool) {
	c.mu.Lock()
	for {
		if e, ok = c.box.take(); ok {
			c.idle = time.Time{}
			break
		}
		if c.closing {
			break
		}
		if len(c.begged) > 0 {
			if len(c.open) == 0 {
				break
			}
			c.answerPassivation(busyError(c.title(), len(c.open)))
		}
		if c.options.Idle > 0 && len(c.open) == 0 && c.rested() {
			break
		}
		c.parked = true
		c.mu.Unlock()
		<-c.wake // ends with a message, an answer, the timer, close or beg
		c.mu.Lock()
	}
	c.mu.Unlock()
	return e, ok
}

// rested reports whether the actor has been idle long enough, and makes sure that
// it is looked at again when it may have been. The lock is held.
func (c *cell[M]) rested() bool {
	now := time.Now()
	if c.idle.IsZero() {
		c.idle = now
	}
	left := c.options.Idle - now.Sub(c.idle)
	switch {
	case left <= 0:
		return true
	case c.armed: // it fires no later than this, and looks again
	case c.timer == nil:
		c.timer = time.AfterFunc(left, c.tick)
	default:
		c.timer.Reset(left)
	}
	c.armed = true
	return false
}

// tick is the timer's.
func (c *cell[M]) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	c.nudge()
}

// bury ends an incarnation in order. A panic of its Stop is logged and ends it
// all the same.
func (c *cell[M]) bury(b Behavior[M], lost *error) {
	if s, ok := b.(Stopper); ok {
		if err := c.stop(s, lost); err != nil {
			*lost = nil
		}
	}
	c.failOpen(stoppedError)
}

func (c *cell[M]) stop(s Stopper, lost *error) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = c.caught(recover())
			*lost = err
		}
	}()
	s.Stop(c.ctx)
	returned = true
	return nil
}

// rest ends the goroutine's work if nothing has come in since the incarnation
// began to end; else the next one is due. That nothing has come in is decided
// under the lock that senders take, so no message is lost in between.
func (c *cell[M]) rest() bool {
	c.mu.Lock()
	if len(c.box.queue) > 0 {
		c.answerPassivation(nil)
		c.mu.Unlock()
		return false
	}
	c.leave()
	return true
}

// survive answers a crash: true, and the next incarnation is due; false, and the
// cell is left, because it was stopping or its budget is used up.
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

// spend counts a crash; it returns what the actor is stopped with where that was
// one too many.
func (c *cell[M]) spend(crash error) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.budget.spend(now, c.options.Restarts, c.options.Within) {
		return nil
	}
	verdict := restartsError(c.title(), c.options.Restarts, c.options.Within, crash)
	c.budget.verdict, c.cause = verdict, verdict
	return verdict
}

// abandon leaves the cell and fails whatever waits for it.
func (c *cell[M]) abandon(err error) {
	c.mu.Lock()
	queued := c.box.drain()
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
	case lost > 0 || told == 0: // else every one who waits knows
		logger.Warn("actor did not start", name, slog.Int("messages_lost", lost), slog.Any("error", err))
	}
	if dies {
		close(c.ended)
	}
}

// caught makes an error of what recover returned, and logs it.
func (c *cell[M]) caught(value any) error {
	if value == nil { // a panic is never nil, so the goroutine is being ended
		value = errExit
	}
	p := &PanicError{Actor: c.title(), Value: value, Stack: debug.Stack()}
	c.options.Logger.Error("actor panicked", slog.String("actor", p.Actor),
		slog.Any("panic", value), slog.String("stack", string(p.Stack)))
	return p
}
