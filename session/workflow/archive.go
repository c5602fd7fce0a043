package workflow

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// An Archive reads and tends the sessions on disk from outside a server: it is
// what the command line's `sessions` uses, beside servers that run.
type Archive struct{}

// OpenArchive opens the sessions of the project at root.
func OpenArchive(root string, logger *slog.Logger) (*Archive, error) { panic("not yet") }

// Close releases the archive.
func (a *Archive) Close() error { panic("not yet") }

// A SessionInfo is a session in a list.
type SessionInfo struct {
	SessionID    string
	JobName      string
	WorkflowName string
	Goal         string
	Status       string // active, completed, aborted; damaged where Err is set
	Step         string // the current step's id
	Parent       string // the parent's session id, or ""
	Identity     string // who started it
	StartedAt    time.Time
	UpdatedAt    time.Time // of the last transition
	Owner        string    // the server that owns it, or ""
	OwnerAlive   bool
	Err          error // why it cannot be read
}

// List returns every session, the one that moved last first.
func (a *Archive) List(ctx context.Context) ([]SessionInfo, error) { panic("not yet") }

// Show returns one session's whole record, as JSON of the file's own shape.
func (a *Archive) Show(ctx context.Context, id string) (json.RawMessage, error) { panic("not yet") }

// Abort ends an active session; it is refused while a living server owns it.
func (a *Archive) Abort(ctx context.Context, id, reason string) error { panic("not yet") }

// Prune removes the files of sessions that ended before the cutoff, and of
// definitions that no session needs any more. It returns the sessions' ids.
func (a *Archive) Prune(ctx context.Context, cutoff time.Time) ([]string, error) { panic("not yet") }

// ActiveIn lists the active sessions that run a job, for `validate --watch`.
func (a *Archive) ActiveIn(ctx context.Context, jobName string) ([]SessionInfo, error) {
	panic("not yet")
}
