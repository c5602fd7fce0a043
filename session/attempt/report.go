package attempt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// The limits of what other machines can read of an attempt.
const (
	reportedOutput = 256 << 10 // bytes of its last entries, as JSON
	ReportedDiff   = 1 << 20   // bytes of its changes
	reportPace     = time.Second
)

// A reporter saves the end of an attempt's output in a store that other machines share, at most once per
// second and only after a change. It belongs to one goroutine at a time.
type reporter struct {
	run   *execution
	after *int64 // the last entry read; nil before the first
	data  []byte // what to save; nil means nothing
}

// follow saves what the agent writes until the returned function is called, which saves the rest. In a store
// of one machine it does nothing.
func (r *execution) follow() (end func()) {
	if r.engine.Shared == nil {
		return func() {}
	}

	p := &reporter{run: r}
	ctx, stop := context.WithCancel(r.ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for wait.For(ctx, reportPace) == nil {
			_ = p.save(ctx) // the next call saves it, too
		}
	})
	return sync.OnceFunc(func() {
		stop()
		following.Wait()
		r.report("output", p.save)
	})
}

// report saves something about an attempt, and retries while the store cannot be reached.
func (r *execution) report(what string, save func(context.Context) error) {
	err := r.record(func(ctx context.Context, _ store.Board) error {
		err := save(ctx)
		if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPending) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			r.engine.Log.Warn("the "+what+" of an attempt cannot be saved for other machines", "attempt",
				r.row.AttemptID, "error", err)
		}
		return nil
	})
	if err != nil {
		r.engine.Log.Debug("the "+what+" of an attempt is not saved for other machines by this server", "attempt",
			r.row.AttemptID, "error", err)
	}
}

// save saves the end of the output, if it has changed.
func (p *reporter) save(ctx context.Context) error {
	e, attempt := p.run.engine, p.run.row.AttemptID
	if err := p.read(ctx); err != nil || p.data == nil {
		return err
	}

	b, err := e.Store(ctx)
	if err == nil {
		err = b.SaveOutput(ctx, attempt, p.data)
	}
	if err == nil {
		p.data = nil
	}
	return err
}

// read reads the last entries if there are new ones. If an agent writes faster than they are read, those in
// between are skipped.
func (p *reporter) read(ctx context.Context) error {
	tail := func(after *int64, limit int) ([]runner.Entry, int64, error) {
		return p.run.executor().Tail(ctx, p.run.row.LogID, after, limit, 0)
	}
	if p.after != nil {
		if entries, _, err := tail(p.after, 1); err != nil || len(entries) == 0 {
			return err
		}
	}
	entries, next, err := tail(nil, runner.MaxTail)
	if err != nil || len(entries) == 0 {
		return err
	}
	if p.data, err = lastOf(entries); err == nil {
		p.after = &next
	}
	return err
}

// lastOf returns the last entries as JSON, as many as fit into a report. The beginning of an entry that is
// too long on its own is cut off.
func lastOf(entries []runner.Entry) ([]byte, error) {
	var parts [][]byte
	for size, i := 2, len(entries)-1; i >= 0; i-- {
		part, err := json.Marshal(entries[i])
		for len(parts) == 0 && err == nil && len(part)+2 > reportedOutput {
			entries[i].Text = entries[i].Text[len(entries[i].Text)/2:]
			part, err = json.Marshal(entries[i])
		}
		if err != nil {
			return nil, err
		}
		if size += len(part) + 1; size > reportedOutput+1 {
			break
		}
		parts = append(parts, part)
	}
	slices.Reverse(parts)
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), nil
}

// reportDiff saves the changes of the attempt for other machines, at the end of an execution.
func (r *execution) reportDiff() {
	if r.engine.Shared == nil {
		return
	}

	var a *task.Attempt
	if err := r.record(func(ctx context.Context, b store.Board) (err error) {
		a, err = b.Attempt(ctx, r.row.AttemptID)
		return err
	}); err != nil || !a.Made() || a.Elsewhere(r.engine.Here) {
		return // it is deleted, or has no worktrees here
	}
	data, err := r.diff(a)
	r.report("changes", func(ctx context.Context) error {
		if err != nil {
			return err
		}

		b, err := r.engine.Store(ctx)
		if err == nil {
			err = b.SaveDiff(ctx, a.ID, data)
		}
		return err
	})
}

// diff returns the changes of the attempt as JSON.
func (r *execution) diff(a *task.Attempt) (data []byte, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	var diffs []RepoDiff
	for left, i := ReportedDiff, 0; i < len(a.Repos); i++ {
		repo := a.Repos[i]
		d := RepoDiff{RepoID: repo.RepoID, RepoName: repo.RepoName, Truncated: left <= 0}
		if left > 0 {
			d.Diff, d.Truncated, err = r.engine.Worktrees(a).Diff(ctx, repo.Worktree, *repo.BaseCommit,
				repo.TargetBranch, nil, left)
			if err != nil && !errors.Is(err, worktree.ErrNoWorktree) { // the agent may have removed it
				return nil, err
			}
		}
		left -= len(d.Diff)
		diffs = append(diffs, d)
	}
	return json.Marshal(diffs)
}

// tail does what Tail of the executor does, for an attempt on any machine. log is the log of the attempt, or
// of an agent of a run, whose output is available only on its own machine.
func (e *Engine) tail(
	ctx context.Context, b store.View, a *task.Attempt, log logRef, after *int64, limit int, patience time.Duration,
) ([]runner.Entry, int64, error) {
	if !a.Elsewhere(e.Here) {
		return e.executor(log.executor).Tail(ctx, log.id, after, limit, patience)
	}
	if log.id != a.ID {
		return nil, 0, session.NotNow(codes.Elsewhere,
			"The run %s is on the machine %s, and so is the output of its agents. A server there has it.", a.ID,
			a.Place.Describe()).With("attempt_id", a.ID)
	}
	report, err := b.Report(ctx, a.ID)
	if err != nil {
		return nil, 0, err
	}

	var all []runner.Entry
	if report.Output != nil {
		if err := json.Unmarshal(report.Output, &all); err != nil {
			return nil, 0, fmt.Errorf("reading the saved output: %w", err)
		}
	}

	next := int64(-1)
	if len(all) > 0 {
		next = all[len(all)-1].Index
	}
	if after == nil {
		return all[max(0, len(all)-limit):], next, nil
	}
	all = slices.DeleteFunc(all, func(e runner.Entry) bool { return e.Index <= *after })
	all = all[:min(len(all), limit)]
	if len(all) > 0 {
		return all, all[len(all)-1].Index, nil
	}

	// The error is ctx's; the next read reports it.
	_ = wait.For(ctx, patience)
	return nil, min(next, *after), nil
}

// SavedDiff returns the changes of an attempt on another machine, as of the end of its last execution.
func SavedDiff(
	ctx context.Context, b store.View, a *task.Attempt, left int,
) (diffs []RepoDiff, notice string, err error) {
	report, err := b.Report(ctx, a.ID)
	if err != nil {
		return nil, "", board.Fault("reading the saved changes", err)
	}

	where := "The attempt is on the machine " + a.Place.Describe()
	if report.Diff == nil {
		return []RepoDiff{}, where + ", which saves its changes when its agent ends.", nil
	}
	if err := json.Unmarshal(report.Diff, &diffs); err != nil {
		return nil, "", fmt.Errorf("reading the saved changes: %w", err)
	}

	for i := range diffs {
		d := &diffs[i]
		if len(d.Diff) > left {
			d.Diff, d.Truncated = d.Diff[:strings.LastIndexByte(d.Diff[:left], '\n')+1], true
		}
		left -= len(d.Diff)
	}
	return diffs, where + "; these are all its changes at " + board.Stamp(*report.DiffAt) + ".", nil
}

// pushTime limits the pushes at the end of an execution, which keeps its slot until then.
const pushTime = 2 * time.Minute

// push pushes the commits of an attempt whose agent has ended to the config's attempts.push_to. If that
// fails, the board says so, and nothing else changes. stop_attempt ends the push.
func (r *execution) push() {
	e := r.engine
	cfg, err := e.Config(r.ctx)
	if err != nil || cfg.Attempts.PushTo == "" {
		return
	}

	var a *task.Attempt
	if r.record(func(ctx context.Context, b store.Board) (err error) {
		a, err = b.Attempt(ctx, r.row.AttemptID)
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
		if err == nil && (s.Ahead > 0 || s.Elsewhere != "") {
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
		e.Log.Warn("the branch of an attempt was not pushed", "attempt", a.ID, "remote", cfg.Attempts.PushTo,
			"error", *text)
	}
	if text != nil || a.PushError != nil {
		r.record(func(ctx context.Context, b store.Board) error { return b.SetPushError(ctx, a.ID, text) })
	}
}
