package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
)

// An outcome is that of a transition.
type moveOutcome struct {
	written bool
	err     error
}

// use sets how many lanes are in use.
func (g *groups) use(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = n
}

// await waits until n members wait.
func (g *groups) await(t *testing.T, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d members wait", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.waiting) == n
	})
}

// together makes transitions that wait while all lanes are in use, in their order, and then frees one lane. It returns
// where their outcomes arrive.
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

// moveLater makes a transition on a goroutine.
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
	testkit.Get(s.first(t.Context(), `SELECT count(DISTINCT xid) FROM @changes_all c JOIN @workflow_sessions_all w USING (scope, id) WHERE w.revision = 2
		AND c.xid = (SELECT max(xid::text::bigint)::text::xid8 FROM @changes_all l WHERE l.scope = c.scope AND l.id = c.id)`, nil, &n)).Must(t)
	return n
}

// begun begins sessions and returns their transitions to revision 2.
func begun(t *testing.T, s *Store, n int) (writes []*store.SessionWrite) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("%08x", i)
		must(t, second(sessionsOf(s).WriteSession(t.Context(), transition(id, 1))))
		writes = append(writes, transition(id, 2))
	}
	return writes
}

// Members of a group share a transaction. One whose row is locked elsewhere keeps none waiting, one that lost its swap
// says so, and one that is refused is refused alone.
func TestTransitionsOfAGroup(t *testing.T) {
	const bad = 1
	for name, c := range map[string]struct {
		spoil  func(w *store.SessionWrite)
		locked bool
		want   moveOutcome
		shared int // transactions of the others
	}{
		"stale":   {spoil: func(w *store.SessionWrite) { w.Before = 7 }, shared: 1},
		"refused": {spoil: func(w *store.SessionWrite) { w.Verdict = &store.Review{Step: "one", Runner: "another"} }, want: moveOutcome{err: store.ErrReviewTaken}, shared: 3},
		"locked":  {spoil: func(*store.SessionWrite) {}, locked: true, want: moveOutcome{written: true}, shared: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := openNew(t)
			writes := begun(t, s, 4)
			c.spoil(writes[bad])
			other := openAt(t, url)
			must(t, other.Open(t.Context()))
			tx := testkit.Get(other.pool.BeginTx(t.Context(), nil)).Must(t)
			defer tx.Rollback()
			if c.locked {
				testkit.Get(tx.ExecContext(t.Context(), s.text(`SELECT FROM @workflow_sessions_all WHERE id = $1 FOR UPDATE`), writes[bad].ID)).Must(t)
			}
			outcomes := together(t, s, writes...)
			for i, out := range outcomes {
				if i == bad {
					continue
				}
				if o := <-out; !o.written || o.err != nil {
					t.Errorf("member %d: written %v, %v", i, o.written, o.err)
				}
			}
			testkit.Equal(t, transactions(t, s), c.shared, "transactions")
			must(t, tx.Rollback())
			if o := <-outcomes[bad]; o.written != c.want.written || !errors.Is(o.err, c.want.err) {
				t.Errorf("the %s one: written %v, %v", name, o.written, o.err)
			}
		})
	}
}

// A group has a bounded number of members and bytes.
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
			for i, out := range together(t, s, writes...) {
				if o := <-out; !o.written || o.err != nil {
					t.Errorf("member %d: written %v, %v", i, o.written, o.err)
				}
			}
			testkit.Equal(t, transactions(t, s), c.groups, "transactions")
		})
	}
}

// A call that ends while its transition waits has sent nothing; the end of the call that leads a group ends none of the
// others.
func TestACallOfAGroupThatEnds(t *testing.T) {
	t.Parallel()
	s, _ := openNew(t)
	writes := begun(t, s, 3)
	ctx, cancel := context.WithCancel(t.Context())
	s.groups.use(lanes)
	ended := moveLater(ctx, s, writes[0])
	s.groups.await(t, 1)
	cancel()
	if o := <-ended; o.written || !errors.Is(o.err, context.Canceled) {
		t.Errorf("the call that has ended: written %v, %v", o.written, o.err)
	}
	s.groups.await(t, 0)
	leading, stop := context.WithCancel(t.Context())
	a, b := &member{write: writes[1], turn: make(chan []*member, 1)}, &member{write: writes[2], turn: make(chan []*member, 1)}
	stop()
	database{s}.lead(leading, time.Now(), []*member{a, b})
	<-b.turn
	for i, m := range []*member{a, b} {
		testkit.True(t, m.err == nil && m.made != nil && *m.made, "member %d: made %v, %v", i, m.made, m.err)
	}
}
