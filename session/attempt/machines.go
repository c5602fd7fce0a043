package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/work"
)

// In stores that several machines share, an attempt has no place until a server whose machine has its
// repositories and its executor claims it. From then on its worktrees and its agent are there: only servers
// of that place take it over or run its follow-ups. Servers elsewhere put work for that place, or set a column
// of the attempt, to ask those servers for something, and read the output and the changes that they save.

// claim returns what this server may run; nil means everything.
func (e *Engine) claim(ctx context.Context, b store.Board, cfg *config.Config) *task.Claim {
	switch {
	case e.Shared == nil && e.only == "":
		return nil
	case e.Shared == nil:
		return &task.Claim{Run: e.only}
	}
	return &task.Claim{
		Place:     e.Here,
		Executors: e.ableTo(ctx, cfg),
		Repos:     slices.Sorted(maps.Keys(b.Synced())),
		Run:       e.only,
	}
}

// ableTo returns the names of the executors whose programs are installed here and approved.
func (e *Engine) ableTo(ctx context.Context, cfg *config.Config) (names []string) {
	for _, name := range executors.AllNames(cfg, e.registered()) {
		if len(e.o.Only) > 0 && !slices.Contains(e.o.Only, name) {
			continue
		}
		if e.executor(name).Check(ctx, executors.Work{}) == nil {
			names = append(names, name)
		}
	}
	return names
}

// slots returns how many executions may run at once.
func (e *Engine) slots(cfg *config.Config) int {
	if e.o.Max > 0 {
		return e.o.Max
	}
	return cfg.Attempts.MaxConcurrent
}

// choosePaths chooses the paths of an attempt that this machine has claimed. If they are already chosen, it
// checks that the rows contain only paths that this machine's config allows.
func (e *Engine) choosePaths(ctx context.Context, b store.Board, cfg *config.Config, a *task.Attempt) error {
	if err := e.SyncProjects(ctx, b, cfg); err != nil {
		return err
	}

	chosen := a.Workspace != ""
	for i := range a.Repos {
		r := &a.Repos[i]
		here := b.Synced()[r.RepoID]
		if here == "" || chosen && here != r.RepoPath {
			return fmt.Errorf("the config of this machine has the path %q of the repository %s, and the store %q; "+
				"start a new attempt", here, r.RepoName, r.RepoPath)
		}
		r.RepoPath = here
	}

	if chosen {
		return nil
	}

	setWorkspace(ctx, a, e.newFolder(cfg, a))
	return b.SetPaths(ctx, a)
}

// dropEnded stops this server's runs whose executions have ended on the board: another machine gave them up
// while this one was cut off. led are those that it led before open was read. An execution that waits again
// is ignored, since stopping its run would end it.
func (e *Engine) dropEnded(ctx context.Context, b store.Board, led []*execution, open []task.Execution) {
	for _, r := range led {
		if slices.ContainsFunc(open, func(x task.Execution) bool { return x.ID == r.row.ID }) {
			continue
		}
		if x, err := b.Execution(ctx, r.row.ID); errors.Is(err, task.ErrNotFound) || err == nil && x.State.Ended() {
			r.stop()
		}
	}
}

// ownExecutions returns the runs of this server.
func (e *Engine) ownExecutions() []*execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.leading))
}

// settleTime is how long a newly started server gives those of other machines to reach the database again.
const settleTime = 20 * time.Second

// giveUp records the end of executions at places that have been gone for too long. Their agents may still
// run: a server there ends them before it runs another one.
func (e *Engine) giveUp(ctx context.Context, b store.Board, after time.Duration) error {
	pause := min(after/20, 5*time.Second)
	if e.lastGiveUp.IsZero() { // the database may have been unreachable for everybody
		e.lastGiveUp = time.Now().Add(min(after/20, settleTime) - pause)
	}
	if e.Shared == nil || time.Since(e.lastGiveUp) < pause {
		return nil
	}
	e.lastGiveUp = time.Now()
	open, err := b.OpenElsewhere(ctx, e.Here)
	if err != nil {
		return err
	}

	gone := map[task.Place]time.Duration{}
	for _, x := range open {
		if _, known := gone[x.Place]; !known {
			if gone[x.Place], err = e.Shared.GoneFor(ctx, x.Place); err != nil {
				return err
			}
		}
		if gone[x.Place] < after {
			continue
		}

		a, err := b.Attempt(ctx, x.AttemptID)
		if err == nil {
			why := fmt.Sprintf("The machine %s was gone for more than %v. %s; its agent may still run until a server "+
				"of the project is started there.",
				x.Place.Describe(), after, workOf(a))
			end := task.Ending{State: task.Interrupted, Error: &why}
			if err = (&execution{engine: e, row: x}).tellDropped(ctx, b, &end, time.Time{}); err == nil {
				_, _, err = b.EndExecution(ctx, x.ID, end)
			}
		}
		if err == nil {
			e.exportEnd(ctx, b, &x)
		}

		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}

		e.Log.Warn("attempt given up, since its machine is gone", "attempt", x.AttemptID, "machine", x.Place.Describe(),
			session.MS("gone_for_ms", gone[x.Place]))
	}

	return nil
}

// endGivenUpAgents ends the agents of an attempt's earlier executions, which run only if another machine has
// given them up.
func (e *Engine) endGivenUpAgents(ctx context.Context, b store.Board, x task.Execution) error {
	if e.Shared == nil {
		return nil
	}

	all, err := b.Executions(ctx, x.AttemptID)
	if err == nil {
		var steps []task.Execution // of a run
		steps, err = b.Steps(ctx, x.AttemptID)
		all = append(all, steps...)
	}
	for _, earlier := range all {
		if err != nil || earlier.ID == x.ID {
			continue
		}
		proc, found := e.executor(earlier.Executor).Find(ctx, earlier.LogID, earlier.ID)
		if found == nil {
			_, err = proc.Stop(ctx, e.o.Grace)
		} else if !errors.Is(found, executors.ErrNoRun) {
			err = found
		}
	}

	return err
}

// endAllGivenUp ends, after a start, the agents of this place that another machine has given up.
func (e *Engine) endAllGivenUp(ctx context.Context, b store.Board) error {
	if e.Shared == nil {
		return nil
	}

	all, err := b.AllAttempts(ctx)
	for _, a := range all {
		if !a.Is(e.Here) || a.State != task.Interrupted {
			continue
		}
		err = errors.Join(err, e.endGivenUpAgents(ctx, b, task.Execution{AttemptID: a.ID}))
	}

	return err
}

// workOf says where on its machine the work of an attempt is.
func workOf(a *task.Attempt) string {
	if a.Workspace == "" {
		return "It has no workspace there yet"
	}
	return fmt.Sprintf("The work of the attempt is there, in %s, on the branch %s", a.Workspace, a.Branch)
}

// unreachable returns the error of a call if no server of the attempt's place is connected.
func (e *Engine) unreachable(ctx context.Context, a *task.Attempt) error {
	gone, err := e.Shared.GoneFor(ctx, a.Place)
	if err != nil || gone == 0 {
		return err
	}
	return session.NotNow(codes.MachineGone,
		"The attempt %s is on the machine %s, where no server of the project has run for %v. Start one there and "+
			"try again. %s.",
		a.ID, a.Place.Describe(), gone.Round(time.Second), workOf(a)).With("attempt_id", a.ID).With("machine",
		a.MachineName)
}

// A removal says how the removal of an attempt's worktrees for another machine went, as JSON on the board.
type removal struct {
	Rescued   []Rescue       `json:"rescued"`
	Discarded []string       `json:"-"` // with DeleteArgs.Force, which only this machine knows
	Notice    string         `json:"notice,omitempty"`
	Refusal   *session.Error `json:"refusal"` // nil if they are gone
}

// removePause is the time between two looks of a caller at how a removal went, and removeAnswer is how long
// it looks.
const (
	removePause  = 100 * time.Millisecond
	removeAnswer = 5 * time.Second
)

// serveRemovals makes this server remove what other machines ask this place to remove.
func (e *Engine) serveRemovals() {
	if e.o.Work == nil {
		e.ownWork = work.New(e.ctx, work.Options{Stores: e.Shared, Logger: e.Log})
		e.ownWork.Start()
		e.o.Work = e.ownWork
	}
	e.o.Work.Register(work.Kind{Name: store.RemovalWork, Place: e.Here.Key(), Do: e.removeFor})
}

// leaveRemovals ends serveRemovals. It returns what did not end before ctx did.
func (e *Engine) leaveRemovals(ctx context.Context) (stuck []string) {
	if e.o.Work != nil {
		stuck = e.o.Work.Leave(ctx, store.RemovalWork)
	}
	if e.ownWork != nil {
		stuck = append(stuck, e.ownWork.Close(ctx)...)
	}
	return stuck
}

// removeFor removes the worktrees of an attempt for another machine.
func (e *Engine) removeFor(ctx context.Context, t *work.Task) (o store.Outcome, err error) {
	b, err := e.Store(ctx)
	if err != nil {
		return o, err
	}
	done := removal{}
	err = e.endGivenUpAgents(ctx, b, task.Execution{AttemptID: t.Key})
	if err == nil {
		done, err = e.removeWorktrees(ctx, b, t.Key, false)
	}

	refusal, refused := errors.AsType[*session.Error](err)
	switch {
	case err == nil:
		if logs, err := logsOf(ctx, b, t.Key); err == nil {
			e.removeLogs(logs...)
		}
	case ctx.Err() != nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, task.ErrRunning):
		return o, err
	case refused:
		done.Refusal = refusal
	default:
		done.Refusal = session.NotNow(codes.NotRemoved,
			"The worktrees of attempt %s could not be removed: %v. Correct that and try again; uncommitted work "+
				"is kept.", t.Key, err).With("attempt_id", t.Key)
	}
	o.Result, err = json.Marshal(done)
	return o, err
}

// removeElsewhere asks an attempt's machine to remove its worktrees. left means that they stay, since that
// machine is gone.
func (e *Engine) removeElsewhere(
	ctx context.Context, b board.View, a *task.Attempt,
) (done removal, left string, err error) {
	gone, err := e.Shared.GoneFor(ctx, a.Place)
	if err != nil {
		return done, "", board.Fault("looking for the machine of the attempt", err)
	}
	if gone > 0 && a.Workspace == "" {
		return done, "", nil
	}
	if gone > 0 {
		return done,
			fmt.Sprintf("The worktrees of attempt %s are left on the machine %s, in %s: no server of the project has "+
				"run there for %v. The next one removes them, and keeps first what is not committed.",
				a.ID, a.Place.Describe(), a.Workspace, gone.Round(time.Second)), nil
	}
	err = b.AskRemoval(ctx, a.ID)
	for began := time.Now(); err == nil && time.Since(began) < removeAnswer; err = wait.For(ctx, removePause) {
		var result json.RawMessage
		if result, err = b.Removal(ctx, a.ID); err != nil {
			break
		}
		if result == nil {
			continue
		}
		if err := json.Unmarshal(result, &done); err != nil {
			return done, "", board.Fault("reading how the removal of worktrees went", err)
		}
		if done.Refusal != nil {
			return removal{}, "", done.Refusal
		}
		return done, "", nil
	}

	switch {
	case errors.Is(err, task.ErrNotFound):
		return done, "", nil // another call was faster
	case err != nil:
		return done, "", board.Fault("removing the worktrees of the attempt", err)
	}
	return done, "", session.NotNow(codes.NotRemoved,
		"The worktrees of attempt %s are on the machine %s, which was asked to remove them and has not done so yet. "+
			"Try again; work that was not committed is kept.", a.ID, a.Place.Describe()).With("attempt_id",
		a.ID).Wait(board.RetryAfter)
}
