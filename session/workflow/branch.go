package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/git"
	"deepwork/session/workflow/machine"
)

// branchName is deepwork/<job>-<workflow>-<instance or date>, made a legal git
// ref (seed 002, "Session and State Model").
func branchName(jobName, workflowName string, instance *string, at time.Time) string {
	last := at.Format(time.DateOnly)
	if instance != nil {
		if s := refPart(*instance); s != "" {
			last = s
		}
	}
	return "deepwork/" + refPart(jobName) + "-" + refPart(workflowName) + "-" + last
}

// refPart makes text valid in a branch name: what git-check-ref-format forbids becomes a hyphen.
func refPart(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '_', r == '.':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() > 100 {
			break
		}
	}
	out := b.String()
	for strings.Contains(out, "..") {
		out = strings.ReplaceAll(out, "..", ".")
	}
	for {
		cut := strings.TrimSuffix(strings.Trim(out, "-."), ".lock")
		if cut == out {
			break
		}
		out = cut
	}
	return strings.ToValidUTF8(out, "")
}

// gitTimeout limits one git command.
const gitTimeout = 30 * time.Second

// outsideGit reports whether neither the project root nor a folder above it has a repository.
func (e *Engine) outsideGit() bool {
	for dir := e.Root; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// branch applies git.branch to the branch name of a new session; undo reverses it if the session is
// not created.
func (e *Engine) branch(ctx context.Context, b *machine.NewSession) (undo func(), err error) {
	none, name := func() {}, b.BranchName
	if b.Branch = machine.BranchNamed; e.outsideGit() {
		b.Branch = machine.BranchOutsideGit
	}
	if e.Config == nil {
		return none, nil
	}
	cfg, err := e.Config.Current(ctx)
	if err != nil {
		return none, session.NotNow("config_invalid", "The configuration cannot be used: %v. Correct it and call again.", err).Because(err)
	}
	mode := cfg.Git.Branch
	if mode != config.BranchCreate && mode != config.BranchCheckout {
		b.Notice = strings.TrimSpace(b.Notice + " " + e.branchNotice(cfg))
		return none, nil
	}
	e.git.Lock()
	defer e.git.Unlock()
	dirs, err := e.runGit(ctx, "rev-parse", "--git-common-dir", "--git-dir")
	if err != nil {
		return none, session.NotNow("not_a_git_repository",
			"git.branch is '%s', but %s is not in a git repository (%v). Run `git init` there, or set git.branch to 'name' in .deepwork/config.yml.", mode, e.Root, err).Because(err)
	}
	if mode == config.BranchCheckout {
		if err := e.cleanTree(ctx); err != nil {
			return none, err
		}
	}
	free, err := e.freeBranch(ctx, name)
	if err != nil {
		return none, err
	}
	for dir := range strings.SplitSeq(dirs, "\n") {
		if dir = filepath.FromSlash(strings.TrimRight(dir, "\r")); !filepath.IsAbs(dir) {
			dir = filepath.Join(e.Root, dir)
		}
		if err := git.CheckBranch(dir, free, "logs/HEAD"); err != nil {
			return none, gitFailed(free, err)
		}
	}
	b.BranchName, b.Branch = free, machine.BranchCreated
	made, undone := [][]string{{"branch", "--no-track", "--", free}}, [][]string{{"branch", "-D", "--", free}}
	if mode == config.BranchCheckout {
		b.Branch = machine.BranchCheckedOut
		ref, commit, err := e.head(ctx)
		if err != nil {
			return none, gitFailed(free, err)
		}
		made = [][]string{{"switch", "--quiet", "--create", free}}
		switch {
		case commit == "": // neither branch has a commit
			undone = [][]string{{"symbolic-ref", "HEAD", ref}}
		case ref == "":
			undone = slices.Insert(undone, 0, []string{"switch", "--quiet", "--detach", commit})
		default:
			undone = slices.Insert(undone, 0, []string{"switch", "--quiet", strings.TrimPrefix(ref, "refs/heads/")})
		}
	}
	for _, args := range made {
		if _, err := e.runGit(ctx, args...); err != nil {
			return none, gitFailed(free, err)
		}
	}
	return func() {
		e.git.Lock()
		defer e.git.Unlock()
		if ref, _, err := e.head(context.WithoutCancel(ctx)); mode == config.BranchCheckout && (err != nil || ref != "refs/heads/"+free) {
			e.Logger.Warn("a branch was made for a session that was not, and stays, since another one is checked out", "branch", free, "error", err)
			return
		}
		for _, args := range undone {
			if _, err := e.runGit(context.WithoutCancel(ctx), args...); err != nil {
				e.Logger.Warn("a branch was made for a session that was not, and stays", "branch", free, "error", err)
				return
			}
		}
	}, nil
}

// head returns the ref of the checked-out branch, or "" for a detached HEAD, and the commit, or ""
// before the first commit.
func (e *Engine) head(ctx context.Context) (ref, commit string, err error) {
	if commit, err = e.runGit(ctx, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil && git.ExitCode(err) != 1 {
		return "", "", err
	}
	if ref, err = e.runGit(ctx, "symbolic-ref", "--quiet", "HEAD"); git.ExitCode(err) == 1 && commit != "" {
		err = nil
	}
	return ref, commit, err
}

// branchNotice says that git.branch is not in force without the user's approval, or returns "".
func (e *Engine) branchNotice(cfg *config.Config) string {
	if cfg.Approval == nil {
		return ""
	}
	asked, is := cfg.Approval.Withheld.Of("git.branch")
	if !is {
		return ""
	}
	return fmt.Sprintf("The user has not approved git.branch: %s of .deepwork/config.yml, so no branch was created, and the work tree is on the one that it was on. If the branch matters, ask them to run `deepwork trust --path %s` in a terminal, and start the workflow again.",
		strings.Trim(asked.Text, `"`), filepath.Dir(filepath.Dir(e.Config.Path())))
}

func gitFailed(branch string, err error) error {
	return session.NotNow("git_failed", "The branch '%s' could not be made, so no session was started: %v. Correct that, or set git.branch to 'name' in .deepwork/config.yml.", branch, err).Because(err)
}

// cleanTree refuses a tree with changes to tracked files, which a switch of branches would take
// along; untracked files do not matter.
func (e *Engine) cleanTree(ctx context.Context) error {
	out, err := e.runGit(ctx, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return session.NotNow("git_failed", "The state of the work tree cannot be read, so no session was started: %v.", err).Because(err)
	}
	if out == "" {
		return nil
	}
	var files []string
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if len(files) == 20 {
			files = append(files, "…")
			break
		}
		files = append(files, strings.TrimSpace(line[min(3, len(line)):]))
	}
	return session.NotNow("dirty_tree",
		"git.branch is 'checkout', and the work tree has uncommitted changes: %s. Commit or stash them, then call again.", strings.Join(files, ", ")).With("files", files)
}

// freeBranch returns an unused branch name: the name, or with a number.
func (e *Engine) freeBranch(ctx context.Context, name string) (string, error) {
	out, err := e.runGit(ctx, "for-each-ref", "--format=%(refname:short)", "refs/heads/"+name+"*")
	if err != nil {
		return "", gitFailed(name, err)
	}
	taken := map[string]bool{}
	for line := range strings.Lines(out) {
		taken[strings.TrimSpace(line)] = true
	}
	free := name
	for i := 2; taken[free]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free, nil
}

// runGit runs git in the project root and returns its output without the final line break.
func (e *Engine) runGit(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	c := git.Command{Dir: e.Root, Args: args, Filters: true} // git.branch has the user's approval
	if args[0] == "branch" || args[0] == "switch" {
		c.Config = []string{git.NoReflog}
	}
	return git.Line(ctx, c)
}
