package page

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/session/store"
)

// Open pages are told of the first change at once, and of those that follow together, later the more time
// pages take.
func TestPagesAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(nil)
		change := func() { f.batch([]store.Change{{Kind: store.TaskChanged, ID: "a"}}, false) }
		_, more := f.changed(nil)
		change()
		<-more
		for _, c := range []struct{ work, pause time.Duration }{{0, minPause}, {burst, minPause}, {time.Hour, maxPause}} {
			f.worked(c.work)
			_, more = f.changed(nil)
			began, told := time.Now(), f.lately()
			change()
			change()
			if f.lately() != told {
				t.Error("told before the pause")
			}
			<-more
			if took := time.Since(began); took != c.pause || f.lately() != told+2 {
				t.Errorf("after %v of work they are told after %v of %d changes, want %v", c.work, took, f.lately()-told, c.pause)
			}
		}
	})
}

// A page that was told of changes gets the rendering of the others that were told; any other request gets
// what is there now.
func TestToldPagesShareARendering(t *testing.T) {
	f, m, made := newFeed(nil), new(memo), 0
	get := func(told bool) int {
		at := f.position()
		if _, err := m.get(memoKey{}, f, told, func() (*rendered, error) {
			made++
			return newRendered(nil, at, []string{store.TaskChanged}), nil
		}); err != nil {
			t.Fatal(err)
		}
		return made
	}
	get(false)
	f.mu.Lock()
	f.later = true // the next telling is not now
	f.mu.Unlock()
	f.batch([]store.Change{{Kind: store.TaskChanged}}, false)
	if get(true) != 1 {
		t.Error("rendered again before the pages were told")
	}
	if get(false) != 2 {
		t.Error("an old page for one that was not told")
	}
	f.batch([]store.Change{{Kind: store.TaskChanged}}, false)
	f.mu.Lock()
	f.later, f.toldAt = false, time.Time{}
	f.tell()
	f.mu.Unlock()
	get(true)
	if get(true) != 3 {
		t.Errorf("rendered %d times, want one more", made)
	}
}

// A browser that leaves while changes are read is no reason to make every page again.
func TestGivenUpRequestsAreNoNews(t *testing.T) {
	f := newFeed(away{})
	at := f.position()
	gone, leave := context.WithCancel(t.Context())
	leave()
	if f.catchUp(gone) == nil || f.position() != at {
		t.Errorf("batch %d, want %d", f.position(), at)
	}
	if f.catchUp(t.Context()) == nil || f.position() == at {
		t.Error("no news although the changes cannot be read")
	}
}

// away is a feed of a store that does not answer.
type away struct{ store.Changes }

func (away) Since(context.Context, string) (store.News, error) {
	return store.News{}, errors.New("away")
}
