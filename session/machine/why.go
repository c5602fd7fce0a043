package machine

import (
	"cmp"
	"slices"
	"strings"

	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/session/judging"
	"deepwork/session/why"
)

// Why returns why a step is not finished, as its judges, or a person, have said last. It returns the zero Why if nobody
// has failed the step, or if it is being judged. p may be nil.
func (p *StepProgress) Why() why.Why {
	if p == nil || p.Done() {
		return why.Why{}
	}
	for _, u := range slices.Backward(p.Submissions) {
		if u.Void != nil && u.Void.Refusal == nil {
			continue // it moved on
		}
		w := whyOf(u)
		if w.Kind == "" {
			return w
		}
		w.Step = p.StepID
		switch w.Kind {
		case why.Check:
			w.Tries = p.FailedChecks
		case why.Review:
			w.Tries = p.FailedTries()
		}
		return w
	}
	return why.Why{}
}

// whyOf returns why a submission did not finish its step, without the step.
func whyOf(u *judging.Submission) (w why.Why) {
	of := func(kind judging.Kind) *judging.Verdict {
		failed := slices.IndexFunc(u.Verdicts, func(v *judging.Verdict) bool { return v.Kind == kind && v.Fails() })
		return u.Verdicts[failed]
	}
	switch {
	case u.With() == judging.ByPerson && u.Turn().About != "":
		w.Kind, w.Said = why.Rounds, why.Line(u.Turn().About)
	case u.With() == judging.ByPerson:
		w.Kind = why.Asks
	case u.Void != nil && u.LastTurn(judging.ByReviewer) == nil:
		w.Kind, w.Said = why.Unchecked, SaidOf(u.Void)
	case u.Void != nil:
		w.Kind, w.Said = why.Crashed, SaidOf(u.Void)
	case u.FailedBy(judging.ByProgram):
		v := of(judging.ByProgram)
		said, printed, _ := strings.Cut(v.Feedback, judging.LastLines)
		w.Kind, w.ExitCode = why.Check, max(v.Check.Code, 0)
		w.Check = strings.Join(xslices.Map(v.Check.Command, process.InShell), " ")
		if w.Said = why.Line(printed); w.ExitCode == 0 {
			w.Said = why.Line(said)
		}
	case u.FailedBy(judging.ByPerson):
		v := of(judging.ByPerson)
		w.Kind, w.By, w.Said = why.Refused, v.By, why.Line(v.Feedback)
	case u.FailedBy(judging.ByReviewer):
		v := of(judging.ByReviewer)
		w.Kind, w.Said = why.Review, why.Line(v.Feedback)
		for _, c := range v.Criteria {
			if !c.Passed {
				w.Criterion = c.Criterion
				w.Said = cmp.Or(why.Line(*cmp.Or(c.Feedback, new(""))), w.Said)
				break
			}
		}
	case u.FailedBy(judging.ByShape):
		w.Kind, w.Said = why.Unfit, why.Line(of(judging.ByShape).Feedback)
	}
	return w
}

// SaidOf returns the first line of why what was said counts for nothing, with what a reviewer printed first.
func SaidOf(v *judging.Void) string { return why.Line(strings.Replace(v.Why, ":\n", ": ", 1)) }
