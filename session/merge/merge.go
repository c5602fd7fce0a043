// Package merge brings the commits of attempts into their target branches: merge, rebase, push, and undoing a
// merge that has conflicts. It also shows the changes of an attempt, and collects comments on their lines for
// its agent. The worktrees belong to package attempt; this package has no state. Each call refuses an attempt
// whose agent works, and handles one repository after the other.
//
// The concepts to know: Reply and Repo with its statuses; settled, the refusals of all calls that move
// branches; landed, which turns a conflict into a merge in the worktree; comparison, which makes a diff;
// Comment and commented, the lines that comments are about.
package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/spans"
)

// Reply answers merge_attempt, rebase_attempt, push_attempt, abort_merge and change_target.
type Reply struct {
	AttemptID string `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Repos     []Repo `json:"repos" jsonschema:"its repositories, up to the first one that failed"`
	TaskDone  bool   `json:"task_done" jsonschema:"whether the call set the task done: see attempts.done_when_merged"`
}

// Repo is the outcome for one repository.
type Repo struct {
	RepoID       string          `json:"repo_id" jsonschema:"UUID of the repository"`
	RepoName     string          `json:"repo_name" jsonschema:"name of the repository"`
	TargetBranch string          `json:"target_branch" jsonschema:"branch that the attempt is for"`
	Status       string          `json:"status"`
	Commit       *string         `json:"commit" jsonschema:"commit of the branch that was moved or pushed"`
	Conflicts    []string        `json:"conflicts"`
	Untracked    []string        `json:"untracked"`
	Rescue       *attempt.Rescue `json:"rescue" jsonschema:"where abort_merge kept the files of the merge"`
	Notice       *string         `json:"notice" jsonschema:"a hint, if any"`

	Remarks []string `json:"-"` // further remarks, which Notice has, too

	attempt, path, branch string
}

// Tags implements fieldtag.Tagger.
func (Repo) Tags() map[string]string {
	return map[string]string{
		"Status": `jsonschema:"merged, unchanged (nothing to do), rebased, updated (the target was merged into ` +
			`the attempt's branch), conflicts (files in the worktree must be resolved and committed), aborted, ` +
			`pushed or retargeted"`,
		"Conflicts": `jsonschema:"files with conflicts in the worktree, or what git says of a conflict in none"`,
		"Untracked": `jsonschema:"files and folders in the worktree that are in no commit; at most 1000"`,
	}
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

	Taken     = "taken"
	Untaken   = "untaken"
	Concluded = "concluded"
)

// Merge brings the commits of an attempt into its target branches: by a merge commit, which is the default,
// as one commit, or one by one. On conflicts it merges the target into the attempt's worktree instead, where
// they can be resolved.
func Merge(ctx context.Context, e *attempt.Engine, who session.Caller, a MergeArgs) (*Reply, error) {
	ways := []worktree.Way{worktree.WayMerge, worktree.WaySquash, worktree.WayRebase}
	way := worktree.WayMerge
	if a.Way != nil {
		way = worktree.Way(*a.Way)
	}
	if !slices.Contains(ways, way) {
		return nil, session.Wrong(codes.UnknownWay, "There is no way %q to merge. Use one of merge, squash, rebase.",
			board.Clip(string(way))).
			With("argument", "way").With("value", board.Clip(string(way))).With("allowed", ways)
	}

	if a.Message != nil {
		if err := board.CheckText("message", *a.Message, board.MaxPrompt); err != nil {
			return nil, err
		}
	}

	title, text, err := messageOf(ctx, e, who, a.Target)
	if err != nil {
		return nil, err
	}
	reply, err := eachRepo(ctx, e, who, a.Target, a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			l.Way, l.Markers = way, a.Force != nil && *a.Force
			if a.Commit != nil && *a.Commit {
				l.Commit = title
			}
			if way == worktree.WaySquash {
				l.Message = text
			}
			if a.Message != nil {
				l.Message = *a.Message
			}
			if err := targetIdle(ctx, e, l.Target); err != nil {
				return err
			}
			done, err := k.Merge(ctx, l)
			return r.landed(ctx, k, l, Merged, done, err)
		})
	return conclude(ctx, e, who, reply, a.KeepOpen == nil || !*a.KeepOpen, err)
}

// targetIdle refuses a target that is the branch of an attempt whose agent waits or runs: the merge would
// change files while that agent uses them.
func targetIdle(ctx context.Context, e *attempt.Engine, target string) error {
	b, err := e.Store(ctx)
	if err != nil {
		return err
	}

	if taken, err := b.BranchTaken(ctx, target); err != nil || !taken {
		return board.Fault("looking for an attempt with that branch", err)
	}

	all, err := b.AllAttempts(ctx)
	if err != nil {
		return board.Fault("looking for the attempt with that branch", err)
	}
	for _, at := range all {
		if at.Branch == target && at.State.Open() {
			refused := attempt.AgentRuns(at.ID)
			refused.Prefix("Nothing was changed: the branch %s is that of another attempt.", target)
			return refused
		}
	}

	return nil
}

// messageOf returns the commit messages for an attempt: the title of its task, and that title with the
// description and the ids. It refuses callers without RightMerge.
func messageOf(
	ctx context.Context, e *attempt.Engine, who session.Caller, target board.Target,
) (title, text string, err error) {
	b, id, err := e.ViewOfAttempt(ctx, who, target)
	if err == nil {
		err = e.MayMerge(b.Who)
	}
	if err != nil {
		return "", "", err
	}

	at, err := b.Attempt(ctx, id)
	if err != nil {
		return "", "", board.AttemptFault("reading the attempt", err, id)
	}
	of, err := b.Task(ctx, at.TaskID)
	if err != nil {
		return "", "", board.TaskFault("reading the task of the attempt", err, at.TaskID)
	}
	parts := []string{of.Title, strings.TrimSpace(board.OrEmpty(of.Description)),
		fmt.Sprintf("Task %s, attempt %s", of.ID, id)}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return of.Title, strings.Join(parts, "\n\n"), nil
}

// conclude records what became of an attempt's branches, given their outcome refused, which may be the error
// of one repository after others were moved. The attempt is merged once all its repositories are and no work
// is left in them. Then its task is set to done, if done and the config say so.
func conclude(
	ctx context.Context, e *attempt.Engine, who session.Caller, reply *Reply, done bool, refused error,
) (*Reply, error) {
	if reply == nil {
		return nil, refused
	}

	landed := ""
	b, cfg, err := e.View(ctx, who)
	if err == nil {
		landed, err = landedAs(ctx, e, b, reply.AttemptID)
	}
	if err == nil {
		reply.TaskDone, err = b.SetLanded(ctx, reply.AttemptID, landed,
			landed == task.LandedMerged && done && refused == nil && cfg.Attempts.DoneWhenMerged)
	}

	switch {
	case refused != nil:
		return nil, refused
	case err != nil && !errors.Is(err, task.ErrNotFound): // otherwise the attempt was deleted meanwhile
		return nil, board.Midway(board.Fault("recording what became of the branch", err))
	}
	return reply, nil
}

// landedAs returns the value of task.Situation.Landed by the state of an attempt's worktrees.
func landedAs(ctx context.Context, e *attempt.Engine, b board.View, id string) (string, error) {
	at, err := b.Attempt(ctx, id)
	if err != nil {
		return "", err
	}
	merged, left := false, at.Run != nil && at.State != task.Completed // an incomplete run can go on
	for _, r := range at.Repos {
		s, err := e.Worktrees(at).Status(ctx, r.Worktree, *r.BaseCommit, r.TargetBranch)
		if err != nil {
			return "", err
		}

		if s.Merging {
			return task.LandedConflicts, nil
		}

		merged, left = merged || s.Merged, left || !s.Exists || s.Ahead > 0 || s.Loose > 0
	}
	if merged && !left {
		return task.LandedMerged, nil
	}

	return "", nil
}

// Rebase repeats an attempt's commits on top of the current target branches. It treats conflicts as Merge
// does.
func Rebase(ctx context.Context, e *attempt.Engine, who session.Caller, a BranchArgs) (*Reply, error) {
	reply, err := eachRepo(ctx, e, who, a.Target, a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			done, err := k.Rebase(ctx, l)
			return r.landed(ctx, k, l, Rebased, done, err)
		})
	return conclude(ctx, e, who, reply, false, err)
}

// landed records the outcome of a merge or rebase.
func (r *Repo) landed(
	ctx context.Context, k *worktree.Keeper, l worktree.Landing, status string, done *worktree.Landed, err error,
) error {
	if _, ok := errors.AsType[*worktree.ConflictError](err); ok {
		l.Message = ""
		status = Updated
		done, err = k.Update(ctx, l)
		if err == nil && len(done.Conflicts) > 0 {
			status = Conflicts
			r.Notice = new("Resolve these files in the worktree and commit there, by hand or with a follow-up, and " +
				"merge or rebase again; or undo the merge.")
		} else if err == nil {
			r.Notice = new("Its commits do not fit on the target one by one, so the target was merged into its " +
				"branch. Merge it as a merge commit or as one commit.")
		}
	}
	if err != nil {
		return err
	}
	if status != Conflicts && done.Before == done.Commit {
		status = Unchanged
	}
	if status == Unchanged && len(done.Untracked) > 0 {
		r.Notice = new("There was nothing to do: files that are in no commit are merged only with commit, which " +
			"commits them first.")
	}
	r.Status = status
	r.Commit = &done.Commit
	r.Conflicts = board.NonNil(done.Conflicts)
	r.Untracked = board.NonNil(done.Untracked[:min(len(done.Untracked), attempt.MaxListedFiles)])
	r.remark(done)
	return nil
}

// remark says that the attempt's branch got the commits of what was checked out instead, and which programs
// did not sign.
func (r *Repo) remark(done *worktree.Landed) {
	if done.Adopted != "" {
		r.Remarks = append(r.Remarks,
			fmt.Sprintf("The worktree was on %s; its branch %s was moved to those commits.", done.Adopted, r.branch))
	}
	if len(done.Unused) > 0 {
		r.Remarks = append(r.Remarks, worktree.NotRun("for signing", done.Unused))
	}
	if len(r.Remarks) > 0 {
		r.Notice = new(strings.TrimSpace(board.OrEmpty(r.Notice) + " " + strings.Join(r.Remarks, " ")))
	}
}

// Push pushes the branch of an attempt to a remote, origin by default.
func Push(ctx context.Context, e *attempt.Engine, who session.Caller, a PushArgs) (*Reply, error) {
	remote := "origin"
	if a.Remote != nil {
		remote = *a.Remote
	}
	reply, err := eachRepo(ctx, e, who, a.Target, a.RepoID,
		func(k *worktree.Keeper, l worktree.Landing, r *Repo) error {
			done, err := k.Push(ctx, l.Path, remote, a.Force != nil && *a.Force)
			if err != nil {
				return err
			}
			r.Status, r.Commit = Pushed, &done.Commit
			if done.Before == done.Commit {
				r.Remarks = append(r.Remarks, "The branch has no commits of the attempt.")
			}
			r.remark(done)
			return nil
		})
	if err != nil || a.RepoID != nil {
		return reply, err
	}

	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}

	b, err := e.Store(ctx)
	if err == nil && remote == cfg.Attempts.PushTo {
		err = b.SetPushError(ctx, reply.AttemptID, nil)
	}
	if err != nil {
		return nil, board.Midway(board.Fault("recording the push", err))
	}
	return reply, nil
}

// ChangeTarget sets the branch with which an attempt is compared and into which it is merged.
func ChangeTarget(ctx context.Context, e *attempt.Engine, who session.Caller, a TargetArgs) (*Reply, error) {
	b, at, err := settled(ctx, e, who, a.Target, a.RepoID)
	if err != nil {
		return nil, err
	}

	hidden, err := e.HiddenBranches(ctx, b)
	if err != nil {
		return nil, err
	}

	branch, targets := strings.TrimSpace(a.TargetBranch), map[string]string{}
	reply := &Reply{AttemptID: at.ID, Repos: []Repo{}}
	for _, r := range at.Repos {
		if branch == at.Branch {
			return nil, session.Wrong(codes.UnknownBranch, "%q is the attempt's own branch. Name another one.",
				board.Clip(branch)).With("argument", "target_branch").With("value", board.Clip(branch))
		}

		err := attempt.CheckBranch(ctx, &task.Repo{ID: r.RepoID, Name: r.RepoName, Path: r.RepoPath}, branch,
			hidden, "")
		if err != nil {
			return nil, err
		}
		m := newRepo(at, r)
		m.Status = Retargeted
		if branch == r.TargetBranch {
			m.Status = Unchanged
		}
		m.TargetBranch, targets[r.RepoID] = branch, branch
		reply.Repos = append(reply.Repos, m)
	}

	switch err := b.SetTargets(ctx, at.ID, targets); {
	case errors.Is(err, task.ErrRunning):
		return nil, attempt.AgentRuns(at.ID)
	case err != nil:
		return nil, board.AttemptFault("changing the target", err, at.ID)
	}
	return reply, nil
}

// settled returns an attempt with all or one of its repositories, for a call that merges or pushes. It
// refuses callers without RightMerge, agents in a workspace, and attempts whose agent waits or runs.
func settled(
	ctx context.Context, e *attempt.Engine, who session.Caller, t board.Target, repo *string,
) (b board.View, at *task.Attempt, err error) {
	b, id, err := e.ViewOfAttempt(ctx, who, t)
	if err != nil {
		return b, nil, err
	}

	if err := e.MayMerge(b.Who); err != nil {
		return b, nil, err
	}

	now, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return b, nil, board.AttemptFault("reading the attempt", err, id)
	}
	at = now.Attempt
	if attempt.InPlace(at) {
		return b, nil, session.NotNow(codes.InPlace,
			"The run %s works in the project itself, without a worktree and a branch of its own, so there is nothing "+
				"to merge, rebase or push from. Commit and push its work there.", id).With("attempt_id", id)
	}
	if at.Elsewhere(e.Here) {
		return b, nil, session.NotNow(codes.Elsewhere, "Attempt %s is on the machine %s. A server there can do this.",
			id, at.Place.Describe()).With("attempt_id", id)
	}
	if now.Execution.State.Open() {
		return b, nil, attempt.AgentRuns(id)
	}
	if !at.Made() {
		return b, nil, session.NotNow(codes.NoWorkspace, "%s", noWorkspace(now)).With("attempt_id", id)
	}

	if repo != nil {
		at.Repos = slices.DeleteFunc(at.Repos, func(r task.AttemptRepo) bool { return r.RepoID != *repo })
		if len(at.Repos) == 0 {
			return b, nil, session.Wrong(codes.UnknownRepo,
				"Attempt %s has no repository with the id %s.", id, board.Clip(*repo)).
				Next("see its repositories", "get_attempt", "attempt_id", id).
				With("argument", "repo_id").With("value", board.Clip(*repo))
		}
	}
	return b, at, nil
}

func newRepo(at *task.Attempt, r task.AttemptRepo) Repo {
	return Repo{
		RepoID:       r.RepoID,
		RepoName:     r.RepoName,
		TargetBranch: r.TargetBranch,
		Conflicts:    []string{},
		Untracked:    []string{},
		attempt:      at.ID,
		path:         r.RepoPath,
		branch:       at.Branch,
	}
}

// eachRepo calls do for all repositories of an attempt, or for one. If one fails, it returns the error and
// what was done before.
func eachRepo(
	ctx context.Context, e *attempt.Engine, who session.Caller, t board.Target, repo *string,
	do func(*worktree.Keeper, worktree.Landing, *Repo) error,
) (*Reply, error) {
	b, at, err := settled(ctx, e, who, t, repo)
	if err != nil {
		return nil, err
	}
	id := at.ID
	k, reply := e.Worktrees(at), &Reply{AttemptID: id, Repos: []Repo{}}
	inUse := func() bool { // a follow-up uses them; it waits for the worktrees before it runs
		open, err := attempt.IsOpen(ctx, b, id)
		return open || err != nil
	}
	for _, r := range at.Repos {
		m := newRepo(at, r)
		l, began := worktree.Landing{Path: r.Worktree, Target: r.TargetBranch, InUse: inUse}, time.Now()
		err := do(k, l, &m)
		telemetry.Within(telemetry.About(ctx, attempt.RefOf(at)), spans.Merge, session.CodeOf(err), began,
			spans.Outcome.String(m.Status))
		if err != nil {
			err = notMerged(id, r, at.Branch, err)
			if refused, ok := errors.AsType[*session.Error](err); ok && len(reply.Repos) > 0 {
				refused.Prefix("In %s:", r.RepoName)
				for _, before := range slices.Backward(reply.Repos) {
					refused.Prefix("%s is %s.", before.RepoName, before.Status)
				}
				refused.With("done", reply.Repos)
			}
			return reply, err
		}
		reply.Repos = append(reply.Repos, m)
		e.Log.InfoContext(ctx, "attempt "+m.Status, "attempt", id, "repository", r.RepoName, "target", r.TargetBranch,
			"caller", b.Who.Identity)
	}
	return reply, nil
}

// notMerged says why a branch was neither merged, rebased nor pushed.
func notMerged(id string, r task.AttemptRepo, branch string, err error) error {
	refuse := func(code, format string, args ...any) *session.Error {
		return session.NotNow(code, format, args...).With("attempt_id", id).With("repo_id", r.RepoID).Because(err)
	}

	if refused, ok := errors.AsType[*session.Error](err); ok {
		return refused
	}
	if held, ok := errors.AsType[*worktree.CheckedOutError](err); ok {
		return session.NotNow(codes.TargetCheckedOut, "Nothing was changed: %v.", held).With("attempt_id",
			id).With("repo_id", r.RepoID).
			With("files", held.Files).With("operation", held.Operation).With("command", held.Command).Because(err)
	}
	if dirty, ok := errors.AsType[*worktree.DirtyError](err); ok {
		return session.NotNow(codes.NotCommitted,
			"Nothing was changed: %v. Commit them there and try again.", dirty).
			Next("commit all that the worktree has, and merge it", "merge_attempt", "attempt_id", id, "commit", true).
			With("attempt_id", id).With("repo_id", r.RepoID).With("files", dirty.Files).Because(err)
	}
	if markers, ok := errors.AsType[*worktree.MarkersError](err); ok {
		return session.NotNow(codes.NotMerged,
			"Nothing was merged: %v. Resolve the conflicts there and commit.", markers).
			Next("merge the files as they are", "merge_attempt", "attempt_id", id, "force", true).
			With("attempt_id", id).With("repo_id", r.RepoID).With("files", markers.Files).Because(err)
	}

	switch {
	case errors.Is(err, worktree.ErrInUse):
		return attempt.AgentRuns(id)
	case errors.Is(err, worktree.ErrNoConflict), errors.Is(err, worktree.ErrNoMerge):
		return refuse(codes.NotMerged, "Nothing was changed: %v. Look at the merge again.", err)
	case errors.Is(err, worktree.ErrMoved):
		return refuse(codes.TargetMoved, "Nothing was changed: %v. Try again.", err)
	case errors.Is(err, worktree.ErrUnfinished):
		return refuse(codes.MergeUnfinished,
			"Nothing was changed: %v. Resolve and commit it there, and try again.", err).
			Next("undo it if it is a merge", "abort_merge", "attempt_id", id)
	case errors.Is(err, worktree.ErrRejected):
		return refuse(codes.PushRejected,
			"%v. If the branch was rebased or amended, push it with force: that replaces it, unless others have "+
				"pushed to it.", err)
	case errors.Is(err, worktree.ErrNoWorktree):
		return refuse(codes.NotMerged,
			"Nothing was changed: %v. The commits of the attempt are on the branch %[2]s of %[3]s, which this "+
				"merges: git -C %[4]s merge %[2]s.", err, branch, r.RepoPath, session.InShell(r.RepoPath))
	case errors.Is(err, worktree.ErrNoBranch):
		return refuse(codes.NotMerged,
			"Nothing was changed: %v. Make that branch again, and try again.", err).
			Next("name another target", "change_target", "attempt_id", id)
	case errors.Is(err, worktree.ErrOtherBranch), errors.Is(err, worktree.ErrUnpublished),
		errors.Is(err, worktree.ErrNotKept):
		return refuse(codes.NotMerged, "Nothing was changed: %v. Correct that and try again.", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("merging attempt %s: %w", id, err)
	}

	return attempt.GitFailed("The branch of attempt "+id+" in "+r.RepoName+" cannot be merged or pushed", err)
}
