package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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
			testkit.True(t, err != nil && strings.Contains(err.Error(), c.wrong), "%s %.60s: got %v, want %q", c.of, c.raw, err, c.wrong)
			continue
		}
		testkit.True(t, err == nil && SameOutputs(json.RawMessage(c.raw), out) && !SameOutputs(json.RawMessage(`{"o":"other"}`), out), "%s %.60s: %v, or its repetition is not recognised", c.of, c.raw, err)
	}
}

// A long text is a part of its own, and an export has it once.
func TestLongTextsAreKeptByTheirHashes(t *testing.T) {
	def := memoryDefinition(t, [][]string{{"a"}, {"b"}})
	at := time.Unix(1, 0).UTC()
	s, _, err := Begin(def, NewSession{SessionID: "00000001", Goal: "g", At: at, Call: Call{Tool: ToolStart}, Texts: Instructions{}})
	testkit.Must(t, err)
	long := strings.Repeat("é", MaxInlineText+1)
	for text, kept := range map[string]bool{long: true, long[2:]: false} {
		opened := s.OpenTry("a", Try{OpenedAt: at, Outputs: outputOf("a_out", textOf(text))})
		p := testkit.Get(opened.PlanFinish(def, nil, func(Outputs) bool { return false })).Must(t)
		next, _ := opened.Finish(def, p, FinishInput{Call: Call{Tool: ToolFinish}, At: at, Outputs: outputOf("a_out", textOf(strings.Clone(text))), Texts: Instructions{}})
		frame, parts, err := next.Parts()
		testkit.Must(t, err)
		texts := 0
		for _, part := range parts {
			if part.Kind == TextPart {
				texts++
			}
		}
		if want := map[bool]int{true: 1}[kept]; texts != want {
			t.Errorf("a text of %d bytes: %d parts of texts, want %d", len(text), texts, want)
		}
		if _, changed, _, err := next.Changes(opened); err != nil || strings.Contains(fmt.Sprint(changed), string(TextPart)) {
			t.Errorf("the text is written again: %v", err)
		}
		data := testkit.Get(next.Encode()).Must(t)
		back := testkit.Get(Decode("00000001", data)).Must(t)
		if got := back.Progress("a").Outputs[0].Value.Text; got == nil || *got != text || *back.Progress("a").Tries[0].Outputs[0].Value.Text != text {
			t.Error("the export does not have the text")
		}
		if !kept {
			continue
		}
		testkit.True(t, strings.Count(string(data), long) == 1, "the export has the text %d times", strings.Count(string(data), long))
		for what, wrong := range map[string]string{"is missing": "x", "has another hash than its name": Digest(long)} {
			for i := range parts {
				if parts[i].Kind == TextPart {
					parts[i].Key, parts[i].Body = wrong, []byte(`"other"`)
				}
			}
			if _, err := Assemble("00000001", frame, parts); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want %q", err, what)
			}
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
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{strings.Repeat("x", left), true},
		{strings.Repeat("x", left+1), false},
		{fmt.Sprintf("%0*d", MaxText, 3), true}, // it is kept already
	} {
		err := s.CheckRoom(outputOf("o", textOf(c.text)))
		testkit.True(t, (err == nil) == c.ok && (err == nil || strings.Contains(err.Error(), "With 'o' the texts of this session have 16777217 bytes together, and 16777216 are the most")), "%d bytes: %v", len(c.text), err)
	}
}

// Rule 14: a text is whole in all_outputs, while they are few, and shortened in lists.
func TestRule14_TextsInReplies(t *testing.T) {
	def := memoryDefinition(t, [][]string{{"a"}, {"b"}})
	at := time.Unix(1, 0).UTC()
	text := strings.Repeat("word ", 1000)
	s := &State{StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{StepID: "a", CompletedAt: &at,
		Outputs: Outputs{{Key: "long", Value: textOf(text)}, {Key: "short", Value: textOf("one\ntwo")}}}}}}
	all := testkit.Get(jsontext.Encode(s.AllOutputs(def))).Must(t)
	if want := `{"long":"` + text + `","short":"one\ntwo"}`; string(all) != want {
		t.Errorf("all_outputs is %.100s", all)
	}
	done := testkit.Get(jsontext.Encode(s.CompletedSteps(def)[0].Outputs)).Must(t)
	got := string(done)
	testkit.True(t, strings.HasPrefix(got, `{"long":"word word`) && strings.HasSuffix(got, `… (5000 characters)","short":"one two"}`), "completed_steps has %s", got)
	plain := plainWithin(s.Progress("a").Outputs, 10)
	testkit.True(t, len(plain[0].Value.Paths[0]) <= 300 && plain[1].Value.Paths[0] == "one\ntwo", "texts that are too many: %v", plain)
}

// A text is shown whole as an input, as far as the reply has room, and by its beginning among completed steps.
// Records have it as an object, so that it is no path.
func TestTextsAreShown(t *testing.T) {
	def := memoryDefinition(t, [][]string{{"a"}, {"b"}})
	st := *def.Job.Step("b")
	st.Inputs = []job.Input{{File: "a_out", FromStep: "a"}, {File: "a_out", FromStep: "a"}}
	long, at := strings.Repeat("é", 300_000), time.Now()
	s := &State{StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{StepID: "a", CompletedAt: &at, Outputs: Outputs{{Key: "a_out", Value: OutputValue{Text: &long}}}}}}}
	in := s.StepInputs(def, &st)
	testkit.True(t, *in[0].Value == long && in[0].Omitted == 0 && in[0].Paths == nil, "the first input has %d bytes, %d omitted, and the paths %v", len(*in[0].Value), in[0].Omitted, in[0].Paths)
	n := len(*in[1].Value)
	testkit.True(t, n == maxRepliedTexts-len(long) && in[1].Omitted == len(long)-n, "the second input has %d bytes, %d omitted", n, in[1].Omitted)
	shown := testkit.Get(jsontext.Encode(s.CompletedSteps(def)[0].Outputs)).Must(t)
	n = utf8.RuneCount(shown)
	testkit.True(t, n <= 250 && bytes.HasPrefix(shown, []byte(`{"a_out":"éé`)), "%d characters of completed steps: %.50s", n, shown)
	kept := testkit.Get(jsontext.Encode(OutputValue{Text: new("a.md")})).Must(t)
	var read OutputValue
	if err := json.Unmarshal(kept, &read); string(kept) != `{"text":"a.md"}` || err != nil || read.Text == nil || *read.Text != "a.md" || read.Paths != nil {
		t.Errorf("%s is read as %+v, %v", kept, read, err)
	}
}
