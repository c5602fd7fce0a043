package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// GetAttempt returns an attempt with its agent's last run and the changes in its worktrees.
func (e *Engine) GetAttempt(ctx context.Context, who session.Caller, a AttemptArgs) (*FullAttemptReply, error) {
	b, id, err := e.ViewOfAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}
	r, now, err := e.attemptDetails(ctx, b, id)
	if err != nil {
		return nil, err
	}

	costs, err := b.ExecutionCosts(ctx, id)
	if err != nil {
		return nil, board.Fault("reading the cost of the attempt", err)
	}
	return &FullAttemptReply{*r, executionsReply(now.Executions, costs)}, nil
}

func (e *Engine) attemptReply(ctx context.Context, b board.View, id string) (*AttemptReply, error) {
	r, _, err := e.attemptDetails(ctx, b, id)
	return r, err
}

func (e *Engine) attemptDetails(
	ctx context.Context, b board.View, id string,
) (*AttemptReply, *task.AttemptDetails, error) {
	now, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return nil, nil, board.AttemptFault("reading the attempt", err, id)
	}
	a, x := now.Attempt, now.Execution
	r := &AttemptReply{
		AttemptID:       a.ID,
		TaskID:          a.TaskID,
		State:           e.StateOf(&a.Situation),
		Agent:           a.State,
		Open:            a.State.Open(),
		Workspace:       a.Workspace,
		Contained:       x.Contained,
		ExitCode:        x.ExitCode,
		StartedAt:       board.StampOrNull(x.StartedAt),
		EndedAt:         board.StampOrNull(x.EndedAt),
		FinalMessage:    x.FinalMessage,
		Error:           a.Error,
		PushError:       a.PushError,
		WorkspaceBranch: a.Branch,
		Executor:        a.Executor,
		Variant:         a.Variant,
		LatestSessionID: a.LatestSessionID,
		WorkflowSession: a.WorkflowSessionID,
		WorkflowStatus:  a.WorkflowStatus,
		WorkflowStep:    a.WorkflowStep,
		Repos:           []AttemptRepo{},
		CreatedAt:       board.Stamp(a.CreatedAt),
		UpdatedAt:       board.Stamp(a.UpdatedAt),
	}
	r.Why = board.WhyOf(x).Sentence()
	r.Lead = task.AgentLeads
	if a.Run != nil {
		r.Lead = task.ServerLeads
	}
	if s := now.Session; s != nil && s.Queued != nil {
		r.QueuedFollowUp = &QueuedFollowUp{
			Prompt:   s.Queued.Prompt,
			Variant:  s.Queued.Variant,
			QueuedAt: board.Stamp(s.Queued.At),
		}
	}
	if r.Cost, err = b.Cost(ctx, a.TaskID, a.ID); err != nil {
		return nil, nil, board.Fault("reading the cost of the attempt", err)
	}
	if x.State == task.Waiting {
		if r.Notice, r.WaitsForSlot, err = e.whyWaiting(ctx, b.Who, now); err != nil {
			return nil, nil, err
		}
	}
	if a.Elsewhere(e.Here) {
		r.Notice = new(strings.TrimSpace(board.OrEmpty(r.Notice) + " It is on the machine " + a.Place.Describe() +
			", and so are its worktrees, whose changes are not listed here; its diff has what was saved of " +
			"them."))
	}
	for _, repo := range a.Repos {
		v, err := e.repoReply(ctx, a, repo)
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("looking at the attempt's worktrees: %w", ctx.Err())
		}
		if err != nil { // a repository that was moved must not prevent the reply
			r.Notice = new(fmt.Sprintf("The changes are not known: %v.", err))
		}
		if v.Elsewhere != "" {
			r.Notice = new(strings.TrimSpace(board.OrEmpty(r.Notice) + " The worktree of " + v.RepoName + " is on " +
				v.Elsewhere + ", not on the attempt's branch " + a.Branch +
				". Merging and pushing first move that branch to its commits, or say what is in the way."))
		}
		r.Repos = append(r.Repos, *v)
	}
	e.noticeMerge(ctx, b, a, r)
	return r, now, nil
}

// noticeMerge records that somebody merged by hand everything in an attempt's worktrees. If that fails, the
// next look records it.
func (e *Engine) noticeMerge(ctx context.Context, b board.View, a *task.Attempt, r *AttemptReply) {
	merged := slices.ContainsFunc(r.Repos, func(v AttemptRepo) bool { return v.ByHand })
	left := slices.ContainsFunc(r.Repos, func(v AttemptRepo) bool {
		return !v.Exists || v.Ahead > 0 && !v.ByHand || v.Loose > 0 || v.Merging
	})
	unfinished := a.Run != nil && a.State != task.Completed
	if !merged || left || unfinished || r.Open || a.Landed != "" {
		return
	}

	cfg, err := e.Config(ctx)
	if err == nil {
		_, err = b.SetLanded(ctx, a.ID, task.LandedMerged, cfg.Attempts.DoneWhenMerged)
	}
	if err != nil {
		e.Log.Warn("cannot record that the branch of an attempt was merged by hand", "attempt", a.ID, "error", err)
		return
	}
	r.State = board.Merged
}

// NoticeMerges looks, as GetAttempt does, at those of some attempts that have ended whose branch was merged by hand,
// and reports whether there are any. It runs git once per repository and target branch. What cannot be looked at is
// left out.
func (e *Engine) NoticeMerges(ctx context.Context, who session.Caller, ids []string) (noticed bool, err error) {
	b, _, err := e.View(ctx, who)
	if err != nil {
		return false, err
	}

	type target struct{ repo, branch string }
	all := map[target][]*task.Attempt{}
	for _, id := range ids {
		a, err := b.Attempt(ctx, id)
		if err != nil || a.State.Open() || a.Landed != "" || !a.Made() || a.Elsewhere(e.Here) || len(a.Repos) == 0 {
			continue
		}
		of := target{a.Repos[0].RepoPath, a.Repos[0].TargetBranch}
		all[of] = append(all[of], a)
	}
	for of, attempts := range all {
		branches := xslices.Map(attempts, func(a *task.Attempt) string { return a.Branch })
		merged, err := worktree.MergedBranches(ctx, of.repo, of.branch, branches)
		if err != nil {
			e.Log.Debug("cannot look for branches that were merged by hand", "repo", of.repo, "error", err)
		}
		for _, a := range attempts {
			if commit := merged[a.Branch]; commit != "" && commit != board.OrEmpty(a.Repos[0].BaseCommit) {
				r, err := e.attemptReply(ctx, b, a.ID)
				noticed = noticed || err == nil && r.State == board.Merged
			}
		}
	}
	return noticed, nil
}

// whyWaiting says what a waiting attempt waits for, and whether that is a slot, because too many run. Callers who do
// not see all attempts do not get the numbers of the others.
func (e *Engine) whyWaiting(
	ctx context.Context, who session.Caller, now *task.AttemptDetails,
) (why *string, slot bool, err error) {
	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, false, err
	}
	if held, err := e.HeldBack(ctx, who, cfg); err != nil || held != nil {
		return held, false, err
	}
	if e.Shared != nil && who.Owner {
		where := "the machine " + now.Attempt.MachineName
		if now.Attempt.MachineID == "" {
			where = "a machine that has its repositories and the executor " + now.Attempt.Executor
		}
		return new(fmt.Sprintf("It waits for a slot of %s: %d are in use on all machines, and %d wait before it.",
			where, now.Open, now.Ahead)), true, nil
	}
	if most := cfg.Attempts.MaxConcurrent; now.Open >= most || now.Ahead > 0 || e.Shared != nil {
		if !who.Owner {
			return new("It waits for a slot."), true, nil
		}
		return new(fmt.Sprintf("It waits for a slot: %d of %d are in use, and %d wait before it.", now.Open, most,
			now.Ahead)), true, nil
	}

	return new("It is about to be started."), false, nil
}

// repoReply describes the changes in one worktree.
func (e *Engine) repoReply(ctx context.Context, a *task.Attempt, repo task.AttemptRepo) (*AttemptRepo, error) {
	r := &AttemptRepo{
		RepoID:       repo.RepoID,
		RepoName:     repo.RepoName,
		TargetBranch: repo.TargetBranch,
		WorktreePath: repo.Worktree,
		ChangedFiles: []string{},
		Conflicts:    []string{},
	}
	if repo.BaseCommit == nil || a.Elsewhere(e.Here) {
		return r, nil // not created yet, or not on this machine
	}
	s, err := e.Worktrees(a).Status(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch)
	if r.Gone = errors.Is(err, worktree.ErrNoWorktree) || err == nil && !s.Exists; r.Gone {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.Exists = s.Exists
	r.Ahead = s.Ahead
	r.Behind = s.Behind
	r.ChangedCount = len(s.Changed)
	r.Merging = s.Merging
	r.Resolved = s.Resolved
	r.Conflicts = board.NonNil(s.Conflicts)
	r.Loose = s.Loose
	r.Elsewhere = s.Elsewhere
	r.ByHand = s.ByHand
	r.ChangedFiles = board.NonNil(s.Changed[:min(len(s.Changed), MaxListedFiles)])
	return r, nil
}

// conflicts names the files with conflicts in an attempt's worktrees, as far as they are here.
func (e *Engine) conflicts(ctx context.Context, a *task.Attempt) (all []string) {
	for _, repo := range a.Repos {
		if r, err := e.repoReply(ctx, a, repo); err == nil { // else its page says why not
			all = append(all, r.Conflicts...)
		}
	}
	return all
}

// bounds returns the maximum number of entries in a reply, and how long the call waits for the first one.
func (a TailArgs) bounds() (limit int, patience time.Duration, err error) {
	limit, err = board.Within("limit", a.Limit, DefaultTail, 1, MaxTail)
	if err != nil {
		return 0, 0, err
	}
	if a.AfterIndex != nil && *a.AfterIndex < -1 {
		return 0, 0, session.Wrong(codes.OutOfRange,
			"after_index is %d: expected the next_index of a reply, or -1 for the first entry.",
			*a.AfterIndex).With("argument", "after_index").With("value", *a.AfterIndex)
	}
	if a.Wait == nil {
		return limit, 0, nil
	}
	if !(*a.Wait >= 0 && *a.Wait <= MaxWait) { // also refuses NaN
		return 0, 0, session.Wrong(codes.OutOfRange, "wait is %v: expected 0 to %d seconds.", *a.Wait,
			MaxWait).With("argument", "wait").With("value", fmt.Sprint(*a.Wait))
	}
	return limit, time.Duration(*a.Wait * float64(time.Second)), nil
}

// TailAttempt returns the output of an attempt's agents, as messages or as lines. It can wait for more.
func (e *Engine) TailAttempt(ctx context.Context, who session.Caller, a TailArgs) (*TailReply, error) {
	b, id, err := e.ViewOfAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}

	limit, patience, err := a.bounds()
	if err != nil {
		return nil, err
	}

	after, raw := a.AfterIndex, a.Raw != nil && *a.Raw
	newest := a.Newest && after == nil
	if a.ExecutionID != nil {
		if *a.ExecutionID, err = board.CheckID("execution_id", *a.ExecutionID); err != nil {
			return nil, err
		}
	}

	for until := time.Now().Add(patience); ; {
		at, err := b.Attempt(ctx, id) // read before the log, so that an end is final
		if err != nil {
			return nil, board.AttemptFault("reading the attempt", err, id)
		}
		state, part := at.State, logPart{log: logOf(at)}
		if a.ExecutionID != nil {
			if part, err = e.partOf(ctx, b, at, *a.ExecutionID, &after); err != nil {
				return nil, err
			}
			state = part.state
			if newest && part.until == nil {
				after = nil
			}
		}

		left := time.Until(until)
		if !state.Open() {
			left = 0
		}
		if part.none {
			if left <= 0 || wait.For(ctx, min(left, 200*time.Millisecond)) != nil {
				return &TailReply{
					AttemptID: id,
					Messages:  []Message{},
					Entries:   []runner.Entry{},
					NextIndex: -1,
					State:     board.ExecutionState(state),
				}, ctx.Err()
			}
			continue
		}

		most := limit
		if !raw && after != nil {
			most += linePieces // the last line may need as many
		}
		entries, next, err := e.tail(ctx, b, at, part.log, after, most, max(0, min(left, 500*time.Millisecond)))
		if err != nil {
			return nil, fmt.Errorf("reading the attempt's log: %w", err)
		}
		if part.cut(&entries) && after != nil {
			next = *after // everything that follows belongs to a later execution
		}
		r := &TailReply{
			AttemptID: id,
			Messages:  []Message{},
			Entries:   []runner.Entry{},
			NextIndex: next,
			State:     board.ExecutionState(state),
		}
		if raw {
			r.Entries = board.NonNil(entries)
		} else if len(entries) > 0 {
			r.Messages, r.NextIndex = messagesOf(entries, limit, !state.Open())
			r.Messages = board.NonNil(r.Messages)
		}
		if len(r.Entries)+len(r.Messages) > 0 || left <= 0 {
			return r, nil
		}
		if len(entries) > 0 && after != nil && r.NextIndex == *after { // the line is not complete yet
			_ = wait.For(ctx, min(left, 200*time.Millisecond)) // the next read reports the error
		}
		after, newest = &r.NextIndex, false // wait for new entries only
	}
}
