package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A place is a machine and a folder. It has one row, which says until when it counts as a place where a
// process uses the project. Every process there tries to touch the row; the first one after touchPause
// changes it. Nobody needs the row to write: it shows whether the place can be expected to answer, and when
// its agents are given up. Which processes of a place live is known only there (package presence).
const (
	touchEvery = 10 * time.Second
	placeLife  = "25 s"
	touchPause = "9 s"
	touchTime  = 4 * time.Second        // of one statement
	probePause = 200 * time.Millisecond // between two tries while the database does not answer
	silentTime = 2 * time.Second        // after this, calls fail at once
	// for all places to be touched, after the database was unreachable or its clock was set forward
	settleTime = 2 * touchEvery
	forgetTime = "30 days" // after this, the row of a place that is gone is removed
)

// unknownFor is the result of GoneFor for a place without a row.
const unknownFor = 30 * 24 * time.Hour

var errReadOnly = errors.New("the store was opened read-only")

// contact is what a process knows about the database.
type contact struct {
	probe   wait.Signal // wakes the goroutine
	keeping sync.Once

	mu      sync.Mutex // guards the following fields
	entered bool       // this process touches its place
	failed  error      // why calls fail at once: no answer, or a schema newer than this program
	silent  time.Time  // when the database stopped answering; zero if it answers
	clock   time.Time  // the database's, at its last answer; zero before that
	read    time.Time  // when clock was read, with a monotonic reading
	settled time.Time  // until then, places that could not be touched may look gone
}

// refused returns why calls fail at once, or nil.
func (s *Store) refused() error {
	s.contact.mu.Lock()
	defer s.contact.mu.Unlock()
	return s.contact.failed
}

// Unavailable returns why calls fail now, or nil. It does not block.
func (s *Store) Unavailable() error {
	if s.closing.Err() != nil {
		return task.ErrClosed
	}
	return s.refused()
}

// now returns the time by the database's clock, on which processes of several machines agree, or this
// process's time before the first contact.
func (s *Store) now() time.Time {
	c := &s.contact
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock.IsZero() {
		return session.Clock()
	}
	return c.clock.Add(time.Since(c.read))
}

// setClock sets the time of the database's clock, in seconds since 1970.
func (s *Store) setClock(seconds float64) {
	c, now := &s.contact, time.UnixMicro(int64(seconds*1e6))
	c.mu.Lock()
	defer c.mu.Unlock()
	if away := time.Since(c.read); !c.clock.IsZero() && max(away, now.Sub(c.clock)-away) > settleTime {
		c.settled = time.Now().Add(settleTime)
	}
	c.clock, c.read = now, time.Now()
}

// settling reports whether places that could not be touched may look gone.
func (s *Store) settling() bool {
	s.contact.mu.Lock()
	defer s.contact.mu.Unlock()
	return time.Now().Before(s.contact.settled)
}

// Enter makes the place of this process one where the project is used, from now on until Close.
func (s *Store) Enter(ctx context.Context) error {
	switch {
	case s.closing.Err() != nil:
		return task.ErrClosed
	case s.o.ReadOnly:
		return errReadOnly
	}

	if s.entered() {
		return nil
	}

	ctx, cancel := s.deadline(ctx)
	defer cancel()
	scope, err := s.connect(ctx)
	if err == nil {
		err = s.retry(ctx, func() error { return s.touch(ctx, scope, true) })
	}
	if err != nil {
		return err
	}

	s.contact.mu.Lock()
	s.contact.entered = true
	s.contact.mu.Unlock()
	s.keep()
	return nil
}

// entered reports whether this process touches its place.
func (s *Store) entered() bool {
	s.contact.mu.Lock()
	defer s.contact.mu.Unlock()
	return s.contact.entered
}

// keep watches the database from now on: at each wake of contact.probe, and when the place must be touched.
func (s *Store) keep() {
	s.contact.keeping.Do(func() {
		s.whileOpen(func() {
			for wait.Until(s.closing, touchEvery, s.contact.probe) == nil {
				for errors.Is(s.probe(), store.ErrUnavailable) && wait.For(s.closing, probePause) == nil {
				}
			}
		})
	})
}

// probe asks the database whether it can be used.
func (s *Store) probe() error {
	scope, err := s.join(s.closing)
	if err == nil {
		// Closing waits for this: the database might carry out an abandoned statement after leave.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.closing), touchTime)
		err = s.explain(s.touch(ctx, scope, s.entered()))
		cancel()
	}

	if s.closing.Err() == nil {
		s.heard(err)
	}
	return err
}

// fails makes calls fail at once with an error until the database can be used.
func (s *Store) fails(err error) {
	s.contact.mu.Lock()
	defer s.contact.mu.Unlock()
	s.contact.failed = err
}

// heard records whether the database can be used; err says why not.
func (s *Store) heard(err error) {
	c := &s.contact
	c.mu.Lock()
	defer c.mu.Unlock()

	last := c.failed
	switch {
	case err == nil:
		c.failed, c.silent = nil, time.Time{}
	case errors.Is(err, store.ErrUnavailable) && c.silent.IsZero():
		c.silent = time.Now() // it may be busy only for a moment
	case !errors.Is(err, store.ErrUnavailable) || time.Since(c.silent) >= silentTime:
		c.failed = err
	}
	switch {
	case c.failed != nil && last == nil:
		s.o.Logger.Warn("the store cannot be used now: calls fail until it can", "error", err)
	case c.failed == nil && last != nil:
		s.o.Logger.Info("the store can be used again")
	}
}

// touch reads the version of the schema and the clock of the database, and touches the place if the process
// has entered it. If the schema was recreated, the scope belongs to another project, or to none.
func (s *Store) touch(ctx context.Context, scope int64, entered bool) error {
	query := `SELECT version, extract(epoch FROM clock_timestamp())::float8, EXISTS (SELECT FROM @scopes WHERE id ` +
		`= $1 AND name = $2) FROM @schema_version`
	args := []any{scope, s.o.Project}
	if entered {
		args = append(args, s.o.Machine, s.o.Root, s.host)
		query = `WITH touched AS (INSERT INTO @places AS p (scope, machine, root, host, until) SELECT id, $3, $4, ` +
			`$5, clock_timestamp() + interval '` + placeLife + `' FROM @scopes WHERE id = $1 AND name = $2
				ON CONFLICT (scope, machine, root) DO UPDATE SET host = excluded.host, until = excluded.until ` +
			`WHERE p.until < excluded.until - interval '` + touchPause + `'),
			forgotten AS (DELETE FROM @places WHERE scope = $1 AND until < clock_timestamp() - interval '` +
			forgetTime + `' AND NOT (machine = $3 AND root = $4)) ` + query
	}

	var version int
	var clock float64
	var there bool
	if err := s.probes.QueryRowContext(ctx, s.text(query), args...).Scan(&version, &clock, &there); err != nil {
		return err
	}

	s.setClock(clock)
	if err := checkVersion(version); err != nil || there {
		return err
	}

	return fmt.Errorf("%s was replaced, and does not have the project %q as this server knows it: put it back, or "+
		"start the server again for what is there now", s.where, s.o.Project)
}

// leave records that no process uses the project at this process's place any more.
func (s *Store) leave(ctx context.Context) {
	_, err := s.probes.ExecContext(ctx,
		s.text(`UPDATE @places SET until = least(until, clock_timestamp()) WHERE scope = $1 AND machine = $2 AND `+
			`root = $3`), s.scope.Load(), s.o.Machine, s.o.Root)
	if err != nil {
		s.o.Logger.Debug("this place counts as used for a while", "error", err)
	}
}

// ask reads something that does not change, with a statement whose first parameter is the scope.
func (s *Store) ask(ctx context.Context, query string, to any, args ...any) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return err
	}
	return s.retry(ctx, func() error {
		_, err := s.first(ctx, query, append([]any{scope}, args...), to)
		return err
	})
}

// GoneFor returns how long no process at a place has used the project, by the database's clock. It returns 0
// if one does, or may: while the database was unreachable, nobody could touch a place. A killed or cut-off
// process is noticed after half a minute.
func (s *Store) GoneFor(ctx context.Context, p task.Place) (time.Duration, error) {
	var gone *float64
	err := s.ask(ctx,
		`SELECT extract(epoch FROM clock_timestamp() - max(until))::float8 FROM @places WHERE scope = $1 AND `+
			`machine = $2 AND root = $3`, &gone, p.MachineID, p.Root)
	switch {
	case err != nil || s.settling():
		return 0, err
	case gone == nil:
		return unknownFor, nil
	}

	return max(0, time.Duration(*gone*float64(time.Second))), nil
}

// Elsewhere reports whether a process at another place uses the project.
func (s *Store) Elsewhere(ctx context.Context) (used bool, err error) {
	err = s.ask(ctx,
		`SELECT EXISTS (SELECT FROM @places WHERE scope = $1 AND until > clock_timestamp() AND NOT (machine = $2 `+
			`AND root = $3))`, &used, s.o.Machine, s.o.Root)
	return used, err
}

// A Place is a place where a process uses the project.
type Place struct {
	Machine string // Options.Machine there
	Host    string
	Root    string // of the project there
}

func (p Place) String() string { return fmt.Sprintf("%s in %s", p.Host, p.Root) }
