package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"deepwork/session"
)

// ExecutionState is where an execution of a workflow at another system is.
type ExecutionState string

// The values of ExecutionState. Callers see the first two as running.
const (
	ExecutionWaiting   ExecutionState = "waiting"  // for a slot: nothing has been sent
	ExecutionStarting  ExecutionState = "starting" // its request may have been sent
	ExecutionRunning   ExecutionState = "running"
	ExecutionCompleted ExecutionState = "completed"
	ExecutionFailed    ExecutionState = "failed"
	ExecutionCancelled ExecutionState = "cancelled"
	ExecutionTimedOut  ExecutionState = "timed_out"
	ExecutionUnknown   ExecutionState = "unknown" // lost sight of, and its source cannot tell
)

// An Execution is a workflow that runs, or ran, at another system.
type Execution struct {
	ID                string // a UUID
	Owner             string // the server that follows it
	Identity          string // of the caller
	Source            string
	WorkflowID        string
	WorkflowName      string
	Async             bool
	State             ExecutionState
	SourceExecutionID *string
	StatusSupported   bool // false: nothing more will be learned of it
	StartedAt         time.Time
	Timeout           time.Duration   // 0 means none
	Deadline          *time.Time      // nil means none, or not at the source yet
	EndedAt           *time.Time      // nil while it has not ended
	Error             *string         // what went wrong
	Progress          json.RawMessage // as it was at the end
	Result            json.RawMessage
}

// Over reports whether nothing more will be learned of it.
func (x *Execution) Over() bool { return x.EndedAt != nil || !x.StatusSupported }

// The bounds of executions that are over: no more are kept, and none for longer.
const (
	ExecutionsKept   = 1000
	ResultsKept      = 64 << 20 // bytes of the results of all
	ExecutionKeptFor = 24 * time.Hour
)

// What Adopt records of executions that nobody can ask about.
const (
	NeverStarted = "the server ended while the run waited for a slot; nothing was started"
	LostSight    = "the server ended before the source had answered; whether the workflow was carried out is not known"
)

// ErrNotOwner says that another server has taken over what this one wanted to change.
var ErrNotOwner = errors.New("another server has taken it over")

// Executions stores executions of workflows at other systems. What a method writes is
// durable when it returns. Each may return the errors of a Board, or the context's.
type Executions interface {
	// Save makes or replaces an execution, and now and then forgets those that are
	// beyond the bounds. Of a synchronous one the end need not survive a loss of power:
	// it is then unknown. ErrNotOwner: it is stored with another owner.
	Save(ctx context.Context, x *Execution) error
	// Execution returns one with its result, whatever its age and identity, or
	// task.ErrNotFound.
	Execution(ctx context.Context, id string) (*Execution, error)
	// Find returns the execution of an identity that has this id, else those to which
	// their source gave sourceID, the newest first; with their results.
	Find(ctx context.Context, identity, id, sourceID string) ([]Execution, error)
	// Newest returns an identity's newest executions, without results, at most limit,
	// and how many it has.
	Newest(ctx context.Context, identity string, limit int) (list []Execution, total int, err error)
	// Owners returns the owners of executions that are not over, each once.
	Owners(ctx context.Context) ([]string, error)
	// Adopt gives the executions of some owners that are not over to another one, and
	// returns them: what runs goes on; what waited has failed, with the words of
	// NeverStarted; what was starting is unknown, with those of LostSight. Of several
	// callers one gets each.
	Adopt(ctx context.Context, from []string, to string) ([]Execution, error)
	// Inspect looks for what this program never writes; n is how many executions
	// there are, going how many are not over.
	Inspect(ctx context.Context) (found []session.Finding, n, going int, err error)
}
