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

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
)

// Relocate corrects the paths on the board and in the journals after the project was moved from old to the
// place of f, which already has its state. It blocks for the disk, and may be called again after an error. No
// server may run.
func Relocate(ctx context.Context, f *state.Folder, old string) error {
	to := func(path string) string {
		if rel, err := filepath.Rel(old, path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(f.Root, rel)
		}
		return path
	}
	e := newEngine(Options{Options: board.Options{Root: f.Root, State: f}})
	db := backend.Files(f)
	defer db.Close() // changes are on disk when their calls return
	dirs := []string{f.Worktrees()}
	if db.Exists() {
		more, err := db.Board().WorktreeFolders(ctx, task.Place{})
		if err != nil {
			return err
		}
		dirs = append(dirs, more...)
	}
	for _, from := range dirs {
		dir := to(from)
		if dir != from { // the path is part of the name of the folder of journals
			err := (durable.Disk{}).Move(e.journalOf(from), e.journalOf(dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := e.keeper(dir).Relocate(ctx, to); err != nil {
			return err
		}
	}
	if !db.Exists() {
		return nil
	}
	return db.Relocate(ctx, to)
}

// recover finishes what this place has left undone. It reports false if the store was unreachable meanwhile;
// then the caller calls it again.
func (e *Engine) recover(ctx context.Context, b store.Board, cfg *config.Config) bool {
	agents, worktrees := e.endAllGivenUp(ctx, b), e.recoverWorktrees(ctx, b, cfg)
	if errors.Is(errors.Join(agents, worktrees), store.ErrUnavailable) {
		return false
	}
	if agents != nil && ctx.Err() == nil {
		e.Log.Error("cannot end the agents of attempts that another machine has given up", "error", agents)
	}
	if worktrees != nil && ctx.Err() == nil {
		e.Log.Error("cannot look for what crashes left of worktrees", "error", worktrees)
	}

	e.exportEnded(ctx, b)
	return true
}

// removeUnused removes the worktrees on this machine of deleted tasks, and those of attempts that ended before
// their workspace was recorded. Those of a deleted task are left if this place seemed to be gone; otherwise the
// call that deletes it has them removed.
func (e *Engine) removeUnused(ctx context.Context) {
	for {
		b, err := e.Store(ctx)
		var cfg *config.Config
		if err == nil {
			cfg, err = e.Config(ctx)
		}
		if err == nil {
			err = e.recoverWorktrees(ctx, b, cfg)
		}

		switch {
		case errors.Is(err, store.ErrUnavailable) && wait.For(ctx, time.Second) == nil:
			continue
		case err != nil && ctx.Err() == nil:
			e.Log.Error("cannot look for worktrees that nobody uses", "error", err)
		}

		return
	}
}

// recoverWorktrees finishes or undoes work on worktrees that a crash interrupted, in all folders that the
// config names or has named.
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

// Claim makes the worktrees on this machine belong to these stores: servers ignore worktrees of other boards,
// and a copy may have brought the attempts from one. It blocks for the disk, and may be called again after an
// error.
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

// keepsWorktrees reports whether the worktrees of an attempt must stay. They also stay on an error, which is
// the board's.
func (e *Engine) keepsWorktrees(ctx context.Context, b store.Board, attempt string) (bool, error) {
	a, err := b.Attempt(ctx, attempt)
	if err == nil && !a.State.Open() && !a.Made() {
		return false, nil // it failed before it had a workspace, and will never get one
	}

	// Worktrees stay unless the attempt is known to be gone and no agent runs in them: the board may have
	// been moved, or replaced by an older copy.
	if !errors.Is(err, task.ErrNotFound) {
		return true, err
	}

	alive, err := e.local.Alive(attempt)
	return alive || err != nil, nil
}
