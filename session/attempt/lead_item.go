package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/attempt/worktree"
)

// The workspace of an item is one more workspace of the attempt: worktrees next to those of the run, on a branch
// that begins at the run's. The keeper has them under the id of the attempt with the name of the item.

// item returns an attempt with the workspace of an item, by its name.
func (l *Lead) item(ctx context.Context, name string) (*task.Attempt, error) {
	a := *l.Attempt
	a.ID, a.Branch, a.Repos = a.ID+"-"+name, a.Branch+"-"+name, slices.Clone(a.Repos)
	for i := range a.Repos {
		branch, err := worktree.CurrentBranch(ctx, a.Repos[i].Worktree)
		if err != nil {
			return nil, err
		}
		a.Repos[i].TargetBranch = branch
	}
	setWorkspace(ctx, &a, filepath.Join(worktreesOf(l.Attempt), a.ID))
	return &a, nil
}

// itemIn returns the item that is worked on in a folder.
func (l *Lead) itemIn(ctx context.Context, folder string) (*task.Attempt, error) {
	for part := range strings.SplitSeq(filepath.ToSlash(folder), "/") {
		if name, is := strings.CutPrefix(part, l.Attempt.ID+"-"); is {
			return l.item(ctx, name)
		}
	}
	return nil, fmt.Errorf("%s is the folder of no item of the run %s", folder, l.Attempt.ID)
}

// MakeItem makes the worktrees of an item from the run's branch as it is now, unless they are there, and returns the
// folder in which its agents work. What the steps before have not committed is committed first. It blocks for git and
// the setup command.
func (l *Lead) MakeItem(ctx context.Context, name string) (folder string, err error) {
	e := l.execution.engine
	cfg, err := e.Config(ctx)
	if err != nil {
		return "", err
	}
	a, err := l.item(ctx, name)
	for i := 0; err == nil && i < len(a.Repos); i++ {
		err = e.Worktrees(a).Commit(ctx, l.Attempt.Repos[i].Worktree, leftOpen)
	}
	if err == nil {
		_, err = e.makeWorktrees(ctx, l.records, cfg, a, e.environment(cfg, l.Attempt.ID))
	}
	if err != nil {
		return "", fmt.Errorf("making the worktree of the item: %w", err)
	}
	return a.Workspace, nil
}

// leftOpen is the message of a commit of what agents have not committed.
const leftOpen = "What the agents of the run left uncommitted"

// LandItem merges the branch of an item into the run's; it may be called again. If an agent has to do something first
// in the worktree of the item, why says what.
func (l *Lead) LandItem(ctx context.Context, folder string) (why string, err error) {
	a, err := l.itemIn(ctx, folder)
	for i := 0; err == nil && why == "" && i < len(a.Repos); i++ {
		why, err = l.land(ctx, a, i)
	}
	return why, err
}

// land is LandItem for one repository.
func (l *Lead) land(ctx context.Context, a *task.Attempt, repo int) (why string, err error) {
	k, at := l.execution.engine.Worktrees(a), a.Repos[repo].Worktree
	landing := worktree.Landing{Path: at, Target: a.Repos[repo].TargetBranch, Way: worktree.WayMerge}
	for range landTries {
		if err = k.Commit(ctx, at, leftOpen); err == nil {
			_, err = k.Merge(ctx, landing)
		}
		var files []string
		if _, conflict := errors.AsType[*worktree.ConflictError](err); conflict {
			var r *worktree.Landed
			if r, err = k.Update(ctx, landing); err == nil {
				files = r.Conflicts
			}
		} else if _, held := errors.AsType[*worktree.CheckedOutError](err); held { // by changes in the run's worktree
			err = k.Commit(ctx, l.Attempt.Repos[repo].Worktree, leftOpen)
		} else if err == nil {
			return "", nil
		}
		if files != nil || errors.Is(err, worktree.ErrUnfinished) {
			return fmt.Sprintf("In %s, git is in the middle of merging %s, the branch of the run, into %s, the branch of the item, and there are conflicts (git status lists them).", at, landing.Target, a.Branch), nil
		}
		if err != nil && !errors.Is(err, worktree.ErrMoved) {
			break
		}
	}
	return "", cmp.Or(err, worktree.ErrMoved)
}

// landTries is how often a merge is tried whose branches are changed meanwhile.
const landTries = 5

// RemoveItems removes the worktrees of the item in a folder, which is merged, or, for "", of all items. What was not
// committed there is kept, and the output of the run says where; so it does if a worktree stays. Branches with commits
// that are not merged stay.
func (l *Lead) RemoveItems(ctx context.Context, folder string) {
	if len(l.Attempt.Repos) == 0 {
		return
	}
	k := l.execution.engine.Worktrees(l.Attempt)
	names, err := k.Items(l.Attempt.ID)
	for _, name := range names {
		if folder != "" && !slices.Contains(strings.Split(filepath.ToSlash(folder), "/"), name) {
			continue
		}
		kept, _, failed := k.Remove(ctx, name, false, nil)
		for _, r := range kept {
			l.Note("what was not committed in %s is kept as %s", r.Path, r.Ref)
		}
		err = errors.Join(err, failed)
	}
	if err != nil && ctx.Err() == nil {
		l.Note("a worktree of an item stays: %v", err)
	}
}
