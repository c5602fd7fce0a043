// Package run leads agents through a workflow (deepwork run). Each step that is due gets its own agent, and
// the members of a group get theirs at the same time, until the workflow is complete, a step cannot be
// finished, or a budget is reached. A step is done when finished_step has accepted it, never because a
// process ended.
//
// What must survive a crash is on the board (board.Run, task.Execution) and in the workflow's sessions;
// everything else is found again from these.
package run

import (
	"context"
	"time"

	definition "deepwork/catalog/job"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
)

// A Workplace is the folder in which a run works, with the sessions of its workflow and an endpoint for its
// agents. Its methods may be called concurrently.
type Workplace interface {
	// Start begins the session of the run, or finds the one that the same request began earlier.
	Start(ctx context.Context, r *board.Run, request string) (sessionID string, err error)
	// State returns a session.
	State(ctx context.Context, sessionID string) (*machine.State, error)
	// Started returns the active sessions that agents of steps have started under these parents.
	Started(ctx context.Context, parents map[string]bool) ([]Started, error)
	// Step returns what get_step returns for a step of the current entry, or for all of them if stepID is
	// nil.
	Step(ctx context.Context, sessionID string, stepID *string) (*replies.Step, error)
	// Defined returns a step by the definition of a session's job; an empty one if there is no such step.
	Defined(ctx context.Context, s *machine.State, stepID string) (*definition.Step, error)
	// Changed says how the files of a question to a person have changed since they were handed in, or returns
	// "".
	Changed(ctx context.Context, s *machine.State, stepID string) string
	// Finish finishes a step with the outputs that a person has passed. If q is nil, the step merges an item,
	// and its branch is merged already. The error is a session.Error if the outputs are refused.
	Finish(ctx context.Context, sessionID, stepID string, u *judging.Submission) (*replies.Finish, error)
	// Isolate records the absolute path of the folder in which the item of a step is worked on from now on.
	Isolate(ctx context.Context, sessionID, stepID, folder string) error
	// Admit lets an agent call the endpoint until end is called. end cancels calls in progress without
	// waiting for them, and reports whether the agent had connected.
	Admit(g Grant) (c Connection, end func() (called bool), err error)
	// Moved returns a channel that receives after a session has changed.
	Moved() <-chan struct{}
}

// A Grant says what an agent may do: get and finish one step, and start a workflow for it, with all its
// steps.
type Grant struct {
	Execution string // the id of the agent's execution
	Session   string // the session of the step
	Step      string
	Isolated  bool // it works in the worktree of its item, where no nested workflow is possible
	// Child is called, before the agent gets the reply, with a workflow that the agent has started for a
	// session: for Session, or for one that it has started before.
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
	Called func() time.Time // returns when the agent last made a call: now, if a call is in progress
}
