package store

import (
	"context"
	"encoding/json"
	"time"

	"deepwork/session"
)

// RemoteState is the state of a remote run.
type RemoteState string

// The values of RemoteState. Callers see the first two as running.
const (
	RemoteWaiting   RemoteState = "waiting"  // for a slot: nothing was sent
	RemoteStarting  RemoteState = "starting" // its request may have been sent
	RemoteRunning   RemoteState = "running"
	RemoteCompleted RemoteState = "completed"
	RemoteFailed    RemoteState = "failed"
	RemoteCancelled RemoteState = "cancelled"
	RemoteTimedOut  RemoteState = "timed_out"
	RemoteUnknown   RemoteState = "unknown" // lost, and its source does not know it
)

// RemoteWork is the kind of work that follows a remote run, whose id is its key. Each run that is not over has such a
// row.
const RemoteWork = "remote"

// A RemoteRun is a workflow that runs, or ran, at another system.
type RemoteRun struct {
	ID                string // a UUID
	Lapsed            bool   // nobody follows it, or has not said so in time; for reads
	Identity          string // of the caller
	Source            string
	WorkflowID        string
	WorkflowName      string
	Async             bool
	Performed         bool // an agent or a person performs its steps there; it needs no slot
	State             RemoteState
	SourceExecutionID *string
	StatusSupported   bool   // false: its state cannot be found out any more
	Trace             string // the traceparent of what it belongs to; "" if nothing was exported when it was made
	StartedAt         time.Time
	Timeout           time.Duration   // 0 means none
	Deadline          *time.Time      // nil means none, or not at the source yet
	EndedAt           *time.Time      // nil until it has ended
	Error             *string         // what went wrong
	Progress          json.RawMessage // of its work, if that has any; else as last saved
	Result            json.RawMessage
}

// Over reports whether the state is final.
func (x *RemoteRun) Over() bool { return x.EndedAt != nil || !x.StatusSupported }

// Limits of stored runs that are over, in number and age.
const (
	RemoteRunsKept   = 1000
	ResultsKept      = 64 << 20 // bytes of all results together
	RemoteRunKeptFor = 24 * time.Hour
)

// RemoteRuns stores remote runs. A run changes by swaps of its state, whichever process makes them: so what one of
// them has stored, another that does not know of it never overwrites. Changes are durable when a method returns,
// except as stated. Each may return the errors of a Board, or the context's.
type RemoteRuns interface {
	// Add stores a new run and, unless it is over, its row of work.
	Add(ctx context.Context, x *RemoteRun, w WorkRow) error
	// Save replaces a run that has a state and has not ended. If it is then over, its row of work is removed. What
	// is stored already may be saved again. ErrWorkTaken: another process has moved or ended the run. Save
	// sometimes forgets runs beyond the limits. A loss of power may lose the end of a synchronous run, which is then
	// unknown.
	Save(ctx context.Context, x *RemoteRun, from RemoteState) error
	// RemoteRun returns a run with its result, whatever its age and identity, or task.ErrNotFound.
	RemoteRun(ctx context.Context, id string) (*RemoteRun, error)
	// Find returns, with results, the run of an identity that has this id or, if none has, those to which
	// their source gave sourceID, newest first.
	Find(ctx context.Context, identity, id, sourceID string) ([]RemoteRun, error)
	// Newest returns an identity's newest runs, without results, at most limit,
	// and how many it has.
	Newest(ctx context.Context, identity string, limit int) (list []RemoteRun, total int, err error)
	// Asking returns the runs that are not over and whose source asks a person something, newest first.
	Asking(ctx context.Context) ([]RemoteRun, error)
	// Inspect finds what this program never writes; n is the number of runs, going of those that are not
	// over.
	Inspect(ctx context.Context) (found []session.Finding, n, going int, err error)
}
