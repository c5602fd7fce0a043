package workflow

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
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
      - {name: prepare, instructions: "# Prepare to ask", inputs: {topic: {}, people: {}, place: {required: false}, notes: {required: false}}, outputs: {notes: {}}}
      - {name: ask, instructions: "Ask them.", inputs: {notes: {}, topic: {}}, outputs: {notes: {review: {strategy: individual, instructions: "Is it what they said?"}}}}
      - {name: tell, instructions: "Tell it.", inputs: {notes: {}}}
    post_workflow_instructions: Thank everybody.
  again:
    summary: Ask again
    common_job_info_provided_to_all_steps_at_runtime: Be brief.
    steps:
      - {name: prepare, instructions: "# Prepare once more", inputs: {topic: {}}}
`

// surveyed makes a project with the job survey, files, a server and a connection.
func surveyed(t *testing.T, change ...func(*Options)) (*project, *server, *Conn) {
	p := newProject(t)
	p.write(".deepwork/jobs/survey/job.yml", survey)
	for _, name := range []string{"people.md", "one.md", "two.md", "folder/x.md"} {
		p.write(name, name)
	}
	srv := p.open(change...)
	return p, srv, srv.Connect("local")
}

func withoutReviews(o *Options) { o.Reviews = false }

func text(s string) machine.OutputValue { return machine.OutputValue{Paths: []string{s}} }

func list(paths ...string) machine.OutputValue {
	return machine.OutputValue{Paths: paths, List: true}
}

type given map[string]machine.OutputValue

// started starts a workflow of survey.
func started(t *testing.T, c *Conn, workflow string, in given) *machine.StepInfo {
	t.Helper()
	return testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "survey", WorkflowName: workflow, Inputs: in})).Must(t).BeginStep
}

// inputsOf describes the inputs of a step.
func inputsOf(info *machine.StepInfo) (all []string) {
	for _, in := range info.Inputs {
		line := in.Name + ": " + fmt.Sprint(in.Paths)
		if in.Value != nil {
			line = in.Name + ": " + *in.Value
		}
		if in.NotGiven {
			line += " not given"
		}
		if in.FromStep != "" {
			line += " from " + in.FromStep
		}
		if in.Optional {
			line += ", optional"
		}
		all = append(all, line)
	}
	return all
}

// stepInfo is what get_step says of a session's step.
func stepInfo(t *testing.T, c *Conn, id string) *machine.StepInfo {
	t.Helper()
	return testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep
}

// A workflow begins only with inputs that it declares, all that it requires, of their types.
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
		"missing":               {given{"people": people}, "bad_inputs", []string{"needs inputs", "- topic (string): What it is about", "Ask the user"}, ""},
		"blank":                 {given{"people": people, "topic": text(" \n")}, "bad_inputs", []string{"needs inputs", "topic"}, ""},
		"unknown":               {given{"people": people, "topic": topic, "places": topic}, "bad_inputs", []string{"no input 'places'", "- place (string, optional): Where to ask"}, ""},
		"a list for a text":     {given{"people": people, "topic": list("a", "b")}, "bad_inputs", []string{"takes one value", "topic (string)"}, ""},
		"a text that is long":   {given{"people": people, "topic": text(strings.Repeat("é", 100_001))}, "argument_too_large", []string{"Input 'topic'", "100001 characters", "at most 100000"}, ""},
		"a file that is not":    {given{"people": text("nobody.md"), "topic": topic}, "file_not_found", []string{"Input 'people': file not found at 'nobody.md'", p.root}, ""},
		"a file outside":        {given{"people": text("/etc/hosts"), "topic": topic}, "outside_project", []string{"Input 'people'", "leads outside"}, ""},
		"a large folder":        {given{"people": text("large"), "topic": topic}, "not_a_file", []string{"Input 'people'", "more than 1000 files"}, ""},
		"one of several files":  {given{"people": list("people.md", "nobody.md"), "topic": topic}, "file_not_found", []string{"nobody.md"}, ""},
		"of a job without them": {given{"topic": topic}, "bad_inputs", []string{"has no input 'topic'", "It takes: none"}, "alpha"},
	} {
		t.Run(name, func(t *testing.T) {
			a := StartArgs{Goal: "g", JobName: cmp.Or(tc.job, "survey"), WorkflowName: "ask", Inputs: tc.in}
			refused(t, errOf(c.Start(ctx, a)), session.ToolError, tc.code, tc.words...)
			testkit.Equal(t, len(c.Stack()), 0, "a session began")
		})
	}
	started(t, c, "ask", given{"people": list("people.md", "folder"), "topic": text(strings.Repeat("é", 100_000)), "place": {List: true}})
}

// Inputs are kept for the whole session, and shown to each step that names them, with the newest value of
// what steps make: that of a step that is finished, and not undone by go_to_step.
func TestInputsOfEachStepAreTheNewestValues(t *testing.T) {
	p, srv, c := surveyed(t, withoutReviews)
	want := func(of string, info *machine.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, inputsOf(info), want, "%s", of)
	}
	prepare := []string{"topic: tides", "people: [people.md]", "place: [] not given, optional", "notes: [] not given, optional"}
	asking := []string{"notes: [one.md] from prepare", "topic: tides"}
	first := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md")})
	want("the first step", first, prepare...)
	finish := func(step, file string) *machine.StepInfo {
		t.Helper()
		return p.finish(c, fmt.Sprintf(`{"step_id": %q, "session_id": %q, "outputs": {"notes": [%q]}}`, step, first.SessionID, file)).BeginStep
	}
	goTo := func(step string) *machine.StepInfo {
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
	all, _ := end.AllOutputs.Get("notes")
	testkit.Equal(t, fmt.Sprint(all.Paths, end.Closing), "[one.md]Thank everybody.", "the end")
	kept, _ := p.record(first.SessionID).Inputs.Get("topic")
	testkit.True(t, kept.Text != nil && *kept.Text == "tides", "the export has the topic %+v", kept)
}

// An output that rewrites an input from outside is the newer value; without it the input is.
func TestAnOutputIsNewerThanAnInputOfItsName(t *testing.T) {
	_, srv, c := surveyed(t, withoutReviews)
	info := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md"), "notes": text("two.md")})
	testkit.Equal(t, inputsOf(info)[3], "notes: [two.md], optional")
	def := machine.Define(srv.catalog.Snapshot().Job("survey"), "ask")
	s := &machine.State{Inputs: machine.Outputs{{Key: "notes", Value: text("two.md")}}}
	got := s.StepInputs(def, def.Job.Step("tell"))[0]
	testkit.True(t, fmt.Sprint(got.Paths) == "[two.md]" && got.FromStep == "", "%+v", got)
}

// Two workflows of one job have steps of one name: each has its own step, common information and inputs, also
// nested in the other, and after a restart.
func TestStepsOfOneNameInTwoWorkflows(t *testing.T) {
	p, srv, c := surveyed(t)
	ask := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md")})
	winds := strings.Repeat("winds", 1000) // such a text may be kept elsewhere
	again := started(t, c, "again", given{"topic": text(winds)})
	check := func(of string, info *machine.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, []string{info.Instructions, *info.CommonJobInfo, inputsOf(info)[0], info.StepID, info.ProjectRoot}, append(want, "prepare", p.root), "%s", of)
	}
	check("one", ask, "# Prepare to ask", "Be polite.", "topic: tides")
	check("the other", again, "# Prepare once more", "Be brief.", "topic: "+winds)
	p.write(".deepwork/jobs/survey/job.yml", strings.Replace(survey, "once more", "anew", 1)) // as an author does meanwhile
	check("the other, edited", stepInfo(t, c, again.SessionID), "# Prepare anew", "Be brief.", "topic: "+winds)
	srv.stop()
	testkit.Must(t, os.Rename(filepath.Join(p.root, ".deepwork/jobs/survey"), filepath.Join(p.root, "gone"))) // the stored definitions are used
	c = p.open().Connect("local")
	check("one, as it is kept", stepInfo(t, c, ask.SessionID), "# Prepare to ask", "Be polite.", "topic: tides")
	check("the other, as it is kept", stepInfo(t, c, again.SessionID), "# Prepare once more", "Be brief.", "topic: "+winds)
	testkit.Equal(t, len(c.Stack()), 2, "the stack")
}

// Inputs are a part of what a request_id stands for.
func TestARequestIDStandsForItsInputs(t *testing.T) {
	_, _, c := surveyed(t)
	a := StartArgs{Goal: "g", JobName: "survey", WorkflowName: "again", RequestID: new("q"), Inputs: given{"topic": text("tides")}}
	first := testkit.Get(c.Start(ctx, a)).Must(t).BeginStep.SessionID
	testkit.Equal(t, testkit.Get(c.Start(ctx, a)).Must(t).BeginStep.SessionID, first, "the session of the repeated call")
	a.Inputs = given{"topic": text("winds")}
	refused(t, errOf(c.Start(ctx, a)), session.ToolError, "request_id_reused")
}

// A self-review has the common information and the inputs of its step, with their values.
func TestASelfReviewHasTheInputs(t *testing.T) {
	p, _, c := surveyed(t)
	id := started(t, c, "ask", given{"topic": text("tides"), "people": text("people.md")}).SessionID
	p.finish(c, `{"step_id": "prepare", "outputs": {"notes": ["one.md"]}}`)
	p.finish(c, `{"step_id": "ask", "outputs": {"notes": ["two.md"]}}`)
	got := testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/tmp/quality_review_"+id+"_ask.md"))).Must(t)
	testkit.ContainsAll(t, string(got), []string{"> Be polite.\n", "- `notes`, from step `prepare`: What people said\n  - `one.md`\n", "- `topic`, from the start of the workflow: What it is about\n  > tides\n"})
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
  - {id: one, name: n, description: d, instructions: "Do it.", outputs: {}, reviews: [], inputs: [{name: tone, description: d}, {name: plan, description: d}, {name: mood, description: d}]}
workflows:
  - name: main
    summary: s
    common_job_info_provided_to_all_steps_at_runtime: For main.
    steps: [one]
    inputs: [{name: tone, description: The tone, default: plain}, {name: plan, description: The plan, type: files, default: plan.md}]
`)
	c := p.open().Connect("local")
	for want, in := range map[string]given{
		"[tone: plain plan: [plan.md] mood: []] For main. Do it.": nil,
		"[tone: merry plan: [plan.md] mood: []] For main. Do it.": {"tone": text("merry"), "plan": text("plan.md")},
	} {
		b := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "ours", WorkflowName: "main", Inputs: in})).Must(t).BeginStep
		testkit.Equal(t, fmt.Sprint(inputsOf(b), " ", *b.CommonJobInfo, " ", b.Instructions), want)
	}
}

// get_workflows says what a workflow takes, and how one for a subagent is started.
func TestGetWorkflowsListsInputs(t *testing.T) {
	_, _, c := surveyed(t)
	testkit.ContainsAll(t, string(testkit.Get(c.GetWorkflows(ctx)).Must(t).Jobs), []string{
		`"agent":"interviewer","how_to_start":"Start a subagent of the type interviewer (`,
		`"inputs":[{"name":"topic","description":"What it is about","required":true,"type":"string"},{"name":"people","description":"Whom to ask","required":true,"type":"file_path"},`,
		`{"name":"place","description":"Where to ask","required":false,"type":"string"}`,
		`{"name":"again","summary":"Ask again","inputs":[{"name":"topic"`,
	})
}

// start_workflow takes session_id as another name of parent_session_id, and says what to do with anything else.
func TestStartTakesSessionIDForTheParent(t *testing.T) {
	p, _, c := surveyed(t)
	outer := started(t, c, "again", given{"topic": text("a")}).SessionID
	started(t, c, "again", given{"topic": text("b")})
	a := StartArgs{Goal: "g", JobName: "survey", WorkflowName: "again", Inputs: given{"topic": text("c")}, SessionID: &outer}
	r := testkit.Get(c.Start(ctx, a)).Must(t)
	testkit.Equal(t, toJSON(t, p.record(r.BeginStep.SessionID).ParentSessionID), `"`+outer+`"`, "the parent")
	a.SessionID = new("5f0c0a0e-9a6e-4a50-8a7e-0c9d5f6b8a11")
	refused(t, errOf(c.Start(ctx, a)), session.ToolError, "bad_session_id", "leave it out", "parent_session_id", "begin_step.session_id")
}

// A long text that a workflow is started with is kept beside the record, and is there after a restart.
func TestALongInputSurvivesARestart(t *testing.T) {
	p, srv, c := surveyed(t)
	topic := strings.Repeat("é ", machine.MaxText/2)
	id := started(t, c, "again", given{"topic": text(topic)}).SessionID
	srv.stop()
	testkit.True(t, inputsOf(stepInfo(t, p.open().Connect("local"), id))[0] == "topic: "+topic, "the text is another one after a restart")
}
