package attempt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session/board"
	"deepwork/session/store"
)

// pushTime bounds the pushes at the end of an execution, which keeps its slot until then.
const pushTime = 2 * time.Minute

// push pushes the commits of an attempt whose agent has ended to attempts.push_to of the config. If that
// fails, the board says so, and nothing else changes. stop_attempt ends it.
func (r *run) push() {
	e := r.engine
	cfg, err := e.Config(r.ctx)
	if err != nil || cfg.Attempts.PushTo == "" {
		return
	}
	var a *task.Attempt
	if r.record(func(ctx context.Context, b store.Board) (err error) {
		a, err = b.Attempt(ctx, r.exec.AttemptID)
		return err
	}) != nil || !a.Made() || a.Elsewhere(e.Here) {
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
		k := e.Worktrees(a)
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
	text := board.OrNull(strings.Join(why, "\n"))
	if text != nil {
		e.Log.Warn("the branch of an attempt was not pushed", "attempt", a.ID, "remote", cfg.Attempts.PushTo, "error", *text)
	}
	if text != nil || a.PushError != nil {
		r.record(func(ctx context.Context, b store.Board) error { return b.SetPushError(ctx, a.ID, text) })
	}
}
