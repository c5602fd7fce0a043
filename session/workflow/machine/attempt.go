package machine

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
func (p *StepProgress) Newest() *Attempt {
	if p == nil || len(p.Attempts) == 0 {
		return nil
	}
	return p.Attempts[len(p.Attempts)-1]
}

// PassedBefore finds a verdict that passed exactly this content.
func (p *StepProgress) PassedBefore(key, digest string) *Verdict {
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

// FailedReviews are the verdicts of an attempt that did not pass, in order.
func (a *Attempt) FailedReviews() []FailedReview {
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

// OpenAttempt records an attempt before its reviewer is called. One that was
// cut off by a server that died is void by then.
func (s *State) OpenAttempt(stepID string, a Attempt) *State {
	n := s.Next(a.OpenedAt)
	p := n.progressOrNew(stepID, a.OpenedAt)
	p.Attempts = slices.Clone(p.Attempts)
	if last := p.Newest(); last != nil && last.State == AttemptOpen {
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

// CloseAttempt records what became of the newest attempt of a step: void, with
// the reason, or counted.
func (s *State) CloseAttempt(stepID string, verdicts []*Verdict, void string, at time.Time) *State {
	n := s.Next(at)
	p := n.progressOrNew(stepID, at)
	a := p.Newest()
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

// CollectAttempt notes that a call was told the verdict of the newest attempt.
func (s *State) CollectAttempt(stepID string, at time.Time) *State {
	n := s.Next(at)
	p := n.progressOrNew(stepID, at)
	a := p.Newest()
	if a == nil || a.Collected {
		return s
	}
	c := *a
	c.Collected = true
	p.Attempts = append(slices.Clone(p.Attempts[:len(p.Attempts)-1]), &c)
	n.setProgress(p)
	return n
}

// IsCurrent tells whether a step was begun and not yet finished or left behind.
func (s *State) IsCurrent(stepID string) bool {
	p := s.Progress(stepID)
	return s.Status == Active && p != nil && p.CompletedAt == nil && !p.Unreported
}

// AwaitsReview tells whether a step is current and its newest attempt open.
func (s *State) AwaitsReview(stepID string) bool {
	return s.IsCurrent(stepID) && s.Progress(stepID).Newest().Open()
}

// settle voids the attempts of steps that the transition to s moved on from: no
// verdict on them will be taken. s is being made.
func (s *State) settle(at time.Time) {
	var changed []*StepProgress
	for _, p := range s.StepProgress {
		if p.Value.Newest().Open() && !s.AwaitsReview(p.Key) {
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

// counts tells whether an attempt has a verdict behind it.
func (a *Attempt) Counts() bool {
	return a != nil && (a.State == AttemptPassed || a.State == AttemptFailed)
}

func (a *Attempt) Open() bool { return a != nil && a.State == AttemptOpen }

// LastCounted is the newest attempt with a verdict, or nil.
func (p *StepProgress) LastCounted() *Attempt {
	if p == nil {
		return nil
	}
	for _, a := range slices.Backward(p.Attempts) {
		if a.Counts() {
			return a
		}
	}
	return nil
}

func (p *StepProgress) AttemptsLeft(most int) int {
	if p == nil {
		return most
	}
	return most - p.QualityAttempts
}

func FileHashes(outputs Outputs, hashes map[string]string) []FileHash {
	out := []FileHash{}
	for _, o := range outputs {
		for _, p := range o.Value.Paths {
			out = append(out, FileHash{p, hashes[p]})
		}
	}
	return out
}
