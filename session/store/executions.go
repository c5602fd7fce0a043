package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"deepwork/session"
)

// ExecutionState is the state of an execution of a workflow at another system.
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
	ExecutionUnknown   ExecutionState = "unknown" // lost, and its source does not know it
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
	Performed         bool // an agent or a person performs its steps there: it occupies no slot
	State             ExecutionState
	SourceExecutionID *string
	StatusSupported   bool // false: its state cannot be learned any more
	StartedAt         time.Time
	Timeout           time.Duration   // 0 means none
	Deadline          *time.Time      // nil means none, or not at the source yet
	EndedAt           *time.Time      // nil while it has not ended
	Error             *string         // what went wrong
	Progress          json.RawMessage // at the end
	Result            json.RawMessage
}

// Over reports whether the state cannot change any more.
func (x *Execution) Over() bool { return x.EndedAt != nil || !x.StatusSupported }

// Limits of stored executions that are over, in number and age.
const (
	ExecutionsKept   = 1000
	ResultsKept      = 64 << 20 // bytes of the results of all
	ExecutionKeptFor = 24 * time.Hour
)

// The errors that Adopt records for executions that cannot be queried.
const (
	NeverStarted = "the server ended while the execution waited for a slot; nothing was started"
	LostSight    = "the server ended before the source had answered; whether the workflow was carried out is not known"
)

// ErrNotOwner reports that another server has taken over the execution.
var ErrNotOwner = errors.New("another server has taken it over")

// Executions stores executions of workflows at other systems. Changes are durable when a method
// returns. Each may return the errors of a Board, or the context's.
type Executions interface {
	// Save creates or replaces an execution, and sometimes forgets those beyond the limits. The end
	// of a synchronous one may be lost with the power: it is then unknown. ErrNotOwner: it is
	// stored with another owner.
	Save(ctx context.Context, x *Execution) error
	// Execution returns an execution with its result, for any age and identity, or
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
	// Adopt changes the owner of the executions of some owners that are not over, and returns them:
	// running ones continue; waiting ones have failed, with the error NeverStarted; starting ones
	// are unknown, with LostSight. Of several concurrent callers one gets each.
	Adopt(ctx context.Context, from []string, to string) ([]Execution, error)
	// Inspect finds what this program never writes; n is the number of executions, going of those
	// that are not over.
	Inspect(ctx context.Context) (found []session.Finding, n, going int, err error)
}
