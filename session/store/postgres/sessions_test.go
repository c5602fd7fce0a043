package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
)

const id = "0123abcd"

func sessionsOf(s *Store) store.Sessions { return s.Database().Sessions() }

// transition is a transition of a session to a revision; revision 1 begins it.
func transition(id string, revision int64) *store.SessionWrite {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &store.SessionWrite{Before: revision - 1, Frame: "{}", Session: store.Session{ID: id, Revision: revision, Root: "/srv/shop",
		Job: "alpha", Workflow: "main", Step: "one", Status: "active", Identity: "local", StartedAt: at, UpdatedAt: at.Add(time.Duration(revision) * time.Second)}}
	if revision == 1 {
		w.Before = -1
	}
	return w
}

// moves reports whether a message is a client's statement for a transition.
func moves(m pgtest.Message) bool {
	return !m.FromServer && m.Type == 'P' && strings.Contains(string(m.Body), "move_session")
}

// revisionOf returns the revision of a session, or 0 if it does not exist.
func revisionOf(t testing.TB, s store.Sessions, id string) int64 {
	t.Helper()
	now, err := s.ReadSession(t.Context(), id, -1)
	if errors.Is(err, store.ErrNotFound) {
		return 0
	}
	must(t, err)
	return now.Revision
}

// A transition whose reply is lost is pending, whether it was made, was not, or is still on its way: then the
// one that is made again and the delayed one cannot both be made. The row says which.
func TestATransitionWithoutAReply(t *testing.T) {
	s, url := openNew(t)
	direct := sessionsOf(s)
	made := map[string]bool{"reply": true, "request": false, "delayed": false}
	number := 0
	for how, begin := range map[string]func(p *pgtest.Proxy) <-chan struct{}{
		"reply": func(p *pgtest.Proxy) <-chan struct{} {
			return p.CutAt(func(m pgtest.Message) bool { return m.Commits })
		},
		"request": func(p *pgtest.Proxy) <-chan struct{} { return p.CutAt(moves) },
		"delayed": func(p *pgtest.Proxy) <-chan struct{} { return p.HoldAt(moves, 2*time.Second) },
	} {
		for _, before := range []int64{0, 1} { // it begins a session by a request, or moves one
			number++
			id, key := fmt.Sprintf("%08x", number), store.Key{byte(number)}
			t.Run(fmt.Sprintf("%s %d", how, before), func(t *testing.T) {
				t.Parallel()
				proxy := pgtest.NewProxy(t, url)
				slow := openAt(t, proxy.URL)
				cut := sessionsOf(slow)
				must(t, slow.Enter(t.Context()))
				if before == 1 {
					must(t, second(direct.WriteSession(t.Context(), transition(id, 1))))
				}
				w := transition(id, before+1)
				w.Request = &key
				caught := begin(proxy)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				written, err := cut.WriteSession(ctx, w)
				testkit.True(t, !written && errors.Is(err, store.ErrPending), "written %v, %v", written, err)
				<-caught
				testkit.Equal(t, revisionOf(t, direct, id) == before+1, made[how], "it was made")
				written, err = cut.WriteSession(t.Context(), w) // the same transition again
				testkit.True(t, written != made[how] && (err == nil || errors.Is(err, store.ErrExists)), "again: written %v, %v", written, err)
				next := transition(id, before+2)
				must(t, second(cut.WriteSession(t.Context(), next)))
				if how == "delayed" { // what was on its way arrives
					time.Sleep(3 * time.Second)
				}
				testkit.Equal(t, revisionOf(t, direct, id), before+2, "at last it has revision")
				testkit.Equal(t, testkit.Get(direct.FindRequest(t.Context(), key)).Must(t), id, "its call is found")
			})
		}
	}
}

// The outcome of a transition that changes the board, too, is asked for.
func TestATransitionOfAnAttemptWithoutAReply(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	proxy := pgtest.NewProxy(t, url)
	cut := openAt(t, proxy.URL)
	must(t, cut.Enter(t.Context()))
	w := transition(id, 1)
	w.AttemptID = "none"
	caught := proxy.CutAt(func(m pgtest.Message) bool { return m.Commits })
	written := testkit.Get(sessionsOf(cut).WriteSession(t.Context(), w)).Must(t)
	testkit.True(t, written, "written %v", written)
	<-caught
	testkit.Equal(t, revisionOf(t, sessionsOf(s), id), 1, "it has revision")
}

// A transition waits for the session's row no longer than its call, and may be made later.
func TestATransitionThatWaitsForItsRow(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	sessions := sessionsOf(s)
	must(t, second(sessions.WriteSession(t.Context(), transition(id, 1))))
	other := openAt(t, url)
	must(t, other.Open(t.Context()))
	tx := testkit.Get(other.pool.BeginTx(t.Context(), nil)).Must(t)
	defer tx.Rollback()
	testkit.Get(tx.ExecContext(t.Context(), s.text(`SELECT FROM @workflow_sessions_all FOR UPDATE`))).Must(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/5)
	defer cancel()
	began := time.Now()
	if written, err := sessions.WriteSession(ctx, transition(id, 2)); written || !errors.Is(err, store.ErrPending) {
		t.Errorf("written %v, %v", written, err)
	}
	took := time.Since(began)
	testkit.True(t, took <= 3*time.Second, "it has waited for %v", took)
	must(t, second(sessions.WriteSession(t.Context(), transition("00000001", 1)))) // others do not wait
	must(t, tx.Rollback())
	written := testkit.Get(sessions.WriteSession(t.Context(), transition(id, 2))).Must(t)
	testkit.Equal(t, revisionOf(t, sessions, id), 2, "written %v, and it has revision", written)
}

// Statements of other projects in the same schema have other sessions, also with the same ids and requests.
func TestSessionsOfTwoProjects(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	o := options(pgtest.Bouncer(t, url))
	o.Project = "another"
	other := testkit.Get(Open(o)).Must(t)
	t.Cleanup(func() { must(t, other.Close(context.Background())) })
	one, two := sessionsOf(s), sessionsOf(other)
	w := transition(id, 1)
	w.Request, w.Define = &store.Key{7}, &store.Definition{Hash: "d1", Data: []byte("{}")}
	w.Put = []store.SessionPart{{Kind: "step", Key: "one", Body: "1"}}
	w.Began = &store.Review{Step: "one", Runner: "r", Life: time.Minute}
	must(t, second(one.WriteSession(t.Context(), w)))
	testkit.FailsWith(t, testkit.Get(two.ReadSession(t.Context(), id, -1)).Err(), store.ErrNotFound, "read from another project")
	testkit.FailsWith(t, testkit.Get(two.Definition(t.Context(), "d1")).Err(), store.ErrNotFound, "a definition of another project")
	testkit.Equal(t, testkit.Get(two.FindRequest(t.Context(), *w.Request)).Must(t), "", "a request of another project")
	all := testkit.Get(two.ListSessions(t.Context(), store.SessionQuery{})).Must(t)
	testkit.True(t, len(all) == 0, "listed %+v", all)
	w.Status, w.Put[0].Body = "completed", "2"
	must(t, second(two.WriteSession(t.Context(), w)))
	must(t, second(two.WriteSession(t.Context(), transition(id, 2))))
	must(t, second(two.WriteSession(t.Context(), transition("00000001", 1))))
	must(t, one.LeaveReviews(t.Context(), "r"))
	reviews := testkit.Get(two.Reviews(t.Context(), id)).Must(t)
	testkit.True(t, len(reviews) == 1 && !reviews[0].Over, "the reviews are %+v", reviews)
	ended := transition(id, 3)
	ended.Status = "aborted"
	must(t, second(two.WriteSession(t.Context(), ended)))
	must(t, two.RemoveSessions(t.Context(), []string{id}))
	now := testkit.Get(one.ReadSession(t.Context(), id, -1)).Must(t)
	testkit.True(t, now.Revision == 1 && len(now.Parts) == 1 && now.Parts[0].Body == "1", "after that of the other project was removed: %+v", now)
	testkit.Equal(t, testkit.Get(two.PruneDefinitions(t.Context(), time.Now().Add(time.Hour))).Must(t), 1, "definitions removed")
	must(t, second(one.Definition(t.Context(), "d1")))
}

// A server without connections left is unavailable, and later it is not.
func TestExhaustedConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, "max_connections=15")
	s := openAt(t, server.URL())
	r := sessionsOf(s)
	must(t, second(r.WriteSession(t.Context(), transition(id, 1))))
	release := testkit.Get(pgtest.Exhaust(server.At(""))).Must(t)
	other := openAt(t, server.URL())
	testkit.FailsWith(t, other.Open(t.Context()), store.ErrUnavailable, "opened")
	must(t, second(r.WriteSession(t.Context(), transition(id, 2)))) // it keeps its connections
	release()
	testkit.Until(t, "it opens", func() bool { return other.Open(t.Context()) == nil })
}

// Writers go on after the database was killed, and nothing that was acknowledged is lost.
func TestADatabaseThatIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	s := openAt(t, server.URL())
	r := sessionsOf(s)
	must(t, s.Enter(t.Context()))
	const writers = 8
	var all sync.WaitGroup
	acked := make([]int64, writers)
	ctx, stop := context.WithCancel(t.Context())
	progress := make(chan struct{}, writers)
	for w := range writers {
		all.Go(func() {
			id := fmt.Sprintf("%08x", w)
			for n := int64(1); ctx.Err() == nil; {
				written, err := r.WriteSession(t.Context(), transition(id, n))
				switch {
				case written:
					acked[w] = n
					n++
					select {
					case progress <- struct{}{}:
					default:
					}
				case err == nil || errors.Is(err, store.ErrPending) || errors.Is(err, store.ErrExists):
					now, err := r.ReadSession(t.Context(), id, -1)
					if err == nil && (now.Revision < acked[w] || now.Revision > n) {
						t.Errorf("%d was acknowledged, %d was written, and %d is stored", acked[w], n, now.Revision)
						return
					} else if err == nil {
						acked[w], n = now.Revision, now.Revision+1
					} else if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrNotFound) {
						t.Error(err)
						return
					}
				case !errors.Is(err, store.ErrUnavailable):
					t.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		for range 50 {
			<-progress
		}
		must(t, server.Kill())
		must(t, server.Start())
	}
	for range 50 {
		<-progress
	}
	stop()
	all.Wait()
	for w := range writers {
		testkit.Equal(t, revisionOf(t, r, fmt.Sprintf("%08x", w)), acked[w], "what is stored of writer %d", w)
	}
}
