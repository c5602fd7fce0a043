package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"deepwork/actor/testkit"
	jobs "deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

// fakeSessions are the sessions of a run by id, all of one workflow.
type fakeSessions struct {
	states map[string]*machine.State
	def    *machine.Definition
}

func (f fakeSessions) Read(_ context.Context, id string) (*machine.State, error) {
	if s := f.states[id]; s != nil {
		return s, nil
	}
	return nil, errors.New("there is no session " + id)
}

func (f fakeSessions) Definition(*machine.State) (*machine.Definition, error) { return f.def, nil }

// A step has one of the states of runs, whatever its session and its agents are.
func TestField22_StatesOfSteps(t *testing.T) {
	began, later := "2026-01-01T00:00:00Z", time.Now().Add(time.Hour)
	agent := func(state board.State, started, ended *string) []board.RunStep {
		return []board.RunStep{{State: state, StartedAt: started, EndedAt: ended}}
	}
	progress := func(question *machine.Question) *machine.State {
		return &machine.State{Status: machine.Active, CurrentStepID: "one",
			StepProgress: jsontext.OrderedMap[*machine.StepProgress]{{Key: "one", Value: &machine.StepProgress{Question: question}}}}
	}
	active, asked := progress(nil), progress(&machine.Question{AskedAt: time.Now()})
	for _, test := range []struct {
		want   board.State
		state  *machine.State
		step   Step
		closed bool
	}{
		{board.Queued, active, Step{ID: "one"}, false},
		{board.NotBegun, active, Step{ID: "two"}, false},
		{board.Queued, active, Step{ID: "one", Agents: agent(board.Queued, nil, nil)}, false},
		{board.Running, active, Step{ID: "one", Agents: agent(board.Running, &began, nil)}, false},
		{board.WaitingForYou, asked, Step{ID: "one", Agents: agent(board.Running, &began, nil)}, false},
		{board.WaitingForLimit, active, Step{ID: "one", Agents: agent(board.Failed, &began, &began), Until: &later}, false},
		{board.Running, active, Step{ID: "one", Agents: agent(board.Completed, &began, &began), Nested: []Tree{{}}}, false},
		{board.Queued, active, Step{ID: "one", Agents: agent(board.Completed, &began, &began)}, false},
		{board.Paused, active, Step{ID: "one"}, true},
		{board.Paused, active, Step{ID: "one", Agents: agent(board.Completed, &began, &began)}, true},
		{board.Interrupted, active, Step{ID: "one", Agents: agent(board.Interrupted, &began, &began)}, true},
		{board.NotBegun, active, Step{ID: "two"}, true},
	} {
		b := viewBuilder{run: &View{RunReply: &board.RunReply{State: board.Paused}, Live: !test.closed}}
		test.step.Session = test.state
		got, _ := b.state(&test.step)
		testkit.Equal(t, got, test.want, "%+v, ended %v", test.step, test.closed)
	}
}

// A run of a group and a step that has started a workflow, with three agents.
func aRun() (*board.RunReply, fakeSessions) {
	stamp := func(seconds int) *string { return new(time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339Nano)) }
	x := func(session, step string, state board.State, from, to int) board.RunStep {
		a := board.RunStep{ExecutionID: session + step, SessionID: session, StepID: step, State: state, StartedAt: stamp(from), Cost: &board.ExecutionCost{USD: new(0.5)}}
		if to > 0 {
			a.EndedAt, a.FinalMessage = stamp(to), new("said")
		}
		return a
	}
	state := func(id string) *machine.State {
		return &machine.State{SessionID: id, JobName: "j", WorkflowName: "w", Status: machine.Active, CurrentStepID: "a",
			StepProgress: jsontext.OrderedMap[*machine.StepProgress]{{Key: "a", Value: &machine.StepProgress{}}}}
	}
	r := &board.RunReply{State: board.Running, Open: true, SessionID: new("s"), Workflow: "j/w", Kept: board.Run{Children: map[string][]string{"s/a": {"n", "gone"}}},
		Steps: []board.RunStep{x("s", "a", "completed", 10, 12), x("s", "a", "completed", 20, 25), x("n", "a", "running", 30, 0)}}
	def := &machine.Definition{Job: &jobs.Job{Steps: []jobs.Step{{ID: "a"}}}, Workflow: &jobs.Workflow{Sequence: jobs.Sequence{Entries: []jobs.Entry{{"a", "b"}, {"c"}}}}}
	return r, fakeSessions{map[string]*machine.State{"s": state("s"), "n": state("n")}, def}
}

// The steps are in the order of the workflow, those of nested workflows after their step, with their agents.
func TestLook(t *testing.T) {
	r, sessions := aRun()
	v := Look(t.Context(), r, sessions, map[string]string{"na": "says"})
	testkit.Need(t, v.Fault == nil && v.Live, "live %v, %v", v.Live, v.Fault)
	want := "[{s a running} {n a running} {n b not_begun} {n c not_begun} {s b not_begun} {s c not_begun}]"
	testkit.Equal(t, fmt.Sprint(r.Plan), want, "the plan")
	first := v.Tree.Entries[0][0]
	testkit.True(t, first.Took == 7*time.Second && *first.USD == 1 && first.Last == "said" && len(first.Agents) == 2 && first.Agents[0].EndedAt != r.Steps[0].EndedAt, "the first step is %+v", first)
	nested := first.Nested[0].Entries[0][0]
	testkit.True(t, nested.Last == "says" && nested.Since != nil, "the nested step is %+v", nested)
	depths := ""
	v.Tree.Each(func(_ *Step, depth int) { depths += fmt.Sprint(depth) })
	testkit.Equal(t, depths, "011100", "the depths")
}

// Without its sessions, a run has the steps for which agents were started, and what its leader says of them.
func TestLookWithoutSessions(t *testing.T) {
	r, sessions := aRun()
	r.Kept.Waits = []board.RunWait{{Kind: board.WaitsForPerson, SessionID: "s", StepID: "a"}}
	sessions.states = nil
	v := Look(t.Context(), r, sessions, nil)
	testkit.True(t, v.Fault != nil, "no fault")
	got, want := fmt.Sprint(r.Plan), "[{s a waiting_for_you} {n a running}]"
	testkit.True(t, got == want, "the plan is %s, want %s", got, want)
}
