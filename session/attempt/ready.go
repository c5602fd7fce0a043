package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// serveReady starts tasks as attempts.auto_start says: after each change of a task by this server, and at
// every poll for changes by others. It has its own goroutine until Close begins, because it waits for git.
func (e *Engine) serveReady() {
	defer e.workers.Done()
	ticker := time.NewTicker(e.poll())
	defer ticker.Stop()
	for s := (starter{engine: e}); ; {
		s.postpone("", s.startReady(e.serving))
		select {
		case <-e.serving.Done():
			return
		case <-e.wakeStarter:
		case <-ticker.C:
		}
	}
}

// A starter starts tasks without a call. It belongs to one goroutine.
type starter struct {
	engine   *Engine
	of       *config.Config     // the config under which the refusals arose
	refusals map[string]refusal // by project, or by task; "" is for all
}

// A refusal is the reason why tasks are not started, and the time until which that is not tried again.
type refusal struct {
	why   string
	until time.Time
}

// refusedFor is how long a task that cannot be started waits.
const refusedFor = 5 * time.Second

// postpone logs once why something is not started, and lets it wait; nil means no reason.
func (s *starter) postpone(what string, err error) {
	if err == nil || s.engine.serving.Err() != nil {
		return
	}
	if err.Error() != s.refusals[what].why {
		s.engine.Log.Warn("attempts.auto_start cannot start tasks; trying again", "affects", what, "error", err)
	}
	s.refusals[what] = refusal{err.Error(), time.Now().Add(refusedFor)}
}

// waits reports whether something was refused a moment ago.
func (s *starter) waits(what string) bool {
	return time.Now().Before(s.refusals[what].until)
}

// startReady starts tasks, oldest first, as long as there is room.
func (s *starter) startReady(ctx context.Context) error {
	e := s.engine
	if !e.Database.Exists() {
		return nil
	}

	cfg, err := e.Config(ctx)
	if err != nil {
		return nil // serve logs it
	}
	if s.of != cfg {
		s.of, s.refusals = cfg, map[string]refusal{}
	}
	auto := cfg.Attempts.AutoStart
	if auto == nil || cfg.Approval != nil && cfg.Approval.Withheld != nil || s.waits("") {
		return nil
	}

	b, err := e.Store(ctx)
	if err == nil {
		err = e.SyncProjects(ctx, b, cfg)
	}
	if err != nil {
		return err
	}

	owner := session.LocalCaller(session.ChannelTerminal)
	agent, err := e.choose(ctx, auto.Executor, board.OrNull(auto.Variant))
	if err == nil {
		err = agent.check(ctx, "")
	}
	if err != nil {
		return err
	}

	for ctx.Err() == nil {
		room := task.Room{InReview: auto.MaxInReview, Slots: e.slots(cfg), Place: e.Here, Limits: board.Limits(cfg)}
		tasks, err := b.Ready(ctx, room)
		if err != nil {
			return err
		}
		if !s.startOne(ctx, board.View{View: b.For(owner), Who: owner}, b, cfg, agent, tasks, room) {
			return nil
		}

		e.wakeUp()
	}

	return nil
}

// startOne starts the oldest task that can be started. It reports false if it has tried all.
func (s *starter) startOne(
	ctx context.Context, v board.View, b store.Board, cfg *config.Config, agent *choice, tasks []task.Ready,
	room task.Room,
) bool {
	for _, t := range tasks {
		if s.waits(t.ProjectID) || s.waits(t.ID) {
			continue
		}

		err := s.engine.startTask(ctx, v, b, cfg, agent, t, room)
		if err == nil || errors.Is(err, task.ErrNotReady) || errors.Is(err, task.ErrNotFound) {
			return true // or another server, or the user, was faster
		}

		what := t.ProjectID
		if code := session.CodeOf(err); code == codes.TooLong || code == codes.NoBranchLeft || code == codes.BadInputs {
			what = t.ID
		}
		s.postpone(what, err)
	}

	return false
}

// startTask starts an attempt of a ready task, in all repositories of its project, from the branches that are
// checked out there.
func (e *Engine) startTask(
	ctx context.Context, v board.View, b store.Board, cfg *config.Config, agent *choice, ready task.Ready,
	room task.Room,
) error {
	t, err := b.Task(ctx, ready.ID)
	if err != nil {
		return err
	}

	// one too many, so that an excess is refused, not cut off
	repos, _, _, err := b.Repos(ctx, t.ProjectID, task.Page{Limit: MaxRepos + 1})
	if err != nil {
		return err
	}

	var args []RepoArgs
	for _, r := range repos {
		if r.Path == "" {
			return fmt.Errorf("the repository %s is not on this machine", r.Name)
		}
		branch, err := worktree.CurrentBranch(ctx, r.Path)
		if err == nil && branch == "" {
			err = fmt.Errorf("no branch is checked out in %s, from which the work would begin: check one out, or "+
				"start the tasks with the branch to use", r.Path)
		}
		if err != nil {
			return err
		}
		args = append(args, RepoArgs{RepoID: r.ID, TargetBranch: branch})
	}
	if len(args) == 0 {
		return errors.New("the project is not in a git repository: run git init and commit something, or name its " +
			"repositories in .deepwork/config.yml")
	}
	a, first, err := e.plan(ctx, v, cfg, &t.Task, agent, nil, args)
	if err != nil {
		return err
	}
	if t.Lead == task.ServerLeads {
		if a.Run, err = e.runOfTask(ctx, &t.Task, nil, nil); err != nil {
			return err
		}
	}
	if err := b.StartReady(ctx, *a, first, room); err != nil {
		return err
	}
	e.Log.Info("task started by attempts.auto_start", "attempt", a.ID, "task", t.ID, "executor", a.Executor)
	return nil
}
