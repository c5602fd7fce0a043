package workflow_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

// survey is a job of format 2, whose workflows have different steps of one name.
const survey = `name: survey
summary: Ask people
step_arguments:
  - {name: topic, description: "What it is about", type: string}
  - {name: place, description: "Where to ask", type: string}
  - {name: people, description: "Whom to ask", type: file_path}
  - {name: notes, description: "What people said", type: file_path}
workflows:
  ask:
    summary: Ask once
    agent: interviewer
    common_job_info_provided_to_all_steps_at_runtime: Be polite.
    steps:
      - {name: prepare, instructions: "# Prepare to ask", inputs: {topic: {}, people: {}, place: {required: ` +
	`false}, notes: {required: false}}, outputs: {notes: {}}}
      - {name: ask, instructions: "Ask them.", inputs: {notes: {}, topic: {}}, outputs: {notes: {review: ` +
	`{strategy: individual, instructions: "Is it what they said?"}}}}
      - {name: tell, instructions: "Tell it.", inputs: {notes: {}}}
    post_workflow_instructions: Thank everybody.
  again:
    summary: Ask again
    common_job_info_provided_to_all_steps_at_runtime: Be brief.
    steps:
      - {name: prepare, instructions: "# Prepare once more", inputs: {topic: {}}}
`

func surveyed(t *testing.T, change ...func(*Options)) (*project, *server, *Conn) {
	p := newProject(t)
	p.write(".deepwork/jobs/survey/job.yml", survey)
	testkit.WriteAll(t, p.root, map[string]string{
		"people.md":   "people",
		"one.md":      "one",
		"two.md":      "two",
		"folder/x.md": "x",
	})

	srv := p.open(change...)
	return p, srv, srv.Connect("local")
}

func withoutReviews(o *Options)          { o.Reviews = false }
func text(s string) outputs.Value        { return outputs.Value{Paths: []string{s}} }
func list(paths ...string) outputs.Value { return outputs.Value{Paths: paths, List: true} }

type given map[string]outputs.Value

func started(t *testing.T, c *Conn, workflow string, in given) *replies.StepInfo {
	t.Helper()
	return testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "survey", WorkflowName: workflow, Inputs: in})).
		Must(t).BeginStep
}

func inputsOf(info *replies.StepInfo) (all []string) {
	for _, in := range info.Inputs {
		line := in.Name + ": " + *cmp.Or(in.Value,
			new(fmt.Sprint(in.Paths))) + map[bool]string{true: " not given"}[in.NotGiven]
		all = append(all, line+strings.TrimSuffix(" from "+in.FromStep,
			" from ")+map[bool]string{true: ", optional"}[in.Optional])
	}
	return all
}

func stepInfo(t *testing.T, c *Conn, id string) *replies.StepInfo {
	t.Helper()
	return testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep
}

func TestInputsAreCheckedByTheirDeclaration(t *testing.T) {
	p, _, c := surveyed(t)
	p.simple("alpha")
	people, topic := text("people.md"), text("tides")
	for i := range 1001 {
		p.write(fmt.Sprint("large/", i), "")
	}

	for name, tc := range map[string]struct {
		in    given
		code  string
		words []string
		job   string // "" is survey
	}{
		"missing": {given{"people": people}, "bad_inputs",
			[]string{"needs inputs", "- topic (string): What it is about", "Ask the user"}, ""},
		"blank": {given{"people": list(""), "topic": text(" \n")}, "bad_inputs",
			[]string{"needs inputs", "topic", "people (file_path)"}, ""},
		"unknown": {given{"people": people, "topic": topic, "places": topic}, "bad_inputs",
			[]string{"no input 'places'", "- place (string, optional): Where to ask"}, ""},
		"a list for a text": {given{"people": people, "topic": list("a", "")}, "bad_inputs",
			[]string{"takes one value", "topic (string)"}, ""},
		"a text that is long": {given{"people": people, "topic": text(strings.Repeat("é", 100_001))},
			"argument_too_large", []string{"Input 'topic'", "100001 characters", "at most 100000"}, ""},
		"a file that is not": {given{"people": text("nobody.md"), "topic": topic}, "file_not_found",
			[]string{"Input 'people': file not found at 'nobody.md'", p.root}, ""},
		"a file outside": {given{"people": text("/etc/hosts"), "topic": topic}, "outside_project",
			[]string{"Input 'people'", "leads outside"}, ""},
		"a large folder": {given{"people": text("large"), "topic": topic}, "not_a_file",
			[]string{"Input 'people'", "more than 1000 files"}, ""},
		"one of several files": {given{"people": list("people.md", "nobody.md"), "topic": topic}, "file_not_found",
			[]string{"nobody.md"}, ""},
		"of a job without them": {given{"topic": topic}, "bad_inputs",
			[]string{"has no input 'topic'", "It takes: none"}, "alpha"},
	} {
		t.Run(name, func(t *testing.T) {
			a := StartArgs{Goal: "g", JobName: cmp.Or(tc.job, "survey"), WorkflowName: "ask"}
			testkit.Must(t, json.Unmarshal([]byte(toJSON(t, tc.in)), &a.Inputs))
			refused(t, errOf(c.Start(ctx, a)), session.ToolError, tc.code, tc.words...)
			testkit.Equal(t, len(c.Stack()), 0, "a session began")
		})
	}
	started(t, c, "ask", given{
		"people": list("people.md", "folder"),
		"topic":  text(strings.Repeat("é", 100_000)),
		"place":  {List: true},
	})
}

// The refusal of a path that names no file offers the one whose name differs in its case or Unicode form, or by what
// is around it.
func TestFileNotFoundOffersANearName(t *testing.T) {
	p, _, c := surveyed(t)
	p.write("Docs/re\u0301sume\u0301 1.md", "x")
	p.write("@types/x.md", "x")
	testkit.Must(t, os.MkdirAll(filepath.Join(p.root, "folder/sub"), 0o755))
	resume := `Did you mean 'Docs/re` + "\u0301sume\u0301" + ` 1.md', which is "Docs/re\u0301sume\u0301 1.md"?`
	for path, want := range map[string]string{
		"Docs/r\u00e9sum\u00e9 1.md":      resume,
		"docs/R\u00c9SUM\u00c9\u202f1.md": resume,
		"PEOPLE.md":                       "Did you mean 'people.md'?",
		"`people.md`":                     "Did you mean 'people.md'?",
		"@people.md":                      "Did you mean 'people.md'?",
		`@"Folder/X.md" `:                 "Did you mean 'folder/x.md'?",
		"@Types/x.md":                     "Did you mean '@types/x.md'?",
		p.root + "/Folder/x.md":           "Did you mean 'folder/x.md'?",
		"peoples.md":                      "",
		"folder/SUB":                      "",
		"@":                               "",
		"@../people.md":                   "",
	} {
		_, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "survey", WorkflowName: "ask",
			Inputs: given{"topic": text("t"), "people": text(path)}})
		if runtime.GOOS != "linux" && err == nil {
			continue // file systems that do not tell these apart
		}
		refused(t, err, session.ToolError, "file_not_found", want)
		testkit.Equal(t, strings.Contains(err.Error(), "Did you mean"), want != "", "%s: %v", path, err)
	}
}

// Inputs are kept for the whole session, and shown to each step that names them, with the newest value of
// what steps make: that of a step that is finished, and not undone by go_to_step.
func TestInputsOfEachStepAreTheNewestValues(t *testing.T) {
	p, srv, c := surveyed(t, withoutReviews)
	want := func(of string, info *replies.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, inputsOf(info), want, "%s", of)
	}
	prepare := []string{"topic: tides", "people: [people.md]", "place: [] not given, optional",
		"notes: [] not given, optional"}
	asking := []string{"notes: [one.md] from prepare", "topic: tides"}
	first := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md")})
	want("the first step", first, prepare...)
	finish := func(step, file string) *replies.StepInfo {
		t.Helper()
		return p.finish(c, fmt.Sprintf(`{"step_id": %q, "session_id": %q, "outputs": {"notes": [%q]}}`, step,
			first.SessionID, file)).BeginStep
	}
	goTo := func(step string) *replies.StepInfo {
		t.Helper()
		return testkit.Get(c.GoTo(ctx, GoToArgs{StepID: step, SessionID: &first.SessionID})).Must(t).BeginStep
	}
	want("the second step", finish("prepare", "one.md"), asking...)
	want("the third step", finish("ask", "two.md"), "notes: [two.md] from ask")
	want("after go_to_step", goTo("ask"), asking...)
	srv.stop()
	c = p.open(withoutReviews).Connect("local")
	want("after a restart", stepInfo(t, c, first.SessionID), asking...)
	want("the first step again", goTo("prepare"), prepare...)
	finish("prepare", "two.md")
	want("the third step again", finish("ask", "one.md"), "notes: [one.md] from ask")
	end := p.finish(c, `{"step_id": "tell", "outputs": {}}`)
	testkit.Equal(t, toJSON(t, end.AllOutputs)+end.Closing, `{"notes":["one.md"]}Thank everybody.`, "the end")
	testkit.Contains(t, toJSON(t, p.record(first.SessionID).Inputs), `{"topic":{"text":"tides"},`, "the export")

	// An output that rewrites an input from outside is the newer value; without it the input is.
	info := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md"), "notes": text("two.md")})
	testkit.Equal(t, inputsOf(info)[3], "notes: [two.md], optional")
	testkit.Equal(t, inputsOf(p.finish(c, `{"outputs": {"notes": ["one.md"]}}`).BeginStep)[0],
		"notes: [one.md] from prepare")
}

// Two workflows of one job have steps of one name: each has its own step, common information and inputs, also
// nested in the other, and after a restart.
func TestStepsOfOneNameInTwoWorkflows(t *testing.T) {
	p, srv, c := surveyed(t)
	ask := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md")})
	winds := strings.Repeat("é ", outputs.MaxText/2) // such a text may be kept elsewhere
	again := started(t, c, "again", given{"topic": text(winds)})
	check := func(of string, info *replies.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, []string{info.Instructions, *info.CommonJobInfo, inputsOf(info)[0], info.StepID,
			info.ProjectRoot}, append(want, "prepare", p.root), "%s", of)
	}
	check("one", ask, "# Prepare to ask", "Be polite.", "topic: tides")
	check("the other", again, "# Prepare once more", "Be brief.", "topic: "+winds)
	// as an author does meanwhile
	p.write(".deepwork/jobs/survey/job.yml", strings.Replace(survey, "once more", "anew", 1))
	check("the other, edited", stepInfo(t, c, again.SessionID), "# Prepare anew", "Be brief.", "topic: "+winds)
	srv.stop()
	// the stored definitions are used
	testkit.Must(t, os.Rename(filepath.Join(p.root, ".deepwork/jobs/survey"), filepath.Join(p.root, "gone")))
	c = p.open().Connect("local")
	check("one, as it is kept", stepInfo(t, c, ask.SessionID), "# Prepare to ask", "Be polite.", "topic: tides")
	check("the other, as it is kept", stepInfo(t, c, again.SessionID), "# Prepare once more", "Be brief.",
		"topic: "+winds)
	testkit.Equal(t, len(c.Stack()), 2, "the stack")
}

func TestARequestIDStandsForItsInputs(t *testing.T) {
	_, _, c := surveyed(t)
	a := StartArgs{
		Goal:         "g",
		JobName:      "survey",
		WorkflowName: "again",
		RequestID:    new("q"),
		Inputs:       given{"topic": text("tides")},
	}
	first := testkit.Get(c.Start(ctx, a)).Must(t).BeginStep.SessionID
	testkit.Equal(t, testkit.Get(c.Start(ctx, a)).Must(t).BeginStep.SessionID, first,
		"the session of the repeated call")
	a.Inputs = given{"topic": text("winds")}
	refused(t, errOf(c.Start(ctx, a)), session.ToolError, "request_id_reused")
}

func TestASelfReviewHasTheInputs(t *testing.T) {
	p, _, c := surveyed(t)
	id := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md")}).SessionID
	p.finish(c, `{"step_id": "prepare", "outputs": {"notes": ["one.md"]}}`)
	p.finish(c, `{"step_id": "ask", "outputs": {"notes": ["two.md"]}}`)
	got := testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/tmp/quality_review_"+id+"_ask.md"))).Must(t)
	testkit.ContainsAll(t, string(got),
		[]string{"> Be polite.\n", "- `notes`, from step `prepare`: What people said\n  - `one.md`\n",
			"- `topic`, from the start of the workflow: What it is about\n  > tides\n"})
}

// The inputs of our own format are declared by the workflow, and its steps name them.
func TestInputsOfOurFormat(t *testing.T) {
	p := newProject(t)
	p.write("plan.md", "x")
	p.write(".deepwork/jobs/ours/job.yml", `name: ours
version: "1.0.0"
summary: s
common_job_info_provided_to_all_steps_at_runtime: For all.
steps:
  - {id: one, name: n, description: d, instructions: "Do it.", outputs: {}, reviews: [], inputs: [{name: tone, `+
		`description: d}, {name: plan, description: d}, {name: mood, description: d}]}
workflows:
  - {name: main, summary: s, common_job_info_provided_to_all_steps_at_runtime: For main., steps: [one],
     inputs: [{name: tone, description: The tone, default: plain}, {name: plan, description: The plan, type: `+
		`files, default: plan.md}]}
`)
	c := p.open().Connect("local")

	for want, in := range map[string]given{
		"[tone: plain plan: [plan.md] mood: []] For main. Do it.": nil,
		"[tone: merry plan: [plan.md] mood: []] For main. Do it.": {"tone": text("merry"), "plan": text("plan.md")},
	} {
		b := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "ours", WorkflowName: "main", Inputs: in})).
			Must(t).BeginStep
		testkit.Equal(t, fmt.Sprint(inputsOf(b), " ", *b.CommonJobInfo, " ", b.Instructions), want)
	}
}

// An input that no step takes is not dropped: the first step that is done gets it, and its reviewers do.
func TestAnInputThatNoStepTakesReachesTheFirstStep(t *testing.T) {
	p := newProject(t)
	p.write(".deepwork/jobs/ours/job.yml", `name: ours
version: "1.0.0"
summary: s
common_job_info_provided_to_all_steps_at_runtime: For all.
steps:
  - {id: zero, name: n, description: d, instructions: "Skip it.", outputs: {}, reviews: []}
  - {id: one, name: n, description: d, instructions: "Do it.", outputs: {}, reviews: [], inputs: [{name: tone, `+
		`description: d}]}
  - {id: two, name: n, description: d, instructions: "Do it.", outputs: {}, reviews: [], inputs: [{name: place, `+
		`description: d}]}
workflows:
  - {name: main, summary: s, steps: [{when: {input: all, is: "yes"}, steps: [zero]}, one, two,
     {workflow: sub, inputs: {topic: passed}}], inputs: [{name: all, description: All}, {name: tone, description: T},
     {name: place, description: P}, {name: mood, description: The mood}, {name: passed, description: Q},
     {name: extra, description: E, required: false}]}
  - {name: sub, summary: s, steps: [one], inputs: [{name: topic, description: The topic}]}
`)
	c := p.open().Connect("local")
	in := given{"all": text("no"), "tone": text("plain"), "place": text("sea"), "mood": text("calm"),
		"passed": text("tides")}
	start := StartArgs{Goal: "g", JobName: "ours", WorkflowName: "main", Inputs: in}
	begun := testkit.Get(c.Start(ctx, start)).Must(t).BeginStep
	first := []string{"tone: plain", "mood: calm", "extra: [] not given, optional"}
	testkit.Same(t, inputsOf(begun), first, "step %s", begun.StepID)
	testkit.Equal(t, begun.Inputs[1].Description, "The mood")
	testkit.Same(t, inputsOf(stepInfo(t, c, begun.SessionID)), first, "the first step again")
	second := p.finish(c, `{"step_id": "one", "outputs": {}}`).BeginStep
	testkit.Same(t, inputsOf(second), []string{"place: sea"}, "step %s", second.StepID)
	called := p.finish(c, `{"step_id": "two", "outputs": {}}`).BeginStep
	testkit.Same(t, inputsOf(called), []string{"tone: []", "topic: tides"}, "step %s of the workflow that is a step",
		called.StepID)

	in["all"] = text("yes")
	begun = testkit.Get(c.Start(ctx, start)).Must(t).BeginStep
	testkit.Same(t, inputsOf(begun), first[1:], "step %s", begun.StepID)
}

func TestGetWorkflowsListsInputs(t *testing.T) {
	_, _, c := surveyed(t)
	testkit.ContainsAll(t, string(testkit.Get(c.GetWorkflows(ctx)).Must(t).Jobs), []string{
		`"agent":"interviewer","how_to_start":"Start a subagent of the type interviewer (`,
		`"inputs":[{"name":"topic","description":"What it is about","required":true,"type":"string"},` +
			`{"name":"people","description":"Whom to ask","required":true,"type":"file_path"},`,
		`{"name":"place","description":"Where to ask","required":false,"type":"string"}`,
		`{"name":"again","summary":"Ask again","inputs":[{"name":"topic"`,
	})
}

// start_workflow takes session_id as another name of parent_session_id, and says what to do with anything else.
func TestStartTakesSessionIDForTheParent(t *testing.T) {
	p, _, c := surveyed(t)
	outer := started(t, c, "again", given{"topic": text("a")}).SessionID
	started(t, c, "again", given{"topic": text("b")})
	a := StartArgs{
		Goal:         "g",
		JobName:      "survey",
		WorkflowName: "again",
		Inputs:       given{"topic": text("c")},
		SessionID:    &outer,
	}
	testkit.Equal(t, toJSON(t, p.record(testkit.Get(c.Start(ctx, a)).Must(t).BeginStep.SessionID).ParentSessionID),
		`"`+outer+`"`, "the parent")
	a.SessionID = new("5f0c0a0e-9a6e-4a50-8a7e-0c9d5f6b8a11")
	refused(t, errOf(c.Start(ctx, a)), session.ToolError, "bad_session_id", "leave it out", "parent_session_id",
		"begin_step.session_id")
}

// format2 writes a job of format 2 with the workflow main and the steps one and two. arguments are its
// step_arguments, step are the keys of one.
func (p *project) format2(arguments, step string) *project {
	p.write(".deepwork/jobs/alpha/job.yml", "name: alpha\nsummary: The job\nstep_arguments: ["+arguments+
		"]\nworkflows:\n  main:\n    summary: The workflow\n    steps:\n"+
		"      - {name: one, instructions: Do one., "+step+"}\n      - {name: two, instructions: Do two.}\n")
	return p
}

const textReport = "{name: report, description: A report, type: string}"

// report are the arguments of a finished_step for the output report, in JSON.
func report(value, more string) string { return `{"outputs":{"report":` + value + `}` + more + `}` }

// Rule 14: a text, also a long one, is kept in the session, survives its server, and a repeated call is one.
func TestRule14_ATextIsKeptInTheSession(t *testing.T) {
	p := newProject(t).format2(textReport, "outputs: {report: {}}")
	srv := p.open()
	c := srv.Connect("local")
	begun := p.start(c, "alpha", "main").BeginStep
	testkit.Equal(t, begun.ExpectedOutputs[0].Type+", "+begun.ExpectedOutputs[0].Syntax,
		"string, text, up to 100,000 characters", "expected output")

	text := strings.Repeat("é", outputs.MaxText)
	refused(t, refusal(t, c, report(toJSON(t, text+"e"), "")), session.ToolError, "argument_too_large",
		"100001 characters", "at most 100000")
	first := p.finish(c, report(toJSON(t, text), `,"step_id":"one"`))
	srv.stop()
	srv = p.open()
	c = srv.Connect("local")
	again := p.finish(c, report(toJSON(t, text), `,"step_id":"one","session_id":"`+begun.SessionID+`"`))
	testkit.Equal(t, toJSON(t, again.BeginStep), toJSON(t, first.BeginStep), "the repetition")

	refused(t, refusal(t, c, report(toJSON(t, text[2:]), `,"step_id":"one"`)), session.StateError, "step_finished",
		"finished already")
	done := toJSON(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).CompletedSteps[0].Outputs)
	testkit.True(t, len(done) <= 1000 && strings.Contains(done, "(100000 characters)"),
		"completed_steps has %.100s", done)
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{}}`).AllOutputs), `{"report":"`+text+`"}`, "all_outputs")

	got := testkit.Get(srv.Read(ctx, begun.SessionID)).Must(t).Progress("one").Outputs[0].Value.Text
	testkit.True(t, got != nil && *got == text, "the session does not have the text")
}

// Rules 14 and 16: the reviews of a text judge it in the prompt, and a verdict is for that text alone.
func TestRules14And16_ATextIsReviewed(t *testing.T) {
	p := newProject(t).format2("{name: report, description: A report, type: string, review: {strategy: individual, "+
		"instructions: Is it good}}",
		"outputs: {report: {review: {strategy: individual, instructions: Is it long}}}")
	_, rev, c, id := p.reviewed()
	rev.set("say", strings.ReplaceAll(passes, "Good", "report"))
	for i, text := range []string{"CONTENT OF bad.md", "CONTENT OF worse.md", "fine"} {
		r := p.finish(c, report(toJSON(t, text), ""))
		testkit.Need(t, (r.Status == replies.NextStep) == (i == 2) && rev.calls() == 2*(i+1), "%s: %d reviews, %s",
			text, rev.calls(), toJSON(t, r))
		testkit.True(t, i == 2 || len(r.FailedReviews) == 2 && r.FailedReviews[0].TargetFile == nil,
			"failed reviews %s", toJSON(t, r.FailedReviews))
	}
	e := p.record(id).Progress("one").FinishedWith()
	testkit.Equal(t, e.Why()[0].Kind, judging.ByReviewer)
	testkit.Same(t, e.Files, []judging.FileHash{{SHA256: session.Digest("fine"), Output: "report"}}, "evidence")
}

// What is git's own or an export, perhaps of another caller, is not handed in: who judges it or looks at the session
// would see it.
func TestPrivateFilesAreNotHandedIn(t *testing.T) {
	p := newProject(t).format2("{name: report, description: A report, type: file_path, review: {strategy: "+
		"matches_together, instructions: Is it good}}", "outputs: {report: {}}")
	private := []string{".git/config", "sub/.git/config", "other/.git", ".deepwork/tmp/session_0badcafe.json",
		"sub/.deepwork/tmp/session_0badcafe.json"}
	for _, name := range append(private, "sub/a.md") {
		p.write(name, "token = secret")
	}
	testkit.Must(t, os.Symlink(".git", filepath.Join(p.root, "link")))
	_, rev, c, _ := p.reviewed()
	rev.set("say", strings.ReplaceAll(passes, "Good", "report"))
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for _, name := range append(private, ".git", ".deepwork/tmp", "link/config", "./sub/../.git/config",
		filepath.Join(p.root, ".git", "config")) {
		err := refusal(t, c, report(toJSON(t, name), `,"step_id":"one"`))
		refused(t, err, session.ToolError, codes.BadPath, name, "not handed in")
	}
	p.finish(c, report(`"sub"`, `,"step_id":"one"`))
	files := p.record(id).Progress("one").FinishedWith().Files
	testkit.Same(t, xslices.Map(files, func(f judging.FileHash) string { return f.Path }), []string{"sub/a.md"})
}

// Rule 13: a file_path is a path, a list of paths, or a folder for the files in it.
func TestRule13_FilePaths(t *testing.T) {
	p := newProject(t).format2("{name: report, description: A report, type: file_path, review: {strategy: "+
		"matches_together, instructions: Is it good}}", "outputs: {report: {}}")
	testkit.WriteAll(t, p.root, map[string]string{
		"a.md":          "x",
		"dir/b.md":      "x",
		"dir/sub/c.md":  "x",
		"many/one more": "x",
	})

	testkit.Must(t, os.Mkdir(filepath.Join(p.root, "empty"), 0o700))
	for i := range 1000 {
		p.write(fmt.Sprintf("many/%04d", i), "x")
		p.write(fmt.Sprintf("full/%04d", i), "x")
	}
	_, rev, c, _ := p.reviewed()
	rev.set("say", strings.ReplaceAll(passes, "Good", "report"))
	for value, want := range map[string]string{
		`"a.md"`:            "a.md",
		`["a.md","dir"]`:    "a.md dir/b.md dir/sub/c.md",
		`"dir"`:             "dir/b.md dir/sub/c.md",
		`"empty"`:           "!there is no file in empty",
		`[]`:                "!needs at least one path",
		`"many"`:            "!the folder 'many' cannot be handed in: it has more than 1000 files",
		`"full"`:            "1000",
		`"../outside"`:      "!leads outside the project root",
		`["dir","none.md"]`: "!file not found at 'none.md'",
	} {
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		before := rev.calls()
		call := report(value, `,"step_id":"one"`)
		if what, wrong := strings.CutPrefix(want, "!"); wrong {
			testkit.Fails(t, refusal(t, c, call), what, value)
			continue
		}
		p.finish(c, call)
		done := p.record(id).Progress("one")
		files := xslices.Map(done.FinishedWith().Files, func(f judging.FileHash) string { return f.Path })
		testkit.True(t, strings.Join(files, " ") == want || fmt.Sprint(len(files)) == want, "%s: judged %s, want %s",
			value, files, want)
		testkit.Equal(t, toJSON(t, done.Outputs[0].Value), value, "recorded as")
		testkit.Equal(t, rev.calls(), before+1, "%s: reviews", value)
		p.finish(c, call) // the repetition
	}
}

// Rule 21: the author's account is asked for, and judged; that is not a try.
func TestRule21_TheAccountIsAskedForAndJudged(t *testing.T) {
	p := newProject(t).format2("", "process_requirements: {Good: The author MUST read what exists.}")
	_, rev, c, id := p.reviewed()
	r := testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.Reviews
	testkit.Need(t, len(r) == 1, "reviews %s", toJSON(t, r))
	testkit.True(t, r[0].Account, "reviews %s", toJSON(t, r))
	testkit.Equal(t, r[0].RunEach, "step", "reviews %s", toJSON(t, r))

	for _, given := range []string{"", `,"notes":" "`, `,"work_summary":null`} {
		says(t, p.finish(c, `{"outputs":{}`+given+`}`), replies.NeedsWork, "- Good: The author MUST read what exists.",
			"with notes")
		testkit.Equal(t, rev.calls(), 0, "%s: reviews", given)
	}
	says(t, p.finish(c, `{"outputs":{},"notes":"CONTENT OF bad.md"}`), replies.NeedsWork,
		"Try 1 of 3. Review of step: bad.md was read\n")
	says(t, p.finish(c, `{"outputs":{},"work_summary":"I read all."}`), replies.NextStep)
	one := p.record(id).Progress("one")
	testkit.Equal(t, rev.calls(), 2, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.Equal(t, one.QualityTries, 2, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.Equal(t, *one.Notes, "I read all.", "%d reviews, %s", rev.calls(), toJSON(t, one))
}

// Rule 25: the agent is told which subagent reviews its work.
func TestRule25_TheSubagentIsNamed(t *testing.T) {
	p := newProject(t).format2("{name: report, description: A report, type: string, review: {strategy: individual, "+
		"instructions: Is it good, agent: {claude: skeptic}}}", "outputs: {report: {}}")
	_, c, id := p.begin()
	says(t, p.finish(c, report(`"the text"`, "")), replies.NeedsWork,
		"Spawn a subagent of the type 'skeptic' for the review of report (")
	testkit.Contains(t,
		string(testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/tmp/quality_review_"+id+"_one.md"))).Must(t)),
		"- `report`, a text:\n\n> the text\n")
}

const (
	schemaReport = "{name: report, description: A report, type: file_path, json_schema: {type: object, required: " +
		"[title], properties: {n: {type: integer}}}}"
	misses = "- output 'report', bad.json: missing required \"title\" (required)\n- output 'report', worse.yml: n: " +
		"\"x\" is a string; expected an integer (type)\n"
)

// Rule 22: each file must satisfy the schema, whatever the agent and the settings say; only a person passes over it.
func TestRule22_OnlyAPersonPassesOverASchema(t *testing.T) {
	for name, how := range map[string]Reviewing{
		"external": {External: true, MaxTries: 2, ReplyWithin: patience},
		"self":     {MaxTries: 2},
		"off":      {MaxTries: 2},
		"never":    {MaxTries: 2, Override: config.OverrideNever},
	} {
		for _, reviews := range []string{"", ", process_requirements: {Good: It MUST be good.}"} {
			t.Run(name+reviews, func(t *testing.T) {
				p := newProject(t).format2(schemaReport, "outputs: {report: {}}"+reviews)
				testkit.WriteAll(t, p.root, map[string]string{
					"good.json": `{"title":"t","n":3}`,
					"bad.json":  `{"n":3}`,
					"worse.yml": "title: 2026-01-01\nn: x\n",
				})

				rev := &reviewer{t: t, dir: t.TempDir()}
				rev.how.Store(&how)
				srv := p.reopen(rev, func(o *Options) { o.Reviews = name != "off" })
				c := srv.Connect("local")
				id := p.start(c, "alpha", "main").BeginStep.SessionID
				const files, notes = `["good.json","bad.json","worse.yml"]`, `,"notes":"I did it."`
				for _, more := range []string{"", `,"quality_review_override_reason":"It is fine"`} {
					if name == "never" && reviews != "" && more != "" {
						continue // refused at once
					}
					r := p.finish(c, report(files, notes+more))
					says(t, r, replies.NeedsWork, misses)
					testkit.True(t, r.FailedReviews == nil && strings.Contains(*r.Feedback,
						"sessions override "+id+" one") == (name != "never"), "%s: %s", more, toJSON(t, r))
				}
				given, hashes := GivenFor(p.record(id), "one")
				one := p.record(id).Progress("one")
				testkit.Need(t, rev.calls() == 0, "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Need(t, one.QualityTries == 0, "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Need(t, given != "", "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Need(t, len(hashes) == 3, "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Need(t, one.Unfit().Feedback == misses, "%d reviews, %s", rev.calls(), toJSON(t, one))

				err := srv.OverrideFor(ctx, id, "one", p.decided(id))
				if name == "never" {
					refused(t, err, session.StateError, "override_needs_person", "not even a person")
					return
				}

				testkit.Must(t, err)
				r := p.finish(c, report(`["bad.json"]`, notes))
				testkit.True(t, r.Status == replies.NeedsWork &&
					strings.Contains(toJSON(t, r.Notice), "for other outputs"), "other outputs: %s", toJSON(t, r))
				says(t, p.finish(c, report(files, notes)), replies.NextStep)
				one = p.record(id).Progress("one")
				e := one.FinishedWith()
				testkit.Equal(t, e.Why()[0].Kind, judging.ByOverride, "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Equal(t, e.Why()[0].Feedback, "I looked at it", "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Equal(t, e.Of(judging.ByShape).Feedback, misses, "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.Need(t, len(one.Overrides) == 1, "%d reviews, %s", rev.calls(), toJSON(t, one))
				testkit.True(t, slices.Contains(one.Overrides[0].Skipped, "schema"), "%d reviews, %s", rev.calls(),
					toJSON(t, one))
				testkit.Equal(t, rev.calls(), 0, "%d reviews, %s", rev.calls(), toJSON(t, one))
			})
		}
	}
}

// Rule 22: what satisfies the schema goes on, and the session keeps the schema that it began with, also of a
// workflow that is its step.
func TestRule22_ASessionKeepsItsSchema(t *testing.T) {
	for _, of := range []string{"{type: object}", "schemas/report.json"} {
		p := newProject(t).format2("{name: report, description: A report, type: file_path, json_schema: "+of+"}",
			"outputs: {report: {}}")
		p.write(".deepwork/jobs/alpha/schemas/report.json", `{"type":"object"}`)
		_, c, _ := p.begin()
		testkit.WriteAll(t, p.root, map[string]string{
			"list.json":   "[]",
			"huge.json":   strings.Repeat(" ", MaxChecked) + "{}",
			"object.json": strings.Repeat(" ", MaxChecked-2) + "{}",
		})
		p.write(".deepwork/jobs/alpha/schemas/report.json", `{}`)
		p.format2("{name: report, description: Any report, type: file_path}", "outputs: {report: {}}")
		says(t, p.finish(c, report(`"list.json"`, "")), replies.NeedsWork, "[] is an array; expected an object (type)")
		says(t, p.finish(c, report(`"huge.json"`, "")), replies.NeedsWork, "bytes, over the limit of 10485760")
		says(t, p.finish(c, report(`"object.json"`, "")), replies.NextStep)
	}
	p := newProject(t).alpha("[one, {workflow: inner}]\n  - {name: inner, summary: i, steps: [two]}",
		testStep{id: "one"}, testStep{
			id:      "two",
			outputs: "{report: {type: file, description: A report, schema: s.json}}",
		})
	p.write(".deepwork/jobs/alpha/s.json", `{"type":"object"}`)
	_, c, _ := p.begin()
	testkit.WriteAll(t, p.root, map[string]string{"list.json": "[]", ".deepwork/jobs/alpha/s.json": "{}"})
	p.finish(c, `{"outputs":{}}`)
	says(t, p.finish(c, report(`"list.json"`, "")), replies.NeedsWork, "[] is an array; expected an object (type)")
}

// Rule 22: no session begins with a schema that cannot be used.
func TestRule22_AnUnusableSchema(t *testing.T) {
	for text, wrong := range map[string]string{
		"":                                       "does not exist in",
		`{"type": "objekt"}`:                     "cannot be used",
		`{"$ref": "https://x.test/"}`:            "nothing is fetched",
		`{"pattern": "(?!a)"}`:                   "regular expressions",
		`"` + strings.Repeat("x", 256<<10) + `"`: "262146 bytes, and 262144 are the most",
	} {
		p := newProject(t).format2("{name: report, description: A report, type: file_path, json_schema: report.json}",
			"outputs: {report: {}}")
		if text != "" {
			p.write(".deepwork/jobs/alpha/report.json", text)
		}
		refused(t, starting(p.open().Connect("local"), "alpha", "main"), session.ToolError, "instructions_missing",
			"output 'report' of step 'one'", wrong)
	}
}

// Rule 14: a person passes a text, which cannot change after it was handed in; another one is asked about again.
func TestRule14_APersonPassesAText(t *testing.T) {
	p := newProject(t).alpha("[one, two]", testStep{
		id:      "one",
		outputs: "{report: {type: string, description: A report}}",
		reviews: humanStep,
	}, testStep{id: "two"})
	srv, c, id := p.begin()
	for i, text := range []string{"first", strings.Repeat("second", 1000)} {
		waits(t, p.finish(c, report(toJSON(t, text), "")))
		q := testkit.Get(srv.Read(ctx, id)).Must(t).Progress("one").Asked()
		testkit.Equal(t, *q.Outputs[0].Value.Text, text, "what the question is about")
		testkit.Equal(t, q.Files[0].Name(), "the text 'report'")
		testkit.Contains(t, testkit.Get(srv.HandIn(ctx, id, "one")).Must(t).Brief(), text[:100*i+5])
		if i > 0 {
			testkit.Must(t, p.atTerminal(id, "one", q.Content, true, ""))
			says(t, p.finish(c, report(toJSON(t, text), "")), replies.NextStep)
		}
	}
}
