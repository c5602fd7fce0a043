package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"deepwork/actor/process"
	"deepwork/session/git"
)

// setupOutput is how much a setup command may print to its standard output.
const setupOutput = 64 << 20

// Create makes the worktrees of an attempt, each on the new branch, all or none:
// what a failed Create made is undone before it returns. Where two of the trees
// are of one repository, the second one's branch has "-2" at its end, as a branch
// can be checked out only once. Called again for an attempt whose creation was
// cut short by a crash, it finishes it; a setup command that was running then is
// run again in the same worktree. Called again after that, it returns what was
// made. env is added to the environment of setup commands, which run at the top
// of the worktree. Hooks of the repository do not run.
//
// It blocks until everything is done, setup commands included, and waits for
// other calls that work on this attempt or, briefly, on one of its repositories.
// Errors are ErrNotRepo, ErrNoBranch, ErrBranchTaken, ErrSetup (with the exit
// code and the last lines; a *process.Error is in the chain), ErrOutside (a copy
// that leads out of the repository), or of git or the system.
func (k *Keeper) Create(ctx context.Context, attempt, branch string, trees []Tree, env []string) (out []Made, err error) {
	defer wrap(&err, "making the worktrees of attempt %s", attempt)
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil {
		return nil, err
	}
	switch {
	case j == nil:
	case j.Phase == made && j.is(branch, trees) && j.present():
		return j.made(), nil
	case j.Phase == made:
		return nil, fmt.Errorf("it has worktrees already, on the branch %s; remove them first", j.Branch)
	case j.Phase == removing:
		return nil, errors.New("its worktrees are being removed")
	default:
		if err := k.clearOwn(ctx, j); err != nil {
			return nil, err
		}
		if j.Phase == creating && j.is(branch, trees) {
			for i, e := range j.Trees {
				e.Tree = trees[i] // with what is copied and run now
			}
			break
		}
		if _, err := k.undo(ctx, j); err != nil { // what was begun is not what is wanted now
			return nil, err
		}
		j = nil
	}
	if j == nil {
		if j, err = k.plan(ctx, attempt, branch, trees); err != nil {
			return nil, err
		}
	}
	for _, e := range j.Trees {
		if err = k.build(ctx, j, e, env); err != nil {
			err = fmt.Errorf("repository %s: %w", e.Name, err)
			break
		}
	}
	if err == nil {
		err = k.turn(j, made)
	}
	if err == nil {
		return j.made(), nil
	}
	// Nobody has worked in them yet: what setup commands wrote is not kept.
	// The end of the caller's context must not leave them half-made.
	j.Phase = undoing
	if _, undo := k.undo(context.WithoutCancel(ctx), j); undo != nil {
		k.log.Error("worktrees that could not be made could not be undone; the next start tries again", "attempt", attempt, "error", undo)
	}
	return nil, err
}

// plan records what is to be made. Nothing is made where one repository or
// branch is wrong.
func (k *Keeper) plan(ctx context.Context, attempt, branch string, trees []Tree) (*journal, error) {
	j := &journal{Attempt: attempt, Branch: branch}
	uses := map[string]int{}
	for _, t := range trees {
		base := ""
		common, err := findRepo(ctx, t.Repo)
		if err == nil {
			base, err = baseOf(ctx, common, t.TargetBranch)
		}
		if err != nil {
			return nil, fmt.Errorf("repository %s: %w", t.Name, err)
		}
		own := branch
		if uses[common]++; uses[common] > 1 {
			own = fmt.Sprintf("%s-%d", branch, uses[common])
		}
		j.Trees = append(j.Trees, &record{
			Tree: t, Common: common, Path: filepath.Join(k.folder(attempt), t.Name), Branch: own, Base: base, Step: planned,
		})
	}
	if err := k.unlinked(j.paths()...); err != nil {
		return nil, err
	}
	for _, e := range j.Trees {
		if list, err := os.ReadDir(e.Path); err == nil && len(list) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("repository %s: %s is in the way; move it elsewhere", e.Name, e.Path)
		}
	}
	return j, k.turn(j, creating)
}

// is reports whether a journal is of a branch and trees, whatever is copied into
// these and run there.
func (j *journal) is(branch string, trees []Tree) bool {
	return j.Branch == branch && slices.EqualFunc(j.Trees, trees, func(e *record, t Tree) bool {
		return e.RepoID == t.RepoID && e.Name == t.Name && e.Repo == t.Repo && e.TargetBranch == t.TargetBranch
	})
}

// present reports whether no worktree was deleted by hand.
func (j *journal) present() bool {
	return !slices.ContainsFunc(j.Trees, func(e *record) bool { return !isThere(e.Path) })
}

func (j *journal) made() []Made {
	out := make([]Made, len(j.Trees))
	for i, e := range j.Trees {
		out[i] = Made{RepoID: e.RepoID, Path: e.Path, Base: e.Base}
	}
	return out
}

// build makes one worktree, beginning at the step that its record has.
func (k *Keeper) build(ctx context.Context, j *journal, e *record, env []string) error {
	there := e.Step == added || e.Step == ready
	if e.Step != planned && !(there && adminOf(e.Common, e.Path) != "") {
		// It was being made when the process ended, or cleared for that; it is made
		// again, since it may be incomplete.
		if err := k.keep(ctx, j, e, keepPresent); err != nil {
			return err
		}
		if err := k.drop(ctx, j, e); err != nil {
			return err
		}
		if err := k.reach(j, e, planned); err != nil {
			return err
		}
	}
	if e.Step == planned {
		if err := k.add(ctx, j, e); err != nil {
			return err
		}
	}
	if e.Step == added {
		if err := k.copyAll(ctx, e); err != nil {
			return err
		}
		k.at("copied " + e.Name)
		if err := k.setup(ctx, e, env); err != nil {
			return err
		}
		return k.reach(j, e, ready)
	}
	return nil
}

// add makes the branch and the worktree, and checks its files out.
func (k *Keeper) add(ctx context.Context, j *journal, e *record) error {
	if err := k.addLocked(ctx, j, e); err != nil {
		return err
	}
	// The checkout is the long part, and concerns this worktree alone. It is what
	// worktree add does too; it runs no hook.
	admin := adminOf(e.Common, e.Path)
	if admin == "" {
		return fmt.Errorf("the worktree %s is gone already", e.Path) // and git would find another one
	}
	if _, err := git.Output(ctx, git.Command{Dir: e.Path, GitDir: admin, WorkTree: e.Path,
		Args: []string{"reset", "--hard", "--quiet", "--no-recurse-submodules"}}); err != nil {
		return fmt.Errorf("checking the files out: %w", err)
	}
	k.at("checked out " + e.Name)
	return k.reach(j, e, added)
}

func (k *Keeper) addLocked(ctx context.Context, j *journal, e *record) error {
	unlock, err := k.lockRepo(ctx, e.Common, nil)
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.reach(j, e, branching); err != nil {
		return err
	}
	if err := makeBranch(ctx, e.Common, e.Branch, e.Base); err != nil {
		if errors.Is(err, ErrBranchTaken) {
			e.Step = planned // it is not ours, and not ours to delete
		}
		return err
	}
	k.at("branch " + e.Name)
	if err := k.reach(j, e, adding); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(e.Path), 0o755); err != nil {
		return err
	}
	c := inRepo(e.Common, "worktree", "add", "--quiet", "--no-checkout", e.Path, e.Branch)
	c.Dir = filepath.Dir(e.Path)
	if _, err := git.Output(ctx, c); err != nil {
		return fmt.Errorf("adding the worktree: %w", err)
	}
	k.at("worktree " + e.Name)
	return nil
}

// setup runs the setup command, in a process group of its own.
func (k *Keeper) setup(ctx context.Context, e *record, env []string) error {
	if len(e.Setup) == 0 {
		return nil
	}
	if e.Allowed != nil {
		if err := e.Allowed(e.Path); err != nil {
			return err
		}
	}
	_, err := process.Run(ctx, process.Spec{
		Command: e.Setup, Dir: e.Path, Env: process.With(git.Environ(), env...), StdoutLimit: setupOutput,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	k.at("setup " + e.Name)
	return nil
}
