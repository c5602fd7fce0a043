package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// A model is the state machine said again in the plainest words, to hold the real one against.
type model struct {
	entries [][]string
	at      int
	done    map[string]bool
	skipped map[string]bool // the group went on without them
	byID    bool
	status  SessionStatus
}

// finish returns what a finished_step must do: the status it gives, or "refused".
func (m *model) finish(step string) string {
	if m.status != Active {
		return "refused"
	}
	entry, target := m.entries[m.at], step
	if step == "" {
		if target = entry[0]; m.done[target] {
			return "refused"
		}
	} else if !slices.Contains(entry, step) || m.done[step] || m.skipped[step] {
		return "refused"
	}
	m.done[target] = true
	if step != "" {
		m.byID = true
	}
	if m.byID {
		for _, id := range entry {
			if !m.done[id] && !m.skipped[id] {
				return "pending"
			}
		}
	}
	for _, id := range entry {
		m.skipped[id] = !m.done[id]
	}
	m.byID = false
	m.at++
	if m.at == len(m.entries) {
		m.at--
		m.status = Completed
		return string(replies.WorkflowComplete)
	}

	return string(replies.NextStep)
}

func (m *model) goTo(step string, all bool) bool {
	to := slices.IndexFunc(m.entries, func(e []string) bool { return slices.Contains(e, step) })
	if m.status != Active || to < 0 || to > m.at {
		return false
	}
	alone := len(m.entries[to]) > 1 && !all
	for i, e := range m.entries[to:] {
		for _, id := range e {
			if i > 0 || !alone || id == step {
				delete(m.done, id)
				delete(m.skipped, id)
			}
		}
	}
	m.at, m.byID = to, alone && (m.byID || to != m.at)
	return true
}

// memoryDefinition makes a definition of a workflow, in YAML, without a file. Each of its steps has one output.
func memoryDefinition(t testing.TB, flow string) *Definition {
	t.Helper()
	src := "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps:\n"
	for _, id := range strings.FieldsFunc(flow, func(r rune) bool { return strings.ContainsRune("[], ", r) }) {
		src += fmt.Sprintf("  - {id: %s, name: n, description: d, instructions_file: i.md, outputs: {%s_out: {type: "+
			"file, description: d, required: true}}, reviews: []}\n", id, id)
	}
	j, faults := job.Parse("/job", "job.yml", []byte(src+"workflows:\n  - {name: main, summary: s, steps: "+flow+"}\n"))
	testkit.Need(t, j != nil, "%v\n%s", faults, src)
	return &Definition{Job: j, Workflow: &j.Workflows[0], Ref: DefinitionRef{Hash: "h", Source: j.Hash, JobDir: "/job"}}
}

// never is how a call that is no repetition of another one compares its outputs.
func never(outputs.Map) bool { return false }

// drive runs the machine and the model side by side on commands made of bytes.
func drive(t *testing.T, shape, commands []byte) {
	var entries [][]string
	var ids []string
	for _, b := range shape {
		var e []string
		for range 1 + b%4 {
			id := fmt.Sprintf("s%d", len(ids))
			e, ids = append(e, id), append(ids, id)
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return
	}
	def := memoryDefinition(t, strings.ReplaceAll(fmt.Sprint(entries), " ", ", "))
	m := &model{entries: entries, done: map[string]bool{}, skipped: map[string]bool{}, status: Active}
	at, s := began, testkit.Get(begin(def)).Must(t)
	stored := storedParts{}
	stored.store(t, s, &State{})
	for i, b := range commands {
		at = at.Add(time.Second)
		before := s
		frozen, id := testkit.Get(before.Encode()).Must(t), ids[int(b>>3)%len(ids)]
		switch b % 8 {
		case 0, 1, 2, 3, 4, 5: // finished_step, one in three without step_id
			stepID, want := map[bool]*string{true: &id}[b%8 < 4], m.finish(map[bool]string{true: id}[b%8 < 4])
			got := "refused"
			p, err := s.PlanFinish(def, stepID, never)
			if err == nil {
				out := outputOf(p.Step.ID+"_out", outputs.Value{Paths: []string{fmt.Sprint(i)}})
				if b%3 > 0 { // a text, short or long
					out[0].Value = textOf(strings.Repeat(fmt.Sprint(b%5), 1+int(b%3-1)*outputs.MaxInlineText))
				}
				var r *replies.Finish
				s, r = s.Finish(def, p, FinishInput{
					Call:    Call{Tool: ToolFinish},
					At:      at,
					Outputs: out,
					Texts:   Instructions{},
				})
				got = string(r.Status)
				if r.PendingConcurrentSteps != nil {
					got = "pending"
				}

				// The repetition is recognised, and another output is not one.
				same := func(have outputs.Map) bool { return reflect.DeepEqual(have, out) }
				if s.Status == Active || stepID != nil {
					again, err := s.PlanFinish(def, &p.Step.ID, same)
					testkit.Need(t, err == nil, "command %d: the repetition of %s gives %v, %v", i, p.Step.ID,
						again, err)
					testkit.Need(t, again.Replay != nil, "command %d: the repetition of %s gives %v, %v", i, p.Step.ID,
						again, err)
					testkit.Need(t, again.Replay.Reply == r, "command %d: the repetition of %s gives %v, %v", i,
						p.Step.ID, again, err)
				}
				testkit.Need(t, testkit.Get(s.PlanFinish(def, &p.Step.ID, never)).Err() != nil,
					"command %d: %s can be finished twice", i, p.Step.ID)
			}
			testkit.Need(t, err == nil || session.CodeOf(err) != "", "command %d: %v", i, err)
			testkit.Need(t, got == want, "command %d, step %v of %v: got %s, want %s", i, stepID, entries, got, want)
		case 6:
			all := i%2 == 0
			want := m.goTo(id, all)
			to, err := s.PlanGoTo(def, id)
			testkit.Need(t, (err == nil) == want, "command %d: go_to_step %s: %v, want %v", i, id, err, want)
			if err == nil {
				s, _ = s.GoTo(def, Call{Tool: ToolGoTo}, to, id, all, at, Instructions{})
				steps := slices.Concat(entries...)
				inOrder := func(a, b jsontext.Pair[*StepProgress]) int {
					return slices.Index(steps, a.Key) - slices.Index(steps, b.Key)
				}
				testkit.Need(t, slices.IsSortedFunc(s.StepProgress, inOrder),
					"command %d: go_to_step %s: progress is not in the order of the steps: %+v", i, id, s.StepProgress)
			}
		case 7:
			if b == 255 && s.Status == Active {
				s, _ = s.Abort(Call{Tool: ToolAbort}, "why", at)
				m.status = Aborted
			}
		}
		check(t, i, s, m, def)
		stored.store(t, s, before)
		// What was published before has not changed.
		testkit.Need(t, string(testkit.Get(before.Encode()).Must(t)) == string(frozen),
			"command %d changed the state before it", i)
	}
}

// storedParts are the parts of a session as a store has them.
type storedParts map[[2]string]Part

// store makes a transition, and checks that what is stored is the state, without a text that nothing uses.
func (p storedParts) store(t *testing.T, s, before *State) {
	t.Helper()
	frame, put, gone, err := s.Changes(before)
	testkit.Must(t, err)
	for _, part := range put {
		p[[2]string{string(part.Kind), part.Key}] = part
	}
	for _, part := range gone {
		delete(p, [2]string{string(part.Kind), part.Key})
	}
	back := testkit.Get(Assemble(s.SessionID, frame, slices.Collect(maps.Values(p)))).Must(t)
	testkit.Equal(t, string(testkit.Get(back.Encode()).Must(t)), string(testkit.Get(s.Encode()).Must(t)),
		"what is stored")

	_, all, _ := s.Parts()
	testkit.Equal(t, len(p), len(all), "parts that are stored")
}

// check holds the state against the model, and its file's form against itself.
func check(t *testing.T, i int, s *State, m *model, def *Definition) {
	t.Helper()
	testkit.Need(t, s.Status == m.status, "command %d: %s at %d (%s), want %s at %d", i, s.Status, s.CurrentEntryIndex,
		s.CurrentStepID, m.status, m.at)
	testkit.Need(t, s.CurrentEntryIndex == m.at, "command %d: %s at %d (%s), want %s at %d", i, s.Status,
		s.CurrentEntryIndex, s.CurrentStepID, m.status, m.at)
	testkit.Need(t, s.CurrentStepID == m.entries[m.at][0], "command %d: %s at %d (%s), want %s at %d", i, s.Status,
		s.CurrentEntryIndex, s.CurrentStepID, m.status, m.at)

	for _, e := range m.entries {
		for _, id := range e {
			p := s.Progress(id)
			testkit.Need(t, (p != nil && p.CompletedAt != nil) == m.done[id], "command %d: %s completed: want %v", i,
				id, m.done[id])
		}
	}
	testkit.Need(t, s.Status != Completed || len(s.AllOutputs(def)) == len(m.done),
		"command %d: all_outputs %v, done %v", i, s.AllOutputs(def), m.done)

	data := testkit.Get(s.Encode()).Must(t)
	again := testkit.Get(testkit.Get(Decode(s.SessionID, data)).Must(t).Encode()).Must(t)
	testkit.Need(t, string(again) == string(data), "command %d: read and written again it differs:\n%s\n%s", i,
		data, again)
}

func TestMachineAgainstModel(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		bytes := make([]byte, 41+r.IntN(6))
		for i := range bytes {
			bytes[i] = byte(r.IntN(256))
		}
		drive(t, bytes[40:], bytes[:40])
	}
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 2, 0}, []byte{4, 8, 16, 0, 4, 6, 255})
	f.Fuzz(func(t *testing.T, shape, commands []byte) {
		if len(shape) > 8 || len(commands) > 60 {
			return
		}
		drive(t, shape, commands)
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(testkit.Get(testkit.Get(begin(memoryDefinition(f, "[a, [b, c]]"))).Must(f).Encode()).Must(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode("00000001", data)
		if err != nil {
			return
		}
		testkit.Must(t, testkit.Get(Decode("00000001", testkit.Get(s.Encode()).Must(t))).Err())
	})
}

func TestAStepThatBeginsAgainProtectsWhatItBeganWith(t *testing.T) {
	def := memoryDefinition(t, "[a, b]")
	was, edited := new(Protected), new(Protected)
	def.Protected = map[string]*Protected{"a": was}
	s, later := testkit.Get(begin(def)).Must(t), *def
	later.Protected = map[string]*Protected{"a": edited, "b": edited}
	again, _ := s.GoTo(&later, Call{Tool: ToolGoTo}, 0, "a", false, began, Instructions{})
	testkit.Equal(t, again.Progress("a").Protected, was, "it protects")
}

// The encoder writes by hand what json.Marshal would give.
func TestEncodeIsWhatMarshalGives(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	p := &StepProgress{
		StepID:       "a\"b<",
		StartedAt:    at,
		CompletedAt:  &at,
		Outputs:      outputs.Map{{Key: "x", Value: outputs.Value{Paths: []string{"p"}, List: true}}},
		Notes:        new("n\n"),
		QualityTries: 2,
		Unreported:   true,
		Overrides:    []judging.Override{{At: at, Identity: "i", Reason: "r", Skipped: []string{"step"}}},
		Granted:      &judging.Override{At: at, Identity: "i", Channel: "terminal", GivenFor: "d"},
		Finished:     2,
		Submissions: []*judging.Submission{{
			ID:      1,
			Number:  1,
			At:      at,
			EndedAt: &at,
			Turns:   []judging.Turn{{With: judging.ByReviewer, At: at, EndedAt: &at}},
			Verdicts: []*judging.Verdict{{
				Kind:     judging.ByReviewer,
				At:       at,
				By:       "r",
				Criteria: []replies.CriterionResult{{Criterion: "c", Feedback: new("f")}},
			}},
			Void: &judging.Void{Why: "w", Refusal: &session.Error{Kind: session.StateError, Code: "c",
				Message: session.Say("m")}},
		}, {
			ID:       2,
			EndedAt:  &at,
			Outputs:  outputs.Map{{Key: "x", Value: outputs.Value{Paths: []string{"p"}, List: true}}},
			Files:    []judging.FileHash{{Path: "p", SHA256: "s"}},
			Verdicts: []*judging.Verdict{{Kind: judging.ByOverride, At: at, Passed: true}},
		}},
	}
	full := &State{
		FormatVersion:    1,
		SessionID:        "00000001",
		JobName:          "j",
		WorkflowName:     "w",
		Goal:             "g",
		InstanceID:       new("i"),
		BranchName:       "b",
		Status:           Aborted,
		CurrentStepID:    "a",
		ReportedByStepID: true,
		StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: p.StepID, Value: p},
			{Key: "z", Value: &StepProgress{StepID: "z", StartedAt: at}}},
		ParentSessionID: new("p"),
		AbortReason:     new("r"),
		StartedAt:       at,
		UpdatedAt:       at,
		CompletedAt:     &at,
		Identity:        "i",
		Definition:      DefinitionRef{"h", "s", "d"},
		Pinned:          &Pinned{Reviewer: "self", Definition: DefinitionRef{"h", "s", "d"}},
		Weakened:        []Weakening{{at, "a", []string{"w"}}},
		History: []*Withdrawal{{
			At:       at,
			From:     "a",
			To:       "b",
			Progress: jsontext.OrderedMap[*StepProgress]{{Key: "z", Value: &StepProgress{StepID: "z", StartedAt: at}}},
		}},
		Replies: []*StoredReply{{
			Tool:       ToolAbort,
			RequestID:  new("q"),
			ArgsDigest: "d",
			StepID:     "s",
			EntryIndex: 3,
			Raw:        []byte(`{"a":[1,{}]}`),
		},
			{
				Tool:      ToolFinish,
				RequestID: new("e"),
				Raw:       []byte("null"),
				Refusal: &session.Error{
					Kind:    session.ToolError,
					Code:    "c",
					Message: session.Say("m"),
					Details: map[string]any{"n": 1},
				},
			}},
	}
	for _, s := range []*State{full, {FormatVersion: 1, Replies: []*StoredReply{}, History: []*Withdrawal{}}} {
		got, raw := testkit.Get(s.Encode()).Must(t), testkit.Get(jsontext.Encode(s)).Must(t)
		var want bytes.Buffer
		testkit.Must(t, json.Indent(&want, raw, "", "  "))
		testkit.Equal(t, string(got), want.String())
	}
}

// What a person says is kept up to a limit, and is never nothing where the agent has to act on it.
func TestTheFeedbackOfAnAnswer(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := (&State{
		Status:       Active,
		StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{StepID: "a", StartedAt: at}}},
	}).
		Submit("a", handed("d", judging.ByPerson), "", at)
	for given, want := range map[string]int{
		strings.Repeat("é", maxAnswer+1): maxAnswer,
		" \n":                            len("A person did not pass it, and gave no reason."),
		"No":                             2,
	} {
		s := testkit.Get(asked.Answer("a", "d", Answer{At: at, Feedback: given})).Must(t)
		got := s.Progress("a").Asked().Of(judging.ByPerson).Feedback
		testkit.Equal(t, len([]rune(got)), want, "characters that are kept of %.20q", given)
		testkit.Equal(t, s.Progress("a").Newest().Verdicts[0].Feedback, got)
		testkit.True(t, asked.Progress("a").Asked().Verdicts == nil && len(asked.Progress("a").Tries()) == 0,
			"the earlier state was changed")
	}
}

// However many files earlier steps submitted, a reply lists a bounded number, and says how many it leaves out.
func TestTheFilesOfEarlierStepsAreBounded(t *testing.T) {
	j, faults := job.Parse(t.TempDir(), "job.yml", []byte(`name: j
version: "1.0.0"
summary: J
common_job_info_provided_to_all_steps_at_runtime: c
workflows: [{name: w, summary: W, steps: [a, b]}]
steps:
  - {id: a, name: A, description: A, instructions_file: a.md, outputs: {many: {type: files, description: m}, one: `+
		`{type: file, description: o}}, reviews: []}
  - {id: b, name: B, description: B, instructions_file: b.md, dependencies: [a], inputs: [{file: many, from_step: `+
		`a}, {file: one, from_step: a}, {file: other.md, from_step: a}], outputs: {}, reviews: []}
`))
	testkit.Need(t, j != nil, "%v", faults)

	var paths []string
	for i := range 1000 {
		paths = append(paths, fmt.Sprintf("%05d/%s", i, strings.Repeat("x", 94)))
	}

	at := time.Now()
	s := &State{StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{
		StepID:      "a",
		CompletedAt: &at,
		Outputs: outputs.Map{{Key: "many", Value: outputs.Value{Paths: paths, List: true}},
			{Key: "one", Value: outputs.Value{Paths: []string{strings.Repeat("y", 100)}}}},
	}}}}

	def := &Definition{Job: j, Workflow: &j.Workflows[0]}
	const fit = listedBytes / 100
	in := s.StepInputs(def, j.Step("b"))
	testkit.Same(t, []int{len(in[0].Paths), in[0].Omitted, len(in[1].Paths), in[1].Omitted, in[2].Omitted},
		[]int{fit, 1000 - fit, 0, 1, 1001}, "inputs")

	done := s.CompletedSteps(def)
	testkit.Need(t, len(done) == 1, "completed %+v", done)
	testkit.Need(t, len(done[0].Outputs) == 1, "completed %+v", done)
	testkit.Need(t, len(done[0].Outputs[0].Value.Paths) == fit, "completed %+v", done)
	testkit.Equal(t, done[0].Omitted, 1001-fit, "completed %+v", done)

	// A file that is no declared output means all files of its step.
	s.StepProgress[0].Value.Outputs = outputs.Map{{Key: "one", Value: outputs.Value{Paths: []string{"o.md"}}}}
	in = s.StepInputs(def, j.Step("b"))
	testkit.Equal(t, fmt.Sprint(in[2].Paths, in[1].Paths, in[0].Paths), "[o.md] [o.md] []", "inputs")
}
