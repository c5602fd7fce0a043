package page

import (
	"context"
	"sync"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/store"
)

// diffstatTopic is the topic of how much attempts have changed, which the feed of the stores does not have.
const diffstatTopic = "diffstat"

// A diffstat is how much an attempt has changed.
type diffstat struct {
	Files, Added, Removed int
	More                  bool // the changes are too large to be counted in full
}

// diffstats count what attempts have changed. Git takes longer for that than a page may: a page shows what is known,
// and is told when there is more.
type diffstats struct {
	mu     sync.Mutex
	known  map[string]counted // by attempt
	wanted map[string]bool
	more   chan struct{} // has room for one: something is wanted
	feed   *feed
}

// A counted is a diffstat as of a number of the feed; it is nil if git could not tell.
type counted struct {
	at uint64
	*diffstat
}

// maxCounted bounds what is kept.
const maxCounted = 2000

func newDiffstats(f *feed) *diffstats {
	return &diffstats{known: map[string]counted{}, wanted: map[string]bool{}, more: make(chan struct{}, 1), feed: f}
}

// of returns what is known of an attempt, nil if nothing is, and has it counted if that is not current.
func (d *diffstats) of(attempt string) *diffstat {
	last, _ := d.feed.changed([]string{store.AttemptChanged + ":" + attempt})
	d.mu.Lock()
	defer d.mu.Unlock()
	have, is := d.known[attempt]
	if !is || have.at < last {
		d.wanted[attempt] = true
		select {
		case d.more <- struct{}{}:
		default:
		}
	}
	return have.diffstat
}

// count counts what is wanted until ctx ends, and tells the pages.
func (d *diffstats) count(ctx context.Context, s *Site) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.more:
		}
		d.mu.Lock()
		wanted := d.wanted
		d.wanted = map[string]bool{}
		if len(d.known) > maxCounted {
			clear(d.known)
		}
		d.mu.Unlock()
		for attempt := range wanted {
			at := d.feed.position()
			stat := s.countOne(ctx, attempt)
			d.mu.Lock()
			d.known[attempt] = counted{at, stat}
			d.mu.Unlock()
		}
		s.Touch(diffstatTopic)
	}
}

func (s *Site) countOne(ctx context.Context, attempt string) *diffstat {
	diff, err := merge.Diff(ctx, s.Board, session.Caller{Identity: session.LocalIdentity, Owner: true}, merge.DiffArgs{Target: board.Target{AttemptID: &attempt}, MaxBytes: new(merge.MaxDiff)})
	if err != nil {
		return nil // its page says why
	}
	stat := &diffstat{More: diff.Truncated}
	for _, repo := range diff.Diffs {
		for _, f := range parseDiff(repo.RepoName, repo.Diff) {
			stat.Files, stat.Added, stat.Removed = stat.Files+1, stat.Added+f.Added, stat.Removed+f.Removed
		}
	}
	return stat
}
