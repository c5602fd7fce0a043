package workflow

import (
	"slices"
	"time"
)

// An Attempt is one review of a step's outputs by the external reviewer. It is
// recorded, open, before the reviewer is called; a verdict makes it count, and
// what keeps the reviewer from giving one voids it (seed 000, 001.4.11; DESIGN
// "Reviews").
type Attempt struct {
	Number    int          `json:"number"` // of those that count, this one included
	State     AttemptState `json:"state"`
	OpenedAt  time.Time    `json:"opened_at"`
	ClosedAt  *time.Time   `json:"closed_at"`
	Outputs   Outputs      `json:"outputs"`   // as submitted
	Files     []FileHash   `json:"files"`     // what they held
	Digest    string       `json:"digest"`    // of what was judged, and by which criteria
	Collected bool         `json:"collected"` // a call was told the verdict
	Error     *string      `json:"error"`     // void: why there is no verdict
	Verdicts  []*Verdict   `json:"verdicts"`
}

// AttemptState is what became of an attempt.
type AttemptState string

// The values of AttemptState.
const (
	AttemptOpen   AttemptState = "open" // runs, or was cut off by a server that died
	AttemptPassed AttemptState = "passed"
	AttemptFailed AttemptState = "failed"
	AttemptVoid   AttemptState = "void"
)

// A FileHash is what a file held when it was handed in.
type FileHash struct {
	Path   string `json:"path"` // as submitted
	SHA256 string `json:"sha256"`
}

// A Verdict is what a reviewer said of one review, or of one file of it.
type Verdict struct {
	At         time.Time         `json:"at"`
	Reviewer   string            `json:"reviewer"`
	RunEach    string            `json:"run_each"`
	TargetFile *string           `json:"target_file"`
	Key        string            `json:"key"`    // which of the step's reviews
	Digest     string            `json:"digest"` // of what it judged; it holds for that alone
	Files      []FileHash        `json:"files"`
	Passed     bool              `json:"passed"`
	Feedback   string            `json:"feedback"`
	Criteria   []CriterionResult `json:"criteria_results"`
	Seconds    float64           `json:"seconds"`
	Reused     bool              `json:"reused"` // given in an earlier attempt, for the same content
}

// attempt returns the newest attempt of a step, or nil.
func (p *StepProgress) attempt() *Attempt {
	if p == nil || len(p.Attempts) == 0 {
		return nil
	}
	return p.Attempts[len(p.Attempts)-1]
}

// passedBefore finds a verdict that passed exactly this content.
func (p *StepProgress) passedBefore(key, digest string) *Verdict {
	if p == nil {
		return nil
	}
	for _, a := range slices.Backward(p.Attempts) {
		for _, v := range a.Verdicts {
			if v.Passed && v.Key == key && v.Digest == digest {
				return v
			}
		}
	}
	return nil
}

// failedReviews are the verdicts of an attempt that did not pass, in order.
func (a *Attempt) failedReviews() []FailedReview {
	var out []FailedReview
	for _, v := range a.Verdicts {
		if v.Passed {
			continue
		}
		criteria := v.Criteria
		if criteria == nil {
			criteria = []CriterionResult{}
		}
		out = append(out, FailedReview{RunEach: v.RunEach, TargetFile: v.TargetFile, Feedback: v.Feedback, Criteria: criteria})
	}
	return out
}

// openAttempt records an attempt before its reviewer is called. One that was
// cut off by a server that died is void by then.
func (s *State) openAttempt(stepID string, a Attempt) *State {
	n := s.next(a.OpenedAt)
	p := n.progressOrNew(stepID, a.OpenedAt)
	p.Attempts = slices.Clone(p.Attempts)
	if last := p.attempt(); last != nil && last.State == AttemptOpen {
		p.Attempts[len(p.Attempts)-1] = last.void("no verdict was recorded before the server ended or the disk failed", a.OpenedAt)
	}
	a.Number, a.State = p.QualityAttempts+1, AttemptOpen
	p.Attempts = append(withoutOldVoids(p.Attempts), &a)
	n.setProgress(p)
	return n
}

// keptVoids is how many void attempts of a step are kept: a reviewer that never
// gives a verdict must not make the record grow without end.
const keptVoids = 10

func withoutOldVoids(attempts []*Attempt) []*Attempt {
	voids := 0
	for _, a := range attempts {
		if a.State == AttemptVoid {
			voids++
		}
	}
	return slices.DeleteFunc(attempts, func(a *Attempt) bool { // the oldest come first
		drop := a.State == AttemptVoid && voids > keptVoids
		if drop {
			voids--
		}
		return drop
	})
}

func (a *Attempt) void(why string, at time.Time) *Attempt {
	v := *a
	v.State, v.Error, v.ClosedAt = AttemptVoid, &why, &at
	return &v
}

// closeAttempt records what became of the newest attempt of a step: void, with
// the reason, or counted.
func (s *State) closeAttempt(stepID string, verdicts []*Verdict, void string, at time.Time) *State {
	n := s.next(at)
	p := n.progressOrNew(stepID, at)
	a := p.attempt()
	if a == nil || a.State != AttemptOpen {
		return s
	}
	var closed *Attempt
	if void != "" {
		closed = a.void(void, at)
	} else {
		c := *a
		c.State, c.ClosedAt = AttemptPassed, &at
		if slices.ContainsFunc(verdicts, func(v *Verdict) bool { return !v.Passed }) {
			c.State = AttemptFailed
		}
		closed = &c
		p.QualityAttempts++
	}
	closed.Verdicts = verdicts
	p.Attempts = append(slices.Clone(p.Attempts[:len(p.Attempts)-1]), closed)
	n.setProgress(p)
	return n
}

// collectAttempt notes that a call was told the verdict of the newest attempt.
func (s *State) collectAttempt(stepID string, at time.Time) *State {
	n := s.next(at)
	p := n.progressOrNew(stepID, at)
	a := p.attempt()
	if a == nil || a.Collected {
		return s
	}
	c := *a
	c.Collected = true
	p.Attempts = append(slices.Clone(p.Attempts[:len(p.Attempts)-1]), &c)
	n.setProgress(p)
	return n
}

// isCurrent tells whether a step was begun and not yet finished or left behind.
func (s *State) isCurrent(stepID string) bool {
	p := s.progress(stepID)
	return s.Status == Active && p != nil && p.CompletedAt == nil && !p.Unreported
}

// awaitsReview tells whether a step is current and its newest attempt open.
func (s *State) awaitsReview(stepID string) bool {
	return s.isCurrent(stepID) && s.progress(stepID).attempt().open()
}

// settle voids the attempts of steps that the transition to s moved on from: no
// verdict on them will be taken. s is being made.
func (s *State) settle(at time.Time) {
	var changed []*StepProgress
	for _, p := range s.StepProgress {
		if p.Value.attempt().open() && !s.awaitsReview(p.Key) {
			changed = append(changed, p.Value.settled(at))
		}
	}
	if changed != nil {
		s.setProgress(changed...)
	}
}

// settled is the progress with its open attempt void.
func (p *StepProgress) settled(at time.Time) *StepProgress {
	n := p.clone()
	last := len(p.Attempts) - 1
	n.Attempts = append(slices.Clone(p.Attempts[:last]), p.Attempts[last].void("the step moved on before there was a verdict", at))
	return n
}
