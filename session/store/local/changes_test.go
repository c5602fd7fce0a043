package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"deepwork/actor/presence"
	"deepwork/session/store"
)

// follow returns what is new since a position, all of it.
func follow(t testing.TB, c *Changes, position string) (ids []string, reset bool, next string) {
	t.Helper()
	for next = position; ; {
		n, err := c.Since(ctx, next)
		must(t, err)
		for _, change := range n.Changes {
			ids = append(ids, change.Kind+" "+change.ID)
		}
		if next, reset = n.Next, reset || n.Reset; len(n.Changes) == 0 {
			return ids, reset, next
		}
	}
}

func newFeed(t testing.TB, dir string) (*Changes, *presence.Member) {
	member := presence.New(presence.Options{Dir: dir})
	must(t, member.Enter(ctx))
	c := OpenChanges(dir, member, nil)
	t.Cleanup(func() { c.Close(); member.Leave() })
	return c, member
}

func TestChangesAreFollowed(t *testing.T) {
	dir := newDir(t)
	s, other := open(t, dir, Options{}), open(t, dir, Options{})
	if _, reset, next := follow(t, other.changes, ""); !reset || next != "" {
		t.Errorf("nothing has happened: %v, %q", reset, next)
	}
	must(t, s.Create(ctx, "00000001", numbered(1)))
	must(t, other.member.Enter(ctx))
	_, reset, at := follow(t, other.changes, "")
	if !reset || at == "" {
		t.Errorf("a new follower: %v, %q", reset, at)
	}
	short, cancel := context.WithTimeout(ctx, 3*changesPoll)
	defer cancel()
	if err := other.changes.Wait(short, at); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for nothing: %v", err)
	}
	must(t, s.Write(ctx, "00000001", numbered(2)))
	must(t, s.Update(ctx, "00000001", func([]byte) ([]byte, error) { return numbered(3), nil }))
	must(t, s.Update(ctx, "00000001", func([]byte) ([]byte, error) { return nil, nil })) // no change
	must(t, other.Remove(ctx, "00000001"))
	other.changes.Append(store.Change{Kind: store.TaskChanged, ID: "t"})
	must(t, other.changes.Wait(ctx, at))
	ids, reset, next := follow(t, other.changes, at)
	if want := []string{"session 00000001", "session 00000001", "session 00000001", "task t"}; reset || !slices.Equal(ids, want) {
		t.Errorf("followed %v, %v", ids, reset)
	}
	for _, gone := range []string{"x:0", "x", next + "9", ":-1"} {
		if _, reset, now := follow(t, s.changes, gone); !reset || now != next {
			t.Errorf("position %q: %v, %q", gone, reset, now)
		}
	}
}

// A large file gives way to another; nothing is lost that is not a reset.
func TestChangesOfManyProcessesBeginAnotherFile(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 4 {
		c, _ := newFeed(t, dir)
		c.limit = 2000
		wg.Go(func() {
			for n := range 200 {
				c.Append(store.Change{Kind: store.TaskChanged, ID: fmt.Sprintf("%d-%d", w, n)})
			}
		})
	}
	reader, _ := newFeed(t, dir)
	wg.Wait()
	_, _, at := follow(t, reader, "")
	if fi, err := os.Stat(filepath.Join(dir, changesName)); err != nil || fi.Size() > 4000 {
		t.Errorf("it has %v, %v", fi, err)
	}
	reader.Append(store.Change{Kind: store.AttemptChanged, ID: "last"})
	if ids, reset, _ := follow(t, reader, at); reset || !slices.Equal(ids, []string{"attempt last"}) {
		t.Errorf("followed %v, %v", ids, reset)
	}
}

// A process that died may not have appended its last change.
func TestAFollowerNoticesThatAWriterDied(t *testing.T) {
	dir := t.TempDir()
	writer, member := newFeed(t, dir)
	reader, _ := newFeed(t, dir)
	writer.Append(store.Change{Kind: store.TaskChanged, ID: "t"})
	_, _, at := follow(t, reader, "")
	member.Fall()
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	must(t, reader.Wait(limited, at))
	ids, reset, next := follow(t, reader, at)
	if !reset || ids != nil {
		t.Errorf("followed %v, %v", ids, reset)
	}
	if _, reset, _ := follow(t, reader, next); reset {
		t.Error("it was lost twice")
	}
}
