package page

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// A feed passes on the changes of a project to the pages that follow them. It counts batches of
// changes; a page knows the number at which it was rendered.
//
// Open pages are told of changes all at once. The first change is told at once; the next ones after a
// pause, which is longer the more time the pages take.
type feed struct {
	changes store.Changes
	reading sync.Mutex // held while changes are read
	began   bool       // they were read before
	place   string     // the position after what was read

	work atomic.Int64 // nanoseconds that pages took since the last telling

	mu     sync.Mutex
	number uint64            // of the last batch
	last   map[string]uint64 // the batch in which a topic changed last
	reset  uint64            // the last batch after which anything may have changed
	toldAt time.Time         // when open pages were told last
	later  bool              // there will be another telling
	more   chan struct{}     // closed by the next telling
}

const (
	// minPause and maxPause bound the time between two tellings.
	minPause = 100 * time.Millisecond
	maxPause = 3 * time.Second
	// share is the part of the processors that open pages may take, as a divisor.
	share = 20
	// requestTime is what a request takes in addition to the rendering, about. It is not measured: when
	// many come at once, they wait for each other.
	requestTime = 200 * time.Microsecond
	// retry is how long follow waits after changes could not be read.
	retry = time.Second
)

func newFeed(changes store.Changes) *feed {
	// The number is about a time, so that a page of an earlier process is older than any of this one.
	n := uint64(time.Now().UnixMicro())
	return &feed{changes: changes, number: n, reset: n, last: make(map[string]uint64), more: make(chan struct{})}
}

// follow reads the changes until ctx ends, and calls seen after some were read.
func (f *feed) follow(ctx context.Context, log *slog.Logger, seen func()) {
	for failed := false; ctx.Err() == nil; {
		err := f.catchUp(ctx)
		if err != nil {
			if !failed && ctx.Err() == nil {
				log.Warn("the changes of the project cannot be read; pages are not updated until they can", "error", err)
			}
			failed = true
			_ = wait.For(ctx, retry)
			continue
		}
		failed = false
		seen()
		f.reading.Lock()
		place := f.place
		f.reading.Unlock()
		if err := f.changes.Wait(ctx, place); err != nil && ctx.Err() == nil {
			_ = wait.For(ctx, retry)
		}
	}
}

// catchUp reads the changes that were made before the call. If they cannot be read, anything may have
// changed; after the end of ctx the next call reads them.
func (f *feed) catchUp(ctx context.Context) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	for {
		news, err := f.changes.Since(ctx, f.place)
		if err != nil {
			if ctx.Err() == nil {
				f.batch(nil, true)
			}
			return err
		}
		first := !f.began
		f.began = true
		if f.place == news.Next {
			return nil
		}
		f.place = news.Next
		f.batch(news.Changes, news.Reset && !first) // at the first call there is nothing older to replace
	}
}

// maxTopics bounds what feed.last keeps; beyond it, all pages are told.
const maxTopics = 10_000

func (f *feed) batch(changes []store.Change, reset bool) {
	if len(changes) == 0 && !reset {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	if reset || len(f.last) > maxTopics {
		f.reset = f.number
		clear(f.last)
	}
	for _, c := range changes {
		f.last[c.Kind] = f.number
		f.last[c.Kind+":"+c.ID] = f.number
	}
	f.tell()
}

// tell tells open pages of what has changed, or sees to it that they are told after the pause. f.mu is
// held.
func (f *feed) tell() {
	if f.later {
		return
	}
	needed := time.Duration(f.work.Load()) * share / time.Duration(runtime.GOMAXPROCS(0))
	if left := min(max(needed, minPause), maxPause) - time.Since(f.toldAt); left > 0 {
		f.later = true
		time.AfterFunc(left, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.later = false
			f.tell()
		})
		return
	}
	f.toldAt = time.Now()
	f.work.Store(0)
	close(f.more)
	f.more = make(chan struct{})
}

// worked notes the time that a page took.
func (f *feed) worked(took time.Duration) { f.work.Add(int64(took)) }

// Touch reports a change that is not in the feed of the stores, by its topic.
func (s *Site) Touch(topic string) { s.feed.batch([]store.Change{{Kind: topic}}, false) }

// position returns the number of the last batch.
func (f *feed) position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.number
}

// changed returns the number of the last batch with a change of one of the topics, and a channel that
// is closed when open pages are told of changes.
func (f *feed) changed(topics []string) (last uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last = f.reset
	for _, t := range topics {
		last = max(last, f.last[t])
	}
	return last, f.more
}

// maxFollows is how many topics one stream follows: more than any page has.
const maxFollows = 500

// since returns the ids of what changed of a kind after a batch, or that anything may have.
func (f *feed) since(number uint64, kind string) (ids []string, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reset > number {
		return nil, true
	}
	for topic, n := range f.last {
		if k, id, _ := strings.Cut(topic, ":"); k == kind && id != "" && n > number {
			ids = append(ids, id)
		}
	}
	return ids, false
}
