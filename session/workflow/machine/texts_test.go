package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

func textOf(text string) OutputValue { return OutputValue{Text: &text} }

func outputOf(name string, v OutputValue) Outputs {
	return Outputs{{Key: name, Value: v}}
}

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
		{job.Text, `{"o":"` + strings.Repeat("é", MaxText) + `"}`, ""},
		{job.Text, `{"o":"` + strings.Repeat("é", MaxText+1) + `"}`, "Output 'o' has 100001 characters, and a text has at most 100000"},
		{job.FilePath, `{"o":"a.md"}`, ""},
		{job.FilePath, `{"o":["a.md","b.md"]}`, ""},
		{job.FilePath, `["a.md","b.md"]`, ""},
		{job.FilePath, `{"o":[]}`, "o (needs at least one path)"},
		{job.FilePath, `{"o":3}`, "must be a path or a list of paths; it is a number"},
		{job.FilePath, `{"o":["a",3]}`, "its element 1 is a number"},
	} {
		out, err := ParseOutputs(step(c.of), json.RawMessage(c.raw))
		if c.wrong != "" {
			testkit.Fails(t, err, c.wrong, "%s %.60s", c.of, c.raw)
			continue
		}
		testkit.True(t, err == nil && SameOutputs(json.RawMessage(c.raw), out) && !SameOutputs(json.RawMessage(`{"o":"other"}`), out), "%s %.60s: %v, or its repetition is not recognised", c.of, c.raw, err)
	}
}

// A long text is a part of its own, and an export has it once.
func TestLongTextsAreKeptByTheirHashes(t *testing.T) {
	def, at := memoryDefinition(t, "[a, b]"), began
	s := testkit.Get(begin(def)).Must(t)
	long := strings.Repeat("é", MaxInlineText+1)
	for text, want := range map[string]int{long: 1, long[2:]: 0} {
		opened := s.OpenTry("a", Try{OpenedAt: at, Outputs: outputOf("a_out", textOf(text))})
		p := testkit.Get(opened.PlanFinish(def, nil, never)).Must(t)
		next, _ := opened.Finish(def, p, FinishInput{Call: Call{Tool: ToolFinish}, At: at, Outputs: outputOf("a_out", textOf(strings.Clone(text))), Texts: Instructions{}})
		frame, parts, err := next.Parts()
		testkit.Must(t, err)
		ofText := func(p Part) bool { return p.Kind == TextPart }
		i := slices.IndexFunc(parts, ofText)
		_, changed, _, err := next.Changes(opened)
		testkit.True(t, err == nil && !slices.ContainsFunc(changed, ofText), "the text is written again: %v", err)
		data := testkit.Get(next.Encode()).Must(t)
		back := testkit.Get(Decode("00000001", data)).Must(t).Progress("a")
		testkit.True(t, *back.Outputs[0].Value.Text == text && *back.Tries[0].Outputs[0].Value.Text == text, "the export does not have the text")
		if want == 0 {
			testkit.Equal(t, i, -1, "the part of a short text")
			continue
		}
		testkit.True(t, i >= 0 && !slices.ContainsFunc(parts[i+1:], ofText), "the parts are %v", parts)
		testkit.Equal(t, strings.Count(string(data), long), 1, "the text in the export")
		for what, wrong := range map[string]string{"is missing": "x", "has another hash than its name": Digest(long)} {
			i := slices.IndexFunc(parts, ofText)
			parts[i].Key, parts[i].Body = wrong, []byte(`"other"`)
			testkit.Fails(t, testkit.Get(Assemble("00000001", frame, parts)).Err(), what)
		}
	}
}

// All texts of a session have at most 16 MB, each counted once.
func TestTheTextsOfASessionAreBounded(t *testing.T) {
	s := &State{}
	for i := range MaxTexts / MaxText {
		s.setProgress(&StepProgress{StepID: fmt.Sprint(i), Outputs: outputOf("o", textOf(fmt.Sprintf("%0*d", MaxText, i)))})
	}
	left := MaxTexts % MaxText
	room := func(text string) error { return s.CheckRoom(outputOf("o", textOf(text))) }
	testkit.Works(t, room(strings.Repeat("x", left)))
	testkit.Fails(t, room(strings.Repeat("x", left+1)), "With 'o' the texts of this session have 16777217 bytes together, and 16777216 are the most")
	testkit.Works(t, room(fmt.Sprintf("%0*d", MaxText, 3)), "it is kept already")
}

// Rule 14: a text is whole in all_outputs, while they are few, and as an input, as far as the reply has room. It is shortened
// in lists. Records have it as an object, so that it is no path.
func TestRule14_TextsInReplies(t *testing.T) {
	def := memoryDefinition(t, "[a, b]")
	of := func(outputs Outputs) *State {
		return &State{StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{StepID: "a", CompletedAt: &began, Outputs: outputs}}}}
	}
	encode := func(v any) string { return string(testkit.Get(jsontext.Encode(v)).Must(t)) }
	text := strings.Repeat("word ", 1000)
	s := of(Outputs{{Key: "long", Value: textOf(text)}, {Key: "short", Value: textOf("one\ntwo")}})
	testkit.Equal(t, encode(s.AllOutputs(def)), `{"long":"`+text+`","short":"one\ntwo"}`, "all_outputs")
	got := encode(s.CompletedSteps(def)[0].Outputs)
	testkit.True(t, len(got) <= 300 && strings.HasPrefix(got, `{"long":"word word`) && strings.HasSuffix(got, `… (5000 characters)","short":"one two"}`), "completed_steps has %s", got)
	plain := plainWithin(s.Progress("a").Outputs, 10)
	testkit.True(t, len(plain[0].Value.Paths[0]) <= 300 && plain[1].Value.Paths[0] == "one\ntwo", "texts that are too many: %v", plain)

	st := *def.Job.Step("b")
	st.Inputs = []job.Input{{File: "a_out", FromStep: "a"}, {File: "a_out", FromStep: "a"}}
	long := strings.Repeat("é", 300_000)
	in := of(outputOf("a_out", textOf(long))).StepInputs(def, &st)
	testkit.True(t, *in[0].Value == long && in[0].Omitted == 0 && in[0].Paths == nil, "the first input has %d bytes, %d omitted, and the paths %v", len(*in[0].Value), in[0].Omitted, in[0].Paths)
	n := len(*in[1].Value)
	testkit.True(t, n == maxRepliedTexts-len(long) && in[1].Omitted == len(long)-n, "the second input has %d bytes, %d omitted", n, in[1].Omitted)
	kept := encode(textOf("a.md"))
	testkit.Equal(t, kept, `{"text":"a.md"}`)
	var read OutputValue
	testkit.Must(t, json.Unmarshal([]byte(kept), &read))
	testkit.Same(t, read, textOf("a.md"), "what is read")
}
