package postgres

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// ready reports whether a process takes calls to the database.
func ready(s *Store) bool { return s.Unavailable() == nil }

// Once a process knows that the database is away, its calls fail at once, however it is away, and they
// succeed as soon as it answers again.
func TestCallsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	stopped := func(t *testing.T) (url string, leave, come func()) {
		server := pgtest.New(t)
		return server.URL(), func() { must(t, server.Stop()) }, func() { must(t, server.Start()) }
	}
	for name, begin := range map[string]func(t *testing.T) (url string, leave, come func()){
		"stopped": stopped,
		"stopped behind PgBouncer": func(t *testing.T) (string, func(), func()) {
			url, leave, come := stopped(t)
			return pgtest.Bouncer(t, url), leave, come
		},
		"silent": func(t *testing.T) (string, func(), func()) {
			proxy := pgtest.NewProxy(t, pgtest.URL(t))
			return proxy.URL, func() { proxy.Freeze(true) }, func() { proxy.Freeze(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, leave, come := begin(t)
			s := openAt(t, url)
			r, b := sessionsOf(s), s.Database()
			must(t, s.Enter(t.Context()))
			must(t, second(r.WriteSession(t.Context(), transition(id, 1))))
			calls := map[string]func(ctx context.Context) error{
				"read":       func(ctx context.Context) error { return second(r.ReadSession(ctx, id, 1)) },
				"write":      func(ctx context.Context) error { return second(r.WriteSession(ctx, transition(id, 2))) },
				"renewal":    func(ctx context.Context) error { return second(r.RenewReview(ctx, id, store.Review{})) },
				"definition": func(ctx context.Context) error { return second(r.Definition(ctx, "0")) },
				"changes":    func(ctx context.Context) error { return second(b.Changes().Since(ctx, "0")) },
				"board":      func(ctx context.Context) error { return second(b.Board().Task(ctx, "x")) },
				"change of the board": func(ctx context.Context) error {
					return s.Transact(ctx, sqlstore.Writing, func(context.Context, sqlstore.Querier) error { return nil })
				},
				"gone": func(ctx context.Context) error { return second(s.GoneFor(ctx, task.Place{})) },
			}
			leave()
			soon, cancel := context.WithTimeout(t.Context(), time.Second/5)
			testkit.FailsWith(t, calls["read"](soon), store.ErrUnavailable, "before it knows")
			cancel()
			s.contact.probe.Wake()
			testkit.Until(t, "it knows", func() bool { return !ready(s) })
			for what, call := range calls {
				began := time.Now()
				err := call(t.Context())
				if took := time.Since(began); !errors.Is(err, store.ErrUnavailable) || took > time.Second {
					t.Errorf("%s: %v after %v", what, err, took)
				}
			}
			come()
			began := time.Now()
			testkit.Until(t, "calls succeed", func() bool { return second(r.ReadSession(t.Context(), id, 1)) == nil })
			if took := time.Since(began); took > 2*touchTime {
				t.Errorf("they succeed after %v", took)
			}
			for what, call := range calls {
				if err := call(t.Context()); err != nil && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, store.ErrNotFound) {
					t.Errorf("%s, when it is back: %v", what, err)
				}
			}
			must(t, s.Close(t.Context()))
			testkit.FailsWith(t, calls["board"](t.Context()), task.ErrClosed)
		})
	}
}

// A transition whose reply is lost may have been made or not. When the database is back, the row says which.
func TestAnUnknownOutcomeWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for what, made := range map[string]bool{"the reply is lost": true, "the request is lost": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			proxy := pgtest.NewProxy(t, pgtest.URL(t))
			s := openAt(t, proxy.URL)
			r := sessionsOf(s)
			must(t, second(r.WriteSession(t.Context(), transition(id, 1))))
			must(t, s.Enter(t.Context()))
			caught := proxy.RefuseAt(func(m pgtest.Message) bool {
				return made && m.Commits || !made && !m.FromServer && m.Type == 'P' && strings.Contains(string(m.Body), "move_session")
			})
			if written, err := r.WriteSession(t.Context(), transition(id, 2)); written || !errors.Is(err, store.ErrPending) {
				t.Fatal(written, err)
			}
			<-caught
			testkit.Until(t, "it knows", func() bool { return !ready(s) })
			for _, err := range []error{second(r.ReadSession(t.Context(), id, 1)), second(r.WriteSession(t.Context(), transition(id, 2)))} {
				testkit.True(t, errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrPending), "%v", err)
			}
			proxy.Refuse(false)
			testkit.Until(t, "it can be read", func() bool { return second(r.ReadSession(t.Context(), id, 1)) == nil })
			now := testkit.Get(r.ReadSession(t.Context(), id, -1)).Must(t)
			testkit.Equal(t, now.Revision == 2, made, "the session has revision %d", now.Revision)
			if written, err := r.WriteSession(t.Context(), transition(id, 2)); written == made || err != nil {
				t.Errorf("the same transition again: %v, %v", written, err)
			}
		})
	}
}

// So is it for a process that has started while the database was away.
func TestStartingWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	must(t, server.Stop())
	s := openAt(t, server.URL())
	if err := s.Open(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "see that the server runs") {
		t.Fatal(err)
	}
	began := time.Now()
	for range 10 {
		if err := second(s.Database().Changes().Since(t.Context(), "")); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > time.Second || ready(s) {
		t.Errorf("ten calls took %v, and it is ready: %v", took, ready(s))
	}
	must(t, server.Start())
	testkit.Until(t, "it is ready", func() bool { return ready(s) })
	must(t, second(s.Database().Changes().Since(t.Context(), "")))
}

// The errors of settings that are wrong say what can be done.
func TestSettingsThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for change, want := range map[string][2]string{
		"the database": {"/postgres?", "/nothere?"},
		"the role":     {"postgres@", "nobody@"},
	} {
		s := openAt(t, strings.Replace(url, want[0], want[1], 1))
		if err := s.Open(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "correct ") || strings.Count(err.Error(), s.Where()) != 1 {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// A call that is given up sends no request to cancel its statement, which can end PgBouncer.
func TestNoRequestToCancel(t *testing.T) {
	t.Parallel()
	proxy := pgtest.NewProxy(t, pgtest.URL(t))
	s := openAt(t, proxy.URL)
	must(t, s.Open(t.Context()))
	cancels := proxy.CutAt(func(m pgtest.Message) bool {
		return !m.FromServer && m.Type == 0 && bytes.HasPrefix(m.Body, []byte{4, 210, 22, 46})
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/5)
	defer cancel()
	err := s.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
		return q.QueryRowContext(ctx, `SELECT pg_sleep(20)::text`).Scan(new(string))
	})
	testkit.FailsWith(t, err, context.DeadlineExceeded)
	select {
	case <-cancels:
		t.Error("it was sent")
	case <-time.After(time.Second / 2):
	}
}

func (h *hints) closed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// hears reports whether hints arrive, and all of them have been passed on.
func (h *hints) hears() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard.Load() && !h.soon
}

// A change is hinted at to the other processes of the project, also after their connections were lost.
func TestAHintArrives(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	url := server.URL()
	s, other := openAt(t, url), openAt(t, url)
	unrelated := options(url)
	unrelated.Project = "another"
	third := testkit.Get(Open(unrelated)).Must(t)
	defer third.Close(t.Context())
	other.hinted()
	third.hinted()
	heard := func() {
		t.Helper()
		testkit.Until(t, "the listening begins with a hint of its own", func() bool { return other.hints.hears() && third.hints.hears() })
		testkit.Until(t, "another project does not have it, too", func() bool { // again if that one listens anew just then
			before, foreign := other.hints.closed(), third.hints.closed()
			makeChange(t, s, "x")
			testkit.Until(t, "a hint arrives", func() bool { return other.hints.closed() > before })
			return third.hints.closed() == foreign
		})
	}
	heard()
	must(t, server.Kill())
	testkit.Until(t, "the connections end", func() bool { return !other.hints.heard.Load() && !third.hints.heard.Load() })
	must(t, server.Start())
	testkit.Until(t, "the database is back", func() bool {
		_, err := other.Database().Changes().Since(t.Context(), "")
		return err == nil
	})
	heard()
}

// Through PgBouncer in transaction mode no hint arrives: the process looks for changes itself, and no
// connection of the server is left listening.
func TestNoHintsThroughPgBouncer(t *testing.T) {
	t.Parallel()
	url := pgtest.Bouncer(t, pgtest.New(t).URL())
	s, other := openAt(t, url), openAt(t, url)
	makeChange(t, s, "first")
	_, at := since(t, other, "")
	testkit.Equal(t, other.hear(), errUnheard, "listening")
	time.AfterFunc(100*time.Millisecond, func() { makeChange(t, s, "x") })
	must(t, other.Database().Changes().Wait(t.Context(), at))
	if all, _ := since(t, other, at); len(all) != 1 {
		t.Errorf("the changes are %v", all)
	}
	testkit.Until(t, "it looks", func() bool { return other.hints.closed() > 0 })
	before := other.hints.closed()
	makeChange(t, s, "y")
	testkit.Until(t, "it finds a change", func() bool { return other.hints.closed() > before })
	listening := 0
	if _, err := s.first(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'`, nil, &listening); err != nil || listening != 0 {
		t.Errorf("%d connections listen, %v", listening, err)
	}
}
