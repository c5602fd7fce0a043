package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// MergeReply answers merge_attempt, rebase_attempt, push_attempt, abort_merge and change_target.
type MergeReply struct {
	AttemptID string       `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Repos     []MergedRepo `json:"repos" jsonschema:"its repositories, up to the first one that failed"`
	TaskDone  bool         `json:"task_done" jsonschema:"whether the call set the task done: see attempts.done_when_merged"`
}

// MergedRepo is the outcome for one repository.
type MergedRepo struct {
	RepoID       string   `json:"repo_id" jsonschema:"UUID of the repository"`
	RepoName     string   `json:"repo_name" jsonschema:"name of the repository"`
	TargetBranch string   `json:"target_branch" jsonschema:"branch that the attempt is for"`
	Status       string   `json:"status" jsonschema:"unchanged: there was nothing to do; updated: the target was merged into the attempt's branch; conflicts: the same, and files in the worktree must be resolved and committed"`
	Commit       *string  `json:"commit" jsonschema:"commit of the branch that was moved or pushed, or null"`
	Conflicts    []string `json:"conflicts" jsonschema:"files with conflicts in the worktree"`
	Untracked    []string `json:"untracked" jsonschema:"files and folders in the worktree that are in no commit; at most 1000"`
	Rescue       *Rescue  `json:"rescue" jsonschema:"where abort_merge kept the files of the merge, or null"`
	Notice       *string  `json:"notice" jsonschema:"a hint, or null"`

	attempt, path string
}

// The values of MergedRepo.Status.
const (
	Merged    = "merged"
	Unchanged = "unchanged"
	Rebased   = "rebased"
	Updated   = "updated"
	Conflicts = "conflicts"
	Aborted   = "aborted"
	Pushed    = "pushed"

	Retargeted = "retargeted"
)

// MergeAttempt brings the commits of an attempt into its target branches: by a merge commit, which is
// the default, as one commit, or each again. If that has conflicts, the target is merged into the
// attempt's worktree instead, where they can be resolved.
func (e *Engine) MergeAttempt(ctx context.Context, who session.Caller, a MergeArgs) (*MergeReply, error) {
	ways := []worktree.Way{worktree.WayMerge, worktree.WaySquash, worktree.WayRebase}
	way := worktree.WayMerge
	if a.Way != nil {
		way = worktree.Way(*a.Way)
	}
	if !slices.Contains(ways, way) {
		return nil, session.Wrong(codes.UnknownWay, "There is no way %q to merge. Use one of merge, squash, rebase.", clip(string(way))).
			With("argument", "way").With("value", clip(string(way))).With("allowed", ways)
	}
	if a.Message != nil {
		if err := checkText("message", *a.Message, MaxPrompt); err != nil {
			return nil, err
		}
	}
	reply, err := e.eachRepo(ctx, who, a.Target, a.RepoID, func(k *worktree.Keeper, l worktree.Landing, r *MergedRepo) error {
		l.Way = way
		if a.Message != nil {
			l.Message = *a.Message
		}
		done, err := k.Merge(ctx, l)
		return r.landed(ctx, k, l, Merged, done, err)
	})
	if err == nil {
		if reply.TaskDone, err = e.doneWhenMerged(ctx, who, reply.AttemptID); err != nil {
			return nil, midway(fault("setting the task done after the merge", err))
		}
	}
	return reply, err
}

// doneWhenMerged sets the task of an attempt done, if the config asks for it, all repositories of the
// attempt are merged and no work is left in them.
func (e *Engine) doneWhenMerged(ctx context.Context, who session.Caller, id string) (bool, error) {
	b, cfg, err := e.ready(ctx, who)
	if err != nil || !cfg.Attempts.DoneWhenMerged {
		return false, err
	}
	at, err := b.Attempt(ctx, id)
	if err != nil {
		return false, err
	}
	merged := false
	for _, r := range at.Repos {
		s, err := e.keeper(worktreesOf(at)).Status(ctx, r.Worktree, *r.BaseCommit, r.TargetBranch)
		if err != nil || !s.Exists || s.Ahead > 0 || s.Loose > 0 {
			return false, err
		}
		merged = merged || s.Merged
	}
	t, err := b.Task(ctx, at.TaskID)
	if err != nil || !merged || t.Status == task.Done || t.Status == task.Cancelled {
		return false, err
	}
	_, err = b.UpdateTask(ctx, t.ID, task.TaskChange{Status: new(task.Done)})
	return err == nil, err
}

// RebaseAttempt repeats the commits of an attempt on its target branches as they are now. If that has
// conflicts, it does as MergeAttempt.
func (e *Engine) RebaseAttempt(ctx context.Context, who session.Caller, a BranchArgs) (*MergeReply, error) {
	return e.eachRepo(ctx, who, a.Target, a.RepoID, func(k *worktree.Keeper, l worktree.Landing, r *MergedRepo) error {
		done, err := k.Rebase(ctx, l)
		return r.landed(ctx, k, l, Rebased, done, err)
	})
}

// landed records the outcome of a merge or rebase.
func (r *MergedRepo) landed(ctx context.Context, k *worktree.Keeper, l worktree.Landing, status string, done *worktree.Landed, err error) error {
	if _, is := errors.AsType[*worktree.ConflictError](err); is {
		l.Message = ""
		status = Updated
		if done, err = k.Update(ctx, l); err == nil && len(done.Conflicts) > 0 {
			status = Conflicts
			r.Notice = new("Resolve these files in the worktree and commit there, by hand or with follow_up, and call again; abort_merge undoes it.")
		} else if err == nil {
			r.Notice = new("Its commits do not fit on the target one by one, so the target was merged into its branch. Merge it with way merge or squash.")
		}
	}
	if err != nil {
		return err
	}
	if status != Conflicts && done.Before == done.Commit {
		status = Unchanged
	}
	if status == Unchanged && len(done.Untracked) > 0 {
		r.Notice = new("There was nothing to do; files that are in no commit are not merged.")
	}
	r.Status, r.Commit, r.Conflicts = status, &done.Commit, list(done.Conflicts)
	r.Untracked = list(done.Untracked[:min(len(done.Untracked), maxListedFiles)])
	return nil
}

// AbortMerge undoes the merges in progress in the worktrees of an attempt.
func (e *Engine) AbortMerge(ctx context.Context, who session.Caller, a BranchArgs) (*MergeReply, error) {
	return e.eachRepo(ctx, who, a.Target, a.RepoID, func(k *worktree.Keeper, l worktree.Landing, r *MergedRepo) error {
		kept, err := k.Abort(ctx, l.Path, l.InUse)
		if errors.Is(err, worktree.ErrNoMerge) {
			r.Status = Unchanged
			return nil
		}
		if err == nil && kept != nil {
			r.Rescue = &Rescue{AttemptID: r.attempt, Worktree: kept.Path, RepoPath: r.path, Ref: kept.Ref, Commit: kept.Commit}
		}
		r.Status = Aborted
		return err
	})
}

// PushAttempt pushes the branch of an attempt to a remote, which is origin if none is named.
func (e *Engine) PushAttempt(ctx context.Context, who session.Caller, a PushArgs) (*MergeReply, error) {
	remote := "origin"
	if a.Remote != nil {
		remote = *a.Remote
	}
	reply, err := e.eachRepo(ctx, who, a.Target, a.RepoID, func(k *worktree.Keeper, l worktree.Landing, r *MergedRepo) error {
		commit, err := k.Push(ctx, l.Path, remote, a.Force != nil && *a.Force)
		r.Status, r.Commit = Pushed, &commit
		return err
	})
	if err != nil || a.RepoID != nil {
		return reply, err
	}
	cfg, err := e.config(ctx)
	if err != nil {
		return nil, err
	}
	b, err := e.board(ctx)
	if err == nil && remote == cfg.Attempts.PushTo {
		err = b.SetPushError(ctx, reply.AttemptID, nil)
	}
	if err != nil {
		return nil, midway(fault("recording the push", err))
	}
	return reply, nil
}

// pushTime bounds the pushes at the end of an execution, which keeps its slot until then.
const pushTime = 2 * time.Minute

// push pushes the commits of an attempt whose agent has ended to attempts.push_to of the config. If that
// fails, the board says so, and nothing else changes. stop_attempt ends it.
func (r *run) push() {
	e := r.engine
	cfg, err := e.config(r.ctx)
	if err != nil || cfg.Attempts.PushTo == "" {
		return
	}
	var a *task.Attempt
	if r.record(func(ctx context.Context, b store.Board) (err error) {
		a, err = b.Attempt(ctx, r.exec.AttemptID)
		return err
	}) != nil || !a.Made() || a.Elsewhere(e.here) {
		return
	}
	ctx, most := r.stopping, pushTime
	if r.stopped() {
		ctx, most = r.ctx, stopPatience/2 // stop_attempt waits for it
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var why []string
	for _, repo := range a.Repos {
		k := e.keeper(worktreesOf(a))
		s, err := k.Status(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch)
		if err == nil && s.Ahead > 0 {
			_, err = k.Push(ctx, repo.Worktree, cfg.Attempts.PushTo, true) // its agent may have amended or rebased
		}
		if ctx.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("pushing the branch to %q took longer than %s", cfg.Attempts.PushTo, most)
		} else if ctx.Err() != nil {
			err = errors.New("it was stopped")
		}
		if err != nil {
			why = append(why, jsontext.Clip(repo.RepoName+": "+err.Error(), 1000))
		}
	}
	text := orNull(strings.Join(why, "\n"))
	if text != nil {
		e.log.Warn("the branch of an attempt was not pushed", "attempt", a.ID, "remote", cfg.Attempts.PushTo, "error", *text)
	}
	if text != nil || a.PushError != nil {
		r.record(func(ctx context.Context, b store.Board) error { return b.SetPushError(ctx, a.ID, text) })
	}
}

// ChangeTarget sets the branch that an attempt is for: it is compared with it, and merged into it.
func (e *Engine) ChangeTarget(ctx context.Context, who session.Caller, a TargetArgs) (*MergeReply, error) {
	b, at, err := e.settled(ctx, who, a.Target, a.RepoID)
	if err != nil {
		return nil, err
	}
	hidden, err := hiddenBranches(ctx, b)
	if err != nil {
		return nil, err
	}
	branch, targets := strings.TrimSpace(a.TargetBranch), map[string]string{}
	reply := &MergeReply{AttemptID: at.ID, Repos: []MergedRepo{}}
	for _, r := range at.Repos {
		if branch == at.Branch {
			return nil, session.Wrong(codes.UnknownBranch, "%q is the attempt's own branch. Name another one.", clip(branch)).With("argument", "target_branch").With("value", clip(branch))
		}
		if err := checkBranch(ctx, &task.Repo{ID: r.RepoID, Name: r.RepoName, Path: r.RepoPath}, branch, hidden, ""); err != nil {
			return nil, err
		}
		m := newMerged(at, r)
		if m.Status = Retargeted; branch == r.TargetBranch {
			m.Status = Unchanged
		}
		m.TargetBranch, targets[r.RepoID] = branch, branch
		reply.Repos = append(reply.Repos, m)
	}
	switch err := b.SetTargets(ctx, at.ID, targets); {
	case errors.Is(err, task.ErrRunning):
		return nil, agentRuns(at.ID)
	case err != nil:
		return nil, found("changing the target", err, "attempt", "attempt_id", at.ID, remedyAttempt)
	}
	return reply, nil
}

// settled returns an attempt with its repositories, or one of them, for a call that merges or pushes.
// It refuses callers without RightMerge, agents in a workspace, and attempts whose agent waits or runs.
func (e *Engine) settled(ctx context.Context, who session.Caller, t Target, repo *string) (b view, at *task.Attempt, err error) {
	b, id, err := e.openAttempt(ctx, who, t)
	if err != nil {
		return b, nil, err
	}
	if e.o.Attempt != "" || e.o.Passive && !b.who.Has(session.RightMerge) {
		return b, nil, session.NotNow(codes.RightNeeded, "An agent that works on an attempt cannot merge or push attempts. Say in your final message what is to be done: your user can do it.").With("right", "merge")
	}
	if !b.who.Has(session.RightMerge) {
		return b, nil, session.NotNow(codes.RightNeeded, "Merging and pushing needs the right merge, which %s does not have. Ask the user of this server to do it, or for a token with it: deepwork token new %[1]s --rights merge makes one.", b.who.Identity).With("right", "merge")
	}
	now, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return b, nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
	}
	at = now.Attempt
	if inPlace(at) {
		return b, nil, session.NotNow(codes.InPlace, "The run %s works in the project itself, without a worktree and a branch of its own, so there is nothing to merge, rebase or push from. Commit and push its work there.", id).With("attempt_id", id)
	}
	if at.Elsewhere(e.here) {
		return b, nil, session.NotNow(codes.Elsewhere, "Attempt %s is on the machine %s. Call a server there.", id, at.Place.Describe()).With("attempt_id", id)
	}
	if now.Execution.State.Open() {
		return b, nil, agentRuns(id)
	}
	if !at.Made() {
		return b, nil, session.NotNow(codes.NoWorkspace, "%s", noWorkspace(now)).With("attempt_id", id)
	}
	if repo != nil {
		at.Repos = slices.DeleteFunc(at.Repos, func(r task.AttemptRepo) bool { return r.RepoID != *repo })
		if len(at.Repos) == 0 {
			return b, nil, session.Wrong(codes.UnknownRepo, "Attempt %s has no repository with the id %s. get_attempt lists them.", id, clip(*repo)).With("argument", "repo_id").With("value", clip(*repo))
		}
	}
	return b, at, nil
}

// inPlace reports whether an attempt is a run that works in the project itself.
func inPlace(at *task.Attempt) bool { return at.Run != nil && len(at.Repos) == 0 }

func newMerged(at *task.Attempt, r task.AttemptRepo) MergedRepo {
	return MergedRepo{RepoID: r.RepoID, RepoName: r.RepoName, TargetBranch: r.TargetBranch, Conflicts: []string{}, Untracked: []string{}, attempt: at.ID, path: r.RepoPath}
}

// eachRepo calls do for the repositories of an attempt, or for one of them.
func (e *Engine) eachRepo(ctx context.Context, who session.Caller, t Target, repo *string, do func(*worktree.Keeper, worktree.Landing, *MergedRepo) error) (*MergeReply, error) {
	b, at, err := e.settled(ctx, who, t, repo)
	if err != nil {
		return nil, err
	}
	id := at.ID
	k, reply := e.keeper(worktreesOf(at)), &MergeReply{AttemptID: id, Repos: []MergedRepo{}}
	inUse := func() bool { // by a follow-up, which waits for the worktrees before it runs
		open, err := isOpen(ctx, b, id)
		return open || err != nil
	}
	for _, r := range at.Repos {
		m := newMerged(at, r)
		l := worktree.Landing{Path: r.Worktree, Target: r.TargetBranch, InUse: inUse}
		if err := do(k, l, &m); err != nil {
			err = notMerged(id, r, err)
			if refused, is := errors.AsType[*session.Error](err); is && len(reply.Repos) > 0 {
				refused.Message = "In " + r.RepoName + ": " + refused.Message
				for _, before := range slices.Backward(reply.Repos) {
					refused.Message = fmt.Sprintf("%s is %s. %s", before.RepoName, before.Status, refused.Message)
				}
				refused.With("done", reply.Repos)
			}
			return nil, err
		}
		reply.Repos = append(reply.Repos, m)
		e.log.Info("attempt "+m.Status, "attempt", id, "repository", r.RepoName, "target", r.TargetBranch, "caller", b.who.Identity)
	}
	return reply, nil
}
