package transport

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
)

// enter makes this process one of those that share a store, as soon as that answers, so that it is ready
// before the first call and takes over from processes that are gone.
func enter(ctx context.Context, members store.Members) {
	for members.Enter(ctx) != nil && wait.For(ctx, time.Second) == nil {
	}
}

// Workspace returns the attempt in whose workspace a program is, whose folder has this state, or nil. Of the
// options only the store counts. In a workspace the config of the
// attempt's project applies, never what a branch says, and its database has the sessions. What only the
// environment says is checked now, since servers of other projects have the same; what is not known then,
// because the database cannot be used, is decided by the calls.
func Workspace(ctx context.Context, o Options, folder *state.Folder, getenv func(string) string, logger *slog.Logger) (*board.Workspace, error) {
	w := board.FindWorkspace(folder.Root, getenv)
	if w == nil || w.ByPath {
		return w, nil
	}
	project, _ := w.State() // Confirm returns the error
	own, err := config.Open(project.Root).Own(ctx)
	if err != nil {
		own = &config.User{}
	}
	choice, err := backend.Choose(o.Store, o.Project, own)
	if err != nil {
		return nil, err
	}
	stores, err := backend.Open(ctx, project, choice, true, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, confirmFor)
	defer cancel()
	is, err := w.Confirm(bounded, stores.Database)
	if err != nil {
		logger.Error("it is not known whether this server is in the workspace of an attempt: calls are refused until it is", "attempt", w.Attempt, "error", err)
	} else if !is {
		w = nil
	}
	if err := stores.Close(ctx); err != nil {
		logger.Warn("closing the store in which an attempt was looked up", "error", err)
	}
	return w, nil
}

// confirmFor is how long the start waits for the database that says whether the server is in a workspace.
const confirmFor = 2 * time.Second

// confirm refuses calls in the workspace of an attempt until the database has confirmed it.
func confirm(ctx context.Context, w *board.Workspace, db store.Database) error {
	if w == nil {
		return nil
	}
	is, err := w.Confirm(ctx, db)
	if err == nil && !is {
		err = session.NotNow(codes.RestartNeeded, "This server was started while the database of attempt %s could not be used, and has nothing to do with that attempt. Tell the user: the server must be restarted.", w.Attempt)
	}
	return err
}
