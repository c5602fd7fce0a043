package machine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
)

// What no transition can have made is found in a record, each with words of its own, and a good record has none of it.
func TestWhatIsWrongWithARecord(t *testing.T) {
	at := began
	def := memoryDefinition(t, "[a, b]")
	def.Texts = map[string]string{"a": "A", "b": "B"}
	ended := func(s *State) { s.Status, s.CompletedAt = Aborted, &at }
	step := func(change func(p *StepProgress)) func(s *State) {
		return func(s *State) {
			p := s.ProgressOrNew("a", at)
			change(p)
			s.setProgress(p)
		}
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
		{"current_step_id is empty", func(s *State) { ended(s); s.AbortReason, s.CurrentStepID = new("r"), "" }},
		{"completed_at is null in a session that is completed", func(s *State) { s.Status = Completed }},
		{`current step "b" was never begun`, func(s *State) { s.CurrentStepID = "b" }},
		{`its current step "b" was never begun; its current step "b" is entry 1 of its definition, and it says 0`, func(s *State) { ended(s); s.AbortReason, s.CurrentStepID = new("r"), "b" }},
		{`step_progress of "a" is not that step's, or has an invalid try`, step(func(p *StepProgress) { p.Tries = []*Try{nil} })},
		{`step_progress of "a" is not that step's, or has an invalid try`, step(func(p *StepProgress) { p.Tries = []*Try{{State: TryVoid, Verdicts: []*Verdict{nil}}} })},
		{"history[0] is null, or a part of it", func(s *State) { s.History = []*Withdrawal{nil} }},
		{"replies[0] is null", func(s *State) { s.Replies = []*StoredReply{nil} }},
		{"it is active, and has an end", func(s *State) { s.AbortReason = new("r") }},
		{"it is completed, and has the reason of an abort", func(s *State) { s.Status, s.CompletedAt, s.AbortReason = Completed, &at, new("r") }},
		{"it was aborted, and has no reason", ended},
		{"it is a step of no session", func(s *State) { s.CalledAs = "x" }},
		{`its parent "x" is the id of no session`, func(s *State) { s.ParentSessionID = new("x") }},
		{"", func(s *State) { s.ParentSessionID = new("0a1b2c3d") }},
		{"the time at which it began, or moved last, is missing", func(s *State) { s.UpdatedAt = time.Time{} }},
		{`step "a" has no time of its beginning`, step(func(p *StepProgress) { p.StartedAt = time.Time{} })},
		{`step "a" is both completed and unreported; all steps of its current entry are completed, and it is active`, step(func(p *StepProgress) { p.CompletedAt, p.Unreported = &at, true })},
		{`step "a" has outputs and is not completed`, step(func(p *StepProgress) { p.Outputs = outputOf("o", textOf("x")) })},
		{`step "a" has a try of its reviews that is "odd"`, step(func(p *StepProgress) { p.Tries, p.QualityTries = []*Try{{State: "odd"}}, 1 })},
		{`step "a" has 1 tries that count, and says 0`, step(func(p *StepProgress) { p.Tries = []*Try{{State: TryFailed}} })},
		{`its reply 0 is to an unknown tool: "dig"`, reply(func(r *StoredReply) { r.Tool = "dig" })},
		{"its reply 0, to start_workflow, cannot be read: unexpected end of JSON input", reply(func(r *StoredReply) { r.Raw = json.RawMessage(`{`) })},
		{"its reply 0, to start_workflow, cannot be read: it is null", reply(func(r *StoredReply) { r.Raw = json.RawMessage(`null`) })},
		{`its reply 0, to start_workflow, is of session "00000002"`, reply(func(r *StoredReply) { r.Raw = json.RawMessage(`{"begin_step":{"session_id":"00000002"}}`) })},
		{"its reply 0, to start_workflow, is of entry -1", reply(func(r *StoredReply) { r.EntryIndex = -1 })},
		{"it keeps the reply to an abort, and was not aborted", reply(func(r *StoredReply) { r.Tool = ToolAbort })},
		{`its reply 0 is to the finish of step "b", which was never begun`, reply(func(r *StoredReply) { r.Tool, r.StepID = ToolFinish, "b" })},
		{`two of its replies are to the start_workflow with request_id "q"`, func(s *State) {
			reply(func(r *StoredReply) { r.RequestID = new("q") })(s)
			s.Replies = append(s.Replies, s.Replies[0])
		}},
		{"its definition h is of another job.yml than it says", func(s *State) { s.Definition.Source = "other" }},
		{"its definition h is of alpha/main", func(s *State) { s.WorkflowName = "other" }},
		{`its current step "a" is entry 0 of its definition, and it says 1`, func(s *State) { s.CurrentEntryIndex = 1 }},
		{"all steps of its current entry are completed, and it is active", step(func(p *StepProgress) { p.CompletedAt = &at })},
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
	testkit.Same(t, testkit.Get(begin(def)).Must(t).FaultsWith(def), []string{"its definition h lacks instructions of the current entry"})
}

// A call that comes again with its request_id gets what it got, also if that moved nothing or was a refusal.
func TestAnswersToRequestIDs(t *testing.T) {
	s := testkit.Get(begin(memoryDefinition(t, "[a, b]"))).Must(t)
	first, second := Call{Tool: ToolFinish, RequestID: new("q")}, Call{Tool: ToolFinish, RequestID: new("r")}
	waiting := NewFinishReply(NextStep)
	testkit.Equal(t, s.KeepAnswer(Call{Tool: ToolFinish}, 1, waiting, nil), s, "a call without request_id")
	kept := s.KeepAnswer(first, 1, waiting, nil)
	stored := kept.StoredReply(ToolFinish, "q")
	testkit.True(t, stored.EntryIndex == 1 && kept.Revision == s.Revision+1 && kept.StoredReply(ToolGoTo, "q") == nil, "%+v", stored)
	again := testkit.Get(ReplyOf[FinishReply](stored)).Must(t)
	testkit.True(t, again != waiting && again.Status == NextStep, "%+v", again)

	aliased := kept.Alias(stored, second)
	testkit.Equal(t, aliased.StoredReply(ToolFinish, "r").EntryIndex, 1)
	testkit.True(t, aliased.StoredReply(ToolFinish, "q") != nil && aliased.StoredReply(ToolFinish, "r").StepID == "", "%+v", aliased.Replies)
	over, _ := kept.Abort(Call{Tool: ToolAbort}, "why", time.Now())
	testkit.True(t, kept.Alias(stored, first) == kept && kept.Alias(stored, Call{Tool: ToolFinish}) == kept && over.Alias(stored, second) == over, "an alias is stored needlessly")

	refusal := session.NotNow(codes.BoardBusy, "Later.").With("n", 1)
	refused := s.KeepAnswer(first, 0, nil, refusal).StoredReply(ToolFinish, "q")
	refusal.Details["n"] = 2
	_, err := ReplyOf[FinishReply](refused)
	e, _ := err.(*session.Error)
	testkit.True(t, e != nil && e.Code == codes.BoardBusy && e.Details["n"] == 1, "%v", err)
	_, err = ReplyOf[FinishReply](&StoredReply{Tool: ToolFinish, Raw: json.RawMessage(`[]`)})
	testkit.Fails(t, err, "reading the stored reply to finished_step")
	testkit.Equal(t, testkit.Get(ReplyOf[FinishReply](&StoredReply{Raw: json.RawMessage(`{"status":"next_step"}`)})).Must(t).Status, NextStep)

	placed := s.WithSource("here", "h")
	testkit.True(t, placed.Sources["here"] == "h" && s.Sources["here"] == "" && placed.WithSource("here", "h") == placed && placed.WithSource("there", "i").Sources["here"] == "h", "%v", placed.Sources)
}

// What is shown of a step without a session is what its session would show, without values.
func TestPreviewOfAStep(t *testing.T) {
	j, faults := job.Parse("/job", "job.yml", []byte(formsJob))
	testkit.Need(t, j != nil, "%v", faults)
	for id, want := range map[string]string{
		"list":  "1 of 6: L",
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
