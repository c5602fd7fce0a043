package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/catalog/task"
	"deepwork/session/attempt/worktree"
	"deepwork/session/spans"
)

// item returns the run's attempt with the workspace of an item: an additional workspace, in worktrees next to
// the run's, on a branch that begins at the run's. Their keeper has them under a name that begins with the
// attempt's.
func (l *Lead) item(ctx context.Context, name string) (a task.Attempt, err error) {
	a = *l.Attempt
	a.Branch, a.Repos = a.Branch+strings.TrimPrefix(name, nameOf(&a)), slices.Clone(a.Repos)
	for i := 0; err == nil && i < len(a.Repos); i++ {
		a.Repos[i].TargetBranch, err = worktree.CurrentBranch(ctx, a.Repos[i].Worktree)
	}
	setWorkspace(ctx, &a, filepath.Join(worktreesOf(l.Attempt), name))
	return a, err
}

// MakeItem makes the worktrees of an item from the run's current branch, unless they exist, and returns the
// folder in which its agents work. key distinguishes the item from all others of the run. Uncommitted work of
// earlier steps is committed first. It blocks for git and the setup command.
func (l *Lead) MakeItem(ctx context.Context, key string) (folder string, err error) {
	e := l.execution.engine
	cfg, err := e.Config(ctx)
	if err != nil {
		return "", err
	}

	a, err := l.item(ctx, nameOf(l.Attempt)+"-"+key)
	for i := 0; err == nil && i < len(a.Repos); i++ {
		err = e.Worktrees(&a).Commit(ctx, l.Attempt.Repos[i].Worktree, leftOpen)
	}
	if err == nil {
		_, err = e.makeWorktrees(ctx, l.records, cfg, &a, e.environment(cfg, l.Attempt.ID))
	}
	if err != nil {
		return "", fmt.Errorf("making the worktree of the item: %w", err)
	}
	return a.Workspace, nil
}

// leftOpen is the message of a commit of work that agents have not committed.
const leftOpen = "What the agents of the run left uncommitted"

// LandItem merges the branch of the item in a folder into the run's branch. It may be called again. If an
// agent has to do something in the item's worktree first, why says what.
func (l *Lead) LandItem(ctx context.Context, folder string) (why string, err error) {
	names := l.items(folder, &err)
	if err != nil || len(names) == 0 {
		return "", fmt.Errorf("the worktree of the item, %s, cannot be found; if it is gone, drop the item: %w", folder,
			cmp.Or(err, worktree.ErrNoWorktree))
	}
	a, err := l.item(ctx, names[0])
	for i := 0; err == nil && why == "" && i < len(a.Repos); i++ {
		began := time.Now()
		why, err = l.land(ctx, &a, i)
		telemetry.Within(ctx, spans.Merge, "", began)
	}
	return why, err
}

// landTries is how often a merge is tried while its branches keep changing.
const landTries = 5

// land is LandItem for one repository.
func (l *Lead) land(ctx context.Context, a *task.Attempt, repo int) (why string, err error) {
	k, at := l.execution.engine.Worktrees(a), a.Repos[repo].Worktree
	landing := worktree.Landing{Path: at, Target: a.Repos[repo].TargetBranch, Way: worktree.WayMerge}
	for range landTries {
		if err = k.Commit(ctx, at, leftOpen); err == nil {
			if _, err = k.Merge(ctx, landing); err == nil {
				return "", nil
			}
		}
		if _, conflict := errors.AsType[*worktree.ConflictError](err); conflict {
			_, err = k.Update(ctx, landing) // leaves the conflicts in the worktree
		} else if _, held := errors.AsType[*worktree.CheckedOutError](err); held { // by changes in the run's worktree
			err = k.Commit(ctx, l.Attempt.Repos[repo].Worktree, leftOpen)
		}
		if errors.Is(err, worktree.ErrUnfinished) {
			return fmt.Sprintf("In %s, git is in the middle of merging %s, the branch of the run, into %s, the "+
					"branch of the item, and there are conflicts (git status lists them).", at, landing.Target,
					a.Branch),
				nil
		}
		if err != nil && !errors.Is(err, worktree.ErrMoved) {
			break
		}
	}

	return "", cmp.Or(err, worktree.ErrMoved)
}

// items returns the names of the worktrees of the item in a folder or, for "", of all items.
func (l *Lead) items(folder string, err *error) (names []string) {
	if len(l.Attempt.Repos) > 0 {
		names, *err = l.execution.engine.Worktrees(l.Attempt).Items(nameOf(l.Attempt), l.Attempt.ID)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return folder != "" && !slices.Contains(strings.Split(filepath.ToSlash(folder), "/"), name)
	})
}

// RemoveItems removes the worktrees of the merged item in a folder or, for "", of all items. Uncommitted work
// there is kept, and the output of the run says where; it also names worktrees that could not be removed.
// Branches with unmerged commits stay.
func (l *Lead) RemoveItems(ctx context.Context, folder string) {
	var err error
	for _, name := range l.items(folder, &err) {
		kept, _, failed := l.execution.engine.Worktrees(l.Attempt).Remove(ctx, name, false, nil)
		for _, r := range kept {
			l.Note("what was not committed in %s is kept as %s", r.Path, r.Ref)
		}
		err = errors.Join(err, failed)
	}
	if err != nil && ctx.Err() == nil {
		l.Note("a worktree of an item stays: %v", err)
	}
}
