package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// format2 writes a job of format 2 with the workflow main and the steps one and two. arguments are its step_arguments,
// step are the keys of one.
func (p *project) format2(arguments, step string) {
	p.write(".deepwork/jobs/alpha/job.yml", "name: alpha\nsummary: The job\nstep_arguments: ["+arguments+"]\nworkflows:\n  main:\n    summary: The workflow\n    steps:\n"+
		"      - {name: one, instructions: Do one., "+step+"}\n      - {name: two, instructions: Do two.}\n")
}

const textReport = "{name: report, description: A report, type: string}"

// finishing calls finished_step for one output.
func (p *project) finishing(c *Conn, value, more string) (*machine.FinishReply, error) {
	return c.Finish(context.Background(), finishArgs(p.t, `{"outputs":{"report":`+value+`}`+more+`}`))
}

// Rule 14: a text, also a long one, is kept in the session, survives its server, and a repeated call is one.
func TestRule14_ATextIsKeptInTheSession(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.format2(textReport, "outputs: {report: {}}")
	srv := p.open()
	c := srv.Connect("local")
	begun := p.start(c, "alpha", "main").BeginStep
	id := begun.SessionID
	if got := begun.ExpectedOutputs[0]; got.Type != "string" || got.Syntax != "text, up to 100,000 characters" {
		t.Errorf("expected output %+v", got)
	}
	text := strings.Repeat("é", machine.MaxText)
	refused(t, testkit.Get(p.finishing(c, toJSON(t, text+"e"), "")).Err(), session.ToolError, "argument_too_large", "100001 characters", "at most 100000")
	first := errless(t)(p.finishing(c, toJSON(t, text), `,"step_id":"one"`))
	srv.stop()

	srv = p.open()
	c = srv.Connect("local")
	again := errless(t)(p.finishing(c, toJSON(t, text), `,"step_id":"one","session_id":"`+id+`"`))
	testkit.Equal(t, toJSON(t, again.BeginStep), toJSON(t, first.BeginStep), "the repetition")
	refused(t, testkit.Get(p.finishing(c, toJSON(t, text[2:]), `,"step_id":"one"`)).Err(), session.StateError, "step_finished", "finished already")
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	done := toJSON(t, step.CompletedSteps[0].Outputs)
	testkit.True(t, len(done) <= 1000 && strings.Contains(done, "(100000 characters)"), "completed_steps has %.100s", done)
	last := errless(t)(c.Finish(ctx, finishArgs(t, `{"outputs":{}}`)))
	testkit.Equal(t, toJSON(t, last.AllOutputs), `{"report":"`+text+`"}`, "all_outputs")
	s := testkit.Get(srv.Read(ctx, id)).Must(t)
	if got := s.Progress("one").Outputs[0].Value.Text; got == nil || *got != text {
		t.Error("the session does not have the text")
	}
}

// errless returns the result of a call that must succeed.
func errless(t testing.TB) func(*machine.FinishReply, error) *machine.FinishReply {
	return func(r *machine.FinishReply, err error) *machine.FinishReply {
		t.Helper()
		testkit.Must(t, err)
		return r
	}
}

// Rules 14 and 16: the reviews of a text judge it in the prompt, and a verdict is for that text alone.
func TestRules14And16_ATextIsReviewed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.format2("{name: report, description: A report, type: string, review: {strategy: individual, instructions: Is it good}}",
		"outputs: {report: {review: {strategy: individual, instructions: Is it long}}}")
	srv, rev := p.reviewed()
	rev.set("say", strings.ReplaceAll(passes, "Good", "report"))
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for i, c2 := range []struct{ text, status string }{{"CONTENT OF bad.md", "needs_work"}, {"CONTENT OF worse.md", "needs_work"}, {"fine", "next_step"}} {
		r := errless(t)(p.finishing(c, toJSON(t, c2.text), ""))
		if string(r.Status) != c2.status || rev.calls() != 2*(i+1) {
			t.Fatalf("%s: %d reviews, %s", c2.text, rev.calls(), toJSON(t, r))
		}
		testkit.True(t, i != 0 || len(r.FailedReviews) == 2 && r.FailedReviews[0].TargetFile == nil, "failed reviews %s", toJSON(t, r.FailedReviews))
	}
	want := []machine.FileHash{{SHA256: machine.Digest("fine"), Output: "report"}}
	if e := p.record(id).Progress("one").Evidence; e.Kind != machine.ByReviewer || !slices.Equal(e.Files, want) {
		t.Errorf("evidence %s", toJSON(t, e))
	}
}

// Rule 13: a file_path is a path, a list of paths, or a folder for the files in it.
func TestRule13_FilePaths(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.format2("{name: report, description: A report, type: file_path, review: {strategy: matches_together, instructions: Is it good}}", "outputs: {report: {}}")
	for _, name := range []string{"a.md", "dir/b.md", "dir/sub/c.md", "many/one more"} {
		p.write(name, "x")
	}
	testkit.Must(t, os.Mkdir(filepath.Join(p.root, "empty"), 0o700))
	for i := range 1000 {
		p.write(fmt.Sprintf("many/%04d", i), "x")
		p.write(fmt.Sprintf("full/%04d", i), "x")
	}
	srv, rev := p.reviewed()
	rev.set("say", strings.ReplaceAll(passes, "Good", "report"))
	c := srv.Connect("local")
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
		_, err := p.finishing(c, value, `,"step_id":"one"`)
		if what, wrong := strings.CutPrefix(want, "!"); wrong {
			testkit.True(t, err != nil && strings.Contains(err.Error(), what), "%s: %v, want %q", value, err, what)
			continue
		}
		testkit.Must(t, err)
		done := p.record(id).Progress("one")
		var files []string
		for _, f := range done.Evidence.Files {
			files = append(files, f.Path)
		}
		if got := strings.Join(files, " "); got != want && fmt.Sprint(len(files)) != want {
			t.Errorf("%s: judged %s, want %s", value, got, want)
		}
		if got := toJSON(t, done.Outputs[0].Value); got != value || rev.calls() != before+1 {
			t.Errorf("%s: recorded as %s, in %d reviews", value, got, rev.calls()-before)
		}
		testkit.Must(t, errOf(p.finishing(c, value, `,"step_id":"one"`))) // the repetition
	}
}

// Rule 21: the author's account is asked for, and judged; that is no try.
func TestRule21_TheAccountIsAskedForAndJudged(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.format2("", "process_requirements: {Good: The author MUST read what exists.}")
	srv, rev := p.reviewed()
	c := srv.Connect("local")
	begun := p.start(c, "alpha", "main").BeginStep
	if r := begun.Reviews; len(r) != 1 || !r[0].Account || r[0].RunEach != "step" {
		t.Errorf("reviews %s", toJSON(t, r))
	}
	for _, given := range []string{"", `,"notes":" "`, `,"work_summary":null`} {
		r := errless(t)(c.Finish(ctx, finishArgs(t, `{"outputs":{}`+given+`}`)))
		if r.Status != machine.NeedsWork || !strings.Contains(*r.Feedback, "- Good: The author MUST read what exists.") || !strings.Contains(*r.Feedback, "with notes") || rev.calls() != 0 {
			t.Fatalf("%s: %d reviews, %s", given, rev.calls(), toJSON(t, r))
		}
	}
	r := errless(t)(c.Finish(ctx, finishArgs(t, `{"outputs":{},"notes":"CONTENT OF bad.md"}`)))
	testkit.Need(t, r.Status == machine.NeedsWork && strings.HasPrefix(*r.Feedback, "Try 1 of 3. Review of step: bad.md was read\n"), "%s", toJSON(t, r))
	r = errless(t)(c.Finish(ctx, finishArgs(t, `{"outputs":{},"work_summary":"I read all."}`)))
	one := p.record(begun.SessionID).Progress("one")
	if r.Status != machine.NextStep || rev.calls() != 2 || one.QualityTries != 2 || *one.Notes != "I read all." {
		t.Errorf("%d reviews, %s, %s", rev.calls(), toJSON(t, r), toJSON(t, one))
	}
}

// Rule 25: the agent is told which subagent reviews its work.
func TestRule25_TheSubagentIsNamed(t *testing.T) {
	p := newProject(t)
	p.format2("{name: report, description: A report, type: string, review: {strategy: individual, instructions: Is it good, agent: {claude: skeptic}}}", "outputs: {report: {}}")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	r := errless(t)(p.finishing(c, `"the text"`, ""))
	testkit.True(t, strings.Contains(*r.Feedback, "Spawn a subagent of the type 'skeptic' for the review of report ("), "feedback %s", *r.Feedback)
	file := testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/tmp/quality_review_"+id+"_one.md"))).Must(t)
	testkit.Contains(t, string(file), "- `report`, a text:\n\n> the text\n")
}

const (
	schemaReport = "{name: report, description: A report, type: file_path, json_schema: {type: object, required: [title], properties: {n: {type: integer}}}}"
	misses       = "- output 'report', bad.json: missing required \"title\" (required)\n- output 'report', worse.yml: n: \"x\" is a string; expected an integer (type)\n"
)

// Rule 22: each file must satisfy the schema, whatever the agent and the settings say; only a person passes over it.
func TestRule22_OnlyAPersonPassesOverASchema(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]Reviewing{
		"external": {External: true, MaxTries: 2, ReplyWithin: patience},
		"self":     {MaxTries: 2},
		"off":      {MaxTries: 2},
		"never":    {MaxTries: 2, Override: config.OverrideNever},
	} {
		for _, reviews := range []string{"", ", process_requirements: {Good: It MUST be good.}"} {
			t.Run(name+reviews, func(t *testing.T) {
				p := newProject(t)
				p.format2(schemaReport, "outputs: {report: {}}"+reviews)
				p.write("good.json", `{"title":"t","n":3}`)
				p.write("bad.json", `{"n":3}`)
				p.write("worse.yml", "title: 2026-01-01\nn: x\n")
				rev := &reviewer{t: t, dir: t.TempDir()}
				rev.how.Store(&how)
				srv := p.reopen(rev, func(o *Options) { o.Reviews = name != "off" })
				c := srv.Connect("local")
				id := p.start(c, "alpha", "main").BeginStep.SessionID
				files := `["good.json","bad.json","worse.yml"]`
				for _, more := range []string{"", `,"quality_review_override_reason":"It is fine"`} {
					if how.Override == config.OverrideNever && reviews != "" && more != "" {
						continue // refused at once
					}
					r := errless(t)(p.finishing(c, files, `,"notes":"I did it."`+more))
					if r.Status != machine.NeedsWork || r.FailedReviews != nil || !strings.Contains(*r.Feedback, misses) || strings.Contains(*r.Feedback, "sessions override "+id+" one") == (name == "never") {
						t.Fatalf("%s: %s", more, toJSON(t, r))
					}
				}
				given, hashes := GivenFor(p.record(id), "one")
				if one := p.record(id).Progress("one"); rev.calls() != 0 || one.QualityTries != 0 || given == "" || len(hashes) != 3 || one.Unfit.Faults != misses {
					t.Fatalf("%d reviews, %s", rev.calls(), toJSON(t, one))
				}
				err := srv.OverrideFor(ctx, id, "one", machine.Override{GivenFor: given, Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"})
				if name == "never" {
					refused(t, err, session.StateError, "override_needs_person", "not even a person")
					return
				}
				testkit.Must(t, err)
				if r := errless(t)(p.finishing(c, `["bad.json"]`, `,"notes":"I did it."`)); r.Status != machine.NeedsWork || r.Notice == nil || !strings.Contains(*r.Notice, "for other outputs") {
					t.Errorf("other outputs: %s", toJSON(t, r))
				}
				if r := errless(t)(p.finishing(c, files, `,"notes":"I did it."`)); r.Status != machine.NextStep {
					t.Fatalf("after the decision: %s", toJSON(t, r))
				}
				one := p.record(id).Progress("one")
				if e := one.Evidence; e.Kind != machine.ByPerson || e.Reason != "I looked at it" || e.Misfits != misses || len(one.Overrides) != 1 || !slices.Contains(one.Overrides[0].Skipped, "schema") || rev.calls() != 0 {
					t.Errorf("%d reviews, %s", rev.calls(), toJSON(t, one))
				}
			})
		}
	}
}

// Rule 22: what satisfies the schema goes on, and the session keeps the schema that it began with.
func TestRule22_ASessionKeepsItsSchema(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"{type: object}", "schemas/report.json"} {
		p := newProject(t)
		p.write(".deepwork/jobs/alpha/schemas/report.json", `{"type":"object"}`)
		p.format2("{name: report, description: A report, type: file_path, json_schema: "+of+"}", "outputs: {report: {}}")
		srv := p.open()
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		p.write("list.json", "[]")
		p.write("huge.json", strings.Repeat(" ", maxChecked)+"{}")
		p.write("object.json", strings.Repeat(" ", maxChecked-2)+"{}")
		p.write(".deepwork/jobs/alpha/schemas/report.json", `{}`)
		p.format2("{name: report, description: Any report, type: file_path}", "outputs: {report: {}}")
		for value, wrong := range map[string]string{
			`"list.json"`: "[] is an array; expected an object (type)",
			`"huge.json"`: "it has more than 10485760 bytes",
		} {
			r := errless(t)(p.finishing(c, value, ""))
			testkit.True(t, r.Status == machine.NeedsWork && strings.Contains(*r.Feedback, wrong), "%s, %s: %s", of, value, toJSON(t, r))
		}
		testkit.Equal(t, errless(t)(p.finishing(c, `"object.json"`, "")).Status, machine.NextStep, "%s", of)
	}
}

// Rule 22: no session begins with a schema that cannot be used.
func TestRule22_AnUnusableSchema(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]string{
		"":                                       "does not exist in",
		`{"type": "objekt"}`:                     "cannot be used",
		`{"$ref": "https://x.test/"}`:            "nothing is fetched",
		`{"pattern": "(?!a)"}`:                   "regular expressions",
		`"` + strings.Repeat("x", 256<<10) + `"`: "262146 bytes, and 262144 are the most",
	} {
		p := newProject(t)
		if text != "" {
			p.write(".deepwork/jobs/alpha/report.json", text)
		}
		p.format2("{name: report, description: A report, type: file_path, json_schema: report.json}", "outputs: {report: {}}")
		refused(t, testkit.Get(p.open().Connect("local").Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main"})).Err(), session.ToolError, "instructions_missing", "output 'report' of step 'one'", wrong)
	}
}

// Rule 14: a person passes a text, which cannot change after it was handed in; another one is asked about again.
func TestRule14_APersonPassesAText(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: "{report: {type: string, description: A report}}", reviews: "[{run_each: step, by: human, quality_criteria: {sound: Would you sign it}}]"}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for i, text := range []string{"first", strings.Repeat("second", 1000)} {
		r := errless(t)(p.finishing(c, toJSON(t, text), ""))
		testkit.Need(t, r.Status == machine.NeedsWork && strings.HasPrefix(*r.Feedback, "Waiting:"), "%s", toJSON(t, r))
		s := testkit.Get(srv.Read(ctx, id)).Must(t)
		q := s.Progress("one").Question
		if got := q.Outputs[0].Value.Text; *got != text || q.Files[0].Name() != "the text 'report'" || !strings.Contains(testkit.Get(srv.HandIn(ctx, id, "one")).Must(t).Brief(), text[:100*i+5]) {
			t.Errorf("the question is about %.100s", *got)
		}
		if i > 0 {
			testkit.Must(t, srv.ReviewFor(ctx, id, "one", q.Digest, machine.Answer{Identity: "local", Channel: session.ChannelTerminal, Passed: true}))
		}
	}
	testkit.Equal(t, errless(t)(p.finishing(c, toJSON(t, strings.Repeat("second", 1000)), "")).Status, machine.NextStep)
}
