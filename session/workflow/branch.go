package workflow

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/branch"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// planBranch applies git.branch to a new session: it decides whether a branch is to be made, and refuses if
// that would fail. It changes nothing.
func (e *Engine) planBranch(ctx context.Context, b *machine.NewSession) error {
	tree := branch.Tree{Root: e.Root}
	if b.Branch = machine.BranchNamed; tree.Outside() {
		b.Branch = machine.BranchOutsideGit
	}
	if e.Config == nil {
		return nil
	}
	cfg, err := e.Config.Current(ctx)
	if err != nil {
		return session.NotNow(codes.ConfigInvalid, "The configuration cannot be used: %v. Correct it and call again.", err).Because(err)
	}
	switch mode := cfg.Git.Branch; {
	case mode != config.BranchCreate && mode != config.BranchCheckout:
		b.Notice = strings.TrimSpace(b.Notice + " " + e.branchNotice(cfg))
		return nil
	case b.Branch == machine.BranchOutsideGit:
		return session.NotNow(codes.NotAGitRepository,
			"git.branch is '%s', but %s is not in a git repository. Run `git init` there, or set git.branch to 'name' in .deepwork/config.yml.", mode, e.Root)
	case mode == config.BranchCheckout:
		b.Branch = machine.BranchCheckedOut
		err = tree.Switchable(ctx)
	default:
		b.Branch = machine.BranchCreated
	}
	b.BranchDue = true
	if dirty, is := errors.AsType[*branch.DirtyError](err); is {
		return session.NotNow(codes.DirtyTree, "git.branch is 'checkout', and %v. Commit or stash them, then call again.", err).With("files", dirty.Files)
	} else if err != nil {
		return gitFailed(b.BranchName, err)
	}
	return nil
}

// branched makes the branch of a session that has begun, unless that is done: the first call in the session's
// root does, if the server that began the session was killed before, or git failed there.
func (a *sessionActor) branched(ctx context.Context, who caller) error {
	s := a.state
	if !s.BranchDue || s.Status != machine.Active || a.branchMade || who.Anywhere {
		return nil
	}
	err := branch.Tree{Root: a.engine.Root}.Make(ctx, s.BranchName, s.BranchStatus == machine.BranchCheckedOut)
	if err != nil {
		return session.NotNow(codes.GitFailed, "Session '%s' has begun, but its branch '%s' could not be made: %v. Correct that and call get_step with session_id '%s', which makes it; or end the session with abort_workflow.", a.id, s.BranchName, err, a.id).
			With("session_id", a.id).Because(err)
	}
	a.branchMade = true // the next transition records it
	return nil
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

func gitFailed(name string, err error) error {
	return session.NotNow(codes.GitFailed, "The branch '%s' could not be made, so no session was started: %v. Correct that, or set git.branch to 'name' in .deepwork/config.yml.", name, err).Because(err)
}
