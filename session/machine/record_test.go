package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// What no transition can have made is found in a record, each with words of its own, and a good record has none of it.
func TestWhatIsWrongWithARecord(t *testing.T) {
	at, def := began, memoryDefinition(t, "[a, b]")
	def.Texts = map[string]string{"a": "A", "b": "B"}
	ended := func(s *State) { s.Status, s.CompletedAt = Aborted, &at }
	step := func(change func(p *StepProgress)) func(s *State) {
		return func(s *State) {
			p := s.ProgressOrNew("a", at)
			change(p)
			s.setProgress(p)
		}
	}
	const invalid = `step_progress of "a" is not that step's, or has an invalid submission`
	submitted := func(u judging.Submission) func(s *State) {
		u.ID = 1
		return step(func(p *StepProgress) { p.Submissions = []*judging.Submission{&u} })
	}

	reply := func(change func(r *StoredReply)) func(s *State) {
		return func(s *State) {
			r := *s.Replies[0]
			r.Raw = json.RawMessage(`{"begin_step":{"session_id":"00000001"}}`)
			change(&r)
			s.Replies = []*StoredReply{&r}
		}
	}
	for _, c := range []struct {
		want   string
		change func(s *State)
	}{
		{"", func(*State) {}},
		{"format_version is 0", func(s *State) { s.FormatVersion = 0 }},
		{`session_id is "1"`, func(s *State) { s.SessionID = "1" }},
		{"revision is -1", func(s *State) { s.Revision = -1 }},
		{"", func(s *State) { s.Revision = 1 << 53 }},
		{"revision is 9007199254740993", func(s *State) { s.Revision = 1<<53 + 1 }},
		{`status is "odd"`, func(s *State) { s.Status, s.CompletedAt = "odd", &at }},
		{"job_name or workflow_name is empty", func(s *State) { s.WorkflowName = "" }},
		{"current_entry_index is -1", func(s *State) { s.CurrentEntryIndex = -1 }},
		{"current_step_id is empty", func(s *State) {
			ended(s)
			s.AbortReason, s.CurrentStepID = new("r"), ""
		}},
		{"completed_at is null in a session that is completed", func(s *State) { s.Status = Completed }},
		{`current step "b" was never begun`, func(s *State) { s.CurrentStepID = "b" }},
		{`its current step "b" was never begun; its current step "b" is entry 1 of its definition, and it says 0`,
			func(s *State) {
				ended(s)
				s.AbortReason, s.CurrentStepID = new("r"), "b"
			}},
		{invalid, step(func(p *StepProgress) { p.Submissions = []*judging.Submission{nil} })},
		{invalid, submitted(judging.Submission{EndedAt: &at, Verdicts: []*judging.Verdict{nil}})},
		{invalid, submitted(judging.Submission{EndedAt: &at, Verdicts: []*judging.Verdict{{Kind: judging.ByProgram}}})},
		{invalid, submitted(judging.Submission{Verdicts: []*judging.Verdict{{Kind: judging.ByReviewer}}})},
		{invalid, step(func(p *StepProgress) {
			p.Submissions = []*judging.Submission{{ID: 1}}
			p.Finished = 1
		})},
		{"history[0] is null, or a part of it", func(s *State) { s.History = []*Withdrawal{nil} }},
		{"replies[0] is null", func(s *State) { s.Replies = []*StoredReply{nil} }},
		{"it is active, and has an end", func(s *State) { s.AbortReason = new("r") }},
		{"it is completed, and has the reason of an abort", func(s *State) {
			s.Status = Completed
			s.CompletedAt = &at
			s.AbortReason = new("r")
		}},
		{"it was aborted, and has no reason", ended},
		{"it is a step of no session", func(s *State) { s.CalledAs = "x" }},
		{`its parent "x" is the id of no session`, func(s *State) { s.ParentSessionID = new("x") }},
		{"", func(s *State) { s.ParentSessionID = new("0a1b2c3d") }},
		{"the time at which it began, or moved last, is missing", func(s *State) { s.UpdatedAt = time.Time{} }},
		{`step "a" has no time of its beginning`, step(func(p *StepProgress) { p.StartedAt = time.Time{} })},
		{`step "a" is both completed and unreported; all steps of its current entry are completed, and it is active`,
			step(func(p *StepProgress) {
				p.CompletedAt = &at
				p.Unreported = true
			})},
		{`step "a" has outputs and is not completed`,
			step(func(p *StepProgress) { p.Outputs = outputOf("o", textOf("x")) })},
		{`step "a" has a submission that has ended, and is with "odd"`,
			submitted(judging.Submission{EndedAt: &at, Turns: []judging.Turn{{With: "odd", At: at}}})},
		{`step "a" was finished with a submission that it lacks`, step(func(p *StepProgress) { p.Finished = 1 })},
		{`step "a" was finished with a submission that it lacks`, step(func(p *StepProgress) {
			p.Finished = 1
			p.Submissions = []*judging.Submission{{ID: 1, EndedAt: &at, Verdicts: []*judging.Verdict{{Kind: "other"}}}}
		})},
		{`step "a" has 1 tries that count, and says 0`, submitted(judging.Submission{
			Number:   1,
			EndedAt:  &at,
			Verdicts: []*judging.Verdict{{Kind: judging.ByReviewer}},
		})},
		{`its reply 0 is to an unknown tool: "dig"`, reply(func(r *StoredReply) { r.Tool = "dig" })},
		{"its reply 0, to start_workflow, cannot be read: unexpected end of JSON input",
			reply(func(r *StoredReply) { r.Raw = json.RawMessage(`{`) })},
		{"its reply 0, to start_workflow, cannot be read: it is null",
			reply(func(r *StoredReply) { r.Raw = json.RawMessage(`null`) })},
		{`its reply 0, to start_workflow, is of session "00000002"`,
			reply(func(r *StoredReply) { r.Raw = json.RawMessage(`{"begin_step":{"session_id":"00000002"}}`) })},
		{"its reply 0, to start_workflow, is of entry -1", reply(func(r *StoredReply) { r.EntryIndex = -1 })},
		{"it keeps the reply to an abort, and was not aborted", reply(func(r *StoredReply) { r.Tool = ToolAbort })},
		{`its reply 0 is to the finish of step "b", which was never begun`, reply(func(r *StoredReply) {
			r.Tool = ToolFinish
			r.StepID = "b"
		})},
		{`two of its replies are to the start_workflow with request_id "q"`, func(s *State) {
			reply(func(r *StoredReply) { r.RequestID = new("q") })(s)
			s.Replies = append(s.Replies, s.Replies[0])
		}},
		{"its definition h is of another job.yml than it says", func(s *State) { s.Definition.Source = "other" }},
		{"its definition h is of alpha/main", func(s *State) { s.WorkflowName = "other" }},
		{`its current step "a" is entry 0 of its definition, and it says 1`, func(s *State) {
			s.CurrentEntryIndex = 1
		}},
		{"all steps of its current entry are completed, and it is active",
			step(func(p *StepProgress) { p.CompletedAt = &at })},
	} {
		s := *testkit.Get(begin(def)).Must(t)
		s.Replies = []*StoredReply{{Tool: ToolStart, Raw: json.RawMessage(`{}`)}}
		c.change(&s)
		found := s.unusable("00000001")
		if len(found) == 0 { // the other checks rely on these
			found = append(s.Faults(), s.FaultsWith(def)...)
		}
		testkit.Equal(t, strings.Join(found, "; "), c.want)
	}
	def.Texts = nil
	testkit.Same(t, testkit.Get(begin(def)).Must(t).FaultsWith(def),
		[]string{"its definition h lacks instructions of the current entry"})
}

// A call that comes again with its request_id gets what it got, also if that moved nothing or was a refusal.
func TestAnswersToRequestIDs(t *testing.T) {
	s := testkit.Get(begin(memoryDefinition(t, "[a, b]"))).Must(t)
	first, second := Call{Tool: ToolFinish, RequestID: new("q")}, Call{Tool: ToolFinish, RequestID: new("r")}
	waiting := replies.NewFinish(replies.NextStep)
	testkit.True(t, waiting.Waiting().Code == "members_pending" && waiting.Alone("Done.").Waiting() == nil,
		"who waits for the others of a group")
	testkit.Equal(t, s.KeepAnswer(Call{Tool: ToolFinish}, 1, waiting, nil), s, "a call without request_id")
	kept := s.KeepAnswer(first, 1, waiting, nil)
	stored := kept.StoredReply(ToolFinish, "q")
	testkit.Equal(t, stored.EntryIndex, 1)
	testkit.Equal(t, kept.Revision, s.Revision+1)
	testkit.True(t, kept.StoredReply(ToolGoTo, "q") == nil, "%+v", stored)

	again := testkit.Get(ReplyOf[replies.Finish](stored)).Must(t)
	testkit.True(t, again != waiting && again.Status == replies.NextStep, "%+v", again)
	aliased := kept.Alias(stored, second)
	testkit.Equal(t, aliased.StoredReply(ToolFinish, "r").EntryIndex, 1)
	testkit.True(t, aliased.StoredReply(ToolFinish, "q") != nil && aliased.StoredReply(ToolFinish, "r").StepID == "",
		"%+v", aliased.Replies)

	over, _ := kept.Abort(Call{Tool: ToolAbort}, "why", time.Now())
	testkit.Equal(t, kept.Alias(stored, first), kept, "an alias is stored needlessly")
	testkit.Equal(t, kept.Alias(stored, Call{Tool: ToolFinish}), kept, "an alias is stored needlessly")
	testkit.Equal(t, over.Alias(stored, second), over, "an alias is stored needlessly")

	refusal := session.NotNow(codes.BoardBusy, "Later.").With("n", 1)
	refused := s.KeepAnswer(first, 0, nil, refusal).StoredReply(ToolFinish, "q")
	refusal.Details["n"] = 2
	_, err := ReplyOf[replies.Finish](refused)
	e, _ := err.(*session.Error)
	testkit.Need(t, e != nil, "%v", err)
	testkit.Equal(t, e.Code, codes.BoardBusy)
	testkit.True(t, e.Details["n"] == 1, "%v", err)
	testkit.Fails(t, testkit.Get(ReplyOf[replies.Finish](&StoredReply{Tool: ToolFinish, Raw: json.RawMessage(`[]`)})).
		Err(), "reading the stored reply to finished_step")
	testkit.Equal(t, testkit.Get(ReplyOf[replies.Finish](&StoredReply{Raw: json.RawMessage(`{"status":"next_step"}`)})).
		Must(t).Status, replies.NextStep)

	placed := s.WithSource("here", "h")
	testkit.Equal(t, placed.Sources["here"], "h")
	testkit.Equal(t, s.Sources["here"], "")
	testkit.Equal(t, placed.WithSource("here", "h"), placed)
	testkit.Equal(t, placed.WithSource("there", "i").Sources["here"], "h")
}

// What is shown of a step without a session is what its session would show, without values.
func TestPreviewOfAStep(t *testing.T) {
	j, faults := job.Parse("/job", "job.yml", []byte(formsJob))
	testkit.Need(t, j != nil, "%v", faults)
	for id, want := range map[string]string{
		"list":  "1 of 6: L, mode of  (How)",
		"fix":   "4 of 6: F, code of port (C)",
		"look":  "5 of 6: O",
		"again": "2 of 3: A",
	} {
		info := testkit.Get(Preview(j, j.Step(id))).Must(t)
		got := info.Position + ": " + info.Instructions
		for _, in := range info.Inputs {
			got += ", " + in.Name + " of " + in.FromStep + " (" + in.Description + ")"
		}
		testkit.Equal(t, got, want, "%s", id)
	}
}

func textOf(text string) outputs.Value                  { return outputs.Value{Text: &text} }
func outputOf(name string, v outputs.Value) outputs.Map { return outputs.Map{{Key: name, Value: v}} }

// Rules 13 and 14: what the outputs argument may say for each type.
func TestRules13And14_ValuesByType(t *testing.T) {
	step := func(of job.OutputType) *job.Step {
		return &job.Step{ID: "a", Outputs: []job.Output{{Name: "o", Type: of, Required: true}}}
	}
	for _, c := range []struct {
		of         job.OutputType
		raw, wrong string
	}{
		{job.Text, `{"o":"any\ntext"}`, ""},
		{job.Text, `["any text"]`, ""},
		{job.Text, `{"o":""}`, ""},
		{job.Text, `{"o":["a"]}`, "declared as type 'string' and must be a text; it is a list"},
		{job.Text, `{"o":{"text":"a"}}`, "must be a text; it is an object"},
		{job.Text, `{"o":"` + strings.Repeat("é", outputs.MaxText) + `"}`, ""},
		{job.Text, `{"o":"` + strings.Repeat("é", outputs.MaxText+1) + `"}`,
			"Output 'o' has 100001 characters, and a text has at most 100000"},
		{job.FilePath, `{"o":"a.md"}`, ""},
		{job.FilePath, `{"o":["a.md","b.md"]}`, ""},
		{job.FilePath, `["a.md","b.md"]`, ""},
		{job.FilePath, `{"o":[]}`, "o (needs at least one path)"},
		{job.FilePath, `{"o":3}`, "must be a path or a list of paths; it is a number"},
	} {
		out, err := outputs.Parse(step(c.of), json.RawMessage(c.raw))
		if c.wrong != "" {
			testkit.Fails(t, err, c.wrong, "%s %.60s", c.of, c.raw)
			continue
		}
		testkit.Need(t, err == nil, "%s %.60s: %v, or its repetition is not recognised", c.of, c.raw, err)
		testkit.True(t, outputs.Same(json.RawMessage(c.raw), out), "%s %.60s: %v, or its repetition is not recognised",
			c.of, c.raw, err)
		testkit.True(t, !outputs.Same(json.RawMessage(`{"o":"other"}`), out),
			"%s %.60s: %v, or its repetition is not recognised", c.of, c.raw, err)
	}
}

// A long text is a part of its own, and an export has it once.
func TestLongTextsAreKeptByTheirHashes(t *testing.T) {
	def, at := memoryDefinition(t, "[a, b]"), began
	s, long := testkit.Get(begin(def)).Must(t), strings.Repeat("é", outputs.MaxInlineText+1)
	for text, want := range map[string]int{long: 1, long[2:]: 0} {
		u := handed("d", judging.ByReviewer)
		u.Outputs = outputOf("a_out", textOf(text))
		opened := s.Submit("a", u, "", at)
		p := testkit.Get(opened.PlanFinish(def, nil, never)).Must(t)
		next, _ := opened.Finish(def, p, FinishInput{
			Call:    Call{Tool: ToolFinish},
			At:      at,
			Outputs: outputOf("a_out", textOf(strings.Clone(text))),
			Texts:   Instructions{},
		})
		frame, parts, err := next.Parts()
		testkit.Must(t, err)
		ofText := func(p Part) bool { return p.Kind == TextPart }
		i := slices.IndexFunc(parts, ofText)
		_, changed, _, err := next.Changes(opened)
		testkit.True(t, err == nil && !slices.ContainsFunc(changed, ofText), "the text is written again: %v", err)

		data := testkit.Get(next.Encode()).Must(t)
		back := testkit.Get(Decode("00000001", data)).Must(t).Progress("a")
		testkit.True(t, *back.Outputs[0].Value.Text == text && *back.Submissions[0].Outputs[0].Value.Text == text,
			"the export does not have the text")

		if want == 0 {
			testkit.Equal(t, i, -1, "the part of a short text")
			continue
		}
		testkit.True(t, i >= 0 && !slices.ContainsFunc(parts[i+1:], ofText), "the parts are %v", parts)
		testkit.Equal(t, strings.Count(string(data), long), 1, "the text in the export")
		for what, wrong := range map[string]string{
			"is missing":                     "x",
			"has another hash than its name": session.Digest(long),
		} {
			i := slices.IndexFunc(parts, ofText)
			parts[i].Key, parts[i].Body = wrong, []byte(`"other"`)
			testkit.Fails(t, testkit.Get(Assemble("00000001", frame, parts)).Err(), what)
		}
	}
}

func TestTheTextsOfASessionAreBounded(t *testing.T) {
	s := &State{}
	for i := range outputs.MaxTexts / outputs.MaxText {
		s.setProgress(&StepProgress{
			StepID:  fmt.Sprint(i),
			Outputs: outputOf("o", textOf(fmt.Sprintf("%0*d", outputs.MaxText, i))),
		})
	}

	left := outputs.MaxTexts % outputs.MaxText
	room := func(text string) error { return s.CheckRoom(outputOf("o", textOf(text))) }
	testkit.Works(t, room(strings.Repeat("x", left)))
	testkit.Fails(t, room(strings.Repeat("x", left+1)),
		"With 'o' the texts of this session have 16777217 bytes together, and 16777216 are the most")
	testkit.Works(t, room(fmt.Sprintf("%0*d", outputs.MaxText, 3)), "it is kept already")
}

// Rule 14: a text is whole in all_outputs, while they are few, and as an input, as far as the reply has room.
// It is shortened in lists. Records have it as an object, so that it is not a path.
func TestRule14_TextsInReplies(t *testing.T) {
	def := memoryDefinition(t, "[a, b]")
	of := func(outputs outputs.Map) *State {
		return &State{StepProgress: jsontext.OrderedMap[*StepProgress]{{
			Key:   "a",
			Value: &StepProgress{StepID: "a", CompletedAt: &began, Outputs: outputs},
		}}}
	}

	encode, text := func(v any) string {
		return string(testkit.Get(jsontext.Encode(v)).Must(t))
	}, strings.Repeat("word ", 1000)
	s := of(outputs.Map{{Key: "long", Value: textOf(text)}, {Key: "short", Value: textOf("one\ntwo")}})
	testkit.Equal(t, encode(s.AllOutputs(def)), `{"long":"`+text+`","short":"one\ntwo"}`, "all_outputs")
	got := encode(s.CompletedSteps(def)[0].Outputs)
	testkit.Need(t, len(got) <= 300, "completed_steps has %s", got)
	testkit.True(t, strings.HasPrefix(got, `{"long":"word word`), "completed_steps has %s", got)
	testkit.True(t, strings.HasSuffix(got, `… (5000 characters)","short":"one two"}`), "completed_steps has %s", got)

	plain := outputs.PlainWithin(s.Progress("a").Outputs, 10)
	testkit.True(t, len(plain[0].Value.Paths[0]) <= 300 && plain[1].Value.Paths[0] == "one\ntwo",
		"texts that are too many: %v", plain)

	st := *def.Job.Step("b")
	st.Inputs = []job.Input{{File: "a_out", FromStep: "a"}, {File: "a_out", FromStep: "a"}}
	long := strings.Repeat("é", 300_000)
	in := of(outputOf("a_out", textOf(long))).StepInputs(def, &st)
	testkit.Equal(t, *in[0].Value, long, "the first input has %d bytes, %d omitted, and the paths %v",
		len(*in[0].Value), in[0].Omitted, in[0].Paths)
	testkit.Equal(t, in[0].Omitted, 0, "the first input has %d bytes, %d omitted, and the paths %v", len(*in[0].Value),
		in[0].Omitted, in[0].Paths)
	testkit.True(t, in[0].Paths == nil, "the first input has %d bytes, %d omitted, and the paths %v", len(*in[0].Value),
		in[0].Omitted, in[0].Paths)

	n := len(*in[1].Value)
	testkit.True(t, n == outputs.MaxReplied-len(long) && in[1].Omitted == len(long)-n,
		"the second input has %d bytes, %d omitted", n, in[1].Omitted)

	kept := encode(textOf("a.md"))
	testkit.Equal(t, kept, `{"text":"a.md"}`)
	var read outputs.Value
	testkit.Must(t, json.Unmarshal([]byte(kept), &read))
	testkit.Same(t, read, textOf("a.md"), "what is read")
}

// Whatever the file of a kept definition holds, what is taken from it is a workflow whose steps can be
// described, or refused with words.
func FuzzKeptDefinition(f *testing.F) {
	const source = "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: " +
		"c\nsteps:\n  - {id: a, name: n, description: d, instructions_file: a.md, outputs: {}, reviews: " +
		"[]}\nworkflows:\n  - {name: main, summary: s, steps: [a]}\n"
	for _, b := range []Bundle{
		{JobDir: "/job", Source: source, Workflow: "main", Instructions: Instructions{"a": "Do it."}},
		{JobDir: "/job", Source: source, Workflow: "main"},
		{JobDir: "/job", Source: source, Workflow: "other"},
		{Source: "name: alpha"},
	} {
		f.Add(testkit.Get(json.Marshal(b)).Must(f))
	}
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, err := DecodeBundle(DefinitionRef{Hash: "h"}, data)
		if err != nil {
			return
		}
		testkit.Need(t, def.Job != nil, "%+v", def)
		testkit.Need(t, def.Workflow != nil, "%+v", def)
		testkit.Need(t, def.Kept, "%+v", def)

		for _, entry := range def.Workflow.Entries {
			texts, err := def.KeptTexts(entry)
			testkit.True(t, err != nil || len(texts) == len(entry), "%d texts of %v", len(texts), entry)
			for _, id := range entry {
				testkit.True(t, def.Job.Step(id) != nil, "there is no step %q", id)
			}
		}
	})
}

// What a step delivered for each of its items is one value to an input: a list of files, or one text with the
// list of texts.
func TestInputsFromItems(t *testing.T) {
	file := func(path string) *outputs.Value { return &outputs.Value{Paths: []string{path}} }
	text := func(s string) *outputs.Value { return &outputs.Value{Text: &s} }
	given := map[string]outputs.Value{
		"files": {Each: []*outputs.Value{file("a.md"), nil, file("b.md")}},
		"all":   {Each: []*outputs.Value{text("a"), text("b")}},
		"none":  {Each: []*outputs.Value{}},
	}
	wf := &job.Workflow{
		Name: "w",
		Inputs: []job.Parameter{{Name: "files", Type: job.Files}, {Name: "all", Type: job.Text},
			{Name: "none", Type: job.Files}},
	}
	in := testkit.Get(outputs.ParseInputs(wf, given)).Must(t)
	testkit.Equal(t, string(testkit.Get(json.Marshal(in)).Must(t)),
		`{"files":["a.md","b.md"],"all":{"text":"[\"a\",\"b\"]"},"none":[]}`)
}
