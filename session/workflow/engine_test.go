package workflow

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

var ctx = context.Background()

func TestReq001_3_4_UnknownJobIsRefusedAndJobsAreListed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	c := p.open().Connect("local")
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "beta", WorkflowName: "main"})).Err(), session.ToolError, "job_not_found", "Job not found: beta", "alpha")

	p.simple("beta") // written between two calls: the next one sees it
	testkit.Equal(t, p.start(c, "beta", "main").BeginStep.StepID, "one", "began")
}

func TestReq001_3_5_OnlyWorkflowIsTakenWhateverTheName(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	c := p.open().Connect("local")
	r := p.start(c, "alpha", "no such")
	testkit.Equal(t, r.Stack[0].Workflow, "alpha/main", "started")
}

func TestReq001_3_6_UnknownWorkflowIsRefusedAndNamesAreListed(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}}, map[string]string{"x": "[one]", "y": "[one]"})
	c := p.open().Connect("local")
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "z"})).Err(), session.ToolError, "workflow_not_found", "Workflow 'z' not found", "x", "y")
}

func TestReq001_3_7_WorkflowWithoutStepsIsRefused(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}}, map[string]string{"x": "[one]", "empty": "[]"})
	c := p.open().Connect("local")
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "empty"})).Err(), session.ToolError, "workflow_without_steps", "has no steps")
}

func TestReq001_3_8_to_14_StartMakesASessionAndDescribesItsFirstStep(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{
		id:      "one",
		outputs: "{z_report: {type: file, description: The report, required: true}, a_parts: {type: files, description: The parts, required: false}}",
		reviews: "[{run_each: step, quality_criteria: {Zeal: \"Is it eager?\", Art: \"Is it fine?\"}, additional_review_guidance: Look twice.}]",
	}}, map[string]string{"main": "[one]"})
	c := p.open().Connect("local")
	r := testkit.Get(c.Start(ctx, StartArgs{Goal: "the goal", JobName: "alpha", WorkflowName: "main", InstanceID: new("acme Inc..")})).Must(t)
	b := r.BeginStep
	testkit.True(t, machine.IsSessionID(b.SessionID), "session_id %q", b.SessionID)
	testkit.Equal(t, b.BranchName, "deepwork/alpha-main-acme-Inc", "branch_name")
	testkit.Equal(t, b.JobDir, filepath.Join(p.root, ".deepwork", "jobs", "alpha"), "job_dir")
	testkit.True(t, b.Instructions == "Do one.\n" && *b.CommonJobInfo == "Common to all steps of alpha.", "instructions %q, common %q", b.Instructions, *b.CommonJobInfo)
	want := `[{"name":"z_report","type":"file","description":"The report","required":true,"syntax_for_finished_step_tool":"filepath"},` +
		`{"name":"a_parts","type":"files","description":"The parts","required":false,"syntax_for_finished_step_tool":"array of filepaths for all individual files"}]`
	testkit.Equal(t, toJSON(t, b.ExpectedOutputs), want, "outputs")
	want = `[{"run_each":"step","quality_criteria":{"Zeal":"Is it eager?","Art":"Is it fine?"},"additional_review_guidance":"Look twice."}]`
	testkit.Equal(t, toJSON(t, b.Reviews), want, "reviews")
	testkit.Equal(t, toJSON(t, b.QualityCriteria), `["Is it eager?","Is it fine?"]`, "criteria")
	testkit.Equal(t, toJSON(t, r.Stack), `[{"workflow":"alpha/main","step":"one","session_id":"`+b.SessionID+`"}]`, "stack")
	s := p.record(b.SessionID)
	testkit.True(t, s.Status == machine.Active && s.Goal == "the goal" && s.Progress("one") != nil && s.Progress("one").CompletedAt == nil, "record %s", toJSON(t, s))
	if p.url != "" {
		return
	}
	testkit.Equal(t, testkit.Get(os.Stat(filepath.Join(p.state().Tmp(), "session_"+b.SessionID+".json"))).Must(t).Mode().Perm(), 0o600, "export")
}

func TestStartWithMissingInstructionsMovesNothing(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".deepwork/jobs/alpha/steps/one.md")))
	c := p.open().Connect("local")
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main"})).Err(), session.ToolError, "instructions_missing", "one.md")
	if len(c.stackOf(ctx, "")) != 0 {
		t.Errorf("stack %v", c.stackOf(ctx, ""))
	}
}

func TestReq001_4_4_NoSessionIsAStateError(t *testing.T) {
	p := newProject(t)
	c := p.open().Connect("local")
	refused(t, testkit.Get(c.Finish(ctx, FinishArgs{Outputs: outputs()})).Err(), session.StateError, "no_active_session", "No active workflow session")
	refused(t, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x"})).Err(), session.StateError, "no_active_session", "No active workflow session")
	refused(t, testkit.Get(c.Finish(ctx, FinishArgs{Outputs: outputs(), SessionID: new("deadbeef")})).Err(), session.StateError, "unknown_session", "deadbeef")
	refused(t, testkit.Get(c.Finish(ctx, FinishArgs{Outputs: outputs(), SessionID: new("../../etc")})).Err(), session.ToolError, "bad_session_id", "../../etc")
}

func TestReq001_4_15_to_19_AWorkflowIsLedThrough(t *testing.T) {
	t.Parallel()
	p, _, c, id := begun(t)
	p.write("r1.md", "x")
	p.write("r2.md", "x")

	r := p.finish(c, `{"outputs":{"report":"r1.md"},"notes":"went well"}`)
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep.StepID == "two" && r.BeginStep.Instructions == "Do two.\n" && len(r.Stack) == 1 && r.Stack[0].Step == "two", "reply %s", toJSON(t, r))
	s := p.record(id)
	one := s.Progress("one")
	testkit.True(t, one.CompletedAt != nil && *one.Notes == "went well" && one.Outputs[0].Value.Paths[0] == "r1.md" && s.CurrentStepID == "two" && s.CurrentEntryIndex == 1, "record %s", toJSON(t, s))
	r = p.finish(c, `{"outputs":{"report":"r2.md"}}`)
	testkit.Need(t, r.Status == machine.WorkflowComplete && len(r.Stack) == 0 && r.BeginStep == nil, "reply %s", toJSON(t, r))
	testkit.True(t, strings.Contains(*r.Summary, "alpha/main' is completed"), "summary %q", *r.Summary)
	testkit.Equal(t, toJSON(t, r.AllOutputs), `{"report":"r2.md"}`, "all_outputs")
	if s := p.record(id); s.Status != machine.Completed || s.CompletedAt == nil {
		t.Errorf("record %s", toJSON(t, s))
	}
}

func TestReq001_4_5_SessionIDTargetsAnySessionOfTheStack(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.simple("beta")
	c := p.open().Connect("local")
	outer := p.start(c, "alpha", "main").BeginStep.SessionID
	inner := p.start(c, "beta", "main").BeginStep.SessionID
	p.write("r.md", "x")
	r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+outer+`"}`)
	testkit.True(t, r.BeginStep.SessionID == outer && r.Stack[0].Step == "two" && r.Stack[1].Step == "one" && r.Stack[1].SessionID == inner, "reply %s", toJSON(t, r))
	testkit.Equal(t, *p.record(inner).ParentSessionID, outer, "parent")
}

func TestReq001_5_OutputsAreValidated(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: "{report: {type: file, description: d, required: true}, parts: {type: files, description: d, required: true}, extra: {type: file, description: d, required: false}}"}},
		map[string]string{"main": "[one]"})
	p.job("single", []testStep{{id: "one", outputs: "{parts: {type: files, description: d, required: true}}"}}, map[string]string{"main": "[one]"})
	p.write("a.md", "x")
	p.write("dir/b.md", "x")
	outside := filepath.Join(t.TempDir(), "secret")
	testkit.Must(t, os.WriteFile(outside, nil, 0o600))
	link := func(name, to string) {
		testkit.Must(t, os.Symlink(to, filepath.Join(p.root, name)))
	}
	link("out.md", outside)
	link("abs.md", filepath.Join(p.root, "a.md"))
	link("loop.md", "loop.md")

	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	before := toJSON(t, p.record(id))
	for _, tc := range []struct {
		name, outputs, code string
		words               []string
	}{
		{"5.1", `{"report":"a.md","parts":["a.md"],"bogus":"a.md","worse":1}`, "unknown_outputs", []string{"Unknown output names: bogus, worse", "report", "parts", "extra"}},
		{"5.2", `{"extra":"a.md"}`, "missing_outputs", []string{"Missing required outputs: report, parts"}},
		{"5.2 null", `{"report":null,"parts":["a.md"]}`, "missing_outputs", []string{"Missing required outputs: report"}},
		{"5.2 empty files", `{"report":"a.md","parts":[]}`, "missing_outputs", []string{"Missing required outputs: parts"}},
		{"5.4", `{"report":["a.md"],"parts":["a.md"]}`, "output_type", []string{"declared as type 'file' and must be a single string path"}},
		{"5.4 number", `{"report":7,"parts":["a.md"]}`, "output_type", []string{"declared as type 'file' and must be a single string path", "a number"}},
		{"5.5", `{"report":"none.md","parts":["a.md"]}`, "file_not_found", []string{"file not found at 'none.md'"}},
		{"5.5 empty", `{"report":"","parts":["a.md"]}`, "file_not_found", []string{"file not found at ''"}},
		{"5.6", `{"report":"a.md","parts":"a.md"}`, "output_type", []string{"declared as type 'files' and must be a list of paths"}},
		{"5.7", `{"report":"a.md","parts":["a.md",{"x":1}]}`, "output_type", []string{"declared as type 'files' and must be a list of paths", "element 1", "an object"}},
		{"5.8", `{"report":"a.md","parts":["a.md","none.md"]}`, "file_not_found", []string{"file not found at 'none.md'"}},
		{"directory", `{"report":"dir","parts":["a.md"]}`, "not_a_file", []string{"'dir' is a directory"}},
		{"device", `{"report":"/dev/null","parts":["a.md"]}`, "outside_project", nil},
		{"outside", `{"report":"../x","parts":["a.md"]}`, "file_not_found", []string{"outside the project", "Put the file inside"}},
		{"outside by link", `{"report":"out.md","parts":["a.md"]}`, "outside_project", []string{"outside the project"}},
		{"loop", `{"report":"loop.md","parts":["a.md"]}`, "file_not_found", nil},
		{"nul", `{"report":"a\u0000.md","parts":["a.md"]}`, "file_not_found", nil},
		{"list", `["a.md"]`, "bad_outputs", []string{"outputs is a list"}},
		{"string", `"a.md"`, "bad_outputs", []string{"outputs is a string"}},
		{"twice", `{"report":"a.md","report":"dir/b.md","parts":["a.md"]}`, "bad_outputs", []string{"appears twice"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":`+tc.outputs+`}`))).Err(), session.ToolError, tc.code, tc.words...)
		})
	}
	testkit.Equal(t, toJSON(t, p.record(id)), before, "refused calls changed the record")
	// 5.3: optional ones may be left out; links and absolute paths inside are fine.
	r := p.finish(c, `{"outputs":{"parts":["dir/b.md","`+filepath.ToSlash(filepath.Join(p.root, "a.md"))+`"],"report":"abs.md","extra":null}}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && strings.HasPrefix(toJSON(t, r.AllOutputs), `{"report":"abs.md","parts":["dir/b.md"`), "reply %s", toJSON(t, r))
	// Seed 001: a list, where the step declares exactly one output.
	p.start(c, "single", "main")
	testkit.Equal(t, p.finish(c, `{"outputs":["a.md","dir/b.md"]}`).Status, machine.WorkflowComplete, "reply")
}

const reviewed = "[{run_each: step, quality_criteria: {Good: \"Is it good?\"}}]"

func TestReq001_4_10_SelfReview(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviewed}}, map[string]string{"main": "[one]"})
	p.write("r.md", "the content that must not be inlined")
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	r := p.finish(c, `{"outputs":{"report":"r.md"},"notes":"be kind","quality_review_override_reason":"  "}`)
	testkit.Need(t, r.Status == machine.NeedsWork, "reply %s", toJSON(t, r))
	name := ".deepwork/tmp/quality_review_" + id + "_one.md"
	for _, w := range []string{"Quality review required", name, "subagent", "quality_review_override_reason"} {
		testkit.True(t, strings.Contains(*r.Feedback, w), "the feedback does not say %q: %s", w, *r.Feedback)
	}
	text := testkit.Get(os.ReadFile(filepath.Join(p.root, name))).Must(t)
	for _, w := range []string{"## Criteria to Evaluate", "Is it good?", "r.md", "be kind", "## Guidelines", "## Your task", "5. "} {
		testkit.Contains(t, string(text), w)
	}
	testkit.True(t, !strings.Contains(string(text), "must not be inlined"), "the review has the file's content")
	testkit.Equal(t, len(testkit.Get(p.open().Inspect(ctx)).Must(t).Findings), 0, "findings")
	// 001.4.9: an override skips the review, and is recorded.
	r = p.finish(c, `{"outputs":{"report":"r.md"},"quality_review_override_reason":"a subagent passed it"}`)
	testkit.Need(t, r.Status == machine.WorkflowComplete, "reply %s", toJSON(t, r))
	o := p.record(id).Progress("one").Overrides
	testkit.True(t, len(o) == 1 && o[0].Reason == "a subagent passed it" && o[0].Identity == "local" && !o[0].At.IsZero() && o[0].Skipped[0] == "step", "overrides %s", toJSON(t, o))
}

func TestReq001_1_9_WithoutQualityGateReviewsAreSkipped(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviewed}}, map[string]string{"main": "[one]"})
	p.write("r.md", "x")
	c := p.open(func(o *Options) { o.Reviews = false }).Connect("local")
	p.start(c, "alpha", "main")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).Status, machine.WorkflowComplete, "reply")
}

func TestReq001_6_AbortTellsWhatIsResumed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	p.simple("beta")
	p.simple("gamma")
	c := p.open().Connect("local")
	a := p.start(c, "alpha", "main").BeginStep.SessionID
	b := p.start(c, "beta", "main").BeginStep.SessionID
	g := p.start(c, "gamma", "main").BeginStep.SessionID

	r, err := c.Abort(ctx, AbortArgs{Explanation: "wrong turn", SessionID: &b}) // in the middle
	testkit.Must(t, err)
	testkit.True(t, r.AbortedWorkflow == "beta/main" && r.AbortedStep == "one" && r.Explanation == "wrong turn" && *r.ResumedWorkflow == "alpha/main" && *r.ResumedStep == "one" && len(r.Stack) == 2, "reply %s", toJSON(t, r))
	s := p.record(b)
	testkit.True(t, s.Status == machine.Aborted && *s.AbortReason == "wrong turn", "record %s", toJSON(t, s))
	again, err := c.Abort(ctx, AbortArgs{Explanation: "wrong turn", SessionID: &b})
	testkit.True(t, err == nil && toJSON(t, again) == toJSON(t, r), "repeated: %s, %v", toJSON(t, again), err)
	r, err = c.Abort(ctx, AbortArgs{Explanation: "enough"}) // the top, whose parent is gone: its parent's parent goes on
	testkit.True(t, err == nil && r.AbortedWorkflow == "gamma/main" && *r.ResumedWorkflow == "alpha/main", "reply %s, %v", toJSON(t, r), err)
	r, err = c.Abort(ctx, AbortArgs{Explanation: "enough"})
	testkit.True(t, err == nil && r.ResumedWorkflow == nil && r.ResumedStep == nil && len(r.Stack) == 0, "reply %s, %v", toJSON(t, r), err)
	refused(t, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "more"})).Err(), session.StateError, "no_active_session")
	_, _ = a, g
}

func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a_out":"x"}`, `["x"]`, `[["x"]]`, `null`, ``, `{"a_out":["x",null]}`, `{"a_out":{}}`} {
		f.Add([]byte(seed))
	}
	step := &job.Step{ID: "a", Outputs: []job.Output{{Name: "a_out", Type: job.File, Required: true}}}
	e := &Engine{Options: Options{Root: f.TempDir()}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if out, _, err := checkOutputs(e.Root, step, raw); err == nil {
			t.Fatalf("accepted in an empty project: %v", out)
		} else if session.CodeOf(err) == "" {
			t.Fatalf("not a refusal: %v", err)
		}
		machine.SameOutputs(raw, machine.Outputs{{Key: "a_out", Value: machine.OutputValue{Paths: []string{"x"}}}})
	})
}
