package actor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// A cell holds an actor: its mailbox, which outlives incarnations, and at most one goroutine, which
// runs them one after another.
//
// mu is never held while a Behavior runs. A registry's lock and then the System's may be taken
// while it is held, never the other way round.
type cell[M any] struct {
	system      *System
	options     Options
	title       func() string // the name, made when needed
	newBehavior func() (Behavior[M], error)
	ctx         context.Context    // the Behavior's context
	cancel      context.CancelFunc // ends ctx if the cell has its own; else nil
	retire      func(budget)       // removes the cell from its registry; nil means that the cell can sleep
	ended       chan struct{}      // closed when the cell is dead and its goroutine done
	wake        chan struct{}      // capacity 1, never closed: something has changed while parked

	mu      sync.Mutex // guards the fields below
	state   cellState
	closing bool // accept no more messages; end when the mailbox is empty
	parked  bool // the goroutine waits on wake
	box     mailbox[M]
	open    map[request]struct{} // received and not yet answered
	budget  budget
	cause   error       // why a dead cell refuses messages; nil means it was stopped
	idle    time.Time   // when the actor became idle; zero means unknown
	timer   *time.Timer // fires when the actor may have been idle long enough
	armed   bool        // the timer runs
}

type cellState uint8

const (
	asleep cellState = iota // no goroutine; the next message starts one
	awake                   // a goroutine runs
	dead                    // nothing is accepted any more
)

func newCell[M any](s *System, o Options, title func() string, birth func() (Behavior[M], error)) *cell[M] {
	return &cell[M]{
		system:      s,
		options:     o,
		title:       title,
		newBehavior: birth,
		ctx:         s.ctx,
		ended:       make(chan struct{}),
		wake:        make(chan struct{}, 1),
		box:         mailbox[M]{limit: o.Mailbox},
	}
}

// deliver puts an envelope into the mailbox, waiting for room until ctx ends.
func (c *cell[M]) deliver(ctx context.Context, e envelope[M]) error {
	c.mu.Lock()
	switch {
	case c.state == dead:
		cause := c.cause
		c.mu.Unlock()
		if c.retire != nil {
			return errGone
		}
		cause = cmp.Or(cause, stoppedError(c.title()))
		return cause
	case c.closing:
		c.mu.Unlock()
		return stoppedError(c.title())
	case c.box.put(e):
		c.ensureRunning()
		c.mu.Unlock()
		return nil
	}

	s := &sender[M]{envelope: e, done: make(chan error, 1)}
	c.box.waiting = append(c.box.waiting, s)
	c.mu.Unlock()

	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
	}

	c.mu.Lock()
	left := c.box.leave(s)
	c.mu.Unlock()
	if !left {
		return <-s.done // already decided, so this does not wait
	}
	return fmt.Errorf("actor %s: its mailbox was full (%d messages), message not delivered: %w", c.title(),
		c.options.Mailbox, ctx.Err())
}

// ensureRunning makes sure that a goroutine will check the cell. The caller holds the lock.
func (c *cell[M]) ensureRunning() {
	if c.state == asleep {
		c.state = awake
		go c.run()
		return
	}
	c.wakeParked()
}

// wakeParked ends the wait of a parked goroutine. The caller holds the lock.
func (c *cell[M]) wakeParked() {
	if c.parked {
		c.parked = false
		c.wake <- struct{}{} // at most one send per parking, so there is room
	}
}

// close refuses new messages and blocked senders; accepted messages are still handled. It does not
// wait.
func (c *cell[M]) close() {
	c.mu.Lock()
	if c.closing || c.state == dead {
		c.mu.Unlock()
		return
	}
	c.closing = true

	if len(c.box.waiting) > 0 {
		c.box.refuse(stoppedError(c.title()))
	}
	if c.state == asleep {
		c.leave()
		return
	}

	c.wakeParked()
	c.mu.Unlock()
}

// leave calls quit, and then closes ended if the cell dies. It releases the lock.
func (c *cell[M]) leave() {
	dies := c.quit()
	c.mu.Unlock()
	if dies {
		close(c.ended)
	}
}

// quit puts the cell to sleep, or removes it from everything that refers to it if it must end; then
// it returns true, and the caller closes ended at the very end. The caller holds the lock, and the
// mailbox is empty.
func (c *cell[M]) quit() (dies bool) {
	c.idle, c.armed = time.Time{}, false
	if c.timer != nil {
		c.timer.Stop()
	}

	if c.retire == nil && !c.closing && c.cause == nil {
		c.state = asleep
		return false
	}
	c.state = dead
	if c.retire != nil {
		c.retire(c.budget)
	}

	if c.cancel != nil {
		c.cancel()
	}

	c.system.leave(c)
	return true
}

// done implements member.
func (c *cell[M]) done() <-chan struct{} { return c.ended }

// name implements member.
func (c *cell[M]) name() string { return c.title() }

// keep records an ask that was received and not answered.
func (c *cell[M]) keep(r request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.track(c) {
		return // already answered by another goroutine
	}

	if c.open == nil {
		c.open = make(map[request]struct{})
	}
	c.open[r] = struct{}{}
}

// settled removes an answered ask, implementing keeper. The actor was not idle until now, so its
// idle time starts here.
func (c *cell[M]) settled(r request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[r]; !ok {
		return // it belongs to an incarnation that has ended
	}
	delete(c.open, r)
	if len(c.open) == 0 {
		c.idle = time.Time{}
		c.wakeParked()
	}
}

// failOpen fails every open ask of this incarnation.
func (c *cell[M]) failOpen(why func(name string) error) {
	c.mu.Lock()
	open := c.open
	c.open = nil
	c.mu.Unlock()
	if len(open) == 0 {
		return
	}

	err := why(c.title())
	for a := range open {
		a.fail(err)
	}
}

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
		if b, err = c.newBehavior(); err != nil {
			return err
		}
		if s, ok := b.(Starter); ok {
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

// live passes messages to the incarnation until it crashes, or until it must end in order; then it returns
// nil.
func (c *cell[M]) live(b Behavior[M]) error {
	rests := false
	for {
		e, ok := c.next(rests)
		if !ok {
			return nil
		}

		panicked, err := c.guard(func() error { return b.Receive(c.ctx, e.message) })
		rests = err == ErrRest
		if err != nil && !rests {
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

// next removes the oldest message, and waits for one if necessary. It returns false if the incarnation must
// end in order and the mailbox is empty. With rests it must end once no ask is open.
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

// rested reports whether the actor has been idle long enough. If not, it makes sure that this is checked
// again in time. The caller holds the lock.
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
	c.wakeParked()
}

// end ends an incarnation in order, even if its Stop panics.
func (c *cell[M]) end(b Behavior[M]) {
	if s, ok := b.(Stopper); ok {
		c.guard(func() error {
			s.Stop(c.ctx)
			return nil
		})
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

// spend counts a crash. If that was one too many, it returns the reason to stop the actor.
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
	case lost > 0 || told == 0: // otherwise every asker has received the error
		logger.Warn("actor did not start", name, slog.Int("messages_lost", lost), slog.Any("error", err))
	}

	if dies {
		close(c.ended)
	}
}
