package board

import (
	"context"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
)

// ListTaskAttempts lists the attempts of a task, newest first (seed 004,
// "list_task_attempts returns attempt details").
func (b *Board) ListTaskAttempts(
	ctx context.Context, who session.Caller, a ListTaskAttemptsArgs,
) (*AttemptsReply, error) {
	v, id, p, err := b.viewOfList(ctx, who, "task_id", a.TaskID, a.Limit, a.Cursor)
	if err != nil {
		return nil, err
	}

	cfg, err := b.Config(ctx)
	if err != nil {
		return nil, err
	}

	l, err := v.TaskAttempts(ctx, id, p)
	if err != nil {
		return nil, FaultOf("listing the attempts", cursor(p, err), codes.UnknownTask, "task_id", id, "list_tasks")
	}
	r := &AttemptsReply{
		Attempts:        make([]AttemptSummary, 0, len(l.Attempts)),
		LatestAttemptID: l.Task.LatestAttemptID,
		LatestSessionID: l.Task.LatestSessionID,
		Count:           len(l.Attempts),
		Total:           l.Total,
		Filters:         AttemptFilters{TaskID: id, Limit: p.Limit},
		NextCursor:      OrNull(l.Next),
	}
	for _, v := range l.Attempts {
		r.Attempts = append(r.Attempts, AttemptSummary{
			AttemptID:             v.ID,
			WorkspaceBranch:       v.Branch,
			State:                 b.StateOf(&v.Situation),
			Executor:              v.Executor,
			Variant:               v.Variant,
			CreatedAt:             Stamp(v.CreatedAt),
			UpdatedAt:             Stamp(v.UpdatedAt),
			LatestSessionID:       v.LatestSessionID,
			LatestSessionExecutor: v.LatestExecutor,
		})
	}
	if slices.ContainsFunc(l.Attempts, func(a task.Attempt) bool { return a.State == task.Waiting }) {
		if r.Notice, err = b.HeldBack(ctx, v.Who, cfg); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// FindAttempts returns the attempts that the caller sees and whose ids begin with prefix, sorted by id.
func (b *Board) FindAttempts(ctx context.Context, who session.Caller, prefix string) ([]task.Attempt, error) {
	v, _, err := b.View(ctx, who)
	if err != nil {
		return nil, err
	}

	all, err := b.Database.Board().AllAttempts(ctx)
	if err != nil {
		return nil, Fault("listing the attempts", err)
	}
	return slices.DeleteFunc(all, func(a task.Attempt) bool {
		if !strings.HasPrefix(a.ID, prefix) {
			return true
		}

		if v.Who.Owner {
			return false
		}
		_, err := v.Attempt(ctx, a.ID)
		return err != nil
	}), nil
}
