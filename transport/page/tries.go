package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/run"
	"deepwork/session/show"
	"deepwork/session/why"
)

// A part is what an agent, a judge or a person did in a try of a step.
type part struct {
	Try   int    // its number, if the try begins here, else 0
	Who   string // "" if Kind says it
	Kind  judging.Kind
	State string
	At    time.Time
	Said  string // the first line of it
	Open  bool   // unfolded

	// At most one of these is not nil.
	Agent   *board.RunStep
	Handed  *judging.Submission
	Verdict *judging.Verdict
}

// Tries returns what was done for a step, the oldest first: in each try, an agent hands in outputs, and checks,
// reviewers and people judge them. Only the newest tries are shown if there are many.
func (v *runView) Tries(x *run.Step) (all []part) {
	var handed []*judging.Submission
	if p := x.Progress; p != nil {
		handed = p.Submissions
	}
	tries := 0
	take := func(until time.Time, begun bool) {
		for len(handed) > 0 && (until.IsZero() || handed[0].At.Before(until)) {
			parts := partsOf(handed[0])
			if !begun {
				tries++
				parts[0].Try = tries
			}
			if handed, begun = handed[1:], false; len(handed) == 0 && x.Current() {
				for i := range parts {
					parts[i].Open = parts[i].Verdict != nil && parts[i].Verdict.Fails()
				}
			}
			all = append(all, parts...)
		}
	}
	for i := len(x.Agents) - 1; i >= 0; i-- { // the oldest first
		a := &x.Agents[i]
		began, _ := time.Parse(time.RFC3339Nano, board.OrEmpty(a.StartedAt)) // this program has written it
		if i == len(x.Agents)-1 && !began.IsZero() {
			take(began, false) // by others than agents of the run
		}
		tries++
		all = append(all, part{Try: tries, Who: a.Executor, State: string(a.State), At: began, Agent: a,
			Said: cmp.Or(a.Why, why.Line(board.OrEmpty(a.FinalMessage)))})
		next := time.Time{}
		if i > 0 {
			next, _ = time.Parse(time.RFC3339Nano, board.OrEmpty(x.Agents[i-1].StartedAt))
		}
		take(next, true)
	}
	take(time.Time{}, false)

	if tries > maxTries && v.Only == "" {
		all = all[slices.IndexFunc(all, func(p part) bool { return p.Try > tries-maxTries }):]
	}
	return all
}

// partsOf returns what was handed in, and what came of it.
func partsOf(u *judging.Submission) []part {
	all := append([]part{{At: u.At, Handed: u}}, verdicts(u)...)
	turn := u.Turn()
	if turn.With == "" && u.Void != nil && len(u.Turns) > 0 {
		turn = u.Turns[len(u.Turns)-1]
	}
	p := part{Kind: turn.With, State: string(board.Running), At: turn.At}
	switch {
	case turn.With == "":
		return all
	case u.Void != nil:
		p.State, p.Said = "no verdict", machine.SaidOf(u.Void)
	case turn.With == judging.ByPerson:
		p.State = string(board.WaitingForYou)
	}
	return append(all, p)
}

// verdicts returns what was said about a submission, in the order of its judges. u may be nil.
func verdicts(u *judging.Submission) (all []part) {
	for _, kind := range []judging.Kind{judging.ByShape, judging.ByProgram, judging.ByReviewer, judging.BySelf,
		judging.ByReason, judging.ByOverride, judging.Off, judging.NotDue, judging.ByPerson, judging.OnRounds} {
		for _, v := range u.All(kind) {
			all = append(all, partOf(v))
		}
	}
	return all
}

func partOf(v *judging.Verdict) part {
	p := part{Kind: v.Kind, State: "failed", At: v.At, Said: why.Line(v.Feedback), Verdict: v}
	if v.Passed {
		p.State = "passed"
	}
	switch v.Kind {
	case judging.ByProgram:
		said, printed, _ := strings.Cut(v.Feedback, judging.LastLines)
		p.Who, p.Said = "check "+v.RunEach, cmp.Or(why.Line(printed), why.Line(said))
	case judging.ByReviewer:
		of := cmp.Or(v.TargetFile, &v.RunEach)
		if *of == "step" {
			of = new("all outputs")
		}
		p.Who = "review of " + *of + " by " + show.By(v)
	case judging.ByPerson, judging.OnRounds, judging.ByOverride:
		p.Who = v.By
		if v.Kind != judging.ByOverride {
			p.State = v.Word()
		}
	}
	return p
}
