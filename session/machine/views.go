package machine

import (
	"time"

	"deepwork/session/judging"
	"deepwork/session/outputs"
)

// A Try is what a submission's turn with its programs, its reviewers or a person came to, as it is shown. Nothing is
// decided by it.
type Try struct {
	Number    int // among the tries that count, including this one
	State     TryState
	OpenedAt  time.Time
	ClosedAt  *time.Time
	Outputs   outputs.Map        // as submitted
	Files     []judging.FileHash // the content of the outputs
	Collected bool               // a call was answered by what became of it
	Error     *string            // why a void try has no verdict
	Verdicts  []*judging.Verdict
	Imported  bool // taken from an export; its verdicts pass nothing
	Checks    bool // by the step's checks
	ByPerson  bool // by a person, who failed it
}

// TryState is the state of a try.
type TryState string

// The values of TryState.
const (
	TryOpen   TryState = "open" // running, or interrupted by the death of a server
	TryPassed TryState = "passed"
	TryFailed TryState = "failed"
	TryVoid   TryState = "void"
)

// Tries returns how a step's submissions were judged, the oldest first. p may be nil.
func (p *StepProgress) Tries() (all []*Try) {
	if p == nil {
		return nil
	}
	for _, u := range p.Submissions {
		for _, kind := range []judging.Kind{judging.ByProgram, judging.ByReviewer, judging.ByPerson} {
			if a := tryOf(u, kind); a != nil {
				all = append(all, a)
			}
		}
	}
	return all
}

// tryOf returns what a submission's turn with judges of this kind came to, or nil.
func tryOf(u *judging.Submission, kind judging.Kind) *Try {
	turn := u.LastTurn(kind)
	if turn == nil || kind == judging.ByPerson && !u.FailedBy(kind) {
		return nil
	}
	a := &Try{
		Number:    u.Number,
		State:     TryPassed,
		OpenedAt:  turn.At,
		ClosedAt:  turn.EndedAt,
		Outputs:   u.Outputs,
		Files:     u.Files,
		Collected: u.Told,
		Verdicts:  u.All(kind),
		Imported:  u.Imported,
		Checks:    kind == judging.ByProgram,
		ByPerson:  kind == judging.ByPerson,
	}
	switch last := u.Turns[len(u.Turns)-1]; {
	case turn.EndedAt == nil:
		a.State = TryOpen
	case u.Void != nil && last == *turn:
		a.State, a.Error = TryVoid, &u.Void.Why
	case u.FailedBy(kind):
		a.State = TryFailed
	case a.Verdicts == nil: // a person, or the agent, went on without them
		a.State, a.Error = TryVoid, new(movedOn)
	}
	return a
}

// Newest returns the newest try of a step, or nil. p may be nil.
func (p *StepProgress) Newest() *Try {
	all := p.Tries()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Failed returns the verdicts of a try that did not pass, in order.
func (a *Try) Failed() (failed []*judging.Verdict) {
	for _, v := range a.Verdicts {
		if !v.Passed {
			failed = append(failed, v)
		}
	}
	return failed
}

// Open reports whether a try has no verdict yet. a may be nil.
func (a *Try) Open() bool { return a != nil && a.State == TryOpen }
