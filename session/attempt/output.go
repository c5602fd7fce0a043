package attempt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
)

// TailAttempt returns lines of what an attempt's agents wrote, and can wait for
// new ones (issue 7, tail_attempt).
func (e *Engine) TailAttempt(ctx context.Context, identity string, a TailArgs) (*TailReply, error) {
	id, err := a.must()
	if err != nil {
		return nil, err
	}
	limit, err := within("limit", a.Limit, DefaultTail, 1, MaxTail)
	if err != nil {
		return nil, err
	}
	if a.AfterIndex != nil && *a.AfterIndex < -1 {
		return nil, session.Wrong("out_of_range", "after_index is %d, and is to be the next_index of a reply, or -1 to begin at the first entry.", *a.AfterIndex).With("argument", "after_index").With("value", *a.AfterIndex)
	}
	var wait time.Duration
	if a.Wait != nil {
		if !(*a.Wait >= 0 && *a.Wait <= MaxWait) { // NaN too
			return nil, session.Wrong("out_of_range", "wait is %v seconds, and is to be from 0 to %d.", *a.Wait, MaxWait).With("argument", "wait").With("value", fmt.Sprint(*a.Wait))
		}
		wait = time.Duration(*a.Wait * float64(time.Second))
	}
	b, _, err := e.ready(ctx)
	if err != nil {
		return nil, err
	}
	after := a.AfterIndex
	for until := time.Now().Add(wait); ; {
		at, err := b.Attempt(ctx, id) // before the log: what has ended has written all
		if err != nil {
			return nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
		}
		left := time.Until(until)
		if !at.State.Open() {
			left = 0
		}
		entries, next, err := runner.Tail(ctx, e.logDir(id), after, limit, max(0, min(left, 500*time.Millisecond)))
		if err != nil {
			return nil, fmt.Errorf("reading the attempt's log: %w", err)
		}
		if len(entries) > 0 || left <= 0 {
			return &TailReply{AttemptID: id, Entries: list(entries), NextIndex: next, State: string(at.State)}, nil
		}
		after = &next // only what is new counts now
	}
}

// GetAttemptDiff returns what an attempt changed, as git writes it (issue 7,
// get_attempt_diff).
func (e *Engine) GetAttemptDiff(ctx context.Context, identity string, a DiffArgs) (*DiffReply, error) {
	id, err := a.must()
	if err != nil {
		return nil, err
	}
	left, err := within("max_bytes", a.MaxBytes, DefaultDiff, 1, MaxDiff)
	if err != nil {
		return nil, err
	}
	if len(a.Paths) > MaxPaths {
		return nil, session.Wrong("too_many_paths", "paths has %d entries, and may have %d.", len(a.Paths), MaxPaths).With("argument", "paths")
	}
	for _, path := range a.Paths {
		if err := checkPath(path); err != nil {
			return nil, err
		}
	}
	b, _, err := e.ready(ctx)
	if err != nil {
		return nil, err
	}
	at, err := b.Attempt(ctx, id)
	if err != nil {
		return nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
	}
	k, err := e.keeper(worktreesOf(at))
	if err != nil {
		return nil, fmt.Errorf("opening the worktrees folder: %w", err)
	}
	r := &DiffReply{AttemptID: id, Diffs: []RepoDiff{}}
	for _, repo := range at.Repos {
		d := RepoDiff{RepoID: repo.RepoID, RepoName: repo.RepoName}
		switch {
		case repo.BaseCommit == nil:
			r.Notice = new(fmt.Sprintf("The workspace is not made yet: the attempt is %s.", at.State))
		case !exists(repo.Worktree):
			r.Notice = new(fmt.Sprintf("The worktree %s is gone; commits of it are on the branch %s.", repo.Worktree, at.Branch))
		case left <= 0:
			d.Truncated = true
		default:
			d.Diff, d.Truncated, err = k.Diff(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch, a.Paths, left)
			switch {
			case errors.Is(err, worktree.ErrNoWorktree):
				r.Notice = new(fmt.Sprintf("%s is no git worktree any more: its .git was removed, and its entry in the repository too.", repo.Worktree))
			case err != nil && ctx.Err() == nil:
				return nil, gitFailed("The worktree "+repo.Worktree+" cannot be compared", err)
			case err != nil:
				return nil, fmt.Errorf("comparing the worktree %s: %w", repo.Worktree, err)
			}
			left -= len(d.Diff)
		}
		r.Truncated = r.Truncated || d.Truncated
		r.Diffs = append(r.Diffs, d)
	}
	return r, nil
}

// checkPath refuses a path that is not one of a worktree.
func checkPath(given string) error {
	local := filepath.FromSlash(given)
	if strings.TrimSpace(given) == "" || strings.ContainsRune(given, 0) || len(given) > 4096 || !filepath.IsLocal(local) || path.Clean(filepath.ToSlash(local)) == ".git" {
		return session.Wrong("bad_path", "paths holds %q, which is not a path in a worktree. Pass paths as changed_files gives them, or folders, relative to the worktree.", clip(given)).
			With("argument", "paths").With("value", clip(given))
	}
	return nil
}
