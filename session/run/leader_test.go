package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	definition "deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// Only agents count that ended on their own since the run was resumed.
func TestField01_WhatCountsAsATry(t *testing.T) {
	since := time.Now()
	d := &leader{lead: &attempt.Lead{Since: since}, retries: 2}
	x := func(state task.AttemptState, after time.Duration) task.Execution {
		return task.Execution{State: state, CreatedAt: since.Add(after), Error: new("its error")}
	}
	limited := x(task.Failed, 1)
	limited.LimitedUntil = &since
	none := []task.Execution{limited, limited, limited, x(task.Stopped, 1), x(task.Interrupted, 1), x(task.Failed, -1), x(task.Completed, -1)}
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), before: append(none, x(task.Failed, 1), x(task.Completed, 1))}), "")
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), before: append(none, x(task.Failed, 1), x(task.Completed, 1), x(task.Failed, 1))}), "3 agents ended without finishing it. its error.")
	loggedOut := x(task.Failed, 1)
	loggedOut.FinalMessage = new("Please run\n/login")
	before := []task.Execution{loggedOut, x(task.Failed, 1), x(task.Failed, 1)}
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), before: before}), `3 agents ended without finishing it. its error. The last one said: "Please run /login".`)
	before[0].Error = new("On stderr: Please run /login")
	why := d.exhausted(job{state: new(machine.State), before: before})
	testkit.True(t, !strings.Contains(why, "said"), "%v", why)
	cut := x(task.Interrupted, 1)
	cut.ID, d.cut = "cut", map[string]bool{"cut": true}
	testkit.Equal(t, d.exhausted(job{state: new(machine.State), before: append(none, cut, cut, cut)}), "3 agents ended without finishing it. its error.")
	rows := job{state: new(machine.State)}
	for range board.MaxLimits - 1 {
		rows.before = append(rows.before, limited)
	}
	testkit.Equal(t, d.exhausted(job{state: rows.state, before: append(rows.before, x(task.Failed, 1), limited)}), "")
	testkit.Equal(t, d.exhausted(job{state: rows.state, before: append(rows.before, limited)}), "A limit of its agent's provider ended 10 agents in a row. Resume the run when the limit is over. its error")
	d.silent = map[place]bool{{}: true}
	testkit.Contains(t, d.exhausted(job{state: new(machine.State), before: []task.Execution{x(task.Completed, 1), x(task.Completed, 1), x(task.Failed, 1)}}), "never connected to the MCP server deepwork-run")
}

// An away is a Workplace whose database does not answer for a while, and then says something else.
type away struct {
	Workplace
	asked int
}

func (a *away) State(context.Context, string) (*machine.State, error) {
	if a.asked++; a.asked < 20 {
		return nil, fmt.Errorf("reading: %w", store.ErrUnavailable)
	}
	return nil, errors.New("it is damaged")
}

func (*away) Defined(context.Context, *machine.State, string) (*definition.Step, error) {
	return nil, fmt.Errorf("reading: %w", store.ErrUnavailable)
}

func (*away) Started(context.Context, map[string]bool) ([]Started, error) { return nil, nil }

func TestTheFirstPromptHasAllThatAnAgentNeeds(t *testing.T) {
	s := &machine.State{JobName: "alpha", WorkflowName: "main"}
	step := &machine.StepInfo{StepID: "draft", SessionID: "0123abcd"}
	before := &task.Execution{FinalMessage: new("half done\nsee notes.md")}
	got := testkit.Get(firstPrompt(" Ship it\n", s, step, []string{"review"}, before, "the tests fail", true)).Must(t)
	testkit.ContainsAll(t, got, []string{"# Goal\n\nShip it\n\n# Your step: draft\n", "workflow alpha/main", "on the steps review: leave", "Commit the files", `session_id "0123abcd", step_id "draft"`, "> half done\n> see notes.md\n", "not finished: the tests fail"})
	alone := testkit.Get(firstPrompt("g", s, step, nil, nil, "", false)).Must(t)
	for _, other := range []string{"Other agents", "Commit", "before"} {
		testkit.True(t, !strings.Contains(alone, other), "an agent alone is told of %q:\n%s", other, alone)
	}
}

// A leader waits for stores that do not answer, until it is stopped, and ends for other errors. It gives no step up
// for them.
func TestLeadWaitsForItsStores(t *testing.T) {
	d := newLeader(&attempt.Lead{Attempt: new(task.Attempt)}, new(away), 2)
	testkit.FailsWith(t, d.start(t.Context(), []job{{state: new(machine.State)}}), store.ErrUnavailable)
	testkit.Equal(t, len(d.failed), 0, "steps that are given up")
	synctest.Test(t, func(t *testing.T) {
		at := new(away)
		l := &attempt.Lead{Attempt: new(task.Attempt), Run: board.Run{SessionID: "01234567"}}
		end := Lead(t.Context(), l, at, 2)
		testkit.True(t, end.State == board.Failed && end.Reason == "it is damaged" && at.asked == 20, "%+v after %d looks", end, at.asked)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		if *at = (away{}); Lead(ctx, l, at, 2).State == board.Completed || at.asked < 2 || time.Since(begun) > 5*time.Second {
			t.Errorf("%d looks in %v", at.asked, time.Since(begun))
		}
	})
}

// A broken Workplace panics.
type broken struct{ Workplace }

func (broken) Started(context.Context, map[string]bool) ([]Started, error) { return nil, nil }

func (broken) State(context.Context, string) (*machine.State, error) { panic("no idea") }

// The agents of a leader that panics have ended when the panic arrives at its caller.
func TestPanicEndsTheAgents(t *testing.T) {
	d := newLeader(&attempt.Lead{Run: board.Run{SessionID: "12345678"}}, broken{}, 2)
	for _, step := range []string{"a", "b"} {
		x := &agent{place: place{"12345678", step}, x: new(task.Execution)}
		var ctx context.Context
		ctx, x.cancel = context.WithCancel(t.Context())
		d.agents[x.place] = x
		d.running.Go(func() {
			<-ctx.Done()
			d.ended <- x
		})
	}
	defer func() {
		fault := recover()
		testkit.True(t, fault == "no idea" && len(d.agents) == 0, "it panicked with %v, and the agents %v run", fault, d.agents)
	}()
	d.run(t.Context())
	t.Error("it has not panicked")
}
