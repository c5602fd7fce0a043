package machine

import (
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/replies"
)

// What judges and people said last says why a step is not finished.
func TestWhyAStepIsNotFinished(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	with := func(by judging.Kind) *judging.Submission { return new(judging.Submission).To(by, nil, at) }
	said := func(v judging.Verdict) *judging.Submission { return with(v.Kind).To("", []*judging.Verdict{&v}, at) }
	check := func(code int, feedback string) *judging.Submission {
		return said(judging.Verdict{Kind: judging.ByProgram, Feedback: feedback,
			Check: &judging.CheckRun{Command: []string{"go", "test", "a b"}, Code: code}})
	}
	refused := &judging.Void{
		Why:     "\nthe reviewer ended with exit code 3. It wrote:\nno model\n",
		Refusal: session.Wrong(codes.ReviewFailed, "No."),
	}
	review := said(judging.Verdict{Kind: judging.ByReviewer, Feedback: "No.", Criteria: []replies.CriterionResult{
		{Criterion: "Is it true?", Passed: true}, {Criterion: "Is it short?", Feedback: new("It is long.\nVery.")},
	}})
	failed := check(1, "It ended with exit code 1 after 2s."+judging.LastLines+"ok a\nFAIL b\n")
	for name, c := range map[string]struct {
		all  []*judging.Submission
		want string
	}{
		"nothing": {nil, ""},
		"a check": {[]*judging.Submission{failed, failed},
			"Step fix: check `go test 'a b'` failed twice, last with exit code 1: ok a."},
		"a check without output": {[]*judging.Submission{check(2, "It ended with exit code 2 after 1s.")},
			"Step fix: check `go test 'a b'` failed with exit code 2."},
		"a check that hangs": {[]*judging.Submission{check(-1,
			"It did not end within its limit."+judging.LastLines+"a")},
			"Step fix: check `go test 'a b'` failed: It did not end within its limit."},
		"a review": {[]*judging.Submission{failed, review},
			`Step fix: its review failed, on "Is it short?": It is long.`},
		"a review as a whole": {[]*judging.Submission{said(judging.Verdict{Kind: judging.ByReviewer, Feedback: "No."})},
			"Step fix: its review failed: No."},
		"a reviewer that crashed": {[]*judging.Submission{failed, with(judging.ByReviewer).Ended(refused, at)},
			"Step fix: its reviewer gave no verdict: the reviewer ended with exit code 3. It wrote: no model."},
		"checks that cannot run": {[]*judging.Submission{with(judging.ByProgram).Ended(refused, at)},
			"Step fix: its checks could not be run: the reviewer ended with exit code 3. It wrote: no model."},
		"a person": {[]*judging.Submission{said(judging.Verdict{Kind: judging.ByPerson, By: "ada", Feedback: "More!"})},
			"Step fix: a person (ada) did not pass its outputs: More!"},
		"a person is asked": {[]*judging.Submission{failed, with(judging.ByPerson)},
			"Step fix: a person has to pass its outputs."},
		"used up rounds": {[]*judging.Submission{{Turns: []judging.Turn{{
			With:  judging.ByPerson,
			About: "round 2 of 2 is over",
		}}}},
			"Step fix: its rounds are used up, and a person has to say how it goes on: round 2 of 2 is over."},
		"a shape": {[]*judging.Submission{said(judging.Verdict{Kind: judging.ByShape, Feedback: "No title."})},
			"Step fix: its outputs were not accepted: No title."},
		"what is judged": {[]*judging.Submission{failed, with(judging.ByReviewer)}, ""},
		"what moved on": {[]*judging.Submission{review, with(judging.ByReviewer).Ended(&judging.Void{}, at)},
			`Step fix: its review failed, on "Is it short?": It is long.`},
	} {
		p := &StepProgress{StepID: "fix", Submissions: c.all}
		for _, u := range c.all {
			if u.FailedBy(judging.ByProgram) {
				p.FailedChecks++
			}
		}
		testkit.Equal(t, p.Why().Sentence(), c.want, "%s", name)
		p.CompletedAt = &at
		testkit.Equal(t, p.Why().Kind, "", "%s, of a finished step", name)
	}
	testkit.Equal(t, (*StepProgress)(nil).Why().Kind, "", "of a step that has not begun")
}
