package attempt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
)

// GetAttemptDiff returns the changes of an attempt, as git prints them.
func (e *Engine) GetAttemptDiff(ctx context.Context, who session.Caller, a DiffArgs) (*DiffReply, error) {
	b, id, err := e.openAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}
	left, err := within("max_bytes", a.MaxBytes, DefaultDiff, 1, MaxDiff)
	if err != nil {
		return nil, err
	}
	if len(a.Paths) > MaxPaths {
		return nil, session.Wrong("too_many_paths", "paths has %d entries, and at most %d are allowed. Name folders instead of files, or make several calls.", len(a.Paths), MaxPaths).
			With("argument", "paths").With("value", len(a.Paths)).With("max", MaxPaths)
	}
	for _, path := range a.Paths {
		if err := checkPath(path); err != nil {
			return nil, err
		}
	}
	now, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
	}
	at := now.Attempt
	r := &DiffReply{AttemptID: id, Diffs: []RepoDiff{}}
	var notices []string
	notice := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(notices, text) {
			notices = append(notices, text)
		}
	}
	if at.Elsewhere(e.here) {
		var where string
		if r.Diffs, where, err = savedDiff(ctx, b, at, left); err != nil {
			return nil, err
		}
		r.Truncated = slices.ContainsFunc(r.Diffs, func(d RepoDiff) bool { return d.Truncated })
		r.Notice = &where
		return r, nil
	}
	compared := 0
	for _, repo := range at.Repos {
		d := RepoDiff{RepoID: repo.RepoID, RepoName: repo.RepoName}
		switch {
		case repo.BaseCommit == nil:
			notice("%s", noWorkspace(now))
		case !exists(repo.Worktree):
			notice("The worktree %s no longer exists; its commits are on the branch %s.", repo.Worktree, at.Branch)
		case left <= 0:
			d.Truncated = true
		default:
			d.Diff, d.Truncated, err = e.keeper(worktreesOf(at)).Diff(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch, a.Paths, left)
			switch {
			case errors.Is(err, worktree.ErrNoWorktree):
				notice("%s is no longer a git worktree: its .git and its entry in the repository were removed. Its commits are on the branch %s.", repo.Worktree, at.Branch)
			case err != nil && ctx.Err() == nil:
				return nil, gitFailed("The worktree "+repo.Worktree+" cannot be compared", err)
			case err != nil:
				return nil, fmt.Errorf("comparing the worktree %s: %w", repo.Worktree, err)
			default:
				compared++
			}
			left -= len(d.Diff)
		}
		r.Truncated = r.Truncated || d.Truncated
		r.Diffs = append(r.Diffs, d)
	}
	empty := !slices.ContainsFunc(r.Diffs, func(d RepoDiff) bool { return d.Diff != "" || d.Truncated })
	switch {
	case !empty || compared == 0:
	case len(a.Paths) > 0:
		notice("None of these paths is changed: %s. get_attempt lists changed_files; leave out paths to see all changes.", quoted(a.Paths))
	default:
		notice("Nothing is changed.")
	}
	if len(notices) > 0 {
		r.Notice = new(strings.Join(notices, " "))
	}
	return r, nil
}

// noWorkspace says why an attempt has no worktrees, and what to do about it.
func noWorkspace(now *task.AttemptDetails) string {
	state := now.Execution.State
	switch {
	case state.Open():
		return fmt.Sprintf("The worktrees are not created yet: the attempt is %s. Call again when get_attempt returns state running.", state)
	case now.Attempt.Error != nil:
		return fmt.Sprintf("The attempt is %s and has no workspace; its agent never ran. Why: %s Start a new attempt with start_task_attempt.", state, sentence(*now.Attempt.Error))
	}
	return fmt.Sprintf("The attempt is %s and has no workspace; its agent never ran. Start a new attempt with start_task_attempt.", state)
}

// sentence formats a text as a sentence.
func sentence(s string) string {
	if s = strings.TrimSpace(s); s == "" || strings.ContainsRune(".!?", rune(s[len(s)-1])) {
		return s
	}
	return s + "."
}

// quoted lists paths for a notice, up to a limit.
func quoted(paths []string) string {
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = fmt.Sprintf("%q", clip(p))
	}
	return some(all, "none")
}

// checkPath refuses a path that is not inside a worktree.
func checkPath(given string) error {
	local := filepath.FromSlash(given)
	if strings.TrimSpace(given) == "" || strings.ContainsRune(given, 0) || len(given) > 4096 || !filepath.IsLocal(local) || path.Clean(filepath.ToSlash(local)) == ".git" {
		return session.Wrong("bad_path", "paths contains %q, which is not a path in a worktree. Pass paths as in changed_files, or folders, relative to the worktree.", clip(given)).
			With("argument", "paths").With("value", clip(given))
	}
	return nil
}
