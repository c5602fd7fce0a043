package attempt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// removePatience limits the removal of one attempt's worktrees of any size.
const removePatience = 10 * time.Minute

// DeleteTask removes a task with its attempts and their worktrees (seed 004, delete_task). Uncommitted work
// is rescued first, and the reply says where; unmerged branches stay. Repositories in the worktrees whose
// work exists nowhere else are refused, or discarded by force. A task with an attempt that waits or runs is
// refused. If a crash interrupts DeleteTask, repeating the call finishes it.
func (e *Engine) DeleteTask(ctx context.Context, who session.Caller, a DeleteArgs) (*DeleteReply, error) {
	b, id, err := e.ViewFor(ctx, who, "task_id", a.TaskID)
	if err != nil {
		return nil, err
	}

	// From here on no server starts an execution of the task.
	attempts, err := b.BeginDelete(ctx, id)
	if errors.Is(err, task.ErrRunning) {
		return nil, stillRunning(id)
	}
	if err != nil {
		return nil, board.TaskFault("deleting the task", err, id)
	}
	reply, err := e.delete(ctx, b, id, attempts, a.Force)
	if err != nil {
		// After a refusal the task can be worked on again.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), boardPatience)
		defer cancel()
		if undo := b.UndoDelete(bounded, id); undo != nil {
			e.Log.Error("a task that was not deleted is still marked; call delete_task for it again", "task", id,
				"caller", b.Who.Identity, "error", undo)
		}
		return nil, board.Midway(err)
	}
	return reply, nil
}

// delete removes the worktrees of a marked task, and then the task.
func (e *Engine) delete(
	ctx context.Context, b board.View, id string, attempts []string, force bool,
) (*DeleteReply, error) {
	reply := &DeleteReply{TaskID: id, Deleted: true, Rescued: []Rescue{}, Discarded: []string{}}
	for _, attempt := range attempts {
		var done removal
		left := "" // where worktrees stay
		at, err := b.Attempt(ctx, attempt)
		if err == nil && at.Elsewhere(e.Here) {
			done, left, err = e.removeElsewhere(ctx, b, at)
		} else {
			done, err = e.removeWorktrees(ctx, b, attempt, force) // it returns the error again
		}

		if errors.Is(err, task.ErrRunning) {
			return nil, stillRunning(id)
		}
		if err != nil {
			return nil, withRescued(err, reply.Rescued)
		}
		reply.Rescued, reply.Discarded = append(reply.Rescued, done.Rescued...),
			append(reply.Discarded, done.Discarded...)
		if left += done.Notice; left != "" {
			reply.Notice = new(strings.TrimSpace(board.OrEmpty(reply.Notice) + " " + left))
		}
	}

	var logs []logRef
	for _, attempt := range attempts {
		of, err := logsOf(ctx, b, attempt)
		if err != nil {
			return nil, withRescued(board.TaskFault("reading the attempt", err, id), reply.Rescued)
		}
		logs = append(logs, of...)
	}

	// Do it before the task is gone: if this process is killed, the next call for the task continues here.
	if err := e.endSessions(ctx, attempts); err != nil {
		e.Log.Warn("the workflow sessions of a deleted task were not all aborted: deepwork sessions abort does that",
			"task", id, "error", err)
	}
	if err := b.DeleteTask(ctx, id); errors.Is(err, task.ErrRunning) {
		return nil, withRescued(stillRunning(id), reply.Rescued)
	} else if err != nil {
		return nil, withRescued(board.TaskFault("deleting the task", err, id), reply.Rescued)
	}

	e.removeLogs(logs...)
	e.Log.InfoContext(ctx, "task deleted", "task", id, "attempts", len(attempts), "rescued", len(reply.Rescued),
		"caller", b.Who.Identity)
	return reply, nil
}

// endSessions aborts the active workflow sessions that began in the workspaces of deleted attempts.
func (e *Engine) endSessions(ctx context.Context, attempts []string) (err error) {
	sessions, err := workflow.Open(ctx,
		workflow.Options{Root: e.Root(), State: e.State(), Stores: e.Stores, Place: e.Stores.Place, Logger: e.Log})
	if err != nil {
		return err
	}
	defer func() { sessions.Close(context.WithoutCancel(ctx)) }()
	for _, id := range attempts {
		err = errors.Join(err, sessions.AbortOf(ctx, id, "the attempt was deleted"))
	}
	return err
}

func stillRunning(id string) *session.Error {
	return session.NotNow(codes.AttemptRunning,
		"Task %s has an attempt that is waiting or running. Try again when it has ended.", id).
		Next("stop it", "stop_attempt").With("task_id", id)
}

// withRescued adds the rescued work to a refusal, since no later reply names it if the task stays.
func withRescued(err error, rescued []Rescue) error {
	refused, ok := errors.AsType[*session.Error](err)
	if ok && len(rescued) > 0 {
		kept := xslices.Map(rescued, func(r Rescue) string { return r.Ref + " of " + r.RepoPath })
		refused.Add("Other worktrees of the task are removed, and their uncommitted work is kept "+
			"in %s.", board.Enumerate(kept, ""))
		refused.With("rescued", rescued)
	}
	return err
}

// removeWorktrees removes the worktrees of an attempt of a marked task.
func (e *Engine) removeWorktrees(ctx context.Context, b store.View, id string, force bool) (done removal, err error) {
	ctx, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	at, err := b.Attempt(ctx, id)
	if errors.Is(err, task.ErrNotFound) {
		return done, nil // another call was faster
	}
	if err != nil {
		return done, board.Fault("reading the attempt", err)
	}
	if open, err := IsOpen(ctx, b, id); err != nil {
		return done, err
	} else if open {
		return done, task.ErrRunning
	}

	if at.Workspace == "" || len(at.Repos) == 0 {
		return done, nil // no machine has claimed it, or it works in the project itself
	}

	k := e.Worktrees(at)
	for _, r := range at.Repos {
		s, err := k.Status(ctx, r.Worktree, board.OrEmpty(r.BaseCommit), r.TargetBranch)
		// an error must not prevent the removal
		if s.OtherBranch != "" && err == nil && s.Ahead > 0 {
			done.Notice = strings.TrimSpace(fmt.Sprintf("%s The worktree of %s was on the branch %s, which stays in "+
				"the repository with its commits.", done.Notice, r.RepoName, s.OtherBranch))
		}
	}
	names, err := k.Items(nameOf(at), id)
	for _, name := range append(names, nameOf(at)) {
		var discarded []worktree.Nested
		if err == nil && !k.Others(name, id) {
			// in use by a follow-up, if another call removed the mark
			_, discarded, err = k.Remove(ctx, name, force, func() bool {
				open, err := IsOpen(ctx, b, id)
				return open || err != nil
			})
		}
		for _, n := range discarded {
			done.Discarded = append(done.Discarded, n.Path+": it "+n.Why)
		}
	}
	if err != nil {
		return done, notRemoved(at, err)
	}

	// Include work that an earlier removal has rescued but not reported: its server was killed, or its caller
	// was gone.
	kept, err := k.Rescues(ctx, id, xslices.Map(at.Repos, func(r task.AttemptRepo) string { return r.RepoPath }))
	if err != nil { // the refs show it, too
		e.Log.Warn("cannot list what was kept of an attempt", "attempt", id, "error", err)
	}
	for _, r := range kept {
		done.Rescued = append(done.Rescued,
			Rescue{AttemptID: id, Worktree: r.Path, RepoPath: r.Repo, Ref: r.Ref, Commit: r.Commit})
	}
	return done, nil
}

// IsOpen reports whether an attempt has an execution that has not ended.
func IsOpen(ctx context.Context, b store.View, attempt string) (bool, error) {
	x, err := b.LatestExecution(ctx, attempt)
	if errors.Is(err, task.ErrNotFound) {
		return false, nil
	}
	return err == nil && x.State.Open(), err
}

// notRemoved says why worktrees still exist.
func notRemoved(a *task.Attempt, err error) error {
	nested, _ := errors.AsType[*worktree.NestedError](err)
	var paths []string
	if nested != nil {
		for _, n := range nested.Found {
			paths = append(paths, n.Path)
		}
	}
	switch {
	case errors.Is(err, worktree.ErrInUse):
		return session.NotNow(codes.WorktreeInUse,
			"A worktree of attempt %s is in use and was not removed: %v. Stop what uses it and try again.", a.ID,
			err).With("attempt_id", a.ID).Because(err)
	case nested != nil:
		return session.NotNow(codes.WorkNotKept,
			"Nothing of attempt %s was removed, as repositories in it would be lost: %v. Do that and try again. On "+
				"the machine that has them, deepwork board rm --force discards them.", a.ID, nested).With("attempt_id",
			a.ID).With("repositories", paths).Because(err)
	case errors.Is(err, worktree.ErrNotKept):
		return session.NotNow(codes.WorkNotKept,
			"Uncommitted work of attempt %s could not be saved, so nothing of it was removed: %v. Commit it or move "+
				"it away, and try again.", a.ID, err).With("attempt_id", a.ID).Because(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("removing the worktrees of attempt %s: %w", a.ID, err)
	}

	return session.NotNow(codes.NotRemoved,
		"The worktrees of attempt %s could not be removed: %v. Correct that and try again; uncommitted work is kept.",
		a.ID, err).With("attempt_id", a.ID).Because(err)
}
