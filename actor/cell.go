package actor

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// A cell holds an actor: its mailbox, which outlives incarnations, and at most one goroutine, which
// runs them one after another.
//
// mu is never held while a Behavior runs. A registry's lock and then the System's may be taken
// while it is held, never the other way round.
type cell[M any] struct {
	system  *System
	options Options
	title   func() string // the name, made when needed
	birth   func() (Behavior[M], error)
	ctx     context.Context    // the Behavior's context
	cancel  context.CancelFunc // ends ctx if the cell has its own; else nil
	retire  func(budget)       // removes the cell from its registry; nil means the cell can sleep
	ended   chan struct{}      // closed when the cell is dead and its goroutine done
	wake    chan struct{}      // capacity 1, never closed: something changed while parked

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
		system:  s,
		options: o,
		title:   title,
		birth:   birth,
		ctx:     s.ctx,
		ended:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		box:     mailbox[M]{limit: o.Mailbox},
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
		c.rouse()
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
		return <-s.done // decided already, so this does not wait
	}
	return fmt.Errorf("actor %s: its mailbox was full (%d messages), message not delivered: %w", c.title(), c.options.Mailbox, ctx.Err())
}

// rouse makes sure that a goroutine will check the cell. The caller holds the lock.
func (c *cell[M]) rouse() {
	if c.state == asleep {
		c.state = awake
		go c.run()
		return
	}
	c.nudge()
}

// nudge ends the wait of a parked goroutine. The caller holds the lock.
func (c *cell[M]) nudge() {
	if c.parked {
		c.parked = false
		c.wake <- struct{}{} // one nudge per parking, so there is room
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
	c.nudge()
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
		return // of an incarnation that has ended
	}
	delete(c.open, r)
	if len(c.open) == 0 {
		c.idle = time.Time{}
		c.nudge()
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
