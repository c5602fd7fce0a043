package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"deepwork/actor/presence"
	"deepwork/actor/testkit"
	"deepwork/session/store"
)

var (
	ctx  = context.Background()
	must = testkit.Must
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

// A large file gives way to another; nothing is lost that is not a reset.
func TestChangesOfManyProcessesBeginAnotherFile(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 4 {
		c, _ := newFeed(t, dir)
		c.limit.Store(2000)
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
