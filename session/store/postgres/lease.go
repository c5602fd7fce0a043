package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"deepwork/actor/presence"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A process that has agents or executions holds a lease, a row of members that expires by the clock of the
// database. It renews the row every two seconds, and trusts the lease for less long than it lasts, by
// its own monotonic clock from before it asked for the renewal: while it trusts the lease, no other
// process may take over its agents and executions. If it is suspended or cut off longer, the lease has
// expired, others may have taken over, and its next renewal begins a new term. All that a process writes,
// except moves of sessions, names its term, so what it sent in an earlier one and is delayed changes nothing.
const (
	leaseTime = 6 * time.Second // in the SQL below, too
	renewTime = 2 * time.Second
	trustTime = 4 * time.Second
)

var errReadOnly = errors.New("the store was opened read-only")

type lease struct {
	kick chan chan error // asks the goroutine for a renewal

	mu      sync.Mutex // guards the following fields
	begun   bool       // the goroutine runs
	term    int64      // 0 before the first one
	trusted time.Time  // until when, with a monotonic reading
	failed  error      // of the last renewal
	clock   time.Time  // of the database at the last renewal; zero before the first one
	read    time.Time  // when it was read, with a monotonic reading
	left    bool
}

func (l *lease) init() { l.kick = make(chan chan error) }

// lapse ends the trust in a term.
func (l *lease) lapse(term int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == term {
		l.trusted = time.Time{}
	}
}

// away returns store.ErrUnavailable if the last renewal has failed and this process holds no lease that it
// can trust: the database does not answer. The goroutine of the lease notices when it does again.
func (s *Store) away() error {
	l := &s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.trusted) || !errors.Is(l.failed, store.ErrUnavailable) {
		return nil
	}
	return l.failed
}

// ID returns the id of this process, which has the form of presence.ID.
func (s *Store) ID() string { return s.id }

// Term returns the term of the lease, or why this process has none that it can trust.
func (s *Store) Term() (int64, error) {
	l := &s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.left:
		return 0, task.ErrClosed
	case l.term > 0 && time.Now().Before(l.trusted):
		return l.term, nil
	case l.failed != nil:
		return 0, l.failed
	}
	return 0, fmt.Errorf("%w: this process has not renewed its lease in time", store.ErrUnavailable)
}

// now returns the time by the clock of the database, by which processes on several machines agree, or
// that of this process before its first lease.
func (s *Store) now() time.Time {
	l := &s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clock.IsZero() {
		return session.Clock()
	}
	return l.clock.Add(time.Since(l.read))
}

// Enter takes a lease, if this process holds none that it can trust. Errors: store.ErrUnavailable,
// task.ErrVersion or task.ErrClosed.
func (s *Store) Enter(ctx context.Context) error {
	_, err := s.enter(ctx)
	return err
}

// enter is Enter, and returns the term.
func (s *Store) enter(ctx context.Context) (int64, error) {
	if term, err := s.Term(); err == nil || errors.Is(err, task.ErrClosed) {
		return term, err
	}
	if s.o.ReadOnly {
		return 0, errReadOnly
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	l := &s.lease
	s.begin(nil)
	done := make(chan error, 1)
	select {
	case l.kick <- done:
	case <-ctx.Done():
		return 0, s.explain(ctx.Err())
	case <-s.closing.Done():
		return 0, task.ErrClosed
	}
	select {
	case err := <-done:
		if err != nil {
			return 0, err
		}
	case <-ctx.Done():
		return 0, s.explain(ctx.Err())
	}
	return s.Term()
}

// begin starts the goroutine of the lease, unless it runs. failed is why the database is known to be away,
// or nil.
func (s *Store) begin(failed error) {
	l := &s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun && s.closing.Err() == nil {
		l.begun, l.failed = true, failed
		s.finished.Go(s.keepLease)
	}
}

// keepLease renews the lease until the store is closed.
func (s *Store) keepLease() {
	next := time.NewTimer(0)
	defer next.Stop()
	var failed error // of the last renewal
	renew := func() {
		began, pause := time.Now(), renewTime
		if failed = s.renew(); failed != nil {
			pause = renewTime / 10
		}
		next.Reset(pause - time.Since(began))
	}
	for {
		select {
		case <-s.closing.Done():
			return
		case done := <-s.lease.kick:
			if _, err := s.Term(); err == nil {
				failed = nil
			} else if failed == nil {
				renew()
			}
			done <- failed
		case <-next.C:
			renew()
		}
	}
}

// renew renews the lease, or takes a new term, and then forgets processes that ended over 30 days ago.
func (s *Store) renew() error {
	scope, err := s.join(s.closing)
	ctx, cancel := context.WithTimeout(s.closing, renewTime)
	defer cancel()
	l := &s.lease
	l.mu.Lock()
	term, last := l.term, l.failed
	l.mu.Unlock()
	began, next, version, clock := time.Now(), term, 0, time.Time{}
	if err == nil {
		err = s.leases.QueryRowContext(ctx, s.text(`UPDATE @members SET expires = clock_timestamp() + interval '6 s'
			WHERE id = $1 AND term = $2 AND expires > clock_timestamp() RETURNING (SELECT version FROM @schema_version), clock_timestamp()`), s.id, term).Scan(&version, &clock)
	}
	if none(err) {
		ctx, cancel := context.WithTimeout(s.closing, leaseTime) // the row of the project may be locked
		defer cancel()
		began = time.Now()
		err = s.leases.QueryRowContext(ctx, s.text(`WITH m AS (
			INSERT INTO @members AS m (id, scope, term, expires, machine, host, pid, root) VALUES ($1, $2, $7, clock_timestamp() + interval '6 s', $3, $4, $5, $6)
			ON CONFLICT (id) DO UPDATE SET term = m.term + 1, expires = clock_timestamp() + interval '6 s' RETURNING term),
			forgotten AS (DELETE FROM @members WHERE id IN (SELECT id FROM @members o WHERE id <> $1 AND since < clock_timestamp() - interval '30 days' AND expires < clock_timestamp() - interval '30 days' LIMIT 1000 FOR UPDATE SKIP LOCKED))
			SELECT term, (SELECT version FROM @schema_version), clock_timestamp() FROM m`), s.id, scope, s.o.Machine, s.host, os.Getpid(), s.o.Root, term+1).Scan(&next, &version, &clock)
	}
	if err == nil {
		err = known(version)
	}
	err = s.explain(err)
	l.mu.Lock()
	if l.failed = err; err == nil {
		l.term, l.trusted, l.clock, l.read = next, began.Add(trustTime), clock, time.Now()
	} else if errors.Is(err, task.ErrVersion) {
		l.trusted = time.Time{}
	}
	l.mu.Unlock()
	switch {
	case err != nil && last == nil && s.closing.Err() == nil:
		s.o.Logger.Warn("the lease on the store could not be renewed; without it nothing is written", "error", err)
	case err == nil && term > 0 && next != term:
		s.o.Logger.Warn("the lease on the store had ended; other servers may have taken over agents and executions of this one", "term", next)
	}
	return err
}

// leave ends the lease.
func (s *Store) leave(ctx context.Context) error {
	l := &s.lease
	l.mu.Lock()
	term := l.term
	l.left = true
	l.mu.Unlock()
	if term == 0 {
		return nil
	}
	_, err := s.leases.ExecContext(ctx, s.text(`UPDATE @members SET expires = clock_timestamp() WHERE id = $1`), s.id)
	if err != nil {
		s.o.Logger.Debug("the lease on the store ends only when it expires", "error", err)
	}
	return nil
}

// Alive reports whether a process holds a lease by the clock of the database, also if that cannot be
// determined. It asks the database, and blocks for at most 3 s.
func (s *Store) Alive(id string) bool {
	if id == s.id {
		l := &s.lease
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.left
	}
	if !presence.IsID(id) {
		return false
	}
	m, err := s.Member(context.Background(), id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.o.Logger.Warn("cannot determine whether a server lives; taking it for alive", "server", id, "error", err)
		return true
	}
	return m.Ended == 0 && err == nil
}

// A Member is a process that holds a lease or held one.
type Member struct {
	ID      string
	Machine string // Options.Machine there
	Host    string
	PID     int
	Root    string // of the project there
	Since   time.Time
	Ended   time.Duration // how long ago its last lease ended; 0 means that it lives
}

func (m Member) String() string {
	return fmt.Sprintf("pid %d on %s in %s since %s", m.PID, m.Host, m.Root, m.Since.UTC().Format(time.RFC3339))
}

// Member returns a process, or store.ErrNotFound if it is unknown: one whose lease ended over 30 days ago
// may be forgotten. It blocks for at most 3 s.
func (s *Store) Member(ctx context.Context, id string) (Member, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := s.connect(ctx); err != nil {
		return Member{}, err
	}
	m := Member{ID: id}
	var ended float64
	err := s.leases.QueryRowContext(ctx, s.text(`SELECT machine, host, pid, root, since, greatest(extract(epoch FROM clock_timestamp() - expires), 0)::float8
		FROM @members WHERE id = $1`), id).Scan(&m.Machine, &m.Host, &m.PID, &m.Root, &m.Since, &ended)
	if none(err) {
		return Member{}, fmt.Errorf("server %s: %w", id, store.ErrNotFound)
	}
	m.Ended = time.Duration(ended * float64(time.Second))
	return m, s.explain(err)
}

// Describe describes a process for people; "" if it is unknown.
func (s *Store) Describe(id string) string {
	m, err := s.Member(context.Background(), id)
	if err != nil {
		return ""
	}
	return m.String()
}

// Others reports whether other processes hold a lease for the project.
func (s *Store) Others(ctx context.Context) (others bool, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return false, err
	}
	err = s.leases.QueryRowContext(ctx, s.text(`SELECT EXISTS (SELECT FROM @members WHERE scope = $1 AND id <> $2 AND expires > clock_timestamp())`), scope, s.id).Scan(&others)
	return others, s.explain(err)
}
