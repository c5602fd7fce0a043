package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// starting is why a workflow does not start, nil if it does.
func starting(c *Conn, jobName, workflow string) error {
	return errOf(c.Start(ctx, StartArgs{Goal: "g", JobName: jobName, WorkflowName: workflow}))
}

func TestReq001_3_4_UnknownJobIsRefusedAndJobsAreListed(t *testing.T) {
	p := simpleProject(t)
	c := p.open().Connect("local")
	refused(t, starting(c, "beta", "main"), session.ToolError, "job_not_found", "Job not found: beta", "alpha")
	p.simple("beta") // written between two calls: the next one sees it
	testkit.Equal(t, p.start(c, "beta", "main").BeginStep.StepID, "one", "began")
}

func TestReq001_3_5_OnlyWorkflowIsTakenWhateverTheName(t *testing.T) {
	p := simpleProject(t)
	testkit.Equal(t, p.start(p.open().Connect("local"), "alpha", "no such").Stack[0].Workflow, "alpha/main", "started")
}

func TestReq001_3_6_UnknownWorkflowIsRefusedAndNamesAreListed(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}}, map[string]string{"x": "[one]", "y": "[one]"})
	refused(t, starting(p.open().Connect("local"), "alpha", "z"), session.ToolError, "workflow_not_found", "Workflow 'z' not found", "x", "y")
}

func TestReq001_3_7_WorkflowWithoutStepsIsRefused(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}}, map[string]string{"x": "[one]", "empty": "[]"})
	refused(t, starting(p.open().Connect("local"), "alpha", "empty"), session.ToolError, "workflow_without_steps", "has no steps")
}

func TestReq001_3_8_to_14_StartMakesASessionAndDescribesItsFirstStep(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{
		id:      "one",
		outputs: "{z_report: {type: file, description: The report, required: true}, a_parts: {type: files, description: The parts, required: false}}",
		reviews: "[{run_each: step, quality_criteria: {Zeal: \"Is it eager?\", Art: \"Is it fine?\"}, additional_review_guidance: Look twice.}]",
	})
	c := p.open().Connect("local")
	r := testkit.Get(c.Start(ctx, StartArgs{Goal: "the goal", JobName: "alpha", WorkflowName: "main", InstanceID: new("acme Inc..")})).Must(t)
	b := r.BeginStep
	testkit.True(t, machine.IsSessionID(b.SessionID), "session_id %q", b.SessionID)
	testkit.Equal(t, b.BranchName, "deepwork/alpha-main-acme-Inc", "branch_name")
	testkit.Equal(t, b.JobDir, filepath.Join(p.root, ".deepwork", "jobs", "alpha"), "job_dir")
	testkit.True(t, b.Instructions == "Do one.\n" && *b.CommonJobInfo == "Common to all steps of alpha.", "instructions %q, common %q", b.Instructions, *b.CommonJobInfo)
	testkit.Equal(t, toJSON(t, b.ExpectedOutputs), `[{"name":"z_report","type":"file","description":"The report","required":true,"syntax_for_finished_step_tool":"filepath"},`+
		`{"name":"a_parts","type":"files","description":"The parts","required":false,"syntax_for_finished_step_tool":"array of filepaths for all individual files"}]`, "outputs")
	testkit.Equal(t, toJSON(t, b.Reviews), `[{"run_each":"step","quality_criteria":{"Zeal":"Is it eager?","Art":"Is it fine?"},"additional_review_guidance":"Look twice."}]`, "reviews")
	testkit.Equal(t, toJSON(t, b.QualityCriteria), `["Is it eager?","Is it fine?"]`, "criteria")
	testkit.Equal(t, toJSON(t, r.Stack), `[{"workflow":"alpha/main","step":"one","session_id":"`+b.SessionID+`"}]`, "stack")
	s := p.record(b.SessionID)
	testkit.True(t, s.Status == machine.Active && s.Goal == "the goal" && s.Progress("one") != nil && s.Progress("one").CompletedAt == nil, "record %s", toJSON(t, s))
	if p.url == "" {
		testkit.Equal(t, testkit.Get(os.Stat(p.export(b.SessionID))).Must(t).Mode().Perm(), 0o600, "export")
	}
}

func TestReq001_4_4_NoSessionIsAStateError(t *testing.T) {
	c := newProject(t).open().Connect("local")
	refused(t, refusal(t, c, `{"outputs":{}}`), session.StateError, "no_active_session", "No active workflow session")
	refused(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})), session.StateError, "no_active_session", "No active workflow session")
	refused(t, refusal(t, c, `{"outputs":{},"session_id":"deadbeef"}`), session.StateError, "unknown_session", "deadbeef", "get_workflows lists the sessions")
	refused(t, refusal(t, c, `{"outputs":{},"session_id":"../../etc"}`), session.ToolError, "bad_session_id", "../../etc")
}

func TestReq001_4_15_to_19_AWorkflowIsLedThrough(t *testing.T) {
	p, _, c, id := begun(t)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"notes":"went well"}`)
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep.StepID == "two" && r.BeginStep.Instructions == "Do two.\n" && len(r.Stack) == 1 && r.Stack[0].Step == "two", "reply %s", toJSON(t, r))
	s := p.record(id)
	one := s.Progress("one")
	testkit.True(t, one.CompletedAt != nil && *one.Notes == "went well" && one.Outputs[0].Value.Paths[0] == "r.md" && s.CurrentStepID == "two" && s.CurrentEntryIndex == 1, "record %s", toJSON(t, s))
	p.write("r2.md", "x")
	r = p.finish(c, `{"outputs":{"report":"r2.md"}}`)
	testkit.Need(t, r.Status == machine.WorkflowComplete && len(r.Stack) == 0 && r.BeginStep == nil, "reply %s", toJSON(t, r))
	testkit.Contains(t, *r.Summary, "alpha/main' is completed")
	testkit.Equal(t, toJSON(t, r.AllOutputs), `{"report":"r2.md"}`, "all_outputs")
	s = p.record(id)
	testkit.True(t, s.Status == machine.Completed && s.CompletedAt != nil, "record %s", toJSON(t, s))
}

func TestReq001_4_5_SessionIDTargetsAnySessionOfTheStack(t *testing.T) {
	p, _, c, outer := begun(t)
	p.simple("beta")
	inner := p.start(c, "beta", "main").BeginStep.SessionID
	r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+outer+`"}`)
	testkit.True(t, r.BeginStep.SessionID == outer && r.Stack[0].Step == "two" && r.Stack[1].Step == "one" && r.Stack[1].SessionID == inner, "reply %s", toJSON(t, r))
	testkit.Equal(t, *p.record(inner).ParentSessionID, outer, "parent")
}

func TestReq001_5_OutputsAreValidated(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{id: "one", outputs: "{report: {type: file, description: d, required: true}, parts: {type: files, description: d, required: true}, extra: {type: file, description: d, required: false}}"})
	p.job("single", []testStep{{id: "one", outputs: "{parts: {type: files, description: d, required: true}}"}}, map[string]string{"main": "[one]"})
	p.write("a.md", "x")
	p.write("dir/b.md", "x")
	outside := filepath.Join(testkit.Dir(t), "secret")
	testkit.Write(t, outside, "")
	for name, to := range map[string]string{"out.md": outside, "abs.md": filepath.Join(p.root, "a.md"), "loop.md": "loop.md"} {
		testkit.Must(t, os.Symlink(to, filepath.Join(p.root, name)))
	}
	_, c, id := p.begin()
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
			refused(t, refusal(t, c, `{"outputs":`+tc.outputs+`}`), session.ToolError, tc.code, tc.words...)
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

func TestReq001_4_10_SelfReview(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{id: "one", outputs: oneFile, reviews: reviewedStep})
	p.write("r.md", "the content that must not be inlined")
	_, c, id := p.begin()
	r := p.finish(c, `{"outputs":{"report":"r.md"},"notes":"be kind","quality_review_override_reason":"  "}`)
	name := ".deepwork/tmp/quality_review_" + id + "_one.md"
	says(t, r, machine.NeedsWork, "Quality review required", name, "subagent", "quality_review_override_reason")
	text := string(testkit.Get(os.ReadFile(filepath.Join(p.root, name))).Must(t))
	testkit.ContainsAll(t, text, []string{"## Criteria to Evaluate", "Is it good?", "r.md", "be kind", "## Guidelines", "## Your task", "5. "})
	testkit.True(t, !strings.Contains(text, "must not be inlined"), "the review has the file's content")
	testkit.Equal(t, len(testkit.Get(p.open().Inspect(ctx)).Must(t).Findings), 0, "findings")
	// 001.4.9: an override skips the review, and is recorded.
	says(t, p.finish(c, `{"outputs":{"report":"r.md"},"quality_review_override_reason":"a subagent passed it"}`), machine.WorkflowComplete)
	o := p.record(id).Progress("one").Overrides
	testkit.True(t, len(o) == 1 && o[0].Reason == "a subagent passed it" && o[0].Identity == "local" && !o[0].At.IsZero() && o[0].Skipped[0] == "step", "overrides %s", toJSON(t, o))
}

func TestReq001_1_9_WithoutQualityGateReviewsAreSkipped(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{id: "one", outputs: oneFile, reviews: reviewedStep})
	_, c, _ := p.begin(func(o *Options) { o.Reviews = false })
	says(t, p.finish(c, `{"outputs":{"report":"r.md"}}`), machine.WorkflowComplete)
}

func TestReq001_6_AbortTellsWhatIsResumed(t *testing.T) {
	p, _, c, _ := begun(t)
	p.simple("beta")
	p.simple("gamma")
	b := p.start(c, "beta", "main").BeginStep.SessionID
	p.start(c, "gamma", "main")
	abort := func(explanation string, id *string) *machine.AbortReply {
		t.Helper()
		return testkit.Get(c.Abort(ctx, AbortArgs{Explanation: explanation, SessionID: id})).Must(t)
	}
	r := abort("wrong turn", &b) // in the middle
	testkit.True(t, r.AbortedWorkflow == "beta/main" && r.AbortedStep == "one" && r.Explanation == "wrong turn" && *r.ResumedWorkflow == "alpha/main" && *r.ResumedStep == "one" && len(r.Stack) == 2, "reply %s", toJSON(t, r))
	s := p.record(b)
	testkit.True(t, s.Status == machine.Aborted && *s.AbortReason == "wrong turn", "record %s", toJSON(t, s))
	testkit.Equal(t, toJSON(t, abort("wrong turn", &b)), toJSON(t, r), "repeated")
	r = abort("enough", nil) // the top, whose parent is gone: its parent's parent goes on
	testkit.True(t, r.AbortedWorkflow == "gamma/main" && *r.ResumedWorkflow == "alpha/main", "reply %s", toJSON(t, r))
	r = abort("enough", nil)
	testkit.True(t, r.ResumedWorkflow == nil && r.ResumedStep == nil && len(r.Stack) == 0, "reply %s", toJSON(t, r))
	refused(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "more"})), session.StateError, "no_active_session")
}

func TestCheckWorkflow(t *testing.T) {
	srv := simpleProject(t).open()
	testkit.Works(t, errOf(CheckWorkflow(ctx, srv.catalog, "alpha", "main")))
	for _, c := range [][3]string{{"none", "main", "job_not_found"}, {"alpha", "none", "workflow_not_found"}} {
		refused(t, errOf(CheckWorkflow(ctx, srv.catalog, c[0], c[1])), session.ToolError, c[2])
	}
}

func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a_out":"x"}`, `["x"]`, `[["x"]]`, `null`, ``, `{"a_out":["x",null]}`, `{"a_out":{}}`} {
		f.Add([]byte(seed))
	}
	step := &job.Step{ID: "a", Outputs: []job.Output{{Name: "a_out", Type: job.File, Required: true}}}
	root := f.TempDir() // an empty project
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, _, err := checkOutputs(root, step, raw)
		testkit.Need(t, session.CodeOf(err) != "", "not refused: %v, %v", out, err)
		machine.SameOutputs(raw, machine.Outputs{{Key: "a_out", Value: machine.OutputValue{Paths: []string{"x"}}}})
	})
}
