package attempt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/contain"
	"deepwork/session/store"
)

// executor returns the executor with a name, even if the config no longer has it.
func (e *Engine) executor(name string) executors.Executor {
	if x := e.o.Executors[name]; x != nil {
		return x
	}
	return executors.CommandLine{
		Local:      e.local,
		Name:       name,
		Root:       e.Root(),
		State:      e.State().Dir,
		Config:     e.Config,
		Registered: e.registered(),
	}
}

// registered returns the names of the executors that the config cannot define.
func (e *Engine) registered() []string { return slices.Sorted(maps.Keys(e.o.Executors)) }

// A choice is an executor in a variant.
type choice struct {
	executors.Executor
	executors.Abilities
	name    string
	variant *string
}

// choose returns the executor that a caller or the config names. Its error lists the available ones.
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

// check returns an error for what cannot be run, before anything is created.
func (c *choice) check(ctx context.Context, prompt string) error {
	return c.Check(ctx, executors.Work{Variant: c.variant, Prompt: prompt})
}

// isLocalError reports whether an error of Check concerns only this machine, so that another one that shares
// the store may run the executor.
func (e *Engine) isLocalError(err error) bool {
	return e.Shared != nil && session.CodeOf(err) == codes.ExecutorUnavailable
}

// ListExecutors lists the coding agents that attempts can run.
func (e *Engine) ListExecutors(ctx context.Context, who session.Caller) (*ExecutorsReply, error) {
	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}

	all := make(map[bool][]ExecutorInfo) // by Available
	for _, name := range executors.AllNames(cfg, e.registered()) {
		can, err := e.executor(name).Describe(ctx, nil)
		v := ExecutorInfo{
			Name:        name,
			Variants:    board.NonNil(can.Variants),
			Program:     can.Program,
			CanContinue: can.Continues,
			Available:   err == nil && can.Available,
		}
		all[v.Available] = append(all[v.Available], v)
	}
	r := &ExecutorsReply{Executors: board.NonNil(append(all[true], all[false]...))}
	r.Count = len(r.Executors)
	return r, nil
}

// environment returns variables to add to the server's own for an attempt's programs. They lead a deepwork in
// the attempt back to this board. Variables that bind a program to the conversation in which the server was
// started are left out.
func (e *Engine) environment(cfg *config.Config, attempt string) []string {
	env := append(cfg.Secrets(), config.ConversationEnv...)
	if e.Shared != nil {
		env = append(env, e.Shared.Env...)
	}
	return append(env, config.AttemptEnv+"="+attempt, config.BoardEnv+"="+e.boardPath(),
		executors.JobsFolders(e.Root(), os.Getenv(config.JobsFoldersEnv)))
}

// A logRef says where the output of an attempt's agent, or of an agent of a run, is.
type logRef struct{ id, executor string }

// logOf returns the log of an attempt. The log of a run has only its leader's notes.
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

// logsOf returns the log of an attempt and, for a run, those of its agents.
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

// Refused returns what the logs of an attempt, or of a run's agents, have of connections that contained agents were
// refused, in the order of time.
func (e *Engine) Refused(ctx context.Context, who session.Caller, t board.Target) (all []runner.Entry, err error) {
	b, id, err := e.ViewOfAttempt(ctx, who, t)
	if err != nil {
		return nil, err
	}
	a, err := b.Attempt(ctx, id)
	if err != nil {
		return nil, board.AttemptFault("reading the attempt", err, id)
	}
	logs, err := logsOf(ctx, b, id)
	if err != nil {
		return nil, err
	}
	for i, log := range logs {
		if slices.Contains(logs[:i], log) || log.id != a.ID && a.Elsewhere(e.Here) {
			continue
		}
		for after := int64(-1); ; {
			entries, next, err := e.tail(ctx, b, a, log, &after, runner.MaxTail, 0)
			if err != nil {
				return nil, fmt.Errorf("reading a log of the attempt: %w", err)
			}
			if len(entries) == 0 {
				break
			}
			for _, x := range entries {
				if x.Stream == runner.System && strings.HasPrefix(x.Text, contain.Refused) {
					all = append(all, x)
				}
			}
			after = next
		}
	}
	slices.SortStableFunc(all, func(x, y runner.Entry) int { return x.Time.Compare(y.Time) })
	return all, nil
}

// removeLogs removes the logs of deleted attempts.
func (e *Engine) removeLogs(logs ...logRef) {
	for _, l := range logs {
		if err := e.executor(l.executor).Remove(l.id); err != nil {
			e.Log.Warn("cannot remove the log of a deleted attempt", "attempt", l.id, "error", err)
		}
	}
}
