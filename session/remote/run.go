// Package remote runs workflows at other systems (remote runs): one goroutine per run, a bounded number of
// them at once, and a record of each in the store, so that it is found again after a restart (seed 003,
// requirements 7 and 8).
//
// A run that this process follows is an entry. Its driver is the goroutine that owns its state: it waits for
// a slot, starts the workflow, polls its status, stores each change, and then publishes it as an immutable
// view, which wakes callers that wait. Others reach the driver through the cause with which they cancel its
// context: the caller cancelled the run, its time is over, another server has it, or this server closes. Its
// record is what other servers know about it. Only Call starts a workflow, and only once: a server that takes
// over a record only asks about it.
//
// Following a run is a kind of work, and its driver is the handler: package work says when another server takes a run
// over, at once if it sees that the first one has ended. Call stores the run together with the row, and the end of a
// run removes the row. Two servers may follow a run for a moment. So each change of a record is a swap of its state:
// the driver of a run that waited learns that it has failed before it starts anything, and only one end is stored.
// Servers do not talk to each other: to cancel a run that another one follows, its work is asked to stop.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session/store"
	"deepwork/session/work"
)

// Sources runs workflows at their systems: a *source.Catalog, which documents the methods. All of
// them return when their context ends. Execute calls progress on the goroutine of its caller.
type Sources interface {
	Execute(ctx context.Context, w *source.Workflow, input json.RawMessage,
		progress func(source.Progress)) (*source.Answer, error)
	Status(ctx context.Context, source, workflowID, executionID string) (*source.Answer, error)
	Cancel(ctx context.Context, source, workflowID, executionID string) (*source.Answer, error)
}

// State is the state of a run; see store.RemoteState.
type State = store.RemoteState

// The values of State that callers see.
const (
	Running   = store.RemoteRunning
	Completed = store.RemoteCompleted
	Failed    = store.RemoteFailed
	Cancelled = store.RemoteCancelled
	TimedOut  = store.RemoteTimedOut
	Unknown   = store.RemoteUnknown
)

// A Run describes a run to callers at one moment. It is a value; what its pointers and slices refer to never
// changes and must not be modified.
type Run struct {
	ExecutionID       string           `json:"execution_id" jsonschema:"UUID of the execution"`
	SourceExecutionID *string          `json:"source_execution_id" jsonschema:"the source's own id for it"`
	WorkflowID        string           `json:"workflow_id" jsonschema:"id of the workflow at its source"`
	WorkflowName      string           `json:"workflow_name" jsonschema:"name of the workflow at its source"`
	Source            string           `json:"source" jsonschema:"name of the source"`
	State             State            `json:"state"`
	Progress          *source.Progress `json:"progress" jsonschema:"progress at the source"`
	Result            json.RawMessage  `json:"result" jsonschema:"result, any JSON; null until completed"`
	Error             *string          `json:"error" jsonschema:"what went wrong"`
	StartedAt         time.Time        `json:"started_at" jsonschema:"when it started, RFC 3339"`
	EndedAt           *time.Time       `json:"ended_at" jsonschema:"when it ended, RFC 3339"`
	StatusSupported   bool             `json:"status_supported"`
}

// Tags implements fieldtag.Tagger.
func (Run) Tags() map[string]string {
	return map[string]string{
		"State": `jsonschema:"running, completed, failed, cancelled, timed_out or unknown (the source ` +
			`can no longer be asked)"`,
		"StatusSupported": `jsonschema:"whether the source can be asked for the state"`,
	}
}

// shown returns a stored run as callers see it.
func shown(x *store.RemoteRun) Run {
	s := x.State
	if s == store.RemoteWaiting || s == store.RemoteStarting {
		s = Running
	}
	told := Run{
		ExecutionID: x.ID, SourceExecutionID: x.SourceExecutionID,
		WorkflowID: x.WorkflowID, WorkflowName: x.WorkflowName, Source: x.Source,
		State: s, Result: x.Result, Error: x.Error,
		StartedAt: x.StartedAt, EndedAt: x.EndedAt, StatusSupported: x.StatusSupported,
	}
	if x.Progress != nil && json.Unmarshal(x.Progress, &told.Progress) != nil {
		told.Progress = nil
	}
	return told
}

// Options configure an Engine. All but Logger are required.
type Options struct {
	Stores   *store.Stores
	Work     *work.Loop // of this process
	Sources  Sources
	Settings func(context.Context) (*config.Config, error) // read at each call
	Logger   *slog.Logger                                  // default: discards
}

// ErrCancelled is the cause of a call's context if its caller cancelled it: then the run is cancelled, too.
// After any other end of the context the run continues.
var ErrCancelled = work.ErrStopped

// errTimedOut is the cause that ends a driver's work besides those of package work.
var errTimedOut = errors.New("the remote run timed out")

// The limits that cannot be configured.
const (
	maxWaiting     = 1000             // runs that wait for a slot
	maxPerformed   = 100              // runs at one source that agents or people perform
	maxWords       = 6000             // characters of a source's description of what went wrong
	maxMessage     = 1000             // characters of a progress message
	defaultTimeout = 5 * time.Minute  // for runs that a program performs; others have none
	performedReply = 50 * time.Second // until a call returns a running run, if agents or people perform the steps
	firstPoll      = 250 * time.Millisecond
	maxPause       = 30 * time.Second // between failing polls
	pollTime       = 30 * time.Second // for one poll
	cancelTime     = 5 * time.Second  // for asking a source to cancel
	askTime        = 15 * time.Second // for another server to cancel a run
	graceTime      = 15 * time.Second // for a run taken over after its time was over
	writeTime      = 30 * time.Second // for the actor to store something
	refusals       = 5                // consecutive polls that a source may refuse
)
