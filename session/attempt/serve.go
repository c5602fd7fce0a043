package attempt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/git"
	"deepwork/session/state"
	"deepwork/session/store"
)

// Serve makes a passive engine one that starts and takes over executions until it is closed, as a
// server does. It must be called at most once.
func (e *Engine) Serve() {
	if err := git.Check(e.ctx); err != nil {
		e.Log.Warn("the task board cannot work", "error", err)
	}
	e.makers.Add(1)
	e.beside.Go(e.serve)
	if e.Shared != nil {
		e.beside.Go(e.followBoard)
	}
}

// ServeOnly is Serve for a process that ends with one attempt: it leads no run but that, since the agents of
// a run end with the process that leads it. Agents of other attempts go on without it. The channel receives
// whenever the process no longer leads an execution.
func (e *Engine) ServeOnly(attempt string) (finished <-chan struct{}) {
	e.only = attempt
	e.Serve()
	return e.finished
}

// Settle records the end of executions whose agents ended after their server did. Agents that run are
// left alone, and nothing is started. It is for engines that do not serve, and blocks for the board.
func (e *Engine) Settle(ctx context.Context) error {
	if !e.Database.Exists() {
		return nil
	}
	b, err := e.Store(ctx)
	if err != nil {
		return err
	}
	open, err := b.OpenExecutions(ctx)
	if err != nil {
		return err
	}
	alive := store.Census(e.Members)
	for _, x := range open {
		if x.Lead || x.Elsewhere(e.Here) || alive(x.Owner) {
			continue
		}
		proc, err := e.executor(x.Executor).Find(ctx, x.LogID, x.ID)
		if err == nil && !proc.Ended() {
			continue
		}
		if err != nil && (x.State == task.Starting || !errors.Is(err, ErrNoRun)) {
			continue // a server starts the agent, or finds out
		}
		taken, err := e.adopt(ctx, b, &x)
		if err != nil {
			return err
		}
		if taken {
			e.lead(x)
		}
	}
	for len(e.led()) > 0 {
		select {
		case <-e.kicks:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// adopt makes an execution of a server that is gone one of this engine. It reports false if another
// server was faster.
func (e *Engine) adopt(ctx context.Context, b store.Board, x *task.Execution) (bool, error) {
	if err := e.Members.Enter(ctx); err != nil { // others must see that the new owner is alive
		return false, err
	}
	taken, err := b.Adopt(ctx, x.ID, x.Owner, e.Members.ID())
	if taken {
		e.Log.Info("attempt taken over from a server that is gone", "attempt", x.AttemptID, "execution", x.ID, "server", x.Owner)
		x.Owner = e.Members.ID()
	}
	return taken, err
}

// serve hands out slots, takes over from dead servers, and does what other servers ask of this one:
// after each kick, and every poll for changes by other servers. It runs on its own goroutine until Close begins.
func (e *Engine) serve() {
	defer e.makers.Done()
	ctx := e.serving
	ticker := time.NewTicker(e.poll())
	defer ticker.Stop()
	recovered, said := false, error(nil)
	for {
		err := e.look(ctx, &recovered)
		if session.CodeOf(err) == codes.ConfigInvalid {
			err = nil // the config's faults are logged elsewhere
		}
		if err != nil && ctx.Err() == nil && (said == nil || err.Error() != said.Error()) { // once
			e.Log.Error("the task board cannot be served; trying again", "error", err)
		}
		said = err
		select {
		case <-ctx.Done():
			return
		case <-e.kicks:
		case <-ticker.C:
		}
	}
}

// poll returns how often the board is checked without a kick: seldom in a store that several machines share, where
// each look costs all of them, and followBoard kicks.
func (e *Engine) poll() time.Duration {
	if e.Shared != nil {
		return sharedPolls * e.o.Poll
	}
	return e.o.Poll
}

// sharedPolls makes 3 seconds of the default of Options.Poll.
const sharedPolls = 6

// followBoard kicks after changes of the board by any process, every Options.Poll at most, until Close begins.
func (e *Engine) followBoard() {
	position := ""
	for wait.For(e.serving, e.o.Poll) == nil {
		news, err := e.changes.Since(e.serving, position)
		if err == nil {
			position = news.Next
			if news.Reset || slices.ContainsFunc(news.Changes, func(c store.Change) bool { return c.Kind == store.TaskChanged || c.Kind == store.AttemptChanged }) {
				e.kick()
			}
			err = e.changes.Wait(e.serving, position)
		}
		if err != nil {
			_ = wait.For(e.serving, e.poll()) // the store is away
		}
	}
}

// look does all work that is due.
func (e *Engine) look(ctx context.Context, recovered *bool) error {
	if !e.Database.Exists() {
		return nil
	}
	b, err := e.Store(ctx)
	if err != nil {
		return err
	}
	// Other servers must see that the owner of executions is alive.
	if err := e.Members.Enter(ctx); err != nil {
		return err
	}
	if err := e.takeUp(ctx, b); err != nil {
		return err
	}
	if err := e.removeAsked(ctx, b); err != nil {
		return err
	}
	cfg, err := e.Config(ctx)
	if err != nil {
		return err // work that needs it waits until it can be read
	}
	if e.Shared != nil {
		if err := e.SyncProjects(ctx, b, cfg); err != nil {
			return err
		}
	}
	if err := e.giveUp(ctx, b, cfg.Attempts.MachineLostAfter); err != nil {
		return err
	}
	if !*recovered {
		*recovered = true
		e.makers.Add(1)
		e.beside.Go(func() {
			defer e.makers.Done()
			for !e.recover(ctx, b, cfg) && wait.For(ctx, time.Second) == nil {
			}
		})
	}
	// Waiting executions are assigned to this server as far as the board has room.
	for ctx.Err() == nil {
		x, err := b.ClaimNext(ctx, e.Members.ID(), e.slots(cfg), e.claim(ctx, b, cfg), board.Limits(cfg))
		if err != nil || x == nil {
			return err
		}
		e.lead(*x)
	}
	return nil
}

// takeUp takes over the executions of dead servers, leads those of this one that it does not lead
// yet, and stops those that it was asked to stop.
func (e *Engine) takeUp(ctx context.Context, b store.Board) error {
	led := e.led()
	open, err := b.OpenExecutions(ctx)
	if err != nil {
		return err
	}
	e.dropEnded(ctx, b, led, open)
	alive := store.Census(e.Members)
	for _, x := range open {
		if x.Elsewhere(e.Here) {
			continue // only its own machine can
		}
		if x.Lead && e.only != "" && x.AttemptID != e.only && x.Owner != e.Members.ID() {
			continue
		}
		if x.Owner == e.Members.ID() {
			if slices.ContainsFunc(led, func(r *run) bool { return r.exec.ID == x.ID }) {
				if x.StopAsked != nil {
					e.stopHere(x.ID)
				}
				continue // it may have ended since the list was read, and must not be led again
			}
		} else {
			if alive(x.Owner) {
				continue
			}
			taken, err := e.adopt(ctx, b, &x)
			if err != nil {
				return err
			}
			if !taken {
				continue
			}
		}
		e.lead(x)
	}
	return nil
}

// recover finishes what this place has left undone. It reports false if the store was away meanwhile:
// then it is to be called again.
func (e *Engine) recover(ctx context.Context, b store.Board, cfg *config.Config) bool {
	agents, worktrees := e.endGivenUp(ctx, b), e.recoverWorktrees(ctx, b, cfg)
	if errors.Is(errors.Join(agents, worktrees), store.ErrUnavailable) {
		return false
	}
	if agents != nil && ctx.Err() == nil {
		e.Log.Error("cannot end the agents of attempts that another machine has given up", "error", agents)
	}
	if worktrees != nil && ctx.Err() == nil {
		e.Log.Error("cannot look for what crashes left of worktrees", "error", worktrees)
	}
	return true
}

// recoverWorktrees finishes or undoes the work on worktrees that crashes interrupted, in all
// folders that the config names or has named.
func (e *Engine) recoverWorktrees(ctx context.Context, b store.Board, cfg *config.Config) error {
	dirs, err := b.WorktreeFolders(ctx, e.Here)
	if now := e.worktreesDir(cfg); !slices.Contains(dirs, now) {
		dirs = append(dirs, now)
	}
	err = errors.Join(err, e.claimWorktrees(ctx, b, dirs))
	for _, dir := range dirs {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) || !filepath.IsAbs(dir) {
			continue
		}
		did, fault := e.keeper(dir).Recover(ctx, func(attempt string) bool {
			keeps, unknown := e.keepsWorktrees(ctx, b, attempt)
			err = errors.Join(err, unknown)
			return keeps
		})
		for _, what := range did {
			e.Log.Info("recovered after a crash", "recovered", what)
		}
		if fault != nil {
			err = errors.Join(err, fmt.Errorf("in %s: %w", dir, fault))
		}
	}
	return err
}

// Claim makes the worktrees of the attempts of stores on this machine theirs: servers leave those of
// another board alone, from which a copy may have brought the attempts. It blocks for the disk, and may
// be called again after an error.
func Claim(ctx context.Context, f *state.Folder, stores *store.Stores) error {
	e := newEngine(Options{Options: board.Options{Root: f.Root, State: f, Stores: stores}})
	b := e.Database.Board()
	dirs, err := b.WorktreeFolders(ctx, e.Here)
	if err == nil {
		err = e.claimWorktrees(ctx, b, dirs)
	}
	return err
}

func (e *Engine) claimWorktrees(ctx context.Context, b store.Board, dirs []string) (err error) {
	for _, dir := range dirs {
		err = errors.Join(err, e.keeper(dir).Claim(ctx, func(attempt string) bool {
			a, unknown := b.Attempt(ctx, attempt)
			if unknown != nil && !errors.Is(unknown, task.ErrNotFound) {
				err = errors.Join(err, unknown)
			}
			return unknown == nil && a.Is(e.Here)
		}))
	}
	return err
}

// keepsWorktrees reports whether the worktrees of an attempt must stay. The error is one of the board,
// with which they do.
func (e *Engine) keepsWorktrees(ctx context.Context, b store.Board, attempt string) (bool, error) {
	a, err := b.Attempt(ctx, attempt)
	if err == nil && !a.State.Open() && !a.Made() {
		return false, nil // it failed before it had a workspace, and will never have one
	}
	// Worktrees stay unless the attempt is known to be gone and no agent runs there: the board may
	// have been moved, or replaced by an older copy.
	if !errors.Is(err, task.ErrNotFound) {
		return true, err
	}
	alive, err := e.local.Alive(attempt)
	return alive || err != nil, nil
}
