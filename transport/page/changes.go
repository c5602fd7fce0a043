package page

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/store"
)

// changesTopic is the topic of diffstats, which the stores' feed does not have.
const changesTopic = "changes"

// A diffstat is how much an attempt has changed.
type diffstat struct {
	Files, Added, Removed int
	More                  bool // the changes are too large to be counted in full
	Loose                 bool // some are in no commit
}

// A changes counts the changes of attempts in the background, since git takes longer than a page may. A page shows what
// is known, and is told when there is more. The zero value knows nothing.
type changes struct {
	mu     sync.Mutex
	known  map[string]counted // by attempt
	wanted map[string]bool
	more   chan struct{} // has room for one: something is wanted
	feed   *feed
}

// A counted is a diffstat as of a number of the feed, nil if git failed.
type counted struct {
	version uint64
	*diffstat
}

// maxCounted bounds what is kept.
const maxCounted = 2000

func newChanges(f *feed) *changes {
	return &changes{known: map[string]counted{}, wanted: map[string]bool{}, more: make(chan struct{}, 1), feed: f}
}

// stat returns the known diffstat of an attempt, or nil, and whether it is current; else it has it counted again.
func (c *changes) stat(attempt string) (known *diffstat, current bool) {
	last, _ := c.feed.changed([]string{store.AttemptChanged + ":" + attempt})
	c.mu.Lock()
	defer c.mu.Unlock()
	have, ok := c.known[attempt]
	current = ok && have.version >= last
	if !current {
		c.wanted[attempt] = true
		select {
		case c.more <- struct{}{}:
		default:
		}
	}

	return have.diffstat, current
}

// count counts what is wanted until ctx ends, and tells the pages.
func (c *changes) count(ctx context.Context, s *Site) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.more:
		}

		c.mu.Lock()
		wanted := c.wanted
		c.wanted = map[string]bool{}

		if len(c.known) > maxCounted {
			clear(c.known)
		}
		c.mu.Unlock()
		for attempt := range wanted {
			at := c.feed.position()
			stat := s.countOne(ctx, attempt)
			c.mu.Lock()
			c.known[attempt] = counted{at, stat}
			c.mu.Unlock()
		}

		s.Touch(changesTopic)
	}
}

func (s *Site) countOne(ctx context.Context, id string) *diffstat {
	who, of := session.Caller{Identity: session.LocalIdentity, Owner: true}, board.Target{AttemptID: &id}
	files, more, err := s.changedFiles(ctx, who, of)
	if err != nil {
		return nil // its page says why
	}
	at, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: of})
	if err != nil {
		return nil
	}
	stat := statOf(files, more)
	stat.Loose = slices.ContainsFunc(at.Repos, func(r attempt.AttemptRepo) bool { return r.Loose > 0 })
	return stat
}

// changedFiles returns the files that an attempt has changed, with how much but without the lines. more reports whether
// there are more.
func (s *Site) changedFiles(
	ctx context.Context, who session.Caller, of board.Target,
) (files []fileDiff, more bool, err error) {
	diff, err := merge.Diff(ctx, s.Board, who, merge.DiffArgs{Target: of, MaxBytes: new(merge.MaxDiff), Stat: true})
	if err != nil {
		return nil, false, err
	}
	for _, d := range diff.Diffs {
		files = append(files, parseStat(d)...)
	}
	return files, diff.Truncated, nil
}

// parseStat reads the output of git diff --numstat -z or, for an attempt on another machine, a diff.
func parseStat(d attempt.RepoDiff) (files []fileDiff) {
	if strings.HasPrefix(d.Diff, "diff --git ") {
		return parseDiff(d)
	}

	for fields := strings.Split(d.Diff, "\x00"); len(fields) > 0; fields = fields[1:] {
		f := fileDiff{Repo: d.RepoName, RepoID: d.RepoID}
		added, rest, _ := strings.Cut(fields[0], "\t")
		removed, name, ok := strings.Cut(rest, "\t")
		if ok && name == "" && len(fields) > 2 { // renamed
			f.Old, name = fields[1], fields[2]
			fields = fields[2:]
		}
		if name == "" {
			continue
		}
		f.File = name
		f.Added, _ = strconv.Atoi(added) // - for a binary file
		f.Removed, _ = strconv.Atoi(removed)
		files = append(files, f)
	}
	return files
}

// statOf returns how much files have changed together.
func statOf(files []fileDiff, more bool) *diffstat {
	stat := &diffstat{Files: len(files), More: more}
	for _, f := range files {
		stat.Added += f.Added
		stat.Removed += f.Removed
	}
	return stat
}
