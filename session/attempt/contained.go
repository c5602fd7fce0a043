package attempt

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/contain"
)

// containIn returns a function that makes the worktrees of an attempt ready for a contained agent, which works in them
// alone.
func (e *Engine) containIn(a *task.Attempt) func(context.Context, *contain.Plan) error {
	return func(ctx context.Context, p *contain.Plan) error {
		return e.Worktrees(a).Contain(ctx, p, false, pathsOf(a)...)
	}
}

func pathsOf(a *task.Attempt) (paths []string) {
	for _, repo := range a.Repos {
		paths = append(paths, repo.Worktree)
	}
	return paths
}

// take takes the commits of a contained agent, which has ended, out of the private git folders of its worktrees. What
// cannot be taken out stays there, and is tried again at each look at the worktrees.
func (e *Engine) take(ctx context.Context, a *task.Attempt) (err error) {
	for _, path := range pathsOf(a) {
		if fault := e.Worktrees(a).Take(ctx, path); !errors.Is(fault, worktree.ErrNoWorktree) {
			err = errors.Join(err, fault)
		}
	}
	return err
}

// takeCommits takes out the commits of the agent of the execution, which has ended.
func (r *execution) takeCommits() {
	b, err := r.engine.Store(r.ctx)
	if err == nil {
		var a *task.Attempt
		if a, err = b.Attempt(r.ctx, r.row.AttemptID); err == nil {
			err = r.engine.take(r.ctx, a)
		}
	}
	if err != nil && r.ctx.Err() == nil {
		r.note(err.Error())
		r.engine.Log.Warn("the commits of a contained agent stay in its private git folder for now", "attempt",
			r.row.AttemptID, "error", err)
	}
}

// planSetup returns the plan of a setup command of an attempt in a folder, nil if it is not contained.
func (e *Engine) planSetup(
	ctx context.Context, cfg *config.Config, a *task.Attempt, dir string,
) (*contain.Plan, error) {
	p, err := executors.Plan(ctx, cfg.Contained(a.Executor, a.Run != nil), dir, e.State().Dir, e.Root())
	if p != nil {
		err = p.UseCache(contain.CacheOf(e.State().Dir))
	}
	return p, err
}

// A containment counts the contained programs of a run by the folder in which they work. Those of one folder share the
// private git folders of its worktrees: the first one gets new ones, and with the last one they are given up.
type containment struct {
	mu       sync.Mutex // held while worktrees are made ready or given up
	programs map[string]int
}

// enter makes the worktrees of the run, or of the item in a folder, ready for a contained program.
func (l *Lead) enter(ctx context.Context, p *contain.Plan, folder string) error {
	a, err := l.worktreesIn(ctx, folder)
	if err != nil {
		return err
	}
	c := &l.contained
	c.mu.Lock()
	defer c.mu.Unlock()
	err = l.execution.engine.Worktrees(a).Contain(ctx, p, c.programs[a.Workspace] > 0, pathsOf(a)...)
	if err == nil {
		if c.programs == nil {
			c.programs = map[string]int{}
		}
		c.programs[a.Workspace]++
	}
	return err
}

// leave takes out the commits of the contained programs in a folder, once the last of them has ended.
func (l *Lead) leave(ctx context.Context, folder string) {
	a, err := l.worktreesIn(ctx, folder)
	if err == nil {
		c := &l.contained
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.programs[a.Workspace]--; c.programs[a.Workspace] == 0 {
			err = l.execution.engine.take(ctx, a)
		}
	}
	if err != nil {
		l.Note("%v", err)
	}
}

// worktreesIn returns the run's attempt with the worktrees of the item in a folder or, for "", with its own.
func (l *Lead) worktreesIn(ctx context.Context, folder string) (*task.Attempt, error) {
	if folder == "" || folder == l.Attempt.Workspace {
		return l.Attempt, nil
	}
	var err error
	names := l.items(folder, &err)
	if err != nil || len(names) == 0 {
		return nil, cmp.Or(err, worktree.ErrNoWorktree)
	}
	a, err := l.item(ctx, names[0])
	return &a, err
}

// A Judge is what a contained program gets that judges work, such as a check. Its caller runs it at once, and calls End
// when it has ended.
type Judge struct {
	*contain.Plan
	Refused func(contain.Refusal) // is called with its refused connections
	End     func()
}

// judges is the folder with the caches of the programs that judge the work of a run.
func (l *Lead) judges() string {
	return filepath.Join(l.execution.engine.State().Dir, "contained", "judges", l.Attempt.ID)
}

// Judge returns what a program gets that judges the run's work in a folder, nil if it is not to be contained: the
// worktrees, and an empty cache, since the run's agents may have planted something in theirs. A reviewer of an executor
// (or of none, for "") only reads, and keeps a home of its own. reviewer is nil for a check.
func (l *Lead) Judge(ctx context.Context, folder string, reviewer *string) (*Judge, error) {
	e := l.execution.engine
	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}
	executor := cmp.Or(board.OrEmpty(reviewer), l.Attempt.Executor)
	wants := cfg.Contained(executor, true)
	if steps, err := l.records.Steps(ctx, l.Attempt.ID); err != nil {
		return nil, err
	} else if slices.ContainsFunc(steps, func(x task.Execution) bool {
		return x.Contained != "" && x.Contained != contain.Outer
	}) {
		wants.Mode = config.ContainRequired // whatever the config says by now: such an agent has worked in it
	}
	if wants.Mode == config.ContainRequired && l.Run.InPlace {
		return nil, executors.InPlace()
	}
	p, err := executors.Plan(ctx, wants, folder, e.State().Dir, e.Root())
	if p == nil || err != nil {
		return nil, err
	}

	if err := l.enter(ctx, p, folder); err != nil {
		return nil, err
	}
	j := &Judge{Plan: p, Refused: contain.Once(func(r contain.Refusal) { l.Note("%s", r.Note()) })}
	if reviewer != nil {
		p.ReadOnly()
	}
	if reviewer != nil && *reviewer != "" && wants.Home == config.HomeKeep {
		err = p.UseHome(contain.ReviewerHomeOf(e.State().Dir, executor))
	}
	cache := ""
	if err = errors.Join(err, os.MkdirAll(l.judges(), 0o700)); err == nil {
		cache, err = os.MkdirTemp(l.judges(), "")
	}
	j.End = func() {
		os.RemoveAll(cache)
		l.leave(context.WithoutCancel(ctx), folder)
	}
	if err == nil {
		err = p.UseCache(cache)
	}
	if err != nil {
		j.End()
		return nil, err
	}
	return j, nil
}
