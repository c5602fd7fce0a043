package page

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
)

func TestMemo(t *testing.T) {
	f, m, made := newFeed(nil), new(memo), new(atomic.Int64)
	key := memoKey{identity: "ann", url: "/board"}
	get := func(k memoKey) string {
		at := f.position()
		p, err := m.get(k, f, false, func() (*rendered, error) {
			return newRendered(fmt.Appendf(nil, "%d", made.Add(1)), at, []string{store.TaskChanged, "attempt:a"}), nil
		})
		testkit.Must(t, err)
		return string(p.body)
	}
	var many sync.WaitGroup
	for range 50 {
		many.Go(func() { get(key) })
	}
	many.Wait()
	if made.Load() != 1 {
		t.Fatalf("made %d times for callers at the same time", made.Load())
	}
	for _, c := range []struct {
		change store.Change
		again  bool
	}{
		{store.Change{Kind: store.SessionChanged, ID: "s"}, false},
		{store.Change{Kind: store.AttemptChanged, ID: "b"}, false},
		{store.Change{Kind: store.AttemptChanged, ID: "a"}, true},
		{store.Change{Kind: store.TaskChanged, ID: "any"}, true},
	} {
		before := get(key)
		f.batch([]store.Change{c.change}, false)
		if now := get(key); (now != before) != c.again {
			t.Errorf("after %v: %s, before %s", c.change, now, before)
		}
	}
	before := get(key)
	if f.batch(nil, true); get(key) == before {
		t.Error("kept although anything may have changed")
	}
	// Each of these is seen by others, or is another page.
	for _, k := range []memoKey{{identity: "bob", url: "/board"}, {identity: "ann", group: "g", url: "/board"}, {identity: "ann", owner: true, url: "/board"},
		{identity: "ann", rights: session.RightMerge, url: "/board"}, {identity: "ann", url: "/board?x"}} {
		if made := made.Load(); get(k) != fmt.Sprint(made+1) {
			t.Errorf("%+v has the page of another", k)
		}
	}
	for i := range 2 * maxPages {
		get(memoKey{identity: "ann", url: fmt.Sprint(i)})
	}
	if len(m.pages) > maxPages {
		t.Errorf("%d pages are kept", len(m.pages))
	}
	// What could not be made is made at the next request.
	broken := memoKey{url: "broken"}
	if _, err := m.get(broken, f, false, func() (*rendered, error) { return nil, errors.New("x") }); err == nil {
		t.Error("no error")
	}
	if get(broken) == "" {
		t.Error("no page")
	}
}

// The feed keeps a bounded number of topics, and forgets none of the changes.
func TestFeedIsBounded(t *testing.T) {
	f := newFeed(nil)
	at := f.position()
	for i := range maxTopics + 10 {
		f.batch([]store.Change{{Kind: "task", ID: fmt.Sprint(i)}}, false)
	}
	if len(f.last) > maxTopics+10 {
		t.Errorf("%d topics", len(f.last))
	}
	if last, _ := f.changed([]string{"task:0"}); last <= at {
		t.Error("a change was forgotten")
	}
	if _, all := f.since(at, "task"); !all {
		t.Error("the ids that have changed are not all there, and it does not say so")
	}
}
