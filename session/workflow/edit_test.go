package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

func TestARunningSessionFollowsAnEditThatHasItsStep(t *testing.T) {
	t.Parallel()
	p, _, c, _ := begun(t)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	// A step before and one after the current; its place is found from its id.
	p.job("alpha", []testStep{{id: "zero"}, {id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}, {id: "three"}}, map[string]string{"main": "[zero, one, two, three]"})
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Need(t, r.BeginStep != nil && r.BeginStep.StepID == "three" && r.Notice == nil, "reply %s", toJSON(t, r))
	testkit.Equal(t, p.record(r.BeginStep.SessionID).CurrentEntryIndex, 3, "entry")
}

func TestARunningSessionFinishesOnTheKeptDefinition(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(p *project){
		"step gone":  func(p *project) { p.job("alpha", []testStep{{id: "other"}}, map[string]string{"main": "[other]"}) },
		"job broken": func(p *project) { p.write(".deepwork/jobs/alpha/job.yml", "name: [") },
	} {
		t.Run(name, func(t *testing.T) {
			p := simpleProject(t)
			srv := p.open()
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			edit(p)
			srv.stop()
			c = p.open().Connect("local")
			r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
			testkit.Need(t, r.BeginStep != nil && r.BeginStep.StepID == "two" && r.BeginStep.Instructions == "Do two.\n", "reply %s", toJSON(t, r))
			testkit.True(t, r.Notice != nil && strings.Contains(*r.Notice, "alpha") && strings.Contains(*r.Notice, "definition it has"), "notice %v", r.Notice)
			testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.Instructions, "Do two.\n", "get_step")
			testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).Status, machine.WorkflowComplete, "reply")
		})
	}
}

func TestAnEditOfInstructionsIsSeenWhenTheStepBegins(t *testing.T) {
	t.Parallel()
	p, _, c, id := begun(t)
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do two better.\n")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep.Instructions, "Do two better.\n", "reply")
	// What was read is what is kept.
	p.job("alpha", []testStep{{id: "other"}}, map[string]string{"main": "[other]"})
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do it worse.\n")
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.Instructions, "Do two better.\n", "get_step")
}

func TestMissingInstructionsRefuseTheCallAndMoveNothing(t *testing.T) {
	t.Parallel()
	p, _, c, id := begun(t)
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".deepwork/jobs/alpha/steps/two.md")))
	before := toJSON(t, p.record(id))
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.ToolError, "instructions_missing", "two.md", "nothing has moved")
	testkit.Equal(t, toJSON(t, p.record(id)), before, "the session moved")
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do two.\n")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep.StepID, "two", "reply")
	// get_step has the text it began with, even where the file is gone since.
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".deepwork/jobs/alpha/steps/two.md")))
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.True(t, step.BeginStep.Instructions == "Do two.\n" && step.Notice != nil, "get_step %s", toJSON(t, step))
}

func TestGoToStep(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: oneFile}, {id: "c", outputs: oneFile}, {id: "d"}}, map[string]string{"main": "[a, b, c, d]"})
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	refused(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "d"})).Err(), session.StateError, "step_ahead", "finished_step")
	refused(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "x"})).Err(), session.ToolError, "unknown_step", "'a', 'b', 'c'")
	r, err := c.GoTo(ctx, GoToArgs{StepID: "b"})
	testkit.Need(t, err == nil && r.BeginStep.StepID == "b" && strings.Join(r.InvalidatedSteps, " ") == "b c" && r.Stack[0].Step == "b", "reply %s, %v", toJSON(t, r), err)
	s := p.record(id)
	testkit.True(t, s.Progress("c") == nil && s.Progress("b").CompletedAt == nil && s.Progress("a").CompletedAt != nil, "record %s", toJSON(t, s.StepProgress))
	testkit.True(t, len(s.History) == 1 && s.History[0].To == "b" && s.History[0].From == "c" && s.History[0].Progress[0].Value.Outputs[0].Value.Paths[0] == "r.md", "history %s", toJSON(t, s.History))
	testkit.Works(t, testkit.Get(os.Stat(filepath.Join(p.root, "r.md"))).Err(), "the file is gone")
	// The same outputs finish b again: it is no repetition.
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"b"}`).BeginStep), "c", "reply")
	testkit.Equal(t, strings.Join(testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "c"})).Must(t).InvalidatedSteps, " "), "c", "to the current step")
}

func TestDefinitionsOfAJobEditedAllDayAreForgotten(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	srv.definitions.MaxKnown = 3
	first := srv.Connect("local")
	p.start(first, "alpha", "main")
	for i := range 10 {
		p.write(".deepwork/jobs/alpha/steps/two.md", fmt.Sprintf("Do two, in way %d.\n", i))
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		c.Close()
	}
	// A session whose definition is forgotten goes on.
	r := p.finish(first, `{"outputs":{"report":"r.md"}}`)
	testkit.True(t, r.BeginStep != nil && r.BeginStep.Instructions == "Do two, in way 9.\n", "reply %s", toJSON(t, r))
	testkit.Equal(t, p.finish(first, `{"outputs":{"report":"r.md"}}`).Status, machine.WorkflowComplete, "reply")
}

// at opens a server of another machine, as far as the stores are concerned.
func at(place task.Place) func(*Options) { return func(o *Options) { o.Place = &place } }

// A session that goes on at another machine says which of its files are not there, and does not
// take them for lost. The record has the place where each step's outputs were delivered.
func TestASessionThatMovesToAnotherMachineSaysWhereItsFilesAre(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("j", []testStep{{id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}, {id: "three", outputs: oneFile}}, map[string]string{"main": "[one, two, three]"})
	p.write("one.md", "1")
	p.write("two.md", "2")
	p.write("three.md", "3")
	ctx := context.Background()
	first, second := task.Place{MachineID: "aaaaaaaa", MachineName: "red", Root: "/home/red/p"}, task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: "/home/blue/p"}

	s1 := p.open(at(first))
	c1 := s1.Connect("local")
	id := p.start(c1, "j", "main").BeginStep.SessionID
	p.finish(c1, `{"outputs": {"report": "one.md"}}`)
	if r, err := c1.Step(ctx, StepArgs{}); err != nil || r.CompletedSteps[0].Machine != "" {
		t.Fatalf("on its own machine: %+v, %v", r, err)
	}
	s1.stop()
	testkit.Must(t, os.Remove(filepath.Join(p.root, "one.md"))) // the other machine does not have it

	c2 := p.open(at(second)).Connect("local")
	r := testkit.Get(c2.Step(ctx, StepArgs{SessionID: &id})).Must(t)
	testkit.True(t, len(r.CompletedSteps) == 1 && r.CompletedSteps[0].Machine == "red (aaaaaaaa), in /home/red/p", "completed steps %+v", r.CompletedSteps)
	p.finish(c2, `{"outputs": {"report": "two.md"}}`)
	end := p.finish(c2, `{"outputs": {"report": "three.md"}}`)
	if s := *end.Summary; strings.Contains(s, "no longer there") || !strings.Contains(s, "step 'one' are on the machine red (aaaaaaaa), in /home/red/p.") || strings.Contains(s, "step 'two'") {
		t.Errorf("summary %q", s)
	}
	var kept struct {
		Place    task.Place `json:"place"`
		Progress map[string]struct {
			Place task.Place `json:"place"`
		} `json:"step_progress"`
	}
	err := json.Unmarshal([]byte(toJSON(t, p.record(id))), &kept)
	testkit.True(t, err == nil && kept.Place == second && kept.Progress["one"].Place == first && kept.Progress["three"].Place == second, "the record has %+v, %v", kept, err)
}

// A checkout on another machine may have another path than the one where the session began: its own files are
// reviewed there, and the session's file is removed there with the session.
func TestACheckoutOfAnotherPathIsReviewed(t *testing.T) {
	p, first, rev := underReview(t)
	id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
	second := p.reopen(rev, at(task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: p.root}))
	second.records.Sessions = began{second.records.Sessions, "/home/red/p"}
	c := second.Connect("local")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`).Status, machine.NextStep, "reply")
	testkit.Must(t, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "no"})).Err())
	_, _, err := second.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.Must(t, err)
	testkit.Same(t, testkit.Get(filepath.Glob(filepath.Join(p.root, ".deepwork", "tmp", "*"+id+"*"))).Must(t), nil, "what is left of the session")
}

// began is a store whose sessions began in a folder that is not on this machine.
type began struct {
	store.Sessions
	root string
}

func (b began) ListSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	all, err := b.Sessions.ListSessions(ctx, q)
	for i := range all {
		all[i].Root = b.root
	}
	return all, err
}

func (b began) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	r, err := b.Sessions.ReadSession(ctx, id, known)
	if r != nil {
		r.Root = b.root
	}
	return r, err
}

// get_workflows shows a missing instructions file as an error of its job before a session begins, until the file is
// there, and then where to go with errors: to the bundled workflow repair, if there is one.
func TestGetWorkflowsShowsMissingInstructions(t *testing.T) {
	p := simpleProject(t)
	c := p.open().Connect("local")
	file := filepath.Join(p.root, ".deepwork/jobs/alpha/steps/two.md")
	text := testkit.Get(os.ReadFile(file)).Must(t)
	for range 2 {
		r := testkit.Get(c.GetWorkflows(ctx)).Must(t)
		testkit.True(t, string(r.Errors) == "[]" && r.Notice == nil, "errors %s, notice %v", r.Errors, r.Notice)
		testkit.Must(t, os.Remove(file))
		r = testkit.Get(c.GetWorkflows(ctx)).Must(t)
		testkit.True(t, strings.Contains(string(r.Errors), `steps[1].instructions_file: \"steps/two.md\" does not exist in `) && strings.Contains(string(r.Jobs), `"alpha"`), "errors %s, jobs %s", r.Errors, r.Jobs)
		testkit.Must(t, os.WriteFile(file, text, 0o600))
	}
}
