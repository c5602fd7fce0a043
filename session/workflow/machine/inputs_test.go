package machine

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

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
	if n := len(*in[1].Value); n != maxRepliedTexts-len(long) || in[1].Omitted != len(long)-n {
		t.Errorf("the second input has %d bytes, %d omitted", n, in[1].Omitted)
	}
	shown := testkit.Get(jsontext.Encode(s.CompletedSteps(def)[0].Outputs)).Must(t)
	if n := utf8.RuneCount(shown); n > 250 || !bytes.HasPrefix(shown, []byte(`{"a_out":"éé`)) {
		t.Errorf("%d characters of completed steps: %.50s", n, shown)
	}
	kept := testkit.Get(jsontext.Encode(OutputValue{Text: new("a.md")})).Must(t)
	var read OutputValue
	if err := json.Unmarshal(kept, &read); string(kept) != `{"text":"a.md"}` || err != nil || read.Text == nil || *read.Text != "a.md" || read.Paths != nil {
		t.Errorf("%s is read as %+v, %v", kept, read, err)
	}
}
