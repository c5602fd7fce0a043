package attempt

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// An Executor runs coding agents: each works on a prompt in a workspace, and outlives this process. The
// engine has one per name; those that are not registered are command lines of the config. Its methods may
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
	Tail(ctx context.Context, log string, after *int64, limit int, wait time.Duration) (entries []runner.Entry, next int64, err error)
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
	Continue       bool           // go on with the last conversation of the workspace
	Conversation   string         // go on with that of this name; "" means another one
	MCP            *executors.MCP // the server to which the agent of a step reports
	Model          string         // that it uses; "" means that of its own settings
	Env            []string       // for what the agent runs: NAME=value sets a variable, and NAME alone removes it
}

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

// executor returns the executor of a name, also of one that the config no longer has.
func (e *Engine) executor(name string) Executor {
	if x := e.o.Executors[name]; x != nil {
		return x
	}
	return commandLine{e.local, e, name}
}

// A choice is an executor in a variant.
type choice struct {
	Executor
	Abilities
	name    string
	variant *string
}

// choose returns the executor that a caller or the config names; its error lists the available ones.
func (e *Engine) choose(ctx context.Context, executor string, variant *string) (*choice, error) {
	executor = strings.TrimSpace(executor)
	c := &choice{Executor: e.executor(executor), name: executor}
	if variant != nil {
		c.variant = board.OrNull(strings.TrimSpace(*variant))
	}
	var err error
	c.Abilities, err = c.Describe(ctx, c.variant)
	return c, err
}

// check refuses what cannot be run, before anything is created for it.
func (c *choice) check(ctx context.Context, prompt string) error {
	return c.Check(ctx, Work{Variant: c.variant, Prompt: prompt})
}

// elsewhere reports whether an error of Check is about this machine alone, so that another one that
// shares the store may run the executor.
func (e *Engine) elsewhere(err error) bool {
	return e.Shared != nil && session.CodeOf(err) == codes.ExecutorUnavailable
}

// executorNames returns the names of all executors: the well-known ones, those of the config and those that
// are registered.
func (e *Engine) executorNames(cfg *config.Config) []string {
	names := executors.Names(executors.Merge(cfg.Executors))
	for _, name := range slices.Sorted(maps.Keys(e.o.Executors)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ListExecutors lists the coding agents that attempts can run.
func (e *Engine) ListExecutors(ctx context.Context, who session.Caller) (*ExecutorsReply, error) {
	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[bool][]ExecutorInfo) // by Available
	for _, name := range e.executorNames(cfg) {
		can, err := e.executor(name).Describe(ctx, nil)
		v := ExecutorInfo{Name: name, Variants: board.NonNil(can.Variants), Program: can.Program, CanContinue: can.Continues, Available: err == nil && can.Available}
		all[v.Available] = append(all[v.Available], v)
	}
	r := &ExecutorsReply{Executors: board.NonNil(append(all[true], all[false]...))}
	r.Count = len(r.Executors)
	return r, nil
}

// A logRef says where the output of an attempt's agent, or of an agent of a run, is.
type logRef struct{ id, executor string }

// logOf returns the log of an attempt: that of a run has only what its leader notes.
func logOf(a *task.Attempt) logRef {
	if a.Run != nil {
		return logRef{id: a.ID}
	}
	return logRef{a.ID, a.Executor}
}

// logOfExecution returns the log of an execution.
func logOfExecution(x *task.Execution) logRef {
	if x.Lead {
		return logRef{id: x.LogID}
	}
	return logRef{x.LogID, x.Executor}
}

// logsOf returns the log of an attempt and, if it is a run, those of its agents.
func logsOf(ctx context.Context, b store.View, attempt string) ([]logRef, error) {
	a, err := b.Attempt(ctx, attempt)
	if err != nil {
		return nil, err
	}
	logs := []logRef{logOf(a)}
	steps, err := b.Steps(ctx, attempt)
	for _, x := range steps {
		logs = append(logs, logOfExecution(&x))
	}
	return logs, err
}

// removeLogs removes the logs of attempts that were deleted.
func (e *Engine) removeLogs(logs ...logRef) {
	for _, l := range logs {
		if err := e.executor(l.executor).Remove(l.id); err != nil {
			e.Log.Warn("cannot remove the log of a deleted attempt", "attempt", l.id, "error", err)
		}
	}
}
