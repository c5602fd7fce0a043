package merge

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
		return nil, session.Wrong(codes.TooManyPaths, "paths has %d entries, and at most %d are allowed. Name folders instead of files, or make several calls.", len(a.Paths), MaxPaths).
			With("argument", "paths").With("value", len(a.Paths)).With("max", MaxPaths)
	}
	for _, path := range a.Paths {
		if err := checkPath("paths", path); err != nil {
			return nil, err
		}
	}
	now, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return nil, board.FaultOf("reading the attempt", err, "attempt", "attempt_id", id, board.RemedyAttempt)
	}
	at := now.Attempt
	r := &DiffReply{AttemptID: id, Diffs: []attempt.RepoDiff{}}
	var notices []string
	notice := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(notices, text) {
			notices = append(notices, text)
		}
	}
	if at.Elsewhere(e.Here) {
		var where string
		if r.Diffs, where, err = attempt.SavedDiff(ctx, b, at, left); err != nil {
			return nil, err
		}
		r.Truncated = slices.ContainsFunc(r.Diffs, func(d attempt.RepoDiff) bool { return d.Truncated })
		r.Notice = &where
		return r, nil
	}
	if attempt.InPlace(at) {
		notice("The run works in the project itself, %s, where its changes are among others: see git diff there.", at.Workspace)
	}
	compared := 0
	for _, repo := range at.Repos {
		d := attempt.RepoDiff{RepoID: repo.RepoID, RepoName: repo.RepoName}
		switch {
		case repo.BaseCommit == nil:
			notice("%s", noWorkspace(now))
		case !attempt.Exists(repo.Worktree):
			notice("The worktree %s no longer exists; its commits are on the branch %s.", repo.Worktree, at.Branch)
		case left <= 0:
			d.Truncated = true
		default:
			d.Diff, d.Truncated, err = e.Worktrees(at).Diff(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch, a.Paths, left)
			switch {
			case errors.Is(err, worktree.ErrNoWorktree):
				notice("%s is no longer a git worktree: its .git and its entry in the repository were removed. Its commits are on the branch %s.", repo.Worktree, at.Branch)
			case err != nil && ctx.Err() == nil:
				return nil, attempt.GitFailed("The worktree "+repo.Worktree+" cannot be compared", err)
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
	empty := !slices.ContainsFunc(r.Diffs, func(d attempt.RepoDiff) bool { return d.Diff != "" || d.Truncated })
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
		all[i] = fmt.Sprintf("%q", board.Clip(p))
	}
	return board.Enumerate(all, "none")
}

// checkPath refuses a path that is not inside a worktree.
func checkPath(field, given string) error {
	local := filepath.FromSlash(given)
	if strings.TrimSpace(given) == "" || strings.ContainsRune(given, 0) || len(given) > 4096 || !filepath.IsLocal(local) || path.Clean(filepath.ToSlash(local)) == ".git" {
		return session.Wrong(codes.BadPath, "%s contains %q, which is not a path in a worktree. Pass paths as in changed_files, or folders, relative to the worktree.", field, board.Clip(given)).
			With("argument", field).With("value", board.Clip(given))
	}
	return nil
}

// diffLines returns the lines of one side of a file in a diff, as git prints it, by their numbers.
func diffLines(diff, file, side string) map[int]string {
	lines := map[int]string{}
	header, other := "+++ b/", byte('-')
	if side == task.OldSide {
		header, other = "--- a/", '+'
	}
	is, next, left := false, 0, [2]int{} // lines of the hunk that are left of each side
	for line := range strings.Lines(diff) {
		line = strings.TrimRight(line, "\r\n")
		if left[0] > 0 || left[1] > 0 {
			kind, text := byte(' '), line
			if line != "" {
				kind, text = line[0], line[1:]
			}
			if kind == '\\' {
				continue // about the end of the file
			}
			if kind != '+' {
				left[0]--
			}
			if kind != '-' {
				left[1]--
			}
			if kind != other {
				if is {
					lines[next] = text
				}
				next++
			}
			continue
		}
		if name, ok := unquoted(line); ok && (name[:4] == header[:4]) {
			is = strings.TrimSuffix(name, "\t") == header+file
		}
		if was, now, ok := hunk(line); ok {
			left = [2]int{was[1], now[1]}
			if next = now[0]; side == task.OldSide {
				next = was[0]
			}
		}
	}
	return lines
}

// unquoted returns a line of a diff that names a file, without the quotes of an unusual name.
func unquoted(line string) (string, bool) {
	if len(line) < 4 || line[:4] != "--- " && line[:4] != "+++ " {
		return "", false
	}
	if name, err := strconv.Unquote(line[4:]); err == nil {
		return line[:4] + name, true
	}
	return line, true
}

// hunk reads the beginning of a hunk: the first line and the number of lines of each side.
func hunk(line string) (was, now [2]int, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[0] != "@@" || fields[3] != "@@" {
		return was, now, false
	}
	for i, to := range []*[2]int{&was, &now} {
		first, count, several := strings.Cut(strings.TrimLeft(fields[i+1], "-+"), ",")
		n, err := strconv.Atoi(first)
		to[0], to[1] = n, 1
		if several && err == nil {
			to[1], err = strconv.Atoi(count)
		}
		if err != nil {
			return was, now, false
		}
	}
	return was, now, true
}
