package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestARunningSessionFollowsAnEditThatHasItsStep(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	// A step before and one after the current; its place is found from its id.
	p.job("alpha", []testStep{{id: "zero"}, {id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}, {id: "three"}}, map[string]string{"main": "[zero, one, two, three]"})
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	if r.BeginStep == nil || r.BeginStep.StepID != "three" || r.Notice != nil {
		t.Fatalf("reply %s", toJSON(t, r))
	}
	if s := p.record(r.BeginStep.SessionID); s.CurrentEntryIndex != 3 {
		t.Errorf("entry %d", s.CurrentEntryIndex)
	}
}

func TestARunningSessionFinishesOnTheKeptDefinition(t *testing.T) {
	for name, edit := range map[string]func(p *project){
		"step gone":     func(p *project) { p.job("alpha", []testStep{{id: "other"}}, map[string]string{"main": "[other]"}) },
		"workflow gone": func(p *project) { p.job("alpha", []testStep{{id: "one"}}, map[string]string{"else": "[one]"}) },
		"job gone": func(p *project) {
			testkit.Must(p.t, os.RemoveAll(filepath.Join(p.root, ".deepwork/jobs/alpha")))
		},
		"job broken": func(p *project) { p.write(".deepwork/jobs/alpha/job.yml", "name: [") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.simple("alpha")
			p.write("r.md", "x")
			srv := p.open()
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			edit(p)
			srv.stop()
			c = p.open().Connect("local")
			r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
			if r.BeginStep == nil || r.BeginStep.StepID != "two" || r.BeginStep.Instructions != "Do two.\n" {
				t.Fatalf("reply %s", toJSON(t, r))
			}
			if r.Notice == nil || !strings.Contains(*r.Notice, "alpha") || !strings.Contains(*r.Notice, "definition it has") {
				t.Errorf("notice %v", r.Notice)
			}
			if step, err := c.Step(ctx, StepArgs{}); err != nil || step.BeginStep.Instructions != "Do two.\n" {
				t.Errorf("get_step %s, %v", toJSON(t, step), err)
			}
			if r := p.finish(c, `{"outputs":{"report":"r.md"}}`); r.Status != machine.WorkflowComplete {
				t.Errorf("reply %s", toJSON(t, r))
			}
		})
	}
}

func TestAnEditOfInstructionsIsSeenWhenTheStepBegins(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do two better.\n")
	if r := p.finish(c, `{"outputs":{"report":"r.md"}}`); r.BeginStep.Instructions != "Do two better.\n" {
		t.Errorf("reply %s", toJSON(t, r))
	}
	// What was read is what is kept.
	p.job("alpha", []testStep{{id: "other"}}, map[string]string{"main": "[other]"})
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do it worse.\n")
	if step, err := c.Step(ctx, StepArgs{SessionID: &id}); err != nil || step.BeginStep.Instructions != "Do two better.\n" {
		t.Errorf("get_step %s, %v", toJSON(t, step), err)
	}
}

func TestMissingInstructionsRefuseTheCallAndMoveNothing(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".deepwork/jobs/alpha/steps/two.md")))
	before := toJSON(t, p.record(id))
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	refused(t, err, session.ToolError, "instructions_missing", "two.md", "nothing has moved")
	if after := toJSON(t, p.record(id)); after != before {
		t.Error("the session moved")
	}
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do two.\n")
	if r := p.finish(c, `{"outputs":{"report":"r.md"}}`); r.BeginStep.StepID != "two" {
		t.Errorf("reply %s", toJSON(t, r))
	}
	// get_step has the text it began with, even where the file is gone since.
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".deepwork/jobs/alpha/steps/two.md")))
	if step, err := c.Step(ctx, StepArgs{}); err != nil || step.BeginStep.Instructions != "Do two.\n" || step.Notice == nil {
		t.Errorf("get_step %s, %v", toJSON(t, step), err)
	}
}

func TestAnEditTakesTheLastOpenMemberOutOfAGroup(t *testing.T) {
	p := newProject(t)
	p.grouped()
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"a"}`)
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	p.job("alpha", []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: "{b_out: {type: file, description: d, required: true}}"}, {id: "d"}},
		map[string]string{"main": "[[a, b], d]"})
	if step, err := c.Step(ctx, StepArgs{}); err != nil || step.Notice == nil {
		t.Errorf("get_step %s, %v", toJSON(t, step), err)
	}
	if r := p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`); r.BeginStep == nil || r.BeginStep.StepID != "d" {
		t.Errorf("reply %s", toJSON(t, r))
	}
}

func TestGoToStep(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: oneFile}, {id: "c", outputs: oneFile}, {id: "d"}}, map[string]string{"main": "[a, b, c, d]"})
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	_, err := c.GoTo(ctx, GoToArgs{StepID: "d"})
	refused(t, err, session.StateError, "step_ahead", "finished_step")
	_, err = c.GoTo(ctx, GoToArgs{StepID: "x"})
	refused(t, err, session.ToolError, "unknown_step", "'a', 'b', 'c'")
	r, err := c.GoTo(ctx, GoToArgs{StepID: "b"})
	if err != nil || r.BeginStep.StepID != "b" || strings.Join(r.InvalidatedSteps, " ") != "b c" || r.Stack[0].Step != "b" {
		t.Fatalf("reply %s, %v", toJSON(t, r), err)
	}
	s := p.record(id)
	if s.Progress("c") != nil || s.Progress("b").CompletedAt != nil || s.Progress("a").CompletedAt == nil {
		t.Errorf("record %s", toJSON(t, s.StepProgress))
	}
	if len(s.History) != 1 || s.History[0].To != "b" || s.History[0].From != "c" || s.History[0].Progress[0].Value.Outputs[0].Value.Paths[0] != "r.md" {
		t.Errorf("history %s", toJSON(t, s.History))
	}
	if _, err := os.Stat(filepath.Join(p.root, "r.md")); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	// The same outputs finish b again: it is no repetition.
	if r := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"b"}`); r.BeginStep == nil || r.BeginStep.StepID != "c" {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if r, err := c.GoTo(ctx, GoToArgs{StepID: "c"}); err != nil || strings.Join(r.InvalidatedSteps, " ") != "c" {
		t.Errorf("to the current step: %s, %v", toJSON(t, r), err)
	}
}
