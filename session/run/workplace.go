// Package run leads agents through a workflow (deepwork run): each step that is due gets an agent of its
// own, members of a group at the same time, until the workflow is complete, a step is not finished, or a
// budget is reached. A step is done when finished_step has accepted it, never because a process ended.
//
// What must survive a crash is on the board (board.Run, task.Execution) and in the workflow's
// sessions; everything else is found again from these.
package run

import (
	"context"
	"time"

	definition "deepwork/catalog/job"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

// A Workplace is the folder in which a run works, with the sessions of its workflow and an endpoint for its
// agents. Its methods may be called concurrently.
type Workplace interface {
	// Start begins the session of the run, or finds the one that the same request began.
	Start(ctx context.Context, r *board.Run, request string) (sessionID string, err error)
	// State returns a session.
	State(ctx context.Context, sessionID string) (*machine.State, error)
	// Started returns the active sessions with one of these parents that agents of steps have started.
	Started(ctx context.Context, parents map[string]bool) ([]Started, error)
	// Step returns what get_step does for a step of the current entry, or for all if that is nil.
	Step(ctx context.Context, sessionID string, stepID *string) (*machine.StepReply, error)
	// Defined returns a step as a session's job defines it; an empty one if it has no such step.
	Defined(ctx context.Context, s *machine.State, stepID string) (*definition.Step, error)
	// Changed says how the files of the question to a person about a step are no longer as they were handed in, or "".
	Changed(ctx context.Context, s *machine.State, stepID string) string
	// Finish finishes a step with the outputs that a person has passed, or, if q is nil, one that merges an item
	// whose branch is merged. Its error is session.Error if they are refused.
	Finish(ctx context.Context, sessionID, stepID string, q *machine.Question) (*machine.FinishReply, error)
	// Isolate records the folder, absolute, in which the item of a step is worked on from now on.
	Isolate(ctx context.Context, sessionID, stepID, folder string) error
	// Admit lets an agent call the endpoint until end is called, which cancels the calls that run, without
	// waiting for them, and reports whether the agent had connected.
	Admit(g Grant) (c Connection, end func() (called bool), err error)
	// Moved receives after a session has changed.
	Moved() <-chan struct{}
}

// A Grant is what an agent may do: get and finish one step, and start a workflow for that, with all its
// steps.
type Grant struct {
	Execution string // its id
	Session   string // of the workflow
	Step      string
	Isolated  bool // it works in the worktree of its item, in which no nested workflow can be done
	// Child is called with a workflow that the agent has started for a session, before the agent is
	// told: that session is Session, or one that it has started before.
	Child func(ctx context.Context, parent, sessionID string) error
}

// A Started is a workflow that the agent of a step has started.
type Started struct {
	SessionID, Parent string
	Session, Step     string // of the agent
}

// A Connection is how an agent reaches the endpoint.
type Connection struct {
	MCP    executors.MCP
	Env    []string
	Called func() time.Time // returns when the agent was last in a call: now, if it is
}
