package page

import (
	"context"
	"errors"
	"fmt"
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
		for _, c := range []struct{ work, pause time.Duration }{{0, minPause}, {time.Millisecond, minPause}, {time.Hour, maxPause}} {
			f.worked(c.work)
			_, more = f.changed(nil)
			began := time.Now()
			change()
			change()
			<-more
			if took := time.Since(began); took != c.pause {
				t.Errorf("after %v of work they are told after %v, want %v", c.work, took, c.pause)
			}
		}
	})
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
