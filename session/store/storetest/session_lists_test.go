package storetest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
)

func sessionIDs(all []store.Session) (ids []string) {
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// A list has the sessions that all conditions hold for, the one that moved last first, and of equal times in
// the order of their ids.
func TestListsOfSessions(t *testing.T) {
	a, b := twoStores(t)
	add := func(id string, after time.Duration, change func(w *store.SessionWrite)) {
		w := newSession(id)
		w.UpdatedAt = began.Add(after)
		if change != nil {
			change(w)
		}
		write(t, a, w)
	}
	add("00000001", 0, nil)
	add("00000003", time.Second, func(w *store.SessionWrite) { w.Identity, w.Waiting = "ann", "{}" })
	add("00000002", time.Second, func(w *store.SessionWrite) { w.Parent = "00000001" })
	add("00000004", 2*time.Second, func(w *store.SessionWrite) { w.Status, w.Parent, w.Waiting = "completed", "00000003", "{}" })
	add("00000005", 3*time.Second, func(w *store.SessionWrite) { w.Status, w.Identity = "aborted", "ann" })
	add("00000006", time.Microsecond, func(w *store.SessionWrite) { w.AttemptID = "a1" })
	none, one := "", "a1"
	all := []string{"00000005", "00000004", "00000002", "00000003", "00000006", "00000001"}
	for name, c := range map[string]struct {
		q    store.SessionQuery
		want []string
	}{
		"all":                    {store.SessionQuery{}, all},
		"the newest":             {store.SessionQuery{Limit: 2}, all[:2]},
		"a large limit":          {store.SessionQuery{Limit: 100}, all},
		"an identity":            {store.SessionQuery{Identity: "ann"}, []string{"00000005", "00000003"}},
		"an unknown identity":    {store.SessionQuery{Identity: "bob"}, nil},
		"active":                 {store.SessionQuery{Active: true}, []string{"00000002", "00000003", "00000006", "00000001"}},
		"ended":                  {store.SessionQuery{Ended: true}, []string{"00000005", "00000004"}},
		"active and ended":       {store.SessionQuery{Active: true, Ended: true}, nil},
		"active of an identity":  {store.SessionQuery{Active: true, Identity: "local", Limit: 1}, []string{"00000002"}},
		"of the project":         {store.SessionQuery{Attempt: &none, Active: true}, []string{"00000002", "00000003", "00000001"}},
		"of an attempt":          {store.SessionQuery{Attempt: &one}, []string{"00000006"}},
		"waiting":                {store.SessionQuery{Waiting: true}, []string{"00000004", "00000003"}},
		"active and waiting":     {store.SessionQuery{Active: true, Waiting: true}, []string{"00000003"}},
		"nested in any of these": {store.SessionQuery{Parents: []string{"00000003", "0000000f", "00000001"}}, []string{"00000004", "00000002"}},
		"nested in none":         {store.SessionQuery{Parents: []string{}}, nil},
		"ids":                    {store.SessionQuery{IDs: []string{"00000001", "00000005", "0000000f", "00000001", "x"}}, []string{"00000005", "00000001"}},
		"no ids":                 {store.SessionQuery{IDs: []string{}}, nil},
		"before a time":          {store.SessionQuery{Before: began.Add(time.Second)}, []string{"00000006", "00000001"}},
		"ended before a time":    {store.SessionQuery{Ended: true, Before: began.Add(3 * time.Second)}, []string{"00000004"}},
	} {
		got := returned(b.ListSessions(t.Context(), c.q)).of(t)
		equal(t, name, sessionIDs(got), c.want)
	}
	w := newSession("00000001")
	write(t, b, moved(w, func(w *store.SessionWrite) { w.UpdatedAt = began.Add(time.Hour) }))
	listSessions := returned(a.ListSessions(t.Context(), store.SessionQuery{Limit: 1})).of(t)
	equal(t, "after it moved", sessionIDs(listSessions), []string{"00000001"})
}

// A list may be of hundreds of ids.
func TestAListOfManySessions(t *testing.T) {
	a, b := twoStores(t)
	var ids []string
	for n := range 300 {
		ids = append(ids, fmt.Sprintf("%08x", n))
		if n%100 == 0 {
			write(t, a, newSession(ids[n]))
		}
	}
	for _, n := range []int{1, 2, 3, 100, 101, 300} {
		got := returned(b.ListSessions(t.Context(), store.SessionQuery{IDs: ids[:n]})).of(t)
		equal(t, len(got), (n+99)/100)
	}
}

// What a session is nested in is found to the top, also if some of it has ended, and up to what was removed. A
// cycle, which only an import could make, ends after one round.
func TestAncestryOfASession(t *testing.T) {
	a, b := twoStores(t)
	want := func(id string, want ...string) {
		t.Helper()
		ancestry := returned(b.Ancestry(t.Context(), id)).of(t)
		equal(t, id, sessionIDs(ancestry), want)
	}
	want("0000000f")
	var chain []string
	nest := func(id, parent string, change func(w *store.SessionWrite)) {
		w := newSession(id)
		w.Parent = parent
		if change != nil {
			change(w)
		}
		write(t, a, w)
		chain = append(chain, id)
	}
	parent := ""
	for n := range 60 {
		id := fmt.Sprintf("%08x", 60-n)
		nest(id, parent, func(w *store.SessionWrite) {
			if n%3 == 1 {
				w.Status = "completed"
			}
		})
		parent = id
	}
	nest("ffff0000", "00000001", nil) // beside the others
	want("00000001", chain[:60]...)
	want("ffff0000", chain...)
	want(chain[0], chain[0])
	got := returned(a.Ancestry(t.Context(), chain[1])).of(t)
	equal(t, "the ancestry of an ended one", len(got), 2, got[1].Status, "completed", got[1].Parent, chain[0])
	testkit.Must(t, a.RemoveSessions(t.Context(), []string{chain[1]}))
	want(chain[3], chain[2:4]...)
	nest("cccc0001", "cccc0003", nil)
	nest("cccc0002", "cccc0001", nil)
	nest("cccc0003", "cccc0002", nil)
	want("cccc0001", "cccc0002", "cccc0003", "cccc0001")
	nest("dddd0001", "dddd0001", nil)
	want("dddd0001", "dddd0001")
}

// Sessions that have ended are removed with all that belongs to them; others stay.
func TestRemovingSessions(t *testing.T) {
	a, b := twoStores(t)
	testkit.Must(t, a.RemoveSessions(t.Context(), nil))
	key := func(n int) store.Key { return store.Key{byte(n), byte(n >> 8), 1} }
	var ids []string
	for n := range 600 { // more than are removed at once
		id := fmt.Sprintf("%08x", n)
		ids = append(ids, id)
		if n > 5 && n < 590 {
			continue
		}
		w := newSession(id)
		w.Put = []store.SessionPart{{Kind: "step", Key: "one", Body: id}}
		w.Request = new(key(n))
		w.Began = &store.Review{Step: "one", Runner: "r", Life: time.Minute}
		if n%2 == 0 {
			w.Status = "completed"
		}
		write(t, a, w)
	}
	testkit.Must(t, b.RemoveSessions(t.Context(), ids))
	list := returned(a.ListSessions(t.Context(), store.SessionQuery{})).of(t)
	if got, want := sessionIDs(list), []string{"00000001", "00000003", "00000005", "0000024f", "00000251", "00000253", "00000255", "00000257"}; !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v", got, want)
	}
	for n, want := range map[int]bool{0: false, 1: true, 598: false, 599: true} {
		found := returned(a.FindRequest(t.Context(), key(n))).of(t)
		equal(t, n, (found != ""), want)
		reviews := returned(a.Reviews(t.Context(), ids[n])).of(t)
		equal(t, n, (len(reviews) == 1), want)
	}
	// Another session with the id of one that was removed has nothing of it, and its call may be made again.
	w := newSession(ids[0])
	w.Request = new(key(0))
	write(t, b, w)
	reads(t, a, w)
}
