package merge

import (
	"context"
	"errors"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/worktree"
	"deepwork/session/codes"
)

// notMerged says why a branch was neither merged, rebased nor pushed.
func notMerged(id string, r task.AttemptRepo, err error) error {
	refuse := func(code, format string, args ...any) error {
		return session.NotNow(code, format, args...).With("attempt_id", id).With("repo_id", r.RepoID).Because(err)
	}
	if held, is := errors.AsType[*worktree.CheckedOutError](err); is {
		return session.NotNow(codes.TargetCheckedOut, "Nothing was changed: %v.", held).With("attempt_id", id).With("repo_id", r.RepoID).
			With("files", held.Files).With("operation", held.Operation).With("command", held.Command).Because(err)
	}
	if dirty, is := errors.AsType[*worktree.DirtyError](err); is {
		return session.NotNow(codes.NotCommitted, "Nothing was changed: %v. Commit them there, or have the agent do it with follow_up, and call again.", dirty).
			With("attempt_id", id).With("repo_id", r.RepoID).With("files", dirty.Files).Because(err)
	}
	switch {
	case errors.Is(err, worktree.ErrInUse):
		return attempt.AgentRuns(id)
	case errors.Is(err, worktree.ErrMoved):
		return refuse(codes.TargetMoved, "Nothing was changed: %v. Call again.", err)
	case errors.Is(err, worktree.ErrUnfinished):
		return refuse(codes.MergeUnfinished, "Nothing was changed: %v. Resolve and commit it there, or undo it with abort_merge if it is a merge, and call again.", err)
	case errors.Is(err, worktree.ErrRejected):
		return refuse(codes.PushRejected, "%v. If the branch was rebased or amended, push it with force: that replaces it, unless others have pushed to it.", err)
	case errors.Is(err, worktree.ErrNoBranch), errors.Is(err, worktree.ErrOtherBranch), errors.Is(err, worktree.ErrNoWorktree), errors.Is(err, worktree.ErrNotKept):
		return refuse(codes.NotMerged, "Nothing was changed: %v. Correct that and call again.", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("merging attempt %s: %w", id, err)
	}
	return attempt.GitFailed("The branch of attempt "+id+" in "+r.RepoName+" cannot be merged or pushed", err)
}
