package workflow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

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
	refused(t, starting(p.open().Connect("local"), "alpha", "z"), session.ToolError, "workflow_not_found",
		"Workflow 'z' not found", "x", "y")
}

func TestReq001_3_7_WorkflowWithoutStepsIsRefused(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}}, map[string]string{"x": "[one]", "empty": "[]"})
	refused(t, starting(p.open().Connect("local"), "alpha", "empty"), session.ToolError, "workflow_without_steps",
		"has no steps")
}

func TestReq001_3_8_to_14_StartMakesASessionAndDescribesItsFirstStep(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{
		id: "one",
		outputs: "{z_report: {type: file, description: The report, required: true}, a_parts: {type: files, " +
			"description: The parts, required: false}}",
		reviews: "[{run_each: step, quality_criteria: {Zeal: \"Is it eager?\", Art: \"Is it fine?\"}, " +
			"additional_review_guidance: Look twice.}]",
	})
	c := p.open().Connect("local")
	r := testkit.Get(c.Start(ctx,
		StartArgs{Goal: "the goal", JobName: "alpha", WorkflowName: "main", InstanceID: new("acme Inc..")})).Must(t)
	b := r.BeginStep
	testkit.True(t, machine.IsSessionID(b.SessionID), "session_id %q", b.SessionID)
	testkit.Equal(t, b.BranchName, "deepwork/alpha-main-acme-Inc", "branch_name")
	testkit.Equal(t, b.JobDir, filepath.Join(p.root, ".deepwork", "jobs", "alpha"), "job_dir")
	testkit.True(t, b.Instructions == "Do one.\n" && *b.CommonJobInfo == "Common to all steps of alpha.",
		"instructions %q, common %q", b.Instructions, *b.CommonJobInfo)
	testkit.Equal(t, toJSON(t, b.ExpectedOutputs),
		`[{"name":"z_report","type":"file","description":"The report","required":true,`+
			`"syntax_for_finished_step_tool":"filepath"},{"name":"a_parts","type":"files","description":"The `+
			`parts","required":false,"syntax_for_finished_step_tool":"array of filepaths for all individual files"}]`,
		"outputs")
	testkit.Equal(t, toJSON(t, b.Reviews),
		`[{"run_each":"step","quality_criteria":{"Zeal":"Is it eager?","Art":"Is it fine?"},`+
			`"additional_review_guidance":"Look twice."}]`, "reviews")
	testkit.Equal(t, toJSON(t, b.QualityCriteria), `["Is it eager?","Is it fine?"]`, "criteria")
	testkit.Equal(t, toJSON(t, r.Stack),
		`[{"workflow":"alpha/main","step":"one","session_id":"`+b.SessionID+`"}]`, "stack")

	s := p.record(b.SessionID)
	testkit.Equal(t, s.Status, machine.Active, "record %s", toJSON(t, s))
	testkit.Equal(t, s.Goal, "the goal", "record %s", toJSON(t, s))
	testkit.Need(t, s.Progress("one") != nil, "record %s", toJSON(t, s))
	testkit.True(t, s.Progress("one").CompletedAt == nil, "record %s", toJSON(t, s))
	if p.url == "" {
		testkit.Equal(t, testkit.Get(os.Stat(p.export(b.SessionID))).Must(t).Mode().Perm(), 0o600, "export")
	}
}

func TestReq001_4_4_NoSessionIsAStateError(t *testing.T) {
	c := newProject(t).open().Connect("local")
	refused(t, refusal(t, c, `{"outputs":{}}`), session.StateError, "no_active_session", "No active workflow session")
	refused(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})), session.StateError, "no_active_session",
		"No active workflow session")
	refused(t, refusal(t, c, `{"outputs":{},"session_id":"deadbeef"}`), session.StateError, "unknown_session",
		"deadbeef", "call get_workflows")
	refused(t, refusal(t, c, `{"outputs":{},"session_id":"../../etc"}`), session.ToolError, "bad_session_id",
		"../../etc")
}

func TestReq001_4_15_to_19_AWorkflowIsLedThrough(t *testing.T) {
	p, _, c, id := begun(t)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"notes":"went well"}`)
	testkit.Need(t, r.Status == replies.NextStep, "reply %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep.StepID == "two", "reply %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep.Instructions == "Do two.\n", "reply %s", toJSON(t, r))
	testkit.Need(t, len(r.Stack) == 1, "reply %s", toJSON(t, r))
	testkit.Need(t, r.Stack[0].Step == "two", "reply %s", toJSON(t, r))

	s, one := p.record(id), p.record(id).Progress("one")
	testkit.Need(t, one.CompletedAt != nil, "record %s", toJSON(t, s))
	testkit.Equal(t, *one.Notes, "went well", "record %s", toJSON(t, s))
	testkit.Equal(t, one.Outputs[0].Value.Paths[0], "r.md", "record %s", toJSON(t, s))
	testkit.Equal(t, s.CurrentStepID, "two", "record %s", toJSON(t, s))
	testkit.Equal(t, s.CurrentEntryIndex, 1, "record %s", toJSON(t, s))

	r = p.finish(c, `{"outputs":{"report":"`+p.write("r2.md", "x")+`"}}`)
	testkit.Need(t, r.Status == replies.WorkflowComplete, "reply %s", toJSON(t, r))
	testkit.Need(t, len(r.Stack) == 0, "reply %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep == nil, "reply %s", toJSON(t, r))
	testkit.Contains(t, *r.Summary, "alpha/main' is completed")
	testkit.Equal(t, toJSON(t, r.AllOutputs), `{"report":"r2.md"}`, "all_outputs")
	testkit.True(t, p.record(id).Status == machine.Completed && p.record(id).CompletedAt != nil, "record %s",
		toJSON(t, p.record(id)))
}

func TestReq001_4_5_SessionIDTargetsAnySessionOfTheStack(t *testing.T) {
	p, _, c, outer := begun(t)
	p.simple("beta")
	inner := p.start(c, "beta", "main").BeginStep.SessionID
	r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+outer+`"}`)
	testkit.Equal(t, r.BeginStep.SessionID, outer, "reply %s", toJSON(t, r))
	testkit.Equal(t, r.Stack[0].Step, "two", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.Stack[1].Step, "one", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.Stack[1].SessionID, inner, "reply %s", toJSON(t, r))
	testkit.Equal(t, *p.record(inner).ParentSessionID, outer, "parent")
}

func TestReq001_5_OutputsAreValidated(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{
		id: "one",
		outputs: "{report: {type: file, description: d, required: true}, parts: {type: files, description: d, " +
			"required: true}, extra: {type: file, description: d, required: false}}",
	})
	p.job("single", []testStep{{id: "one", outputs: "{parts: {type: files, description: d, required: true}}"}},
		map[string]string{"main": "[one]"})
	testkit.WriteAll(t, p.root, map[string]string{"a.md": "x", "dir/b.md": "x"})

	outside := filepath.Join(testkit.Dir(t), "secret")
	testkit.Write(t, outside, "")
	for name, to := range map[string]string{
		"out.md":  outside,
		"abs.md":  filepath.Join(p.root, "a.md"),
		"loop.md": "loop.md",
	} {
		testkit.Must(t, os.Symlink(to, filepath.Join(p.root, name)))
	}
	_, c, id := p.begin()
	before := toJSON(t, p.record(id))
	for _, tc := range []struct {
		name, outputs, code string
		words               []string
	}{
		{"5.1", `{"report":"a.md","parts":["a.md"],"bogus":"a.md","worse":1}`, "unknown_outputs",
			[]string{"Unknown output names: bogus, worse", "report", "parts", "extra"}},
		{"5.2", `{"extra":"a.md"}`, "missing_outputs", []string{"Missing required outputs: report, parts"}},
		{"5.2 null", `{"report":null,"parts":["a.md"]}`, "missing_outputs",
			[]string{"Missing required outputs: report"}},
		{"5.2 empty files", `{"report":"a.md","parts":[]}`, "missing_outputs",
			[]string{"Missing required outputs: parts"}},
		{"5.4", `{"report":["a.md"],"parts":["a.md"]}`, "output_type",
			[]string{"declared as type 'file' and must be a single string path"}},
		{"5.5", `{"report":"none.md","parts":["a.md"]}`, "file_not_found", []string{"file not found at 'none.md'"}},
		{"5.5 empty", `{"report":"","parts":["a.md"]}`, "file_not_found", []string{"file not found at ''"}},
		{"5.6", `{"report":"a.md","parts":"a.md"}`, "output_type",
			[]string{"declared as type 'files' and must be a list of paths"}},
		{"5.7", `{"report":"a.md","parts":["a.md",{"x":1}]}`, "output_type",
			[]string{"declared as type 'files' and must be a list of paths", "element 1", "an object"}},
		{"5.8", `{"report":"a.md","parts":["a.md","none.md"]}`, "file_not_found",
			[]string{"file not found at 'none.md'"}},
		{"directory", `{"report":"dir","parts":["a.md"]}`, "not_a_file", []string{"'dir' is a directory"}},
		{"device", `{"report":"/dev/null","parts":["a.md"]}`, "outside_project", nil},
		{"outside", `{"report":"../x","parts":["a.md"]}`, "file_not_found",
			[]string{"outside the project", "Put the file inside"}},
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
	r := p.finish(c, `{"outputs":{"parts":["dir/b.md","`+filepath.ToSlash(filepath.Join(p.root, "a.md"))+
		`"],"report":"abs.md","extra":null}}`)
	testkit.True(t, r.Status == replies.WorkflowComplete &&
		strings.HasPrefix(toJSON(t, r.AllOutputs), `{"report":"abs.md","parts":["dir/b.md"`), "reply %s", toJSON(t, r))

	// Seed 001: a list, where the step declares exactly one output.
	p.start(c, "single", "main")
	testkit.Equal(t, p.finish(c, `{"outputs":["a.md","dir/b.md"]}`).Status, replies.WorkflowComplete, "reply")
}

func TestReq001_4_10_SelfReview(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{id: "one", outputs: oneFile, reviews: reviewedStep})
	_, c, id := p.begin()
	r := p.finish(c, `{"outputs":{"report":"`+p.write("r.md", "the content that must not be inlined")+
		`"},"notes":"be kind","quality_review_override_reason":"  "}`)
	name := ".deepwork/tmp/quality_review_" + id + "_one.md"
	says(t, r, replies.NeedsWork, "Quality review required", name, "subagent", "quality_review_override_reason")
	text := string(testkit.Get(os.ReadFile(filepath.Join(p.root, name))).Must(t))
	testkit.ContainsAll(t, text,
		[]string{"## Criteria to Evaluate", "Is it good?", "r.md", "be kind", "## Guidelines", "## Your task", "5. "})
	testkit.True(t, !strings.Contains(text, "must not be inlined"), "the review has the file's content")
	testkit.Equal(t, len(testkit.Get(p.open().Inspect(ctx)).Must(t).Findings), 0, "findings")

	// 001.4.9: an override skips the review, and is recorded.
	says(t, p.finish(c, `{"outputs":{"report":"r.md"},"quality_review_override_reason":"a subagent passed it"}`),
		replies.WorkflowComplete)
	o := p.record(id).Progress("one").Overrides
	testkit.Need(t, len(o) == 1, "overrides %s", toJSON(t, o))
	testkit.Equal(t, o[0].Reason, "a subagent passed it", "overrides %s", toJSON(t, o))
	testkit.Equal(t, o[0].Identity, "local", "overrides %s", toJSON(t, o))
	testkit.True(t, !o[0].At.IsZero(), "overrides %s", toJSON(t, o))
	testkit.Equal(t, o[0].Skipped[0], "step", "overrides %s", toJSON(t, o))
}

func TestReq001_1_9_WithoutQualityGateReviewsAreSkipped(t *testing.T) {
	p := newProject(t).alpha("[one]", testStep{id: "one", outputs: oneFile, reviews: reviewedStep})
	_, c, _ := p.begin(func(o *Options) { o.Reviews = false })
	says(t, p.finish(c, `{"outputs":{"report":"r.md"}}`), replies.WorkflowComplete)
}

func TestReq001_6_AbortTellsWhatIsResumed(t *testing.T) {
	p, _, c, _ := begun(t)
	p.simple("beta")
	p.simple("gamma")
	b := p.start(c, "beta", "main").BeginStep.SessionID
	p.start(c, "gamma", "main")
	abort := func(explanation string, id *string) *replies.Abort {
		t.Helper()
		return testkit.Get(c.Abort(ctx, AbortArgs{Explanation: explanation, SessionID: id})).Must(t)
	}
	r := abort("wrong turn", &b) // in the middle
	testkit.Equal(t, r.AbortedWorkflow, "beta/main", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.AbortedStep, "one", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.Explanation, "wrong turn", "reply %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedWorkflow, "alpha/main", "reply %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedStep, "one", "reply %s", toJSON(t, r))
	testkit.Equal(t, len(r.Stack), 2, "reply %s", toJSON(t, r))

	s := p.record(b)
	testkit.True(t, s.Status == machine.Aborted && *s.AbortReason == "wrong turn", "record %s", toJSON(t, s))
	testkit.Equal(t, toJSON(t, abort("wrong turn", &b)), toJSON(t, r), "repeated")
	r = abort("enough", nil) // the top, whose parent is gone: its parent's parent goes on
	testkit.True(t, r.AbortedWorkflow == "gamma/main" && *r.ResumedWorkflow == "alpha/main", "reply %s", toJSON(t, r))
	r = abort("enough", nil)
	testkit.Need(t, r.ResumedWorkflow == nil, "reply %s", toJSON(t, r))
	testkit.Need(t, r.ResumedStep == nil, "reply %s", toJSON(t, r))
	testkit.Equal(t, len(r.Stack), 0, "reply %s", toJSON(t, r))
	refused(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "more"})), session.StateError, "no_active_session")
}

func TestCheckWorkflow(t *testing.T) {
	srv := simpleProject(t).open()
	testkit.Works(t, errOf(definition.CheckWorkflow(ctx, srv.catalog, "alpha", "main")))
	for _, c := range [][3]string{{"none", "main", "job_not_found"}, {"alpha", "none", "workflow_not_found"}} {
		refused(t, errOf(definition.CheckWorkflow(ctx, srv.catalog, c[0], c[1])), session.ToolError, c[2])
	}
}

func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a_out":"x"}`, `["x"]`, `[["x"]]`, `null`, ``, `{"a_out":["x",null]}`,
		`{"a_out":{}}`} {
		f.Add([]byte(seed))
	}

	step := &job.Step{ID: "a", Outputs: []job.Output{{Name: "a_out", Type: job.File, Required: true}}}
	root := f.TempDir() // an empty project
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, _, err := CheckOutputs(root, step, raw)
		testkit.Need(t, session.CodeOf(err) != "", "not refused: %v, %v", out, err)
		outputs.Same(raw, outputs.Map{{Key: "a_out", Value: outputs.Value{Paths: []string{"x"}}}})
	})
}

func grouped(t testing.TB) *project { return newProject(t).alpha("[[a, b, c], d]", groupSteps...) }

var groupSteps = []testStep{{id: "a", outputs: oneFile},
	{id: "b", outputs: "{b_out: {type: file, description: d, required: true}}"}, {id: "c"}, {id: "d"}}

func TestReq001_4_18_GroupIsDescribedInFull(t *testing.T) {
	p := grouped(t)
	r := p.start(p.open().Connect("local"), "alpha", "main")
	testkit.Equal(t, r.BeginStep.StepID, "a", "reply %s", toJSON(t, r))
	testkit.Need(t, len(r.ConcurrentSteps) == 2, "reply %s", toJSON(t, r))
	testkit.Equal(t, r.ConcurrentSteps[0].StepID, "b", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.ConcurrentSteps[0].Instructions, "Do b.\n", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.ConcurrentSteps[1].StepID, "c", "reply %s", toJSON(t, r))

	own, paragraph, _ := strings.Cut(r.BeginStep.Instructions, "**CONCURRENT STEPS**")
	testkit.Equal(t, own, "Do a.\n\n", "before the paragraph about the group")
	testkit.ContainsAll(t, paragraph,
		[]string{" The text above is for step 'a' alone.", "'a', 'b', 'c'", "Task tool", "concurrent_steps",
			"concurrent_group"})
	testkit.True(t, !strings.Contains(paragraph, "\n"),
		"the instructions do not end with one paragraph about the group: %s", paragraph)
	testkit.Contains(t, *r.ConcurrentGroup, r.BeginStep.SessionID)

	s := p.record(r.BeginStep.SessionID)
	testkit.Need(t, s.Progress("a") != nil, "not all were begun: %s", toJSON(t, s))
	testkit.Need(t, s.Progress("b") != nil, "not all were begun: %s", toJSON(t, s))
	testkit.True(t, s.Progress("c") != nil, "not all were begun: %s", toJSON(t, s))
}

func TestGetStepOfAMemberIsThatStepAlone(t *testing.T) {
	p := grouped(t)
	c := p.open().Connect("local")
	began := p.start(c, "alpha", "main").BeginStep
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	for id, notice := range map[string]string{"a": "null", "b": "do not do again: b. Still to do: a, c", "c": "null"} {
		r := testkit.Get(c.Step(ctx, StepArgs{SessionID: &began.SessionID, StepID: &id})).Must(t)
		b := r.BeginStep
		testkit.Equal(t, b.StepID, id)
		testkit.Equal(t, b.Instructions, "Do "+id+".\n")
		testkit.Need(t, r.ConcurrentSteps == nil, "%s: %s", id, toJSON(t, r))
		testkit.True(t, r.ConcurrentGroup == nil, "%s: %s", id, toJSON(t, r))
		testkit.Equal(t, b.SessionID, began.SessionID)
		testkit.Equal(t, b.JobDir, began.JobDir)
		testkit.Equal(t, *b.CommonJobInfo, *began.CommonJobInfo)
		testkit.Contains(t, toJSON(t, r.Notice), notice, id)
		testkit.True(t, len(r.Members) == 3 && strings.Join(r.PendingConcurrentSteps, " ") == "a c", "%s: %s", id,
			toJSON(t, r))
	}

	err := errOf(c.Step(ctx, StepArgs{StepID: new("d")}))
	refused(t, err, session.StateError, "step_not_current", "'a'", "get_step shows current steps only")
	testkit.True(t, !strings.Contains(err.Error(), "Finish that first"),
		"get_step answers with the words of finished_step: %v", err)
	refused(t, errOf(c.Step(ctx, StepArgs{StepID: new("nothing")})), session.ToolError, "unknown_step", "nothing")
}

func TestAnUnreportedMemberThatIsFinishedIsNotUnreported(t *testing.T) {
	p := grouped(t)
	_, c, id := p.begin()
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "c"})))
	p.alpha("[[a, b], d]", groupSteps...)
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`).BeginStep), "d")
	testkit.Same(t, p.record(id).Faults(), nil, "faults of the record")
}

func TestGroupIsJoinedWhenMembersAreReported(t *testing.T) {
	p := grouped(t)
	_, c, _ := p.begin()
	const b = `{"outputs":{"b_out":"r.md"},"step_id":"b"}`
	pending := func(r *replies.Finish, want string) {
		t.Helper()
		testkit.Equal(t, r.Status, replies.NextStep, "pending is not %s: %s", want, toJSON(t, r))
		testkit.Need(t, r.BeginStep == nil, "pending is not %s: %s", want, toJSON(t, r))
		testkit.Equal(t, strings.Join(r.PendingConcurrentSteps, " "), want, "pending is not %s: %s", want, toJSON(t, r))
	}
	r := p.finish(c, b)
	pending(r, "a c")
	testkit.Contains(t, *r.Feedback, "wait")
	testkit.Equal(t, toJSON(t, p.finish(c, b)), toJSON(t, r), "repeated")
	pending(p.finish(c, `{"outputs":{"report":"r.md"}}`), "c") // the primary, without step_id
	// b's reply may still be asked for, though a was finished after it
	pending(p.finish(c, b), "a c")
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "step_id_needed", "'c'")
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.Equal(t, strings.Join(step.PendingConcurrentSteps, " "), "c", "get_step %s", toJSON(t, step))
	testkit.Equal(t, step.Members[1].State, "completed", "get_step %s", toJSON(t, step))
	testkit.Equal(t, step.Members[2].State, "started", "get_step %s", toJSON(t, step))

	r = p.finish(c, `{"outputs":{},"step_id":"c"}`)
	testkit.True(t, stepOf(r.BeginStep) == "d" && r.PendingConcurrentSteps == nil, "reply %s", toJSON(t, r))
	r = p.finish(c, `{"outputs":{}}`)
	testkit.True(t, r.Status == replies.WorkflowComplete &&
		toJSON(t, r.AllOutputs) == `{"report":"r.md","b_out":"r.md"}`, "reply %s", toJSON(t, r))
}

func TestARepeatedReportOfAMemberSaysThatItsGroupHasChanged(t *testing.T) {
	p := newProject(t).alpha("[[a, b, c], d]", testStep{id: "a"}, testStep{id: "b"}, testStep{id: "c"},
		testStep{id: "d"})
	_, c, _ := p.begin()
	for i, step := range []string{"b", "b", "c", "b"} {
		r := p.finish(c, `{"outputs":{},"step_id":"`+step+`"}`)
		testkit.True(t, (r.Waiting() != nil) == (i < 3) && strings.Contains(toJSON(t, r.Notice),
			"get_step") == (i == 3), "report %d, of %s: %s", i, step, toJSON(t, r))
	}
}

// A step that is current in another session of the stack: the error gives the call that finishes it there,
// also for a member of a group.
func TestField25_AStepOfOtherSessionsOfTheStack(t *testing.T) {
	p := grouped(t)
	p.simple("beta")
	_, c, below := p.begin()
	above := p.start(c, "beta", "main").BeginStep.SessionID
	for _, step := range []string{"a", "b"} {
		refused(t, refusal(t, c, `{"outputs":{"out":"r.md"},"step_id":"`+step+`"}`), session.ToolError, "unknown_step",
			"session '"+below+"' (alpha/main)", "session '"+above+"' (beta/main)",
			`finished_step with {"session_id": "`+below+`", "step_id": "`+step+`", "outputs": {"out":"r.md"}}`)
	}
	testkit.Equal(t, strings.Join(p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b","session_id":"`+below+`"}`).
		PendingConcurrentSteps, " "), "a c", "the call that the error gives")

	// Finished, so current nowhere.
	refused(t, refusal(t, c, `{"outputs":{"b_out":"other.md"},"step_id":"b"}`), session.ToolError, "unknown_step",
		"the current step is 'one'")

	// Current in two other sessions: both are named, and neither is chosen for the caller.
	top, twice := p.start(c, "beta", "main").BeginStep.SessionID, p.start(c, "beta", "main").BeginStep.SessionID
	err := refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+below+`"}`)
	refused(t, err, session.ToolError, "unknown_step", "'"+twice+"' (beta/main) and '"+top+"' (beta/main)",
		"with the session_id of the one")
	testkit.Equal(t, strings.Contains(err.Error(), "finished_step with"), false, "it chooses one")
	for _, id := range []string{top, twice} {
		testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "tried", SessionID: &id})))
	}

	// The same workflow twice: a step that is ahead in the upper one.
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	p.start(c, "beta", "main")
	err = refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	refused(t, err, session.StateError, "step_not_current", `{"session_id": "`+above+`", "step_id": "two"`)
	testkit.True(t, !strings.Contains(err.Error(), "Finish that first"), "%v", err)
}

func TestAReviewedGroupWhoseLastMemberIsEditedAwayCloses(t *testing.T) {
	a := testStep{id: "a", outputs: oneFile}
	b := testStep{id: "b", outputs: "{b_out: {type: file, description: d, required: true}}", reviews: reviewedStep}
	p := newProject(t).alpha("[[a, b, x], d]", a, b, testStep{
		id:      "x",
		reviews: `[{run_each: step, by: human, quality_criteria: {good: "Is it?"}}]`,
	}, testStep{id: "d"})
	srv, _, c, _ := p.reviewed()
	says(t, p.finish(c, `{"outputs":{},"step_id":"x"}`), replies.NeedsWork, "a person must pass")
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"a"}`)
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	p.alpha("[a, d]", a, testStep{id: "d"})
	testkit.Contains(t, toJSON(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Notice), "Call finished_step once more")
	p.alpha("[[a, b], d]", a, b, testStep{id: "d"})
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"b_out":"`+p.write("s.md", "y")+`"},"step_id":"b"}`).BeginStep),
		"d", "the group does not close")
	testkit.Same(t, testkit.Get(srv.ToReview(ctx)).Must(t), nil, "what waits for a person of a step that is gone")
}

// isolated begins a session as a run does, whose two items have worktrees of their own: the first has its folder.
func isolated(t *testing.T) (p *project, srv *server, c *Conn, id, folder string) {
	t.Helper()
	p = newProject(t).alpha("[list, {for_each: todo, steps: [port], at_once: 2, isolation: worktree}, sum]",
		testStep{id: "list", outputs: oneList},
		testStep{
			id:      "port",
			outputs: "{out: {type: file, description: d}}",
			checks:  "[" + newScript(t, "test -f here").yaml(", protect: [tests/**]") + "]",
			reviews: `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`,
		}, testStep{id: "sum"})
	p.write("tests/t", "t")
	srv = p.open(reviewing(&Reviewing{MaxTries: 3, ReplyWithin: time.Minute}))
	c = srv.Connect("local")
	id = testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", Isolated: true})).
		Must(t).BeginStep.SessionID
	p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`)
	folder = testkit.Dir(t)
	testkit.WriteAll(t, folder, map[string]string{"tests/t": "another item has changed it", "out.md": "x", "here": ""})
	testkit.Must(t, srv.IsolateFor(ctx, id, "port[0]", folder))
	return p, srv, c, id, folder
}

// What a step of an item hands in, its checks, what they protect and what a person is shown are in the folder of the
// item, and the item is done when it is merged, which only the leader of the run says.
func TestIsolatedItemIsWorkedOnInItsFolder(t *testing.T) {
	p, srv, c, id, folder := isolated(t)
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id, StepID: new("port[0]")})).Must(t).
		BeginStep.ProjectRoot, folder)

	refused(t, refusal(t, c, `{"outputs":{"out":"out.md"},"step_id":"port[1]"}`), session.ToolError,
		codes.FileNotFound, "out.md")
	const call = `{"outputs":{"out":"out.md"},"step_id":"port[0]"}`
	says(t, p.finish(c, call), replies.NeedsWork, "a person must pass")
	digest, answer := p.record(id).Progress("port[0]").Asked().Content, machine.Answer{Passed: true, Identity: "me"}
	testkit.Write(t, filepath.Join(folder, "out.md"), "y")
	refused(t, srv.ReviewFor(ctx, id, "port[0]", digest, answer), session.StateError, codes.OutputsChanged, "out.md")
	testkit.Write(t, filepath.Join(folder, "out.md"), "x")
	testkit.Must(t, srv.ReviewFor(ctx, id, "port[0]", digest, answer))
	testkit.Write(t, filepath.Join(folder, "tests/t"), "changed")
	says(t, p.finish(c, call), replies.NeedsWork, "tests/t")
	testkit.Write(t, filepath.Join(folder, "tests/t"), "another item has changed it")
	testkit.Equal(t, stepOf(p.finish(c, call).BeginStep), "merge:port[0]", "after the step")

	const merge = `{"outputs":{},"step_id":"merge:port[0]"}`
	refused(t, refusal(t, c, merge), session.StateError, codes.StepNotCurrent, "which the run does")
	args := finishArgs(t, merge)
	args.Merged = true
	r := testkit.Get(c.Finish(ctx, args)).Must(t)
	testkit.Equal(t, len(r.PendingConcurrentSteps), 2) // of the other item
	testkit.Equal(t, p.record(id).RootOf(p.root, "port[0]"), p.root)
	testkit.Must(t, srv.DropFor(ctx, id, "port[1]", judging.Override{Identity: "me", Reason: "obsolete"}))
	r = p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, fmt.Sprint(r.Status, toJSON(t, r.AllOutputs)),
		`workflow_complete{"todo":"[\"a\",\"b\"]","out":["out.md",null]}`, "at the end")
}

// An item goes on in its folder if go_to_step begins it again, and in another one after it was merged.
func TestIsolatedItemThatBeginsAgain(t *testing.T) {
	p, srv, _, id, folder := isolated(t)
	where := func() string { return p.record(id).RootOf(p.root, "port[0]") }
	testkit.Must(t, srv.GoToFor(ctx, id, "port[0]", 0))
	testkit.Equal(t, where(), folder)
	testkit.Must(t, srv.GoToFor(ctx, id, "port", 0))
	testkit.Equal(t, where(), p.root)
	testkit.Equal(t, p.record(id).Progress("port[0]").Folder, ".")
	refused(t, srv.IsolateFor(ctx, id, "sum", folder), session.StateError, codes.StepNotCurrent)
}

func TestIsolationIsForRuns(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port], isolation: worktree}]",
		testStep{id: "list", outputs: oneList}, testStep{id: "port"})
	_, c, _ := p.begin()
	p.finish(c, `{"outputs":{"todo":"[\"a\"]"}}`)
	testkit.Equal(t, p.finish(c, `{"outputs":{}}`).Status, replies.WorkflowComplete,
		"after the only step of the only item")
}
