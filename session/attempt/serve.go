package attempt

import (
	"context"
	"errors"
	"slices"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/git"
	"deepwork/session/store"
)

// Serve makes a passive engine start and take over executions until it is closed, like a server. It must be
// called at most once.
func (e *Engine) Serve() {
	if err := git.Check(e.ctx); err != nil {
		e.Log.Warn("the task board cannot work", "error", err)
	}

	e.workers.Add(1)
	e.background.Go(e.serve)
	if e.Shared != nil {
		e.background.Go(e.followBoard)
		e.serveRemovals()
	}
}

// ServeOnly is Serve for a process that ends with one attempt. It leads no other run, since the agents of a
// run end with the process that leads it; agents of other attempts run on without it. The channel receives
// whenever the process no longer leads an execution.
func (e *Engine) ServeOnly(attempt string) (finished <-chan struct{}) {
	e.only = attempt
	e.Serve()
	return e.finished
}

// Settle records the end of executions whose agents ended after their server did. It starts nothing, and
// ignores agents that run. It is for engines that do not serve, and blocks for the board.
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
		if err != nil && (x.State == task.Starting || !errors.Is(err, executors.ErrNoRun)) {
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

	for len(e.ownExecutions()) > 0 {
		select {
		case <-e.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// adopt transfers an execution of a dead server to this engine. It reports false if another server was
// faster.
func (e *Engine) adopt(ctx context.Context, b store.Board, x *task.Execution) (bool, error) {
	if err := e.Members.Enter(ctx); err != nil { // others must see that the new owner is alive
		return false, err
	}

	taken, err := b.Adopt(ctx, x.ID, x.Owner, e.Members.ID())
	if taken {
		e.Log.Info("attempt taken over from a server that is gone", "attempt", x.AttemptID, "execution", x.ID,
			"server", x.Owner)
		x.Owner = e.Members.ID()
	}
	return taken, err
}

// serve hands out slots, takes over from dead servers, and does what other servers ask of this one. It does
// so when it is woken, and at every poll for changes by other servers. It has its own goroutine until Close
// begins.
func (e *Engine) serve() {
	defer e.workers.Done()
	ctx := e.serving
	ticker := time.NewTicker(e.poll())
	defer ticker.Stop()

	logged := ""
	for {
		err := e.look(ctx)
		if session.CodeOf(err) == codes.ConfigInvalid {
			err = nil // config errors are logged elsewhere
		}

		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != "" && why != logged && ctx.Err() == nil {
			e.Log.Error("the task board cannot be served; trying again", "error", err)
		}
		logged = why

		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-ticker.C:
		}
	}
}

// poll returns how often the board is checked without being woken. In a store that several machines share
// that is seldom, since each look costs all of them, and followBoard wakes the server.
func (e *Engine) poll() time.Duration {
	if e.Shared != nil {
		return sharedPolls * e.o.Poll
	}
	return e.o.Poll
}

// sharedPolls turns the default of Options.Poll into 3 seconds.
const sharedPolls = 6

// followBoard wakes the server after changes of the board by any process, at most every Options.Poll, and
// removes what this place has of deleted tasks, until Close begins.
func (e *Engine) followBoard() {
	position := ""
	for wait.For(e.serving, e.o.Poll) == nil {
		news, err := e.changes.Since(e.serving, position)
		if err == nil {
			position = news.Next
			if news.Reset || slices.ContainsFunc(news.Changes, func(c store.Change) bool {
				return c.Kind == store.TaskChanged || c.Kind == store.AttemptChanged
			}) {
				e.wakeUp()
			}
			if slices.ContainsFunc(news.Changes, func(c store.Change) bool { return c.Kind == store.TaskDeleted }) {
				e.removeUnused(e.serving)
			}
			err = e.changes.Wait(e.serving, position)
		}
		if err != nil {
			_ = wait.For(e.serving, e.poll()) // the store cannot be reached
		}
	}
}

// look does all work that is due.
func (e *Engine) look(ctx context.Context) error {
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

	cfg, err := e.Config(ctx)
	if err != nil {
		return err // work that needs the config waits until it can be read
	}
	if e.Shared != nil {
		if err := e.SyncProjects(ctx, b, cfg); err != nil {
			return err
		}
	}

	if err := e.giveUp(ctx, b, cfg.Attempts.MachineLostAfter); err != nil {
		return err
	}

	if !e.recovered {
		e.recovered = true
		e.workers.Add(1)
		e.background.Go(func() {
			defer e.workers.Done()
			for !e.recover(ctx, b, cfg) && wait.For(ctx, time.Second) == nil {
			}
		})
	}

	// Waiting executions are assigned to this server as long as the board has room.
	for ctx.Err() == nil {
		x, err := b.ClaimNext(ctx, e.Members.ID(), e.slots(cfg), e.claim(ctx, b, cfg), board.Limits(cfg))
		if err != nil || x == nil {
			return err
		}
		e.lead(*x)
	}
	return nil
}

// takeUp takes over the executions of dead servers, leads those of this server that it does not lead yet, and
// stops those that it was asked to stop.
func (e *Engine) takeUp(ctx context.Context, b store.Board) error {
	led := e.ownExecutions()
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
		if x.Lead && e.only != "" && x.AttemptID != e.only && x.Owner != e.Members.ID() &&
			(e.only != noRun || x.StopAsked == nil) {
			continue // any process can record that a run was stopped
		}

		if x.Owner == e.Members.ID() {
			if slices.ContainsFunc(led, func(r *execution) bool { return r.row.ID == x.ID }) {
				if x.StopAsked != nil {
					e.stopHere(x.ID)
				}
				continue // it may have ended since the list was read; then it must not be led again
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
