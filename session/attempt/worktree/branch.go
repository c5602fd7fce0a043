package worktree

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/git"
)

// slugLength is the maximum number of characters of a title in a branch name.
const slugLength = 40

// BranchFor returns a branch name for a task's title: <prefix><slug>-<4 hex>. The slug consists of
// the title's ASCII letters, in lower case, and digits, with hyphens for everything between them,
// at most 40 characters, or "task" if nothing is left. The hex digits are random. It is a valid git
// ref.
func BranchFor(prefix, title string) string {
	var random [2]byte
	rand.Read(random[:]) // never fails
	return prefix + slug(title, "task") + "-" + hex.EncodeToString(random[:])
}

// Main returns the branch of an attempt, given that of one of its worktrees: further worktrees of one
// git repository have a number after it, which is shorter than the digits of BranchFor.
func Main(branch string) string { return numbered.ReplaceAllString(branch, "") }

var numbered = regexp.MustCompile(`-[0-9]{1,3}$`)

func slug(text, empty string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == slugLength {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return empty
}

// makeBranch creates a branch, which must not exist. worktree add does not create it, so that a
// failure shows whether the branch is ours.
func makeBranch(ctx context.Context, common, branch, at string) error {
	if err := git.CheckBranch(common, branch, "worktrees"); err != nil {
		return err
	}
	if err := breakLock(ctx, common, branch); err != nil {
		return err
	}
	c := inRepo(common, "branch", "--no-track", "--", branch, at)
	c.Config = []string{git.NoReflog}
	_, err := git.Output(ctx, c)
	if git.Said(err, "already exists") {
		return fmt.Errorf("%w: %s", ErrBranchTaken, branch)
	}
	return err
}

// dropBranch deletes a branch without work of its own: it has no commit beyond base and none that
// only it reaches. A branch that is checked out stays.
func dropBranch(ctx context.Context, common, branch, base string) error {
	tip, err := branchTip(ctx, common, branch)
	if err != nil || tip == "" || base == "" {
		return err
	}
	for _, not := range [][]string{{base}, {"--exclude=" + branch, "--branches", "--tags", "--remotes"}} {
		own, err := git.Line(ctx, inRepo(common, append([]string{"rev-list", "--max-count=1", tip, "--not"}, not...)...))
		if err != nil {
			return fmt.Errorf("looking for commits of the branch %s: %w", branch, err)
		}
		if own != "" {
			return nil
		}
	}
	if used, err := checkoutsOf(ctx, common, branch); err != nil || len(used) > 0 {
		return err
	}
	if err := breakLock(ctx, common, branch); err != nil {
		return err
	}
	// After a concurrent commit the branch stays, since its old value no longer matches.
	if _, err := git.Output(ctx, inRepo(common, "update-ref", "-d", "refs/heads/"+branch, tip)); err != nil {
		if now, look := branchTip(ctx, common, branch); look == nil && now != tip {
			return nil
		}
		return fmt.Errorf("deleting the branch %s: %w", branch, err)
	}
	return nil
}

// lockAge is the age from which the lock file of a branch counts as left behind.
const lockAge = 2 * time.Second

// breakLock removes git's lock file of an attempt's branch if a git that was killed has left it. The
// caller holds the locks of the attempt and the repository, so no git of ours uses the branch, and
// the git of anyone else has such a lock for milliseconds.
func breakLock(ctx context.Context, common, branch string) error {
	path := filepath.Join(common, "refs", "heads", filepath.FromSlash(branch)+".lock")
	for pause := (wait.Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond}); ; {
		info, err := os.Lstat(path)
		if missing(err) {
			return nil
		} else if err != nil {
			return err
		}
		if age := time.Since(info.ModTime()); age > lockAge || age < -lockAge {
			return os.Remove(path)
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}
