package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/attempt/runner"
	"deepwork/session/store"
)

// What other machines can read of an attempt.
const (
	reportedOutput = 256 << 10 // bytes of its last entries, as JSON
	reportedDiff   = 1 << 20   // bytes of its changes
	reportPace     = time.Second
)

// A reporter saves the end of an attempt's output in a store that other machines share, at most once
// per second and only if it has changed. It belongs to one goroutine at a time.
type reporter struct {
	run   *run
	after *int64         // the last entry that was read
	kept  []runner.Entry // the last ones
	sizes []int          // of kept, as JSON
	size  int
	dirty bool
}

// follow saves what the agent writes until the returned function is called, which then saves what is
// left. It is nil in a store of one machine.
func (r *run) follow() (end func()) {
	if r.engine.shared == nil {
		return func() {}
	}
	p := &reporter{run: r}
	ctx, stop := context.WithCancel(r.ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for wait.For(ctx, reportPace) == nil {
			p.save()
		}
	})
	return sync.OnceFunc(func() {
		stop()
		following.Wait()
		p.save()
	})
}

// save reads what is new and saves it. What fails is tried again by the next call.
func (p *reporter) save() {
	r := p.run
	ctx, cancel := context.WithTimeout(r.ctx, boardPatience)
	defer cancel()
	err := p.read(ctx)
	if err == nil && p.dirty {
		var b store.Board
		var data []byte
		if data, err = json.Marshal(p.kept); err == nil {
			if b, err = r.engine.board(ctx); err == nil {
				err = b.SaveOutput(ctx, r.exec.AttemptID, data)
			}
		}
		p.dirty = err != nil
	}
	if err != nil && ctx.Err() == nil {
		r.engine.log.Debug("the output of an attempt cannot be saved for other machines now", "attempt", r.exec.AttemptID, "error", err)
	}
}

// read adds the new entries to kept, and drops the oldest ones beyond the limit.
func (p *reporter) read(ctx context.Context) error {
	for {
		entries, next, err := p.run.engine.executor.Tail(ctx, p.run.exec.AttemptID, p.after, runner.MaxTail, 0)
		if err != nil || len(entries) == 0 {
			return err
		}
		p.after, p.dirty = &next, true
		for _, e := range entries {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			p.kept, p.sizes, p.size = append(p.kept, e), append(p.sizes, len(text)+1), p.size+len(text)+1
		}
		for len(p.kept) > 1 && p.size > reportedOutput-2 {
			p.size -= p.sizes[0]
			p.kept, p.sizes = slices.Delete(p.kept, 0, 1), slices.Delete(p.sizes, 0, 1)
		}
	}
}

// reportDiff saves the changes of the attempt at the end of an execution for other machines.
func (r *run) reportDiff() {
	e := r.engine
	if e.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	err := func() error {
		b, err := e.board(ctx)
		if err != nil {
			return err
		}
		a, err := b.Attempt(ctx, r.exec.AttemptID)
		if err != nil || !a.Made() || a.Elsewhere(e.here) {
			return err
		}
		var diffs []RepoDiff
		for left, i := reportedDiff, 0; i < len(a.Repos); i++ {
			repo := a.Repos[i]
			d := RepoDiff{RepoID: repo.RepoID, RepoName: repo.RepoName, Truncated: left <= 0}
			if left > 0 {
				if d.Diff, d.Truncated, err = e.keeper(worktreesOf(a)).Diff(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch, nil, left); err != nil {
					return err
				}
			}
			left -= len(d.Diff)
			diffs = append(diffs, d)
		}
		data, err := json.Marshal(diffs)
		if err != nil {
			return err
		}
		return b.SaveDiff(ctx, a.ID, data)
	}()
	if err != nil && r.ctx.Err() == nil {
		e.log.Warn("the changes of an attempt cannot be saved for other machines", "attempt", r.exec.AttemptID, "error", err)
	}
}

// tail is Tail of the executor for an attempt on any machine.
func (e *Engine) tail(ctx context.Context, b store.View, a *task.Attempt, after *int64, limit int, patience time.Duration) ([]runner.Entry, int64, error) {
	if !a.Elsewhere(e.here) {
		return e.executor.Tail(ctx, a.ID, after, limit, patience)
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
	if all = all[:min(len(all), limit)]; len(all) > 0 {
		return all, all[len(all)-1].Index, nil
	}
	// The error is that of ctx, which the next read reports.
	_ = wait.For(ctx, patience)
	return nil, min(next, *after), nil
}

// savedDiff returns the changes of an attempt on another machine, as they were at the end of its last
// execution.
func savedDiff(ctx context.Context, b store.View, a *task.Attempt, left int) (diffs []RepoDiff, notice string, err error) {
	report, err := b.Report(ctx, a.ID)
	if err != nil {
		return nil, "", fault("reading the saved changes", err)
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
	return diffs, where + "; these are all its changes at " + stamp(*report.DiffAt) + ".", nil
}
