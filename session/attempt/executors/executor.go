package executors

import (
	"context"
	"time"

	"deepwork/session/attempt/runner"
	"deepwork/session/contain"
)

// An Executor runs coding agents: each works on a prompt in a workspace, and outlives this process. The
// engine has one per name: a registered one, or else a CommandLine. Its methods may be called from any
// goroutine, and by several processes on one project.
//
// An execution is identified by its log and its own id: the log, a UUID, has the output of all executions of
// an attempt, or of an agent of a run.
type Executor interface {
	// Describe says what the executor can do in a variant. Its error is for callers, for example that there
	// is no such variant.
	Describe(ctx context.Context, variant *string) (Abilities, error)
	// Check returns why an agent could not do this work here and now, or nil. The error is for callers. If
	// the workspace is not made yet, Workspace is "".
	Check(ctx context.Context, w Work) error
	// Start starts the agent of an execution: no matter how often and by which process it is called, the
	// agent is started at most once. It returns when the agent runs or could not be run; then Wait returns
	// the reason. After an error, nothing runs that Find would not find, unless the error is ctx's.
	Start(ctx context.Context, w Work) (Process, error)
	// Find returns the agent of an execution, running or ended, whichever process started it, so that an
	// engine can take over from one that was killed. The error is ErrNoRun if the agent was never started and
	// never will be.
	Find(ctx context.Context, log, execution string) (Process, error)
	// Tail returns at most limit entries of a log: those after an index, for which it waits, or the last ones
	// if after is nil. next is the index to continue after.
	Tail(ctx context.Context, log string, after *int64, limit int, wait time.Duration) (entries []runner.Entry,
		next int64, err error)
	// Note adds a message of deepwork for people to a log to which no agent is writing, if possible.
	Note(log, text string) error
	// Remove removes a log and all records of its executions, which must have ended.
	Remove(log string) error
}

// ErrNoRun is the error of Executor.Find for an agent that was never started and never will be.
var ErrNoRun = runner.ErrNoRun

// Abilities are what an executor can do.
type Abilities struct {
	Program   string   // what it runs, for people
	Available bool     // the program is installed here
	Variants  []string // their names
	Continues bool     // it can continue the last conversation of a workspace
	Names     bool     // it can continue any conversation by name
	Reports   bool     // its agents report what they use, so one that reported nothing had no conversation
	MaxPrompt int      // bytes; 0 means no limit
}

// Work says what an agent does in one execution.
type Work struct {
	Log, Execution string
	Workspace      string // the folder in which it works, absolute
	OfProject      bool   // in the project or a worktree of it: what runs there must be as approved
	Prompt         string
	Variant        *string
	Continue       bool     // continue the last conversation of the workspace
	Conversation   string   // go on with that of this name; "" means another one
	MCP            *MCP     // the server to which the agent of a step reports
	Model          string   // that it uses; "" means that of its own settings
	Env            []string // for the agent: NAME=value sets a variable, NAME alone removes it
	// Contain makes the workspace ready for an agent that is contained by a plan; nil means that this is not possible.
	Contain func(context.Context, *contain.Plan) error `json:"-"`
}

// resumes reports whether a work continues a conversation.
func (w *Work) resumes() bool { return w.Continue || w.Conversation != "" }

// A Process is the agent of one execution. Its methods may be called concurrently.
type Process interface {
	// StartedAt returns when the agent was started, or zero if it never was.
	StartedAt() time.Time
	// Contained says under what the agent was started, such as "contained (bubblewrap 0.11.0; 3 hosts)", or returns "".
	Contained() string
	// Ended reports whether the agent's end was already recorded when it was found.
	Ended() bool
	// Wait waits until the agent has ended and its end is recorded.
	Wait(ctx context.Context) (runner.Exit, error)
	// Stop ends the agent and everything that it started: it asks first, and kills after the grace period. Of
	// several calls the shortest grace counts.
	Stop(ctx context.Context, grace time.Duration) (runner.Exit, error)
}
