package worktree

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/git"
)

// ErrUnpublished is returned for commits that refer to a submodule's commit that only the worktree has.
var ErrUnpublished = errors.New("a commit of a submodule is only in the worktree")

// otherCheckout says what a worktree has checked out instead of its own branch, or returns "". branch is its name if
// that is another branch.
func (v *view) otherCheckout(ctx context.Context) (what, branch string, err error) {
	c := v.call("rev-parse", "--symbolic-full-name", "HEAD")
	if v.head == "" { // a branch without commits
		c = v.call("symbolic-ref", "--quiet", "HEAD")
	}

	ref, err := git.Line(ctx, c)
	switch branch, ok := strings.CutPrefix(ref, "refs/heads/"); {
	case err != nil && git.ExitCode(err) != 1:
		return "", "", err
	case branch == v.Branch:
		return "", "", nil
	case ok:
		return "the branch " + branch, branch, nil
	}
	return fmt.Sprintf("no branch (a detached HEAD at %.12s)", v.head), "", nil
}

// adopt moves the attempt's branch to the commits that an agent has made elsewhere, on another branch or on
// none, and checks out the attempt's branch. No file changes, and the other branch stays. was is what the
// worktree had checked out before, or "". It refuses commits that may not be the attempt's. The repository
// must be locked, and no operation may be in progress.
func (v *view) adopt(ctx context.Context) (was string, err error) {
	if was, _, err = v.otherCheckout(ctx); err != nil {
		return "", err
	} else if was == "" && v.head == "" {
		return "", fmt.Errorf("%w: what is checked out in %s has no commit", ErrNoBranch, v.Path)
	} else if was == "" {
		return "", nil
	}
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: it is on %s, "+format, append([]any{ErrOtherBranch, was}, args...)...)
	}
	back := fmt.Sprintf("this goes back to the attempt's branch: git -C %s switch %s",
		session.InShell(v.Path), v.Branch)
	used, err := v.checkoutsOf(ctx, v.Branch)
	if err != nil {
		return "", err
	} else if v.head == "" {
		return refuse("which has no commit; %s", back)
	} else if len(used) > 0 {
		return refuse("and the attempt's branch %s is checked out in %s. This frees it: git -C %s switch --detach",
			v.Branch, used[0].path, session.InShell(used[0].path))
	}
	own, err := branchTip(ctx, v.Common, v.Branch)
	if err != nil {
		return "", err
	}
	begin := cmp.Or(own, v.Base) // an agent may have renamed the branch
	if contains, err := isAncestor(ctx, v.Common, begin, v.head); err != nil {
		return "", err
	} else if !contains {
		return refuse("which lacks commits of the attempt's branch. This adds them: git -C %s merge "+
			"--allow-unrelated-histories refs/heads/%s; %s", session.InShell(v.Path), v.Branch, back)
	}
	target, err := branchTip(ctx, v.Common, v.TargetBranch) // commits merged from there are no reason to refuse
	if err != nil {
		return "", err
	}
	if id, err := git.Line(ctx, inRepo(v.Common, "rev-list", "--max-count=1",
		"--min-age="+strconv.FormatInt(v.journal.MadeAt, 10),
		v.head, "--not", begin, cmp.Or(target, begin), cmp.Or(v.target, begin))); err != nil {
		return "", err
	} else if id != "" {
		return refuse("which has commits from before the attempt, such as %.12s. This adds them to the attempt's "+
			"branch: git -C %s switch -C %s; %s", id, session.InShell(v.Path), v.Branch, back)
	}
	if err := git.CheckBranch(v.Common, v.Branch); err != nil {
		return "", err
	}

	ctx = context.WithoutCancel(ctx)
	c := inRepo(v.Common, "update-ref", "refs/heads/"+v.Branch, v.head, cmp.Or(own, strings.Repeat("0", len(v.head))))
	c.Config = []string{git.NoReflog}

	if _, err := git.Output(ctx, c); err != nil {
		return "", err
	}
	_, err = git.Output(ctx, v.call("symbolic-ref", "HEAD", "refs/heads/"+v.Branch))
	return was, err
}

// published returns ErrUnpublished, with the command that publishes it, for a submodule's commit to which the
// attempt's commits refer and that only the worktree has.
func (v *view) published(ctx context.Context) error {
	out, err := git.Output(ctx, v.call("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none",
		v.from, v.head))
	if err != nil {
		return err
	}
	for fields := git.Fields(out); len(fields) > 1; fields = fields[2:] { // ":mode mode id id status", path
		if entry := strings.Fields(fields[0]); len(entry) > 3 && entry[1] == modeRepo {
			if err := v.submodule(ctx, fields[1], entry[3]); err != nil {
				return err
			}
		}
	}

	return nil
}

// submodule does what published does for a commit of one submodule, and for the submodules inside it.
func (v *view) submodule(ctx context.Context, name, commit string) error {
	at := filepath.Join(v.path, filepath.FromSlash(name))
	if !isThere(filepath.Join(at, ".git")) {
		return nil // not checked out, so the commit comes from elsewhere
	}
	if id, err := commitOf(ctx, gitInside(at), commit); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	} else if id == "" {
		return nil
	}

	// A commit from before the attempt came from elsewhere, for example by its tag or to a shallow clone.
	own, err := git.Line(ctx, gitInside(at, "rev-list", "--max-count=1", fmt.Sprint("--max-age=", v.journal.MadeAt),
		commit, "--not", "--remotes"))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if top, _ := git.TopLevel(ctx, v.Repo); own != "" && top != "" { // a bare repository has none
		users := filepath.Join(top, filepath.FromSlash(name))
		id, err := commitOf(ctx, gitInside(users), commit)
		if err == nil && id != "" && isThere(filepath.Join(users, ".git")) {
			own = ""
		}
	}
	if own != "" {
		remotes, err := git.Line(ctx, gitInside(at, "remote"))
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		remote, _, _ := strings.Cut(remotes, "\n")
		if remote == "" {
			return fmt.Errorf("%w: %.12s of %s, which has no remote. Add one to it and push there, or commit its "+
				"files instead of it", ErrUnpublished, commit, at)
		}
		return fmt.Errorf("%w: %.12s of %s. This publishes it: git -C %s push %s %s:refs/heads/%s", ErrUnpublished,
			commit, at, session.InShell(at), session.InShell(remote), commit, v.Branch)
	}
	inside, err := git.Output(ctx, gitInside(at, "ls-tree", "-r", "-z", commit))
	for _, line := range git.Fields(inside) {
		info, file, _ := strings.Cut(line, "\t")
		if entry := strings.Fields(info); err == nil && len(entry) > 2 && entry[0] == modeRepo {
			err = v.submodule(ctx, path.Join(name, file), entry[2])
		}
	}

	return err
}

// moved returns the submodules whose commits are not in any commit of the worktree.
func (v *view) moved(ctx context.Context) ([]string, error) {
	files, _, err := v.changed(ctx)
	return slices.DeleteFunc(files, func(name string) bool {
		return !isThere(filepath.Join(v.path, filepath.FromSlash(name), ".git"))
	}), err
}

// slugLength is the maximum number of characters of a title in the names of a branch and a folder: some
// systems limit the length of paths.
const slugLength = 32

// BranchFor returns a branch name for a task's title: <prefix><slug>-<4 hex>. The slug consists of the title's
// letters, of any script and in lower case, and digits, with hyphens for everything between them, at most 32
// characters, or "task" if nothing is left. The hex digits are random. It is a valid git ref.
func BranchFor(prefix, title string) string {
	var random [2]byte
	rand.Read(random[:]) // never fails
	return prefix + slug(title, "task") + "-" + hex.EncodeToString(random[:])
}

// Main returns the branch of an attempt, given the branch of one of its worktrees. Further worktrees of the
// same repository add a number, which is shorter than the digits of BranchFor.
func Main(branch string) string { return numbered.ReplaceAllString(branch, "") }

var numbered = regexp.MustCompile(`-[0-9]{1,3}$`)

func slug(text, empty string) string {
	var out []rune
	for _, r := range strings.ToLower(text) {
		afterHyphen := len(out) == 0 || out[len(out)-1] == '-'
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r) && !afterHyphen:
			out = append(out, r)
		case !afterHyphen:
			out = append(out, '-')
		}

		if len(out) == slugLength {
			break
		}
	}
	return cmp.Or(strings.Trim(string(out), "-"), empty)
}

// makeBranch creates a branch, which must not exist. worktree add does not create it, so that a failure shows
// whether the branch is ours.
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

// dropBranch deletes a branch without work of its own: it has no commit beyond base, and no commit that only
// it reaches. A checked-out branch stays.
func (e *record) dropBranch(ctx context.Context, base string) error {
	common, branch := e.Common, e.Branch
	tip, err := branchTip(ctx, common, branch)
	if err != nil || tip == "" || base == "" {
		return err
	}
	for _, not := range [][]string{{base}, {"--exclude=" + branch, "--branches", "--tags", "--remotes"}} {
		own, err := git.Line(ctx, inRepo(common,
			append([]string{"rev-list", "--max-count=1", tip, "--not"}, not...)...))
		if err != nil {
			return fmt.Errorf("looking for commits of the branch %s: %w", branch, err)
		}
		if own != "" {
			return nil
		}
	}

	if used, err := e.checkoutsOf(ctx, branch); err != nil || len(used) > 0 {
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

// lockAge is the age from which a branch's lock file counts as left behind.
const lockAge = 2 * time.Second

// breakLock removes git's lock file of an attempt's branch if a killed git has left it. The caller holds the
// locks of the attempt and the repository, so none of our git commands uses the branch, and other git
// commands hold such a lock for milliseconds only.
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
