package executors

import (
	"context"
	"time"

	"deepwork/session/attempt/runner"
)

// An Executor runs coding agents: each works on a prompt in a workspace, and outlives this process. The
// engine has one per name: those that are registered, otherwise a CommandLine. Its methods may
// be called from any goroutine, and by several processes on one project.
//
// An execution is identified by its log and its own id: the log, a UUID, has the output of all executions
// of an attempt, or of an agent of a run.
type Executor interface {
	// Describe says what it can do in a variant; the error is one for callers, such as that there is no such
	// variant.
	Describe(ctx context.Context, variant *string) (Abilities, error)
	// Check returns why an agent could not do this work here and now, nil if it could: an error for callers.
	// Its Workspace may not be made yet, and is then "".
	Check(ctx context.Context, w Work) error
	// Start starts the agent of an execution: no matter how often and by which process it is called, the
	// agent is started at most once. It returns when the agent runs or could not be run; Wait returns the
	// reason. After an error nothing runs that Find does not find, unless the error is ctx's.
	Start(ctx context.Context, w Work) (Process, error)
	// Find returns the agent of an execution, alive or ended, started by any process, so that an
	// engine can take over from one that was killed. The error is ErrNoRun if the agent was never started
	// and will not be.
	Find(ctx context.Context, log, execution string) (Process, error)
	// Tail returns at most limit entries of a log: those after an index, for which it waits, or, if after is
	// nil, the last ones; next is the index after which the following ones are.
	Tail(ctx context.Context, log string, after *int64, limit int, wait time.Duration) (entries []runner.Entry,
		next int64, err error)
	// Note adds a message of deepwork for people to a log to which no agent writes, if it can.
	Note(log, text string) error
	// Remove removes a log and all records of its executions, which have ended.
	Remove(log string) error
}

// ErrNoRun is the error of Executor.Find for an agent that was never started and will not be.
var ErrNoRun = runner.ErrNoRun

// Abilities are what an executor can do.
type Abilities struct {
	Program   string   // what it runs, for people
	Available bool     // that is here
	Variants  []string // their names
	Continues bool     // it can go on with the last conversation of a workspace
	Names     bool     // it can go on with any conversation, by its name
	Reports   bool     // its agents report what they use, so that one that reported nothing had no conversation
	MaxPrompt int      // bytes; 0 means no limit
}

// Work is what an agent does in one execution.
type Work struct {
	Log, Execution string
	Workspace      string // in which it works, absolute
	OfProject      bool   // the workspace is the project or a worktree of it: what is to run there must be as approved
	Prompt         string
	Variant        *string
	Continue       bool     // go on with the last conversation of the workspace
	Conversation   string   // go on with that of this name; "" means another one
	MCP            *MCP     // the server to which the agent of a step reports
	Model          string   // that it uses; "" means that of its own settings
	Env            []string // for what the agent runs: NAME=value sets a variable, and NAME alone removes it
}

// resumes reports whether a work goes on with a conversation.
func (w *Work) resumes() bool { return w.Continue || w.Conversation != "" }

// A Process is the agent of one execution. Its methods may be called concurrently.
type Process interface {
	// StartedAt returns when the agent was started, or zero if it never was.
	StartedAt() time.Time
	// Ended reports whether its end was recorded when it was found.
	Ended() bool
	// Wait waits until the agent has ended and its end is recorded.
	Wait(ctx context.Context) (runner.Exit, error)
	// Stop ends the agent and all that it started: politely first, and by killing it after the grace
	// period. If it is called several times, the shortest grace counts.
	Stop(ctx context.Context, grace time.Duration) (runner.Exit, error)
}
