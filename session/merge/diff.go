package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// Diff returns the changes of an attempt, as git prints them.
func Diff(ctx context.Context, e *attempt.Engine, who session.Caller, a DiffArgs) (*DiffReply, error) {
	b, id, err := e.ViewOfAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}

	left, err := board.Within("max_bytes", a.MaxBytes, DefaultDiff, 1, MaxDiff)
	if err != nil {
		return nil, err
	}
	if len(a.Paths) > MaxPaths {
		return nil, session.Wrong(codes.TooManyPaths,
			"paths has %d entries, and at most %d are allowed. Name folders instead of files, or make several calls.",
			len(a.Paths), MaxPaths).
			With("argument", "paths").With("value", len(a.Paths)).With("max", MaxPaths)
	}
	for _, path := range a.Paths {
		if err := checkPath("paths", path); err != nil {
			return nil, err
		}
	}

	now, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return nil, board.AttemptFault("reading the attempt", err, id)
	}
	c := &comparison{AttemptDetails: now, engine: e, paths: a.Paths, left: left}
	if a.Text != nil && *a.Text {
		c.options = []string{"--text"}
	}
	if a.Stat {
		c.options = append(c.options, "--numstat", "-z")
	}
	if now.Attempt.Elsewhere(e.Here) {
		var where string
		c.diffs, where, err = attempt.SavedDiff(ctx, b, now.Attempt, left)
		c.notices = []string{where}
	} else {
		err = c.compare(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := &DiffReply{AttemptID: id, Diffs: board.NonNil(c.diffs), Notice: board.OrNull(strings.Join(c.notices, " "))}
	r.Truncated = slices.ContainsFunc(r.Diffs, func(d attempt.RepoDiff) bool { return d.Truncated })
	return r, nil
}

// A comparison collects the changes of an attempt.
type comparison struct {
	*task.AttemptDetails
	engine  *attempt.Engine
	paths   []string
	left    int      // bytes
	options []string // of git diff
	diffs   []attempt.RepoDiff
	notices []string
}

// note adds a hint, once.
func (c *comparison) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.notices, text) {
		c.notices = append(c.notices, text)
	}
}

// compare compares the worktrees, and says why there are no changes.
func (c *comparison) compare(ctx context.Context) error {
	if attempt.InPlace(c.Attempt) {
		c.note("The run works in the project itself, %s, where its changes are among others: see git diff there.",
			c.Attempt.Workspace)
	}

	compared := false
	for _, repo := range c.Attempt.Repos {
		d := attempt.RepoDiff{RepoID: repo.RepoID, RepoName: repo.RepoName}
		did, err := c.worktree(ctx, repo, &d)
		if err != nil {
			return err
		}
		compared = compared || did
		c.left -= len(d.Diff)
		c.diffs = append(c.diffs, d)
	}
	switch {
	case !compared || slices.ContainsFunc(c.diffs, func(d attempt.RepoDiff) bool {
		return d.Diff != "" || d.Truncated
	}):
	case len(c.paths) > 0:
		all := xslices.Map(c.paths, func(p string) string { return fmt.Sprintf("%q", board.Clip(p)) })
		c.note("None of these paths is changed: %s. All changes are shown without paths.", board.Enumerate(all, "none"))
	default:
		c.note("Nothing is changed.")
	}

	return nil
}

// worktree adds the changes in one worktree. It reports false if that could not be compared.
func (c *comparison) worktree(
	ctx context.Context, repo task.AttemptRepo, d *attempt.RepoDiff,
) (compared bool, err error) {
	at := c.Attempt
	switch {
	case repo.BaseCommit == nil:
		c.note("%s", noWorkspace(c.AttemptDetails))
		return false, nil
	case !attempt.Exists(repo.Worktree):
		c.note("The worktree %s no longer exists; its commits are on the branch %s.", repo.Worktree, at.Branch)
		return false, nil
	case c.left <= 0:
		d.Truncated = true
		return false, nil
	}
	d.Diff, d.Truncated, err = c.engine.Worktrees(at).Diff(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch,
		c.paths, c.left, c.options...)
	switch {
	case errors.Is(err, worktree.ErrNoWorktree):
		c.note("%s is no longer a git worktree: its .git and its entry in the repository were removed. Its commits "+
			"are on the branch %s.", repo.Worktree, at.Branch)
		return false, nil
	case err != nil && ctx.Err() == nil:
		return false, attempt.GitFailed("The worktree "+repo.Worktree+" cannot be compared", err)
	case err != nil:
		return false, fmt.Errorf("comparing the worktree %s: %w", repo.Worktree, err)
	}

	d.Binary = binaries(d.Diff, repo.Worktree)
	if len(d.Binary) > 0 {
		all := xslices.Map(slices.Sorted(maps.Keys(d.Binary)), func(name string) string {
			if size := d.Binary[name]; size >= 0 {
				return fmt.Sprintf("%q (%d bytes)", board.Clip(name), size)
			}
			return fmt.Sprintf("%q (deleted)", board.Clip(name))
		})
		c.note("These files are only named, since they are binary or .gitattributes says so: %s. board diff --text "+
			"shows them as text.", board.Enumerate(all, "none"))
	}

	return true, nil
}

// binaries returns the files that a diff names without content, with their sizes in a worktree.
func binaries(diff, worktree string) map[string]int64 {
	sizes := map[string]int64{}
	for _, f := range ParseDiff(diff) {
		if n := len(f.Note); n == 0 || !strings.HasPrefix(f.Note[n-1], "Binary files ") {
			continue
		}
		sizes[f.File] = -1
		if info, err := os.Lstat(filepath.Join(worktree, filepath.FromSlash(f.File))); err == nil {
			sizes[f.File] = info.Size()
		}
	}
	return sizes
}

// noWorkspace says why an attempt has no worktrees, and what to do about it.
func noWorkspace(now *task.AttemptDetails) string {
	state := board.ExecutionState(now.Execution.State)
	switch {
	case now.Execution.State.Open():
		return fmt.Sprintf("The worktrees are not created yet: the attempt is %s. Try again when it is running.",
			state)
	case now.Attempt.Error != nil:
		return fmt.Sprintf("The attempt is %s and has no workspace; its agent never ran. Why: %s Start a new "+
			"attempt.", state, sentence(*now.Attempt.Error))
	}
	return fmt.Sprintf("The attempt is %s and has no workspace; its agent never ran. Start a new attempt.", state)
}

// sentence formats a text as a sentence.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.ContainsRune(".!?", rune(s[len(s)-1])) {
		return s
	}
	return s + "."
}

// checkPath returns an error for a path that is not inside a worktree.
func checkPath(field, given string) error {
	local := filepath.FromSlash(given)
	if strings.TrimSpace(given) == "" || strings.ContainsRune(given, 0) || len(given) > 4096 ||
		!filepath.IsLocal(local) || path.Clean(filepath.ToSlash(local)) == ".git" {
		return session.Wrong(codes.BadPath,
			"%s contains %q, which is not a path in a worktree. Name changed files, or folders, relative to the "+
				"worktree.", field, board.Clip(given)).
			With("argument", field).With("value", board.Clip(given))
	}
	return nil
}

// diffLines returns the lines of one side of a file in git's diff, by line number.
func diffLines(diff, file, side string) map[int]string {
	lines := map[int]string{}
	for _, f := range ParseDiff(diff) {
		for _, l := range f.Lines {
			n := l.New
			if side == task.OldSide {
				n = l.Old
			}
			if n > 0 && f.File == file {
				lines[n] = l.Text
			}
		}
	}
	return lines
}
