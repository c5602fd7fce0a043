package store

import (
	"context"
	"encoding/json"
	"errors"
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

// A RemoteRun is a workflow that runs, or ran, at another system.
type RemoteRun struct {
	ID                string // a UUID
	Owner             string // the process that follows it
	Lapsed            bool   // its owner has not renewed it in time, so any process may take it over; Save ignores it
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
	CancelAsked       *time.Time      // when its owner was asked to cancel it; nil means never; Save ignores it
	EndedAt           *time.Time      // nil until it has ended
	Error             *string         // what went wrong
	Progress          json.RawMessage // as last stored by its owner
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

// The errors that TakeUp records for runs that cannot be queried.
const (
	NeverStarted = "the server ended while the execution waited for a slot; nothing was started"
	LostSight    = "the server ended before the source had answered; whether the workflow was carried out is not known"
)

// ErrNotOwner reports that another server has taken over the run.
var ErrNotOwner = errors.New("another server has taken it over")

// RemoteRunLife is how long a run belongs to its owner after each Save and Renew. Only tests and fault
// simulations change it, in their own binary, before they open the first engine.
var RemoteRunLife = 30 * time.Second

// RemoteRuns stores remote runs. A run that is not over has an owner, the process that follows it, for a time
// by the database's clock. The owner renews that time. Only when it is over may any process take over the
// run; the owner never changes otherwise. Changes are durable when a method returns, except as stated. Each
// may return the errors of a Board, or the context's.
type RemoteRuns interface {
	// Save creates or replaces a run, which belongs to its owner for life from now on, and sometimes forgets
	// runs beyond the limits. A loss of power may lose the end of a synchronous run, which is then unknown.
	// ErrNotOwner: it is stored with another owner.
	Save(ctx context.Context, x *RemoteRun, life time.Duration) error
	// Renew makes the runs that an owner follows its own for life from now on, and stores their progress,
	// JSON, where that is not nil. It returns those that are still its own and not over. A loss of power may
	// undo it.
	Renew(ctx context.Context, owner string, life time.Duration, following map[string]json.RawMessage) (held []string,
		err error)
	// Release ends the time of all runs of an owner that are not over: other processes may take them over at
	// once. A loss of power may undo it.
	Release(ctx context.Context, owner string) error
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
	// Due returns how long it takes until TakeUp finds something, if nobody renews it; 0 or less means now.
	// It reports false if there is nothing to wait for.
	Due(ctx context.Context, following []string) (in time.Duration, found bool, err error)
	// TakeUp makes a process the owner, for life, of the runs that are not over and whose time is over,
	// except those that it follows, and returns them. Running ones continue; waiting ones have failed, with
	// the error NeverStarted; starting ones are unknown, with LostSight. Each run goes to only one of several
	// concurrent callers. Runs whose time is far ahead, because the clock was set back, have life left from
	// now on.
	TakeUp(ctx context.Context, owner string, life time.Duration, following []string) ([]RemoteRun, error)
	// AskCancel records that the owner of a run, whichever process that is, should cancel it. It changes
	// nothing if the run is over.
	AskCancel(ctx context.Context, id string) error
	// Asked returns the runs of an owner that are not over and that it was asked to cancel.
	Asked(ctx context.Context, owner string) ([]string, error)
	// Watch calls look at once, and within a second whenever another process may have changed a run, until
	// look is done or fails, or ctx ends. It creates no database, but may call look before there is one.
	Watch(ctx context.Context, look func() (done bool, err error)) error
	// Inspect finds what this program never writes; n is the number of runs, going of those that are not
	// over.
	Inspect(ctx context.Context) (found []session.Finding, n, going int, err error)
}
