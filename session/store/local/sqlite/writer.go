package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// A member is one change that a call waits for, in a transaction of several.
type member struct {
	// change runs on the writer's goroutine, and has closed its rows when it returns.
	change func(sqlstore.Querier) error
	// synced says that it is on disk when it is answered. Otherwise it survives the end of this process
	// at once, and a loss of power only after the next one that is.
	synced bool

	left     error         // why the caller has given up, or nil; guarded by the writer's mu
	done     chan struct{} // closed when it is answered; what follows is set before
	err      error
	panicked any
}

// A writer makes the changes of this process: its one goroutine commits what waits as one
// transaction, so that all share one sync of the disk. That goroutine also has the large stack that
// SQLite needs, which the goroutine of a call would first have to grow.
type writer struct {
	db   *DB
	pool *sql.DB // has one connection

	mu      sync.Mutex
	waiting []*member
	wake    wait.Signal   // received by the goroutine, sent when there may be something in waiting
	stop    chan struct{} // closed to end the goroutine; nil if it was not started
	ended   chan struct{} // closed when it has ended

	// For the goroutine alone:
	conn      *sql.Conn       // that of pool, for as long as the goroutine lives
	compiled  *compiled       // the same
	sync      bool            // whether a commit is on disk when it returns
	unordered bool            // the locks for turns cannot be used, which was logged
	stuck     map[string]bool // the locks for turns, by suffix, that could not be had in time
}

func newWriter(d *DB, pool *sql.DB) *writer {
	return &writer{db: d, pool: pool, sync: true, wake: wait.NewSignal(), ended: make(chan struct{}), stuck: map[string]bool{}}
}

// start takes the connection and starts the goroutine. The caller calls close.
func (w *writer) start(ctx context.Context) (err error) {
	if w.conn, err = w.pool.Conn(ctx); err != nil {
		return err
	}
	err = w.conn.Raw(func(c any) error { w.compiled = c.(*compiled); return nil })
	if err == nil {
		w.stop = make(chan struct{})
		go w.run()
	}
	return err
}

// close ends the goroutine and closes the connection. No call may be waiting.
func (w *writer) close() error {
	if w.stop != nil {
		close(w.stop)
		<-w.ended
	}
	var err error
	if w.conn != nil {
		err = w.conn.Close()
	}
	return errors.Join(err, w.pool.Close())
}

// do waits until a member was answered, or until ctx ends before it has begun, and returns the cause
// of that if it is a store.ErrBusy. A member that has begun is finished, so that its outcome is known.
// A panic of the change is one of the caller.
func (w *writer) do(ctx context.Context, m *member) error {
	m.done = make(chan struct{})
	w.mu.Lock()
	w.waiting = append(w.waiting, m)
	w.mu.Unlock()
	w.wake.Wake()
	select {
	case <-m.done:
	case <-ctx.Done():
		w.leave(m, ended(ctx))
		<-m.done
	}
	if m.panicked != nil {
		panic(m.panicked)
	}
	return m.err
}

// leave answers a member that waits with why. One that does not is answered so if it would have to
// wait again.
func (w *writer) leave(m *member, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.left = why
	w.waiting = slices.DeleteFunc(w.waiting, (*member).hasLeft)
}

// hasLeft reports whether the caller of a member that waits has given up, and answers it then.
func (m *member) hasLeft() bool {
	if m.left == nil {
		return false
	}
	m.err = m.left
	close(m.done)
	return true
}

// wanted reports whether a call waits.
func (w *writer) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

// take takes the members of the next group out of those that wait, in their order.
func (w *writer) take() []*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.waiting), groupSize)
	group := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	return group
}

// giveBack makes members that have not begun wait again, before all others.
func (w *writer) giveBack(group []*member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.Concat(slices.DeleteFunc(group, (*member).hasLeft), w.waiting)
}

func (w *writer) run() {
	defer close(w.ended)
	for {
		select {
		case <-w.wake:
		case <-w.stop:
			return
		}
		for w.wanted() {
			w.serve()
		}
	}
}

// ended returns why ctx has ended: a store.ErrBusy, or else what ctx.Err returns.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, store.ErrBusy) {
		return err
	}
	return ctx.Err()
}

// bounded returns a context that ends, with a store.ErrBusy, when a call has waited long enough.
func (d *DB) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.patience, fmt.Errorf("%w: %s was locked for %v", store.ErrBusy, d.o.Path, d.patience))
}

// write makes a change on the writer's connection.
func (d *DB) write(ctx context.Context, m member) error {
	release, err := d.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.writer == nil {
		return fmt.Errorf("%w: %s was opened for reading only; if that was not asked for, make it and its folder writable and start the server again", task.ErrFull, d.o.Path)
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return d.retry(ctx, func() error {
		again := m
		return d.writer.do(ctx, &again)
	})
}
