package machine

import (
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
)

// What a person says is kept up to a limit, and is never nothing where the agent has to act on it.
func TestTheFeedbackOfAnAnswer(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := (&State{Status: Active, StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{StepID: "a", StartedAt: at}}}}).
		Ask("a", &Question{AskedAt: at, RunEach: "step", Digest: "d"})
	for given, want := range map[string]int{strings.Repeat("é", maxAnswer+1): maxAnswer, " \n": len("A person did not pass it, and gave no reason."), "No": 2} {
		s, err := asked.Answer("a", "d", Answer{At: at, Feedback: given})
		testkit.Must(t, err)
		p := s.Progress("a")
		if got := p.Question.Answer.Feedback; len([]rune(got)) != want || p.Newest().Verdicts[0].Feedback != got {
			t.Errorf("of %.20q %d characters are kept, want %d", given, len([]rune(got)), want)
		}
		if asked.Progress("a").Question.Answer != nil || len(asked.Progress("a").Attempts) != 0 {
			t.Error("the earlier state was changed")
		}
	}
}
