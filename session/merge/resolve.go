package merge

import (
	"context"
	"errors"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/worktree"
)

// Abort undoes the merges in progress in the worktrees of an attempt.
func Abort(ctx context.Context, e *attempt.Engine, who session.Caller, a BranchArgs) (*Reply, error) {
	reply, err := eachRepo(ctx, e, who, a.Target, a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			kept, err := k.Abort(ctx, l.Path, l.InUse)
			if errors.Is(err, worktree.ErrNoMerge) {
				r.Status = Unchanged
				return nil
			}
			r.Status = Aborted
			r.rescued(kept)
			return err
		})
	return conclude(ctx, e, who, reply, false, err)
}

// rescued records where files are kept that a call has replaced; nil means that there are none.
func (r *Repo) rescued(kept *worktree.Rescue) {
	if kept != nil {
		r.Rescue = &attempt.Rescue{
			AttemptID: r.attempt,
			Worktree:  kept.Path,
			RepoPath:  r.path,
			Ref:       kept.Ref,
			Commit:    kept.Commit,
		}
	}
}

// Take resolves the conflict of a file, in a merge in progress in the worktree of an attempt, by the file of one side.
func Take(ctx context.Context, e *attempt.Engine, who session.Caller, a TakeArgs) (*Reply, error) {
	return eachRepo(ctx, e, who, a.Target, &a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			r.Status = Taken
			return k.TakeSide(ctx, l.Path, a.File, a.Side, l.InUse)
		})
}

// Untake undoes Take.
func Untake(ctx context.Context, e *attempt.Engine, who session.Caller, a TakeArgs) (*Reply, error) {
	return eachRepo(ctx, e, who, a.Target, &a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			kept, err := k.Untake(ctx, l.Path, a.File, l.InUse)
			r.Status = Untaken
			r.rescued(kept)
			return err
		})
}

// Conclude commits a merge in progress whose conflicts are resolved.
func Conclude(ctx context.Context, e *attempt.Engine, who session.Caller, a TakeArgs) (*Reply, error) {
	reply, err := eachRepo(ctx, e, who, a.Target, &a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			r.Status = Concluded
			return k.Conclude(ctx, l)
		})
	return conclude(ctx, e, who, reply, false, err)
}
