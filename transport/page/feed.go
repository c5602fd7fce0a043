package page

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// A feed passes on the changes of a project to the pages that follow them. It counts batches of
// changes; a page knows the number at which it was rendered.
type feed struct {
	mu     sync.Mutex
	number uint64            // of the last batch
	last   map[string]uint64 // the batch in which a topic changed last
	reset  uint64            // the last batch after which anything may have changed
	more   chan struct{}     // closed by the next batch
}

func newFeed() *feed {
	// The number is about a time, so that a page of an earlier process is older than any of this one.
	n := uint64(time.Now().UnixMicro())
	return &feed{number: n, reset: n, last: make(map[string]uint64), more: make(chan struct{})}
}

// retry is how long follow waits after the feed could not be read.
const retry = time.Second

// follow reads the changes until ctx ends.
func (f *feed) follow(ctx context.Context, changes store.Changes, log *slog.Logger) {
	position := ""
	for failed, first := false, true; ctx.Err() == nil; first = false {
		news, err := changes.Since(ctx, position)
		if err != nil {
			if !failed && ctx.Err() == nil {
				log.Warn("the changes of the project cannot be read; pages are not updated until they can", "error", err)
			}
			failed = true
			f.batch(nil, true)
			_ = wait.For(ctx, retry)
			continue
		}
		failed = false
		f.batch(news.Changes, news.Reset && !first) // at the first call there is nothing older to replace
		position = news.Next
		if err := changes.Wait(ctx, position); err != nil && ctx.Err() == nil {
			_ = wait.For(ctx, retry)
		}
	}
}

// maxTopics bounds what feed.last keeps; beyond it, pages are rendered again.
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
	close(f.more)
	f.more = make(chan struct{})
}

// Touch reports a change that is not in the feed of the stores, by its topic.
func (s *Site) Touch(topic string) { s.feed.batch([]store.Change{{Kind: topic}}, false) }

// position returns the number of the last batch.
func (f *feed) position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.number
}

// changed returns the number of the last batch with a change of one of the topics, and a channel that
// is closed by the next batch.
func (f *feed) changed(topics []string) (last uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last = f.reset
	for _, t := range topics {
		last = max(last, f.last[t])
	}
	return last, f.more
}

// topics reads a list of topics from a URL.
func topics(list string) []string {
	all := strings.Split(list, ",")
	return slices.DeleteFunc(all, func(t string) bool { return t == "" || len(t) > 100 })
}

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
