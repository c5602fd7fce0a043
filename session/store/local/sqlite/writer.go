package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// A member is one change, for which a call waits, in a transaction of several.
type member struct {
	// change runs on the writer's goroutine, and must have closed its rows when it returns.
	change func(sqlstore.Querier) error
	// synced means that the change is on disk when the member is answered. Otherwise the change survives the
	// end of this process at once, but a loss of power only after the next synced change.
	synced bool

	left     error         // why the caller has given up, or nil; guarded by the writer's mu
	done     chan struct{} // closed when the member is answered; the fields below are set before
	err      error
	panicked any
}

// A writer makes the changes of this process. Its one goroutine commits all waiting changes as one
// transaction, so that they share one sync of the disk. That goroutine also has the large stack that SQLite
// needs, which the goroutine of a call would first have to grow.
type writer struct {
	db   *DB
	pool *sql.DB // has one connection

	mu      sync.Mutex
	waiting []*member
	wake    wait.Signal   // received by the goroutine; sent when something may be waiting
	stop    chan struct{} // closed to end the goroutine; nil if that was not started
	ended   chan struct{} // closed when the goroutine has ended

	// Only for the goroutine:
	conn      *sql.Conn       // from pool, as long as the goroutine lives
	compiled  *compiled       // conn itself
	sync      bool            // a commit is on disk when it returns
	unordered bool            // the locks for turns are unusable, which was logged
	stuck     map[string]bool // locks for turns, by suffix, that were not available in time
}

func newWriter(d *DB, pool *sql.DB) *writer {
	return &writer{
		db:    d,
		pool:  pool,
		sync:  true,
		wake:  wait.NewSignal(),
		ended: make(chan struct{}),
		stuck: map[string]bool{},
	}
}

// start takes the connection and starts the goroutine. The caller must call close.
func (w *writer) start(ctx context.Context) (err error) {
	if w.conn, err = w.pool.Conn(ctx); err != nil {
		return err
	}
	err = w.conn.Raw(func(c any) error {
		w.compiled = c.(*compiled)
		return nil
	})
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

// do waits until a member was answered. If ctx ends before the member has begun, it returns the cause, if
// that is a store.ErrBusy, or ctx's error. A member that has begun is finished, so that its outcome is known.
// If the change panics, do panics.
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

// leave answers a waiting member with why. A member that does not wait gets this answer if it would have to
// wait again.
func (w *writer) leave(m *member, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.left = why
	w.waiting = slices.DeleteFunc(w.waiting, (*member).hasLeft)
}

// hasLeft reports whether the caller of a waiting member has given up, and then answers it.
func (m *member) hasLeft() bool {
	if m.left == nil {
		return false
	}
	m.err = m.left
	close(m.done)
	return true
}

// wanted reports whether a call is waiting.
func (w *writer) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

// take removes the members of the next group from those that wait, in order.
func (w *writer) take() []*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.waiting), groupSize)
	group := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	return group
}

// giveBack lets members that have not begun wait again, before all others.
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

// ended returns why ctx has ended: a store.ErrBusy, or else ctx.Err.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, store.ErrBusy) {
		return err
	}
	return ctx.Err()
}

// bounded returns a context that ends with a store.ErrBusy when a call has waited long enough.
func (d *DB) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.patience,
		fmt.Errorf("%w: %s was locked for %v", store.ErrBusy, d.o.Path, d.patience))
}

// write makes a change on the writer's connection.
func (d *DB) write(ctx context.Context, m member) error {
	release, err := d.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.writer == nil {
		return fmt.Errorf("%w: %s was opened for reading only; if that was not asked for, make room on its disk, or "+
			"it and its folder writable, and call again", task.ErrFull, d.o.Path)
	}

	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return d.retry(ctx, func() error {
		again := m
		return d.writer.do(ctx, &again)
	})
}

// The lock files beside the database.
const (
	nextSuffix = "-next"
	turnSuffix = "-turn"
)

// lookPace is the time between two looks at a lock that another process holds.
const lookPace = 250 * time.Microsecond

// turn waits until it is this process's turn to write, and returns a function that ends the turn; since is
// that of DB.pause.
//
// SQLite excludes other writers, but not in any order: a process that commits and begins again at once may do
// so for minutes while others sleep. So processes take turns of one transaction each. There are two lock
// files: one for the process whose turn it is, and one for the process that is next:
//
//	lock next; lock turn; unlock next; BEGIN … COMMIT; unlock turn
//
// A process that ends its turn and wants another one must lock next first. The process that waits for its
// turn has already locked that, so it goes first. Processes that wait for next look at equal intervals, so
// each gets it in the end. The system releases the locks of a killed process.
//
// The locks only give an order. If they cannot be used, or after half of a call's patience, a process goes on
// without them, and SQLite decides. From then on it does not wait for a lock until it has had that lock once.
// So a process that was stopped while waiting does not hold up others; one that was stopped in a transaction
// still excludes them.
func (w *writer) turn(since *time.Time) (end func(), err error) {
	until := time.Now().Add(w.db.patience / 2)
	lock := func(suffix string) (*durable.FileLock, error) {
		for {
			l, err := durable.TryLock(w.db.o.Path + suffix)
			if err != nil {
				if !w.unordered {
					w.unordered = true
					w.db.o.Logger.Warn("processes cannot take turns in writing the task board", "path", w.db.o.Path,
						"error", err)
				}
				return nil, nil
			}
			late := w.stuck[suffix] || !time.Now().Before(until)
			if l != nil || late || !w.wanted() {
				w.stuck[suffix] = l == nil && late
				return l, nil
			}
			if err := w.db.pause(w.db.closing, since, lookPace); err != nil {
				return nil, err
			}
		}
	}
	next, err := lock(nextSuffix)
	if err != nil {
		return nil, err
	}

	turn, err := lock(turnSuffix)
	unlock(next)
	return func() { unlock(turn) }, err
}

func unlock(l *durable.FileLock) {
	if l != nil {
		l.Unlock() // cannot fail: closes the file
	}
}

// groupSize is the maximum number of members in a group. It limits how long the first one waits for the
// others.
const groupSize = 64

// serve waits for the turn of this process, and makes the changes of one group.
func (w *writer) serve() {
	since := time.Now()
	end, err := w.turn(&since)
	if err == nil {
		defer end()
	}
	for err == nil {
		group := w.take()
		if len(group) == 0 {
			return // all have given up
		}
		if err = w.begin(group); !busy(err) {
			w.finish(group, err)
			return
		}
		w.giveBack(group)
		err = w.db.pause(w.db.closing, &since, lookPace)
	}
	for group := w.take(); len(group) > 0; group = w.take() { // the database is being closed
		w.finish(group, err)
	}
}

// finish makes the changes of a group whose transaction has begun, unless it could not begin, and answers all
// members.
func (w *writer) finish(group []*member, err error) {
	if err == nil {
		group = w.each(group)
		err = w.commit(group)
	}
	for _, m := range group {
		if err != nil && !m.failed() {
			m.err = err
		}
		close(m.done)
	}
}

// exec runs a statement that belongs to no member.
func (w *writer) exec(statement string) error {
	_, err := w.conn.ExecContext(context.Background(), statement)
	return err
}

// begin begins the transaction of a group.
func (w *writer) begin(group []*member) error {
	if err := inPlace(w.db.o.Path, w.db.info); err != nil {
		return err
	}

	if synced := slices.ContainsFunc(group, func(m *member) bool { return m.synced }); synced != w.sync {
		level := "NORMAL"
		if synced {
			level = "FULL"
		}
		if err := w.exec("PRAGMA synchronous = " + level); err != nil {
			return err
		}
		w.sync = synced
	}
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil {
		w.compiled.phase = inside
		var version int
		err = w.conn.QueryRowContext(context.Background(), "PRAGMA user_version").Scan(&version)
		if err == nil { // a newer deepwork may have migrated it since it was opened
			err = sqlstore.CheckVersion(migrations, version, setAside)
		}
		if err != nil {
			_ = w.commit(nil)
		}
	}

	return err
}

// each runs the members of a group, and returns those that have run. Each has a savepoint, so that a failing
// member undoes only its own changes. After some errors, such as that of a full disk, SQLite rolls back the
// whole transaction: then the members that have run fail with it, and the others wait again.
func (w *writer) each(group []*member) []*member {
	for i, m := range group {
		if len(group) == 1 {
			w.try(m)
		} else if m.err = w.exec("SAVEPOINT member"); m.err == nil {
			w.try(m)
			w.release(m)
		}

		if w.compiled.phase != lost {
			continue
		}
		if !m.failed() {
			m.err = errLost // the member has ignored the error
		}
		for _, earlier := range group[:i] {
			if !earlier.failed() {
				earlier.err = fmt.Errorf("nothing was changed, since another change in the same transaction failed: %w",
					cmp.Or(m.err, errLost))
			}
		}
		w.giveBack(group[i+1:])
		return group[:i+1]
	}
	return group
}

// try runs a member.
func (w *writer) try(m *member) {
	defer func() {
		if p := recover(); p != nil {
			m.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	m.err = m.change(w.conn)
}

// release ends the savepoint of a member, with or without its changes. If that fails, the transaction is
// lost.
func (w *writer) release(m *member) {
	if w.compiled.phase == lost {
		return
	}

	var err error
	if m.failed() {
		err = w.exec("ROLLBACK TO member")
	}
	if err == nil {
		err = w.exec("RELEASE member")
	}
	if err != nil {
		m.err = cmp.Or(m.err, err)
		w.exec("ROLLBACK") // SQLite tells the connection, which then is in the phase lost
	}
}

// commit commits the transaction. If that fails, or if all members have failed, it rolls back.
func (w *writer) commit(group []*member) (err error) {
	if w.compiled.phase == inside && slices.ContainsFunc(group, func(m *member) bool { return !m.failed() }) {
		if err = w.exec("COMMIT"); err == nil {
			w.compiled.phase = outside
		}
	}

	left := w.compiled.phase == inside
	w.compiled.phase = outside
	if left {
		w.exec("ROLLBACK") // on failure SQLite has rolled back already
	}
	return err
}

func (m *member) failed() bool { return m.err != nil || m.panicked != nil }
