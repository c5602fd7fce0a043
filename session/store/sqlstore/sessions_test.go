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
	"deepwork/session/store"
)

func twoStores(t *testing.T) (a, b store.Sessions) {
	path, c := newPath(t)
	return open(t, path, c.now).Sessions(), open(t, path, c.now).Sessions()
}

var began = time.Date(2026, 2, 1, 8, 0, 0, 123_456_000, time.UTC)

func newSession(id string) *store.SessionWrite {
	return &store.SessionWrite{Before: -1, Frame: `{"n":1}`, Session: store.Session{
		ID: id, Revision: 1, Root: "/srv/shop", Job: "alpha", Workflow: "main", Step: "one", Status: "active", Goal: "sell more", Identity: "local",
		StartedAt: began, UpdatedAt: began,
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
	equal(t, testkit.Get(s.ReadSession(t.Context(), w.ID, -1)).Must(t), &store.SessionRecord{Session: w.Session, Frame: w.Frame, Parts: parts})
}

func TestASessionComesBackAsWritten(t *testing.T) {
	a, b := twoStores(t)
	w := newSession("0123abcd")
	w.Parent, w.AttemptID, w.MovedBy, w.MachineID, w.Machine, w.Place = "89ab0000", "no attempt", "00112233aabbccdd", "0a1b2c3d", "host", "/home/me/shop"
	w.Definition, w.Pinned, w.Waiting, w.Branch, w.StartedAt = "d1", "d0", `{"steps":["one"]}`, "deepwork/x", began.Add(-time.Hour)
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
		w.Step, w.Status, w.MovedBy, w.MachineID, w.Machine, w.Place, w.Definition, w.Waiting = "two", "completed", "", "", "", "", "d2", ""
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
			mine.Frame, mine.Put = fmt.Sprintf(`{"writer":%d}`, n), []store.SessionPart{{Kind: "step", Key: "writer", Body: fmt.Sprint(n)}}
			return testkit.Get([]store.Sessions{a, b}[n%2].WriteSession(t.Context(), &mine)).Must(t)
		})
		r := testkit.Get(a.ReadSession(t.Context(), w.ID, -1)).Must(t)
		equal(t, "have written", won(writers), 1, r.Revision, next.Revision, len(r.Parts), 1, r.Frame, fmt.Sprintf(`{"writer":%s}`, r.Parts[0].Body))
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
	w.Put = []store.SessionPart{part("step", "z", 0, "1"), part("step", "a", 1, "2"), part("reply", "10", 10, "3"), part("reply", "9", 9, "4"), part("withdrawal", "a", 0, "5")}
	write(t, a, w)
	reads(t, b, w, part("reply", "9", 9, "4"), part("reply", "10", 10, "3"), part("step", "z", 0, "1"), part("step", "a", 1, "2"), part("withdrawal", "a", 0, "5"))
	other := newSession("0123abce") // has parts with the same names
	other.Put = []store.SessionPart{part("step", "z", 0, "other")}
	write(t, b, other)
	next := moved(w, func(w *store.SessionWrite) {
		w.Put = []store.SessionPart{part("step", "a", -1, "6"), part("step", "n", 2, "7")}
		w.Gone = []store.SessionPart{part("reply", "9", 0, ""), part("step", "z", 0, ""), part("reply", "none", 0, ""), part("withdrawal", "z", 0, "")}
	})
	write(t, b, next)
	want := []store.SessionPart{part("reply", "10", 10, "3"), part("step", "a", -1, "6"), part("step", "n", 2, "7"), part("withdrawal", "a", 0, "5")}
	reads(t, a, next, want...)
	late := moved(w, func(w *store.SessionWrite) {
		w.Put, w.Gone = []store.SessionPart{part("step", "a", 0, "late")}, want[3:]
	})
	refused(t, a, late, nil)
	reads(t, a, next, want...)
	reads(t, a, other, other.Put...)
	again := moved(next, func(w *store.SessionWrite) { // what is dropped and put at once is put
		w.Put, w.Gone = []store.SessionPart{part("step", "a", 5, "8")}, []store.SessionPart{part("step", "a", 0, ""), part("step", "n", 0, "")}
	})
	write(t, a, again)
	reads(t, b, again, want[0], part("step", "a", 5, "8"), want[3])
	// A transition may have many parts, and large ones. Long texts are parts by their hashes: they are gone when their session is.
	w = newSession("0123abcf")
	for n := range 100 {
		w.Put = append(w.Put, store.SessionPart{Kind: "step", Key: fmt.Sprint("s", n), Position: int64(n), Body: fmt.Sprint(n)})
	}
	write(t, a, w)
	reads(t, b, w, w.Put...)
	large := `"` + strings.Repeat("0123456789abcdef", 2<<20/16) + `"`
	next = moved(w, func(w *store.SessionWrite) {
		w.Frame = large
		w.Put = []store.SessionPart{part("step", "s3", 3, large), part("text", "aa", 0, large), part("text", "bb", 0, `"`+strings.Repeat(`\u0000é`, 100_000)+`"`)}
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

// Texts may be any bytes. Where the database has only valid Unicode, other bytes and the code point for NUL become U+FFFD.
func TestTextsOfASession(t *testing.T) {
	a, b := twoStores(t)
	given := func(odd string) *store.SessionWrite {
		w := newSession("0123abcd")
		w.Root, w.Goal, w.Identity, w.Step = "/srv/"+odd, "a "+odd, "me"+odd, odd
		w.Frame, w.Waiting = `{"goal":"ü\u0000`+"\uFDD0"+`"}`, `{"steps":["`+"\uFDD0"+`"]}`
		w.Put = []store.SessionPart{{Kind: "step", Key: odd, Body: `"` + "\uFDD0" + `"`}, {Kind: "step", Key: odd + "2", Position: 1, Body: "1"}}
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
		w.Gone, w.Put = []store.SessionPart{{Kind: "step", Key: w.Step}}, []store.SessionPart{{Kind: "step", Key: w.Step + "2", Body: "2"}}
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
		written, err := []store.Sessions{a, b}[n%2].WriteSession(t.Context(), with(newSession(fmt.Sprintf("%08x", n)), 1))
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
			testkit.True(t, want == (string(data) == "data of "+hash) && want != errors.Is(err, store.ErrNotFound), "definition %s: %q, %v; stored: %v", hash, data, err, want)
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
