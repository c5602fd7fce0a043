package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	w := &store.SessionWrite{Before: revision - 1, Frame: "{}", Session: store.Session{
		ID:        id,
		Revision:  revision,
		Root:      "/srv/shop",
		Job:       "alpha",
		Workflow:  "main",
		Step:      "one",
		Status:    "active",
		Identity:  "local",
		StartedAt: at,
		UpdatedAt: at.Add(time.Duration(revision) * time.Second),
	}}
	if revision == 1 {
		w.Before = -1
	}
	return w
}

func moves(m pgtest.Message) bool {
	return !m.FromServer && m.Type == 'P' && strings.Contains(string(m.Body), "move_session")
}

func revisionOf(t testing.TB, s store.Sessions, id string) int64 {
	t.Helper()
	now, err := s.ReadSession(t.Context(), id, -1)
	if errors.Is(err, store.ErrNotFound) {
		return 0
	}
	must(t, err)
	return now.Revision
}

// A transition whose reply is lost is pending, whether it was made, was not, or is still on its way, and also
// if the database is away then: the one that is made again and a delayed one cannot both be made. The row
// says which.
func TestATransitionWithoutAReply(t *testing.T) {
	s, url := openNew(t)
	direct := sessionsOf(s)
	made := map[string]bool{"reply": true, "reply, and away": true}
	number := 0
	for how, begin := range map[string]func(p *pgtest.Proxy) <-chan struct{}{
		"reply": func(p *pgtest.Proxy) <-chan struct{} {
			return p.CutAt(func(m pgtest.Message) bool { return m.Commits })
		},
		"request": func(p *pgtest.Proxy) <-chan struct{} { return p.CutAt(moves) },
		"delayed": func(p *pgtest.Proxy) <-chan struct{} { return p.HoldAt(moves, 2*time.Second) },
		"reply, and away": func(p *pgtest.Proxy) <-chan struct{} {
			return p.RefuseAt(func(m pgtest.Message) bool { return m.Commits })
		},
		"request, and away": func(p *pgtest.Proxy) <-chan struct{} { return p.RefuseAt(moves) },
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
				if strings.HasSuffix(how, "away") {
					testkit.Until(t, "it knows", func() bool { return !ready(slow) })
					for _, err := range []error{second(cut.ReadSession(t.Context(), id, 1)),
						second(cut.WriteSession(t.Context(), w))} {
						testkit.True(t, errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrPending),
							"%v", err)
					}

					proxy.Refuse(false)
					testkit.Until(t, "it can be used", func() bool { return ready(slow) })
				}
				testkit.Equal(t, revisionOf(t, direct, id) == before+1, made[how], "it was made")
				written, err = cut.WriteSession(t.Context(), w) // the same transition again
				testkit.True(t, written != made[how] && (err == nil || errors.Is(err, store.ErrExists)),
					"again: written %v, %v", written, err)
				must(t, second(cut.WriteSession(t.Context(), transition(id, before+2))))
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
	s, url := newStore(t)
	proxy := pgtest.NewProxy(t, url)
	cut := openAt(t, proxy.URL)
	must(t, cut.Enter(t.Context()))
	w := transition(id, 1)
	w.AttemptID = "none"
	caught := proxy.CutAt(func(m pgtest.Message) bool { return m.Commits })
	testkit.True(t, testkit.Get(sessionsOf(cut).WriteSession(t.Context(), w)).Must(t), "it is not written")
	<-caught
	testkit.Equal(t, revisionOf(t, sessionsOf(s), id), 1, "it has revision")
}

func TestSessionsOfTwoProjects(t *testing.T) {
	s, url := newStore(t)
	one, two := sessionsOf(s), sessionsOf(openAs(t, pgtest.Bouncer(t, url), "another", "/srv/shop"))
	w := transition(id, 1)
	w.Request, w.Define = &store.Key{7}, &store.Definition{Hash: "d1", Data: []byte("{}")}
	w.Put = []store.SessionPart{{Kind: "step", Key: "one", Body: "1"}}
	row := store.WorkRow{Kind: "count", Key: "one", Runner: "r", Life: time.Minute}
	w.PutWork = []store.WorkRow{row}
	must(t, second(one.WriteSession(t.Context(), w)))
	testkit.FailsWith(t, testkit.Get(two.ReadSession(t.Context(), id, -1)).Err(), store.ErrNotFound,
		"read from another project")
	testkit.FailsWith(t, testkit.Get(two.Definition(t.Context(), "d1")).Err(), store.ErrNotFound,
		"a definition of another project")
	testkit.Equal(t, testkit.Get(two.FindRequest(t.Context(), *w.Request)).Must(t), "", "a request of another project")
	testkit.Equal(t, len(testkit.Get(two.ListSessions(t.Context(), store.SessionQuery{})).Must(t)), 0, "sessions")
	w.Status, w.Put[0].Body = "completed", "2"
	for _, w := range []*store.SessionWrite{w, transition(id, 2), transition("00000001", 1)} {
		must(t, second(two.WriteSession(t.Context(), w)))
	}
	ended := transition(id, 3)
	ended.Status = "aborted"
	ended.EndWork = []store.WorkRow{row}
	must(t, errors.Join(second(two.WriteSession(t.Context(), ended)), two.RemoveSessions(t.Context(), []string{id})))
	now := testkit.Get(one.ReadSession(t.Context(), id, -1)).Must(t)
	must(t, second(s.Database().Work().Row(t.Context(), row.Kind, row.Key)))
	testkit.Equal(t, now.Revision, 1, "after that of the other project was removed: %+v", now)
	testkit.Need(t, len(now.Parts) == 1, "after that of the other project was removed: %+v", now)
	testkit.Equal(t, now.Parts[0].Body, "1", "after that of the other project was removed: %+v", now)
	testkit.Equal(t, testkit.Get(two.PruneDefinitions(t.Context(), -time.Hour)).Must(t), 1, "definitions removed")
	must(t, second(one.Definition(t.Context(), "d1")))
}

func TestExhaustedConnections(t *testing.T) {
	server := newServer(t, "max_connections=15")
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
	server := newServer(t)
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
				if !written { // the row says what was made
					testkit.True(t, err == nil || errors.Is(err, store.ErrPending) || errors.Is(err, store.ErrExists) ||
						errors.Is(err, store.ErrUnavailable), "%v", err)
					now, err := r.ReadSession(t.Context(), id, -1)
					if err != nil {
						testkit.True(t, errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotFound),
							"%v", err)
						continue
					}
					testkit.True(t, now.Revision >= acked[w] && now.Revision <= n,
						"%d was acknowledged, %d was written, and %d is stored", acked[w], n, now.Revision)
					acked[w], n = now.Revision, now.Revision+1
					continue
				}
				acked[w] = n
				n++
				select { // of real writes only
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}

	for round := range 4 {
		if round > 0 {
			must(t, errors.Join(server.Kill(), server.Start()))
		}
		for range 50 {
			<-progress
		}
	}

	stop()
	all.Wait()
	for w := range writers {
		testkit.Equal(t, revisionOf(t, r, fmt.Sprintf("%08x", w)), acked[w], "what is stored of writer %d", w)
	}
}

type moveOutcome struct {
	written bool
	err     error
}

func (g *groups) use(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = n
}

func (g *groups) await(t *testing.T, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d members wait", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.waiting) == n
	})
}

// together makes transitions that wait while all lanes are in use, in their order, and then frees one lane.
// It returns where their outcomes arrive.
func together(t *testing.T, s *Store, writes ...*store.SessionWrite) (all []chan moveOutcome) {
	t.Helper()
	s.groups.use(lanes)
	for i, w := range writes {
		all = append(all, moveLater(t.Context(), s, w))
		s.groups.await(t, i+1)
	}

	s.groups.use(1)
	s.groups.leave()
	return all
}

func moveLater(ctx context.Context, s *Store, w *store.SessionWrite) chan moveOutcome {
	out := make(chan moveOutcome, 1)
	go func() {
		written, err := sessionsOf(s).WriteSession(ctx, w)
		out <- moveOutcome{written, err}
	}()
	return out
}

// transactions returns how many have made the transitions of sessions to revision 2.
func transactions(t *testing.T, s *Store) (n int) {
	t.Helper()
	testkit.Get(s.first(t.Context(),
		`SELECT count(DISTINCT xid) FROM @changes_all c JOIN @workflow_sessions_all w USING (scope, id) WHERE `+
			`w.revision = 2
		AND c.xid = (SELECT max(xid::text::bigint)::text::xid8 FROM @changes_all l WHERE l.scope = c.scope AND `+
			`l.id = c.id)`, nil, &n)).Must(t)
	return n
}

func begun(t *testing.T, s *Store, n int) (writes []*store.SessionWrite) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("%08x", i)
		must(t, second(sessionsOf(s).WriteSession(t.Context(), transition(id, 1))))
		writes = append(writes, transition(id, 2))
	}
	return writes
}

func checkOutcomes(t *testing.T, all []chan moveOutcome) {
	t.Helper()
	for i, out := range all {
		testkit.Equal(t, <-out, moveOutcome{written: true}, "member %d", i)
	}
}

// Members of a group share a transaction. One whose row is locked, that lost its swap or is refused holds up no other.
func TestTransitionsOfAGroup(t *testing.T) {
	const bad = 1
	// shared: transactions of the others
	group := func(name string, shared int, want moveOutcome, locked bool, spoil func(w *store.SessionWrite)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := openNew(t)
			writes := begun(t, s, 5)
			slow := writes[4] // its row is locked with that of the bad one
			writes = writes[:4]
			spoil(writes[bad])
			statement := `SELECT 1`
			if locked {
				statement = `SELECT FROM @workflow_sessions_all WHERE id IN ('` + writes[bad].ID + `', '` + slow.ID +
					`') FOR UPDATE`
			}
			tx := locks(t, url, statement)
			outcomes := together(t, s, writes...)
			checkOutcomes(t, slices.Delete(slices.Clone(outcomes), bad, bad+1))
			testkit.Equal(t, transactions(t, s), shared, "transactions")

			if locked { // a transition waits for its row no longer than its call
				soon, cancel := context.WithTimeout(t.Context(), time.Second/5)
				defer cancel()
				within(t, 3*time.Second, func() {
					testkit.FailsWith(t, second(sessionsOf(s).WriteSession(soon, slow)), store.ErrPending)
				})
			}

			must(t, tx.Rollback())
			o := <-outcomes[bad]
			testkit.True(t, o.written == want.written && errors.Is(o.err, want.err), "the %s one: written %v, %v", name,
				o.written, o.err)
		})
	}
	group("stale", 1, moveOutcome{}, false, func(w *store.SessionWrite) { w.Before = 7 })
	group("refused", 3, moveOutcome{err: store.ErrWorkTaken}, false, func(w *store.SessionWrite) {
		w.EndWork = []store.WorkRow{{Kind: "count", Key: "one", Runner: "another"}}
	})
	group("locked", 1, moveOutcome{written: true}, true, func(*store.SessionWrite) {})
}

func TestGroupsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ members, size, groups int }{
		"members": {groupSize + 1, 2, 2},
		"bytes":   {4, groupBytes/2 - 1, 2},
		"large":   {2, groupBytes + 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := openNew(t)
			writes := begun(t, s, c.members)
			for _, w := range writes {
				w.Frame = strings.Repeat("x", c.size)
			}
			checkOutcomes(t, together(t, s, writes...))
			testkit.Equal(t, transactions(t, s), c.groups, "transactions")
		})
	}
}

// A call that ends while its transition waits has sent nothing; the end of the one that leads a group ends no other.
func TestACallOfAGroupThatEnds(t *testing.T) {
	s, _ := newStore(t)
	writes := begun(t, s, 3)
	ctx, cancel := context.WithCancel(t.Context())
	s.groups.use(lanes)
	ended := moveLater(ctx, s, writes[0])
	s.groups.await(t, 1)
	cancel()
	testkit.FailsWith(t, (<-ended).err, context.Canceled, "the call that has ended")

	s.groups.await(t, 0)
	leading, stop := context.WithCancel(t.Context())
	a := &member{write: writes[1], turn: make(chan []*member, 1)}
	b := &member{write: writes[2], turn: make(chan []*member, 1)}
	stop()
	database{s}.lead(leading, time.Now(), []*member{a, b})
	<-b.turn
	for _, m := range []*member{a, b} {
		testkit.Works(t, m.err)
		testkit.True(t, *m.made, "it was not made")
	}
}
