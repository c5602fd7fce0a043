package sqlstore_test

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
	"deepwork/catalog/task"
	"deepwork/session/store"
)

func twoStores(t *testing.T) (a, b store.Sessions) {
	path, c := newPath(t)
	return open(t, path, c.now).Sessions(), open(t, path, c.now).Sessions()
}

var began = time.Date(2026, 2, 1, 8, 0, 0, 123_456_000, time.UTC)

func newSession(id string) *store.SessionWrite {
	return &store.SessionWrite{Before: -1, Frame: `{"n":1}`, Session: store.Session{
		ID:        id,
		Revision:  1,
		Root:      "/srv/shop",
		Job:       "alpha",
		Workflow:  "main",
		Step:      "one",
		Status:    "active",
		Goal:      "sell more",
		Identity:  "local",
		StartedAt: began,
		UpdatedAt: began,
	}}
}

func moved(w *store.SessionWrite, change func(w *store.SessionWrite)) *store.SessionWrite {
	next := &store.SessionWrite{Session: w.Session, Before: w.Revision, Frame: fmt.Sprintf(`{"n":%d}`, w.Revision+1)}
	next.Revision++
	next.UpdatedAt = next.UpdatedAt.Add(time.Second)
	if change != nil {
		change(next)
	}
	return next
}

func write(t testing.TB, s store.Sessions, all ...*store.SessionWrite) {
	t.Helper()
	for _, w := range all {
		is(t, true)(s.WriteSession(t.Context(), w))
	}
}

func refused(t testing.TB, s store.Sessions, w *store.SessionWrite, want error) {
	t.Helper()
	before, _ := s.ReadSession(t.Context(), w.ID, -1)
	written, err := s.WriteSession(t.Context(), w)
	testkit.FailsWith(t, err, want)
	equal(t, "written", written, false)
	after, _ := s.ReadSession(t.Context(), w.ID, -1)
	equal(t, after, before)
}

// reads checks that a session is what a write and these parts say.
func reads(t testing.TB, s store.Sessions, w *store.SessionWrite, parts ...store.SessionPart) {
	t.Helper()
	equal(t, testkit.Get(s.ReadSession(t.Context(), w.ID, -1)).Must(t),
		&store.SessionRecord{Session: w.Session, Frame: w.Frame, Parts: parts})
}

func TestASessionComesBackAsWritten(t *testing.T) {
	a, b := twoStores(t)
	w := newSession("0123abcd")
	w.Parent = "89ab0000"
	w.AttemptID = "no attempt"
	w.MovedBy = "00112233aabbccdd"
	w.MachineID = "0a1b2c3d"
	w.Machine = "host"
	w.Place = "/home/me/shop"
	w.Definition = "d1"
	w.Pinned = "d0"
	w.Waiting = `{"steps":["one"]}`
	w.Branch = "deepwork/x"
	w.StartedAt = began.Add(-time.Hour)
	for _, known := range []int64{-1, 1} {
		testkit.FailsWith(t, second(a.ReadSession(t.Context(), w.ID, known)), store.ErrNotFound)
	}
	refused(t, a, moved(w, nil), nil)
	write(t, a, w)
	reads(t, b, w)
	refused(t, b, w, store.ErrExists)
	for range 2 { // one that still has a known revision is not read
		is(t, &store.SessionRecord{Session: store.Session{ID: w.ID, Revision: 1}})(b.ReadSession(t.Context(), w.ID, 1))
	}
	for _, known := range []int64{0, 2} {
		is(t, &store.SessionRecord{Session: w.Session, Frame: w.Frame})(b.ReadSession(t.Context(), w.ID, known))
	}

	// No two active sessions have the same branch, and any number has none.
	other := newSession("0000000e")
	other.Branch = w.Branch
	refused(t, b, other, store.ErrExists)
	write(t, a, newSession("0000000c"), newSession("0000000d"))
	equal(t, "its place is", w.PlaceOf().Root, "/home/me/shop")
	next := moved(w, func(w *store.SessionWrite) {
		w.Step = "two"
		w.Status = "completed"
		w.MovedBy = ""
		w.MachineID = ""
		w.Machine = ""
		w.Place = ""
		w.Definition = "d2"
		w.Waiting = ""
	})
	write(t, b, next, other)
	reads(t, a, next)
	refused(t, a, next, nil)
	refused(t, a, w, store.ErrExists)
	is(t, &store.SessionRecord{Session: next.Session, Frame: next.Frame})(a.ReadSession(t.Context(), w.ID, 1))
	is(t, []store.Session{next.Session})(a.ListSessions(t.Context(), store.SessionQuery{IDs: []string{w.ID}}))
}

func TestOneOfManyWritersWins(t *testing.T) {
	a, b := twoStores(t)
	w := newSession("0123abcd")
	write(t, a, w)
	for range 10 {
		next := moved(w, nil)
		writers := atOnce(8, func(n int) bool {
			mine := *next
			mine.Frame, mine.Put = fmt.Sprintf(`{"writer":%d}`, n),
				[]store.SessionPart{{Kind: "step", Key: "writer", Body: fmt.Sprint(n)}}
			return testkit.Get([]store.Sessions{a, b}[n%2].WriteSession(t.Context(), &mine)).Must(t)
		})
		r := testkit.Get(a.ReadSession(t.Context(), w.ID, -1)).Must(t)
		equal(t, "have written", won(writers), 1, r.Revision, next.Revision, len(r.Parts), 1, r.Frame,
			fmt.Sprintf(`{"writer":%s}`, r.Parts[0].Body))
		w = next
	}
}

func TestASessionIsReadWhileItMoves(t *testing.T) {
	a, b := twoStores(t)
	w := newSession("0123abcd")
	w.Put = []store.SessionPart{{Kind: "step", Key: "one", Body: "1"}}
	write(t, a, w)
	var reader sync.WaitGroup
	done, moves := context.WithCancel(t.Context())
	reader.Go(func() {
		for last := int64(0); done.Err() == nil; {
			r := testkit.Get(b.ReadSession(t.Context(), "0123abcd", last)).Must(t)
			testkit.True(t, r.Revision >= last, "revision %d was read after %d", r.Revision, last)
			if n := fmt.Sprint(r.Revision); r.Revision != last {
				equal(t, len(r.Parts), 1, r.Parts[0].Body, n, r.Frame, `{"n":`+n+`}`)
			}
			last = r.Revision
		}
	})

	for range 100 {
		w = moved(w, func(w *store.SessionWrite) {
			w.Put = []store.SessionPart{{Kind: "step", Key: "one", Body: fmt.Sprint(w.Revision)}}
		})
		write(t, a, w)
	}
	moves()
	reader.Wait()
}

// Parts are replaced and dropped by kind and key, and come back by kind and then by position.
func TestPartsOfASession(t *testing.T) {
	a, b := twoStores(t)
	part := func(kind, key string, position int64, body string) store.SessionPart {
		return store.SessionPart{Kind: kind, Key: key, Position: position, Body: body}
	}
	w := newSession("0123abcd")
	w.Put = []store.SessionPart{part("step", "z", 0, "1"), part("step", "a", 1, "2"), part("reply", "10", 10, "3"),
		part("reply", "9", 9, "4"), part("withdrawal", "a", 0, "5")}
	write(t, a, w)
	reads(t, b, w, part("reply", "9", 9, "4"), part("reply", "10", 10, "3"), part("step", "z", 0, "1"),
		part("step", "a", 1, "2"), part("withdrawal", "a", 0, "5"))
	other := newSession("0123abce") // has parts with the same names
	other.Put = []store.SessionPart{part("step", "z", 0, "other")}
	write(t, b, other)
	next := moved(w, func(w *store.SessionWrite) {
		w.Put = []store.SessionPart{part("step", "a", -1, "6"), part("step", "n", 2, "7")}
		w.Gone = []store.SessionPart{part("reply", "9", 0, ""), part("step", "z", 0, ""), part("reply", "none", 0, ""),
			part("withdrawal", "z", 0, "")}
	})
	write(t, b, next)
	want := []store.SessionPart{part("reply", "10", 10, "3"), part("step", "a", -1, "6"), part("step", "n", 2, "7"),
		part("withdrawal", "a", 0, "5")}
	reads(t, a, next, want...)
	late := moved(w, func(w *store.SessionWrite) {
		w.Put, w.Gone = []store.SessionPart{part("step", "a", 0, "late")}, want[3:]
	})
	refused(t, a, late, nil)
	reads(t, a, next, want...)
	reads(t, a, other, other.Put...)
	again := moved(next, func(w *store.SessionWrite) { // what is dropped and put at once is put
		w.Put, w.Gone = []store.SessionPart{part("step", "a", 5, "8")},
			[]store.SessionPart{part("step", "a", 0, ""), part("step", "n", 0, "")}
	})
	write(t, a, again)
	reads(t, b, again, want[0], part("step", "a", 5, "8"), want[3])

	// A transition may have many parts, and large ones. Long texts are parts by their hashes: they are gone
	// when their session is.
	w = newSession("0123abcf")
	for n := range 100 {
		w.Put = append(w.Put, store.SessionPart{
			Kind:     "step",
			Key:      fmt.Sprint("s", n),
			Position: int64(n),
			Body:     fmt.Sprint(n),
		})
	}
	write(t, a, w)
	reads(t, b, w, w.Put...)
	large := `"` + strings.Repeat("0123456789abcdef", 2<<20/16) + `"`
	next = moved(w, func(w *store.SessionWrite) {
		w.Frame = large
		w.Put = []store.SessionPart{part("step", "s3", 3, large), part("text", "aa", 0, large),
			part("text", "bb", 0, `"`+strings.Repeat(`\u0000é`, 100_000)+`"`)}
		for n := 4; n < 100; n++ {
			w.Gone = append(w.Gone, store.SessionPart{Kind: "step", Key: fmt.Sprint("s", n)})
		}
	})
	write(t, b, next)
	reads(t, a, next, slices.Concat(w.Put[:3], next.Put)...)
	ended := moved(next, func(w *store.SessionWrite) {
		w.Status, w.Gone = "completed", []store.SessionPart{{Kind: "text", Key: "aa"}}
	})
	write(t, a, ended)
	reads(t, b, ended, slices.Concat(w.Put[:3], next.Put[:1], next.Put[2:])...)
	testkit.Must(t, a.RemoveSessions(t.Context(), []string{w.ID}))
	again = newSession(w.ID)
	write(t, b, again)
	reads(t, a, again)
}

// Texts may be any bytes. Where the database has only valid Unicode, other bytes and the code point for NUL
// become U+FFFD.
func TestTextsOfASession(t *testing.T) {
	a, b := twoStores(t)
	given := func(odd string) *store.SessionWrite {
		w := newSession("0123abcd")
		w.Root = "/srv/" + odd
		w.Goal = "a " + odd
		w.Identity = "me" + odd
		w.Step = odd
		w.Frame, w.Waiting = `{"goal":"ü\u0000`+"\uFDD0"+`"}`, `{"steps":["`+"\uFDD0"+`"]}`
		w.Put = []store.SessionPart{{Kind: "step", Key: odd, Body: `"` + "\uFDD0" + `"`},
			{Kind: "step", Key: odd + "2", Position: 1, Body: "1"}}
		return w
	}
	w := given("x\x00y\xffz\uFDD0ü'?@")
	write(t, a, w)
	want := given("x\x00y\xffz\uFDD0ü'?@")
	if backend != "sqlite" {
		want = given("x\x00y\uFFFDz\uFFFDü'?@")
		for _, text := range []*string{&want.Frame, &want.Waiting, &want.Put[0].Body} {
			*text = strings.ReplaceAll(*text, "\uFDD0", "\uFFFD")
		}
	}
	reads(t, b, want, want.Put...)
	is(t, []store.Session{want.Session})(b.ListSessions(t.Context(), store.SessionQuery{Identity: w.Identity}))
	next := moved(w, func(w *store.SessionWrite) {
		w.Gone = []store.SessionPart{{Kind: "step", Key: w.Step}}
		w.Put = []store.SessionPart{{Kind: "step", Key: w.Step + "2", Body: "2"}}
	})
	write(t, b, next)
	wanted := moved(want, nil)
	wanted.Frame = next.Frame
	want.Put[1].Position, want.Put[1].Body = 0, "2"
	reads(t, a, wanted, want.Put[1])
}

func TestARequestBeginsOneSession(t *testing.T) {
	a, b := twoStores(t)
	found := func(s store.Sessions, key byte, want string) {
		is(t, want)(s.FindRequest(t.Context(), store.Key{key, 0xff, 0}))
	}
	with := func(w *store.SessionWrite, key byte) *store.SessionWrite {
		w.Request = &store.Key{key, 0xff, 0}
		return w
	}
	found(a, 1, "")
	begun := atOnce(8, func(n int) bool {
		written, err := []store.Sessions{a, b}[n%2].WriteSession(t.Context(),
			with(newSession(fmt.Sprintf("%08x", n)), 1))
		testkit.True(t, written || errors.Is(err, store.ErrRequested), "%v", err)
		return written
	})
	list := testkit.Get(a.ListSessions(t.Context(), store.SessionQuery{})).Must(t)
	equal(t, "were begun and there are", won(begun), 1, len(list), 1)
	found(b, 1, list[0].ID)
	refused(t, b, with(newSession("0123abcd"), 1), store.ErrRequested)
	w := newSession("0123abcd")
	write(t, a, w)
	next := with(moved(w, nil), 2)
	write(t, a, next)
	found(b, 2, w.ID)
	refused(t, b, with(moved(w, nil), 3), nil) // another transition was faster
	found(b, 3, "")
	// A later transition of a session may have a key of its own again, and not that of a call that moved another.
	write(t, b, with(moved(next, nil), 2))
	refused(t, b, with(moved(moved(next, nil), nil), 1), store.ErrRequested)
	found(a, 1, list[0].ID)
	found(a, 2, w.ID)
}

// A definition is stored with the transition that needs it, and kept as long as a session needs it or it is new.
func TestDefinitionsOfSessions(t *testing.T) {
	path, c := newPath(t)
	a, b := open(t, path, c.now).Sessions(), open(t, path, c.now).Sessions()
	stored := func(hashes ...string) {
		t.Helper()
		for _, hash := range []string{"d1", "d2", "d3", "d4", "d5"} {
			data, err := b.Definition(t.Context(), hash)
			want := slices.Contains(hashes, hash)
			testkit.True(t, want == (string(data) == "data of "+hash) && want != errors.Is(err, store.ErrNotFound),
				"definition %s: %q, %v; stored: %v", hash, data, err, want)
		}
	}
	define := func(w *store.SessionWrite, hash string) *store.SessionWrite {
		w.Define = &store.Definition{Hash: hash, Data: []byte("data of " + hash)}
		w.Definition = hash
		return w
	}
	pruned := func(ago time.Duration, want int) { is(t, want)(b.PruneDefinitions(t.Context(), ago)) }
	stored()
	w := define(newSession("0123abcd"), "d1")
	w.Pinned = "d1"
	write(t, a, w)
	stored("d1")
	second := define(moved(w, nil), "d2")
	third := define(moved(second, nil), "d3")
	write(t, b, second, third)
	refused(t, a, define(moved(w, nil), "d4"), nil)
	stored("d1", "d2", "d3")
	pruned(time.Minute, 0) // they are new
	c.forward(3 * time.Hour)
	ended := define(moved(third, func(w *store.SessionWrite) { w.Status = "aborted" }), "d5")
	write(t, a, ended, define(newSession("0000000a"), "d2")) // stored again
	pruned(2*time.Hour, 1)                                   // d3
	stored("d1", "d2", "d5")
	c.forward(3 * time.Hour)
	pruned(2*time.Hour, 0)
	testkit.Must(t, a.RemoveSessions(t.Context(), []string{w.ID}))
	pruned(2*time.Hour, 2)
	stored("d2")
}

func sessionIDs(all []store.Session) (ids []string) {
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// A list has the sessions that all conditions hold for, the one that moved last first, those of equal times
// by their ids.
func TestListsOfSessions(t *testing.T) {
	a, b := twoStores(t)
	add := func(id string, after time.Duration, change func(w *store.SessionWrite)) {
		w := newSession(id)
		w.UpdatedAt = began.Add(after)
		change(w)
		write(t, a, w)
	}
	add("00000001", 0, func(*store.SessionWrite) {})
	add("00000003", time.Second, func(w *store.SessionWrite) { w.Identity, w.Waiting = "ann", "{}" })
	add("00000002", time.Second, func(w *store.SessionWrite) { w.Parent = "00000001" })
	add("00000004", 2*time.Second, func(w *store.SessionWrite) {
		w.Status = "completed"
		w.Parent = "00000003"
		w.Waiting = "{}"
	})
	add("00000005", 3*time.Second, func(w *store.SessionWrite) { w.Status, w.Identity = "aborted", "ann" })
	add("00000006", time.Microsecond, func(w *store.SessionWrite) { w.AttemptID, w.Root = "a1", "/worktree" })
	lists := func(q store.SessionQuery, want ...string) {
		t.Helper()
		equal(t, fmt.Sprintf("%+v", q), sessionIDs(testkit.Get(b.ListSessions(t.Context(), q)).Must(t)), want)
	}
	all := []string{"00000005", "00000004", "00000002", "00000003", "00000006", "00000001"}
	lists(store.SessionQuery{}, all...)
	lists(store.SessionQuery{Limit: 2}, all[:2]...)
	lists(store.SessionQuery{Limit: 100}, all...)
	lists(store.SessionQuery{Identity: "ann"}, "00000005", "00000003")
	lists(store.SessionQuery{Identity: "bob"})
	lists(store.SessionQuery{Active: true}, all[2:]...)
	lists(store.SessionQuery{Ended: true}, all[:2]...)
	lists(store.SessionQuery{Active: true, Ended: true})
	lists(store.SessionQuery{Active: true, Identity: "local", Limit: 1}, "00000002")
	lists(store.SessionQuery{Attempt: new(""), Active: true}, "00000002", "00000003", "00000001")
	lists(store.SessionQuery{Attempt: new("a1")}, "00000006")
	lists(store.SessionQuery{Root: "/worktree"}, "00000006")
	lists(store.SessionQuery{Waiting: true}, "00000004", "00000003")
	lists(store.SessionQuery{Active: true, Waiting: true}, "00000003")
	lists(store.SessionQuery{Parents: []string{"00000003", "0000000f", "00000001"}}, "00000004", "00000002")
	lists(store.SessionQuery{Parents: []string{}})
	lists(store.SessionQuery{IDs: []string{"00000001", "00000005", "0000000f", "00000001", "x"}}, "00000005",
		"00000001")
	lists(store.SessionQuery{IDs: []string{}})
	lists(store.SessionQuery{Before: began.Add(time.Second)}, "00000006", "00000001")
	lists(store.SessionQuery{Ended: true, Before: began.Add(3 * time.Second)}, "00000004")
	write(t, b, moved(newSession("00000001"), func(w *store.SessionWrite) { w.UpdatedAt = began.Add(time.Hour) }))
	lists(store.SessionQuery{Limit: 1}, "00000001") // after it moved
}

// What a session is nested in is found to the top, or what was removed. A cycle of an import ends after one round.
func TestAncestryOfASession(t *testing.T) {
	a, b := twoStores(t)
	want := func(id string, want ...string) {
		equal(t, id, sessionIDs(testkit.Get(b.Ancestry(t.Context(), id)).Must(t)), want)
	}
	want("0000000f")
	var chain []string
	nest := func(id, parent, status string) {
		w := newSession(id)
		w.Parent, w.Status = parent, status
		write(t, a, w)
		chain = append(chain, id)
	}
	for n := range 60 {
		parent := ""
		if n > 0 {
			parent = chain[n-1]
		}
		nest(fmt.Sprintf("%08x", 60-n), parent, []string{"active", "completed", "active"}[n%3])
	}
	nest("ffff0000", "00000001", "active") // beside the others
	want("00000001", chain[:60]...)
	want("ffff0000", chain...)
	want(chain[0], chain[0])
	got := testkit.Get(a.Ancestry(t.Context(), chain[1])).Must(t)
	equal(t, "the ancestry of an ended one", len(got), 2, got[1].Status, "completed", got[1].Parent, chain[0])
	testkit.Must(t, a.RemoveSessions(t.Context(), []string{chain[1]}))
	want(chain[3], chain[2:4]...)
	nest("cccc0001", "cccc0003", "active")
	nest("cccc0002", "cccc0001", "active")
	nest("cccc0003", "cccc0002", "active")
	want("cccc0001", "cccc0002", "cccc0003", "cccc0001")
	nest("dddd0001", "dddd0001", "active")
	want("dddd0001", "dddd0001")
}

func TestRemovingSessions(t *testing.T) {
	a, b := twoStores(t)
	testkit.Must(t, a.RemoveSessions(t.Context(), nil))
	key := func(n int) store.Key { return store.Key{byte(n), byte(n >> 8), 1} }
	var ids []string
	for n := range 600 { // more than are removed at once
		ids = append(ids, fmt.Sprintf("%08x", n))
		if n > 5 && n < 590 {
			continue
		}
		w := newSession(ids[n])
		w.Put = []store.SessionPart{{Kind: "step", Key: "one", Body: ids[n]}}
		w.Request = new(key(n))
		w.Status = []string{"completed", "active"}[n%2]
		write(t, a, w)
	}
	for _, n := range []int{1, 2, 3, 100, 590, 591, 600} { // a list of many ids
		equal(t, len(testkit.Get(b.ListSessions(t.Context(), store.SessionQuery{IDs: ids[:n]})).Must(t)),
			min(n, 6)+max(0, n-590))
	}
	testkit.Must(t, b.RemoveSessions(t.Context(), ids))
	equal(t, "are left", sessionIDs(testkit.Get(a.ListSessions(t.Context(), store.SessionQuery{})).Must(t)),
		[]string{"00000001", "00000003", "00000005", "0000024f", "00000251", "00000253", "00000255", "00000257"})
	for n, want := range map[int]bool{0: false, 1: true, 598: false, 599: true} {
		equal(t, n, testkit.Get(a.FindRequest(t.Context(), key(n))).Must(t) != "", want)
	}

	// Another session with the id of one that was removed has nothing of it, and its call may be made again.
	w := newSession(ids[0])
	w.Request = new(key(0))
	write(t, b, w)
	reads(t, a, w)
}

func TestASessionMovesItsAttempt(t *testing.T) {
	path, c := newPath(t)
	b, other := openAt(t, path, c.now), open(t, path, c.now)
	a, p := b.db.Sessions(), rootOf(t, b)
	attempt := func() string { return try(t, b, addTask(t, b, p, "one")).ID }
	position := func(attempt string, want ...string) {
		t.Helper()
		got := testkit.Get(b.Attempt(t.Context(), attempt)).Must(t)
		var have []string
		for _, p := range []*string{got.WorkflowSessionID, got.WorkflowStatus, got.WorkflowStep} {
			if p != nil {
				have = append(have, *p)
			}
		}
		equal(t, have, want)
	}

	begin := func(id, attempt, parent, workflow string) *store.SessionWrite {
		t.Helper()
		w := newSession(id)
		w.AttemptID = attempt
		w.Parent = parent
		w.Workflow = workflow
		write(t, a, w)
		return w
	}
	abort := func(w *store.SessionWrite) { w.Status = "aborted" }
	plain := attempt()
	position(plain)
	first := begin("00000001", plain, "", "main")
	position(plain, "00000001", "active", "one")
	next := moved(first, func(w *store.SessionWrite) { w.Step = "two" })
	write(t, other.Sessions(), next)
	position(plain, "00000001", "active", "two")
	refused(t, a, moved(first, func(w *store.SessionWrite) { w.Step = "late" }), nil)
	position(plain, "00000001", "active", "two")
	refused(t, a, moved(next, func(w *store.SessionWrite) {
		w.Step, w.EndWork = "late", []store.WorkRow{*workOf("two", "r1")}
	}), store.ErrWorkTaken)
	position(plain, "00000001", "active", "two")
	nested := begin("00000002", plain, "00000001", "main") // not the outermost one
	position(plain, "00000001", "active", "two")
	write(t, a, moved(nested, abort))
	position(plain, "00000001", "active", "two")
	begin("00000003", plain, "", "later")
	position(plain, "00000003", "active", "one")
	write(t, a, moved(next, abort)) // a later workflow counts
	position(plain, "00000003", "active", "one")
	ending := attempt()
	write(t, a, moved(begin("00000004", ending, "", "main"), abort))
	position(ending, "00000004", "aborted", "one")

	byName := testkit.Get(b.CreateTask(t.Context(), task.NewTask{
		ProjectID:    p.ID,
		Title:        "named",
		JobName:      new("alpha"),
		WorkflowName: new("build"),
	}, task.Request{})).Must(t)
	named := try(t, b, byName).ID
	outer := begin("00000011", named, "", "main") // not the one that the task names
	position(named)
	counted := begin("00000012", named, "00000011", "build")
	position(named, "00000012", "active", "one")
	inner := begin("00000013", named, "00000012", "main")
	within := begin("00000014", named, "00000013", "build") // nested in the same workflow
	position(named, "00000012", "active", "one")
	write(t, a, moved(within, func(w *store.SessionWrite) { w.Status = "completed" }), moved(inner, abort))
	position(named, "00000012", "active", "one")
	end(t, b, testkit.Get(b.LatestExecution(t.Context(), named)).Must(t),
		task.Ending{State: task.Completed, Task: task.InReview})
	equal(t, "the task is, when its agent has ended early", taskOf(t, b, byName.ID).Status, task.InProgress)
	write(t, a, moved(counted, func(w *store.SessionWrite) {
		w.Step = "last"
		w.Status = "completed"
	}), moved(outer, abort))
	position(named, "00000012", "completed", "last")
	equal(t, "the task is, once its workflow is complete", taskOf(t, b, byName.ID).Status, task.InReview)

	// A run records its own position.
	run := led(t, b, p, "run").ID
	begin("00000021", run, "", "main")
	position(run)

	// A session goes on when its attempt was deleted.
	gone := addTask(t, b, p, "deleted")
	of := try(t, b, gone)
	kept := begin("00000031", of.ID, "", "main")
	testkit.Must(t,
		errors.Join(second(b.Stop(t.Context(), testkit.Get(b.LatestExecution(t.Context(), of.ID)).Must(t).ID)),
			b.DeleteTask(t.Context(), gone.ID)))
	last := moved(kept, abort)
	write(t, other.Sessions(), last)
	reads(t, a, last)
}
