// Package execution keeps what is running of other systems' workflows: an actor a
// run, a bounded number of them at once, and a record on disk of each, so that a
// run is found again after a restart (seed 003, requirements 7 and 8).
//
// A run has three parts. Its actor owns its state, writes it down, and answers
// those who wait for a change. Its driver is the one goroutine that speaks to
// the source for it: it waits for a slot, starts the workflow, asks for its
// status, and tells the actor. Its record is what the next server knows of it
// when this one is gone. A workflow is started by Call alone, and once: whatever
// takes up a record only ever asks about it.
package execution

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"deepwork/actor/presence"
	"deepwork/catalog/config"
	"deepwork/catalog/remote"
)

// Sources is where runs run: a *remote.Catalog. Its methods say there what they
// do; all of them return when their context ends.
type Sources interface {
	Execute(ctx context.Context, w *remote.Workflow, input json.RawMessage, progress func(remote.Progress)) (*remote.Answer, error)
	Status(ctx context.Context, source, workflowID, executionID string) (*remote.Answer, error)
	Cancel(ctx context.Context, source, workflowID, executionID string) (*remote.Answer, error)
}

// State is where a run is.
type State string

// The values of State. Unknown is a run that this server lost sight of and
// whose source cannot tell.
const (
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	TimedOut  State = "timed_out"
	Unknown   State = "unknown"
)

// An Execution is what a caller is told of a run. It is a value at one moment; what its
// pointers and slices hold is never changed, and must not be.
type Execution struct {
	ExecutionID       string           `json:"execution_id" jsonschema:"this run's id, a UUID"`
	SourceExecutionID *string          `json:"source_execution_id" jsonschema:"the source's id of it; null if it gave none"`
	WorkflowID        string           `json:"workflow_id" jsonschema:"the workflow's id at its source"`
	WorkflowName      string           `json:"workflow_name" jsonschema:"the workflow's name at its source"`
	Source            string           `json:"source" jsonschema:"the source's name in the config"`
	State             State            `json:"state" jsonschema:"where it is; unknown: it was lost sight of"`
	Progress          *remote.Progress `json:"progress" jsonschema:"how far it is; null: not told"`
	Result            json.RawMessage  `json:"result" jsonschema:"what it gave, any JSON; null before it is completed"`
	Error             *string          `json:"error" jsonschema:"what went wrong; null: nothing"`
	StartedAt         time.Time        `json:"started_at" jsonschema:"when it began, RFC 3339"`
	EndedAt           *time.Time       `json:"ended_at" jsonschema:"when it ended; null before"`
	StatusSupported   bool             `json:"status_supported" jsonschema:"whether the source can be asked about it"`
}

// Options configure an Engine. Root, Sources and Settings are required.
type Options struct {
	Root     string // project root, absolute: runs are kept below .deepwork/tmp/runs
	Sources  Sources
	Settings func(context.Context) (*config.Config, error) // asked at each call, so that edits take effect
	Logger   *slog.Logger                                  // default: discards
	Member   *presence.Member                              // this process; default: one of its own, which leaves at Close
	Now      func() time.Time                              // default time.Now; for what is written down, not for timers
}

// ErrCancelled is the cause of a call's context that was cancelled by its
// caller: the run is cancelled too. Any other end of the context leaves it going.
var ErrCancelled = errors.New("cancelled by the caller")

// The other causes that end what a driver does.
var (
	errTimedOut = errors.New("the run's time is over")
	errClosing  = errors.New("the server is shutting down")
)

// The limits that are not configured.
const (
	keepEnded  = 1000           // runs that ended are kept for Status
	keepFor    = 24 * time.Hour // and no longer than this
	keepMemory = 64 << 20       // bytes of results that are kept in memory
	maxOnDisk  = 1 << 20        // bytes of a result that is kept over a restart
	maxWaiting = 1000           // runs that wait for a slot
	maxWords   = 6000           // characters of what a source says went wrong
	maxMessage = 1000           // characters of a progress message
	firstPoll  = 250 * time.Millisecond
	maxPause   = 30 * time.Second // between polls that fail
	pollTime   = 30 * time.Second // for one poll
	cancelTime = 5 * time.Second  // for telling a source to cancel
	graceTime  = 15 * time.Second // of a run that is taken up after its time was over
	writeTime  = 30 * time.Second // for the actor to write something down
	refusals   = 5                // polls in a row that the source refuses
)
