package workflow

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// planBranch applies git.branch to a new session: it decides whether a branch is to be made, and refuses if
// that would fail. It changes nothing.
func (e *Engine) planBranch(ctx context.Context, b *machine.NewSession) error {
	if b.Branch = machine.BranchNamed; e.outsideGit() {
		b.Branch = machine.BranchOutsideGit
	}
	if e.Config == nil {
		return nil
	}
	cfg, err := e.Config.Current(ctx)
	if err != nil {
		return session.NotNow("config_invalid", "The configuration cannot be used: %v. Correct it and call again.", err).Because(err)
	}
	switch mode := cfg.Git.Branch; {
	case mode != config.BranchCreate && mode != config.BranchCheckout:
		b.Notice = strings.TrimSpace(b.Notice + " " + e.branchNotice(cfg))
		return nil
	case b.Branch == machine.BranchOutsideGit:
		return session.NotNow("not_a_git_repository",
			"git.branch is '%s', but %s is not in a git repository. Run `git init` there, or set git.branch to 'name' in .deepwork/config.yml.", mode, e.Root)
	case mode == config.BranchCheckout:
		b.Branch = machine.BranchCheckedOut
		err = e.switchable(ctx)
	default:
		b.Branch = machine.BranchCreated
	}
	b.BranchDue = true
	if err != nil && session.CodeOf(err) == "" {
		return gitFailed(b.BranchName, err)
	}
	return err
}

// freeBranch returns an unused branch name that git can make: the name, or with a number. Those in taken are
// used, too.
func (e *Engine) freeBranch(ctx context.Context, name string, taken map[string]bool) (free string, err error) {
	out, err := e.runGit(ctx, "for-each-ref", "--format=%(refname:short)", "refs/heads/"+name+"*")
	if err != nil {
		return "", gitFailed(name, err)
	}
	for line := range strings.Lines(out) {
		taken[strings.TrimSpace(line)] = true
	}
	free = name
	for i := 2; taken[free]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	_, commit, err := e.head(ctx)
	if err == nil {
		err = e.linkFree(ctx, free)
	}
	if err == nil && commit != "" { // would git make it?
		_, err = e.git(ctx, git.Command{Args: []string{"update-ref", "--stdin"}, Stdin: fmt.Appendf(nil, "start\ncreate refs/heads/%s %s\nprepare\nabort\n", free, commit)})
		if git.Said(err, "already exists") { // made meanwhile, for another session
			return e.freeBranch(ctx, name, taken)
		}
	}
	if err != nil {
		return "", gitFailed(free, err)
	}
	return free, nil
}

// branched makes the branch of a session that has begun, unless that is done: the first call in the session's
// root does, if the server that began the session was killed before, or git failed there.
func (a *sessionActor) branched(ctx context.Context, who caller) error {
	s := a.state
	if !s.BranchDue || s.Status != machine.Active || a.branchMade || who.Anywhere {
		return nil
	}
	err := a.engine.makeBranch(ctx, s.BranchName, s.BranchStatus == machine.BranchCheckedOut)
	if err != nil {
		return session.NotNow("git_failed", "Session '%s' has begun, but its branch '%s' could not be made: %v. Correct that and call get_step with session_id '%s', which makes it; or end the session with abort_workflow.", a.id, s.BranchName, err, a.id).
			With("session_id", a.id).Because(err)
	}
	a.branchMade = true // the next transition records it
	return nil
}

// makeBranch makes a branch of the commit that is checked out and, if it is to be checked out, switches to it,
// as git checkout -b does: no file changes. One that is there was made by an earlier call, which may have been
// killed before it switched.
func (e *Engine) makeBranch(ctx context.Context, name string, checkout bool) error {
	full := "refs/heads/" + name
	ref, commit, err := e.head(ctx)
	if err != nil || ref == full {
		return err
	}
	at, err := e.commitOf(ctx, full)
	if err != nil || at != "" && (!checkout || at != commit) {
		return err
	}
	if err := e.linkFree(ctx, name); err != nil {
		return err
	}
	if checkout {
		if err := e.switchable(ctx); err != nil {
			return err
		}
	}
	if at == "" && commit != "" { // before the first commit no branch has one
		if _, err := e.runGit(ctx, "branch", "--no-track", "--", name, commit); err != nil && !git.Said(err, "already exists") {
			return err
		}
	}
	if !checkout {
		return nil
	}
	on := cmp.Or(strings.TrimPrefix(ref, "refs/heads/"), commit)
	_, err = e.runGit(ctx, "symbolic-ref", "-m", "checkout: moving from "+on+" to "+name, "HEAD", full)
	return err
}

// linkFree refuses a branch if git would write through a link for it.
func (e *Engine) linkFree(ctx context.Context, name string) error {
	dirs, err := e.gitDirs(ctx)
	for _, dir := range dirs {
		err = cmp.Or(err, git.CheckBranch(dir, name, "logs/HEAD"))
	}
	return err
}

// gitDirs returns the git folder of the work tree and the one that it shares with others.
func (e *Engine) gitDirs(ctx context.Context) (dirs []string, err error) {
	out, err := e.runGit(ctx, "rev-parse", "--git-dir", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	for dir := range strings.Lines(out) {
		if dir = filepath.FromSlash(strings.TrimRight(dir, "\r\n")); !filepath.IsAbs(dir) {
			dir = filepath.Join(e.Root, dir)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// head returns the ref of the checked-out branch, or "" for a detached HEAD, and the commit, or ""
// before the first commit.
func (e *Engine) head(ctx context.Context) (ref, commit string, err error) {
	if commit, err = e.commitOf(ctx, "HEAD"); err != nil {
		return "", "", err
	}
	if ref, err = e.runGit(ctx, "symbolic-ref", "--quiet", "HEAD"); git.ExitCode(err) == 1 && commit != "" {
		err = nil
	}
	return ref, commit, err
}

// commitOf returns the commit of a ref, or "" if there is none.
func (e *Engine) commitOf(ctx context.Context, ref string) (commit string, err error) {
	if commit, err = e.runGit(ctx, "rev-parse", "--verify", "--quiet", ref); git.ExitCode(err) == 1 {
		return "", nil
	}
	return commit, err
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

// underWay are the files of the git folder with which git goes on with something that a switch of branches
// would break.
var underWay = []string{"rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"}

// switchable refuses a tree with changes to tracked files, which a switch of branches would take along
// (untracked files do not matter), and one in which git is in the middle of something.
func (e *Engine) switchable(ctx context.Context) error {
	out, err := e.runGit(ctx, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
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
	if files != nil {
		return session.NotNow("dirty_tree",
			"git.branch is 'checkout', and the work tree has uncommitted changes: %s. Commit or stash them, then call again.", strings.Join(files, ", ")).With("files", files)
	}
	dirs, err := e.gitDirs(ctx)
	if err != nil {
		return err
	}
	for _, name := range underWay {
		if _, err := os.Lstat(filepath.Join(dirs[0], name)); err == nil {
			return fmt.Errorf("a rebase, merge, cherry-pick, revert or bisect is under way (%s): finish or abort it first", name)
		}
	}
	return nil
}

// runGit runs git in the project root and returns its output without the final line break.
func (e *Engine) runGit(ctx context.Context, args ...string) (string, error) {
	return e.git(ctx, git.Command{Args: args})
}

func (e *Engine) git(ctx context.Context, c git.Command) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	if c.Dir = e.Root; c.Args[0] == "branch" {
		c.Config = []string{git.NoReflog}
	}
	return git.Line(ctx, c)
}
