package machine

import (
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// A Try is one review of a step's outputs by the external reviewer. It is recorded as open before the
// reviewer is called. A verdict makes it count; a failure of the reviewer makes it void (seed 000, 001.4.11;
// DESIGN "Reviews").
type Try struct {
	Number    int         `json:"number"` // among the tries that count, including this one
	State     TryState    `json:"state"`
	OpenedAt  time.Time   `json:"opened_at"`
	ClosedAt  *time.Time  `json:"closed_at"`
	Outputs   outputs.Map `json:"outputs"`   // as submitted
	Files     []FileHash  `json:"files"`     // the content of the outputs
	Digest    string      `json:"digest"`    // of what was judged, including the criteria
	Collected bool        `json:"collected"` // a call has received the verdict
	Error     *string     `json:"error"`     // why a void try has no verdict
	Verdicts  []*Verdict  `json:"verdicts"`
	Imported  bool        `json:"imported,omitempty"`  // taken from an export; its verdicts pass nothing
	Checks    bool        `json:"checks,omitempty"`    // of the step's checks by programs; not a try of its reviews
	NotBegun  bool        `json:"not_begun,omitempty"` // a void try that nobody began to judge
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

// A FileHash identifies the content of a submitted file, or of a text output.
type FileHash struct {
	Path   string `json:"path"` // as submitted; "" for a text
	SHA256 string `json:"sha256"`
	Output string `json:"output,omitempty"` // the name of a text output
}

// Name returns a name of the content for people.
func (f FileHash) Name() string {
	if f.Output != "" {
		return "the text '" + f.Output + "'"
	}
	return f.Path
}

// Same reports whether both are the same file or text, whatever their content.
func (f FileHash) Same(o FileHash) bool { return f.Path == o.Path && f.Output == o.Output }

// A Verdict is the result of one review, or of one file in it.
type Verdict struct {
	At         time.Time                 `json:"at"`
	Reviewer   string                    `json:"reviewer"`
	RunEach    string                    `json:"run_each"`
	TargetFile *string                   `json:"target_file"`
	Key        string                    `json:"key"`    // identifies the review within the step
	Digest     string                    `json:"digest"` // of what it judged; it applies to nothing else
	Files      []FileHash                `json:"files"`
	Passed     bool                      `json:"passed"`
	Feedback   string                    `json:"feedback"`
	Criteria   []replies.CriterionResult `json:"criteria_results"`
	Seconds    float64                   `json:"seconds"`
	Reused     bool                      `json:"reused"`          // given in an earlier try for the same content
	Check      *CheckRun                 `json:"check,omitempty"` // for the verdict of a check, whose name is RunEach
}

// A CheckRun says how a check ended. Verdict.Digest covers what it judged, and its definition.
type CheckRun struct {
	Command []string `json:"command"`
	Code    int      `json:"exit_code"`         // -1 means none
	Bound   string   `json:"bound_to"`          // tree, files or outputs: see package check
	NotRun  bool     `json:"not_run,omitempty"` // not run, because protected files differ
	Ends    bool     `json:"ends,omitempty"`    // it only ends rounds, and fails no step
}

// Fails reports whether the verdict fails the step.
func (v *Verdict) Fails() bool { return !v.Passed && (v.Check == nil || !v.Check.Ends) }

// Protected is the state, when a step began, of the files that its checks protect.
type Protected struct {
	Patterns []string `json:"patterns"`
	// by paths below the session's root; each hash is the file mode, then git's blob hash
	Files   []FileHash `json:"files"`
	Ignored []string   `json:"ignored,omitempty"` // the rules by which git ignored files at that time
}

// Newest returns the newest try of a step, or nil. p may be nil.
func (p *StepProgress) Newest() *Try {
	if p == nil || len(p.Tries) == 0 {
		return nil
	}
	return p.Tries[len(p.Tries)-1]
}

// Open reports whether a try has no verdict yet. a may be nil.
func (a *Try) Open() bool { return a != nil && a.State == TryOpen }

// NewestReview returns the newest try of a step's reviews, or nil. p may be nil.
func (p *StepProgress) NewestReview() *Try {
	if p == nil {
		return nil
	}

	for _, a := range slices.Backward(p.Tries) {
		if !a.Checks {
			return a
		}
	}
	return nil
}

// Counts reports whether a try is of reviews and has a verdict. a may be nil.
func (a *Try) Counts() bool {
	return a != nil && !a.Checks && (a.State == TryPassed || a.State == TryFailed)
}

// FailedTries returns the number of failed tries of a step's reviews, which is limited.
func (p *StepProgress) FailedTries() (n int) {
	for _, a := range p.Tries {
		if a.Counts() && a.State == TryFailed {
			n++
		}
	}
	return n
}

// nextTry returns the number of the next try of the reviews. The verdict of a person who was asked after a
// try passed belongs to that try.
func (p *StepProgress) nextTry() int {
	if last := p.LastCounted(); last != nil {
		return last.Number + 1
	}
	return 1
}

// LastCounted returns the newest try with a verdict, or nil.
func (p *StepProgress) LastCounted() *Try {
	for _, a := range slices.Backward(p.Tries) {
		if a.Counts() {
			return a
		}
	}
	return nil
}

// Judged returns the newest try with a verdict on the outputs with this digest, or nil. Imported tries do not
// count.
func (p *StepProgress) Judged(digest string) *Try {
	for _, a := range slices.Backward(p.Tries) {
		if a.Counts() && !a.Imported && a.Digest == digest {
			return a
		}
	}
	return nil
}

// CheckedBefore returns the newest result of a step's check for exactly this content, or nil. Results from
// before go_to_step count, so that beginning a step again does not give another try; imported ones do not.
func (s *State) CheckedBefore(stepID, key, digest string) *Verdict {
	v := s.Progress(stepID).checkedBefore(key, digest)
	for _, w := range slices.Backward(s.History) {
		if v == nil {
			p, _ := w.Progress.Get(stepID)
			v = p.checkedBefore(key, digest)
		}
	}
	return v
}

func (p *StepProgress) checkedBefore(key, digest string) *Verdict {
	if p == nil {
		return nil
	}

	for _, a := range slices.Backward(p.Tries) {
		for _, v := range a.Verdicts {
			if a.Checks && !a.Imported && v.Key == key && v.Digest == digest {
				return v
			}
		}
	}
	return nil
}

// PassedBefore returns a verdict that passed exactly this content, or nil. Imported verdicts do not count.
func (p *StepProgress) PassedBefore(key, digest string) *Verdict {
	for _, a := range slices.Backward(p.Tries) {
		for _, v := range a.Verdicts {
			if !a.Imported && v.Passed && v.Key == key && v.Digest == digest {
				return v
			}
		}
	}
	return nil
}

// Failed returns the verdicts of a try that did not pass, in order.
func (a *Try) Failed() []*Verdict {
	return slices.DeleteFunc(slices.Clone(a.Verdicts), func(v *Verdict) bool { return v.Passed })
}

// FileHashes returns the hashes of the files and texts of outputs, in order.
func FileHashes(outputs outputs.Map, hashes map[string]string) []FileHash {
	out := []FileHash{}
	for _, o := range outputs {
		for _, p := range o.Value.Paths {
			out = append(out, FileHash{Path: p, SHA256: hashes[p]})
		}
		if o.Value.Text != nil {
			out = append(out, FileHash{Output: o.Key, SHA256: session.Digest(*o.Value.Text)})
		}
	}
	return out
}

// keptVoids limits the stored void tries of a step; keptChecks limits the tries of its checks, passed and
// failed each. A reviewer that always fails must not make the record grow forever.
const (
	keptVoids  = 10
	keptChecks = 20
)

// OpenTry records a try before its reviewer is called. An open try of a dead server becomes void.
func (s *State) OpenTry(stepID string, a Try) *State {
	n := s.Next(a.OpenedAt)
	p := n.ProgressOrNew(stepID,
		a.OpenedAt).voided("no verdict was recorded before the server ended or the disk failed", a.OpenedAt)
	a.Number, a.State = p.nextTry(), TryOpen
	if a.Checks {
		a.Number = p.FailedChecks + 1
	}
	tries := append(slices.Clone(p.Tries), &a)
	voids := 0
	checks := map[TryState]int{}
	slices.Reverse(tries)
	tries = slices.DeleteFunc(tries, func(a *Try) bool {
		switch {
		case a.State == TryVoid:
			voids++
			return voids > keptVoids
		case a.Checks:
			checks[a.State]++
			return checks[a.State] > keptChecks
		}
		return false
	})
	slices.Reverse(tries)
	p.Tries = tries
	n.setProgress(p)
	return n
}

// CloseTry records the end of a step's newest try: void, with the reason, or counted. It returns s if that
// try is not open.
func (s *State) CloseTry(stepID string, verdicts []*Verdict, void string, at time.Time) *State {
	p := s.Progress(stepID)
	if !p.Newest().Open() {
		return s
	}
	n, p := s.Next(at), p.voided(void, at)
	a := p.Newest() // p is a copy
	a.Verdicts = verdicts
	if void == "" {
		a.State, a.Error = TryPassed, nil
		if slices.ContainsFunc(verdicts, (*Verdict).Fails) {
			a.State = TryFailed
		}
		switch {
		case !a.Checks:
			p.QualityTries++
		case a.State == TryFailed:
			p.FailedChecks++
		}
	}

	n.setProgress(p)
	return n
}

// LeaveTry records that judging a step's newest try could not begin, and why. It returns s if that try is not open.
func (s *State) LeaveTry(stepID, why string, at time.Time) *State {
	n := s.CloseTry(stepID, nil, "it was not begun: "+why, at)
	if n != s {
		n.Progress(stepID).Newest().NotBegun = true
	}
	return n
}

// CollectTry records that a call received the verdict of the newest try of the reviews. It returns s if that
// is recorded already.
func (s *State) CollectTry(stepID string, at time.Time) *State {
	return s.collect(stepID, s.Progress(stepID).NewestReview(), at)
}

// CollectChecks records that a call received the results of the newest try, one of the checks. It returns s
// if that is recorded already.
func (s *State) CollectChecks(stepID string, at time.Time) *State {
	if a := s.Progress(stepID).Newest(); a != nil && a.Checks {
		return s.collect(stepID, a, at)
	}
	return s
}

func (s *State) collect(stepID string, a *Try, at time.Time) *State {
	if a == nil || a.Collected {
		return s
	}

	n, p := s.Next(at), s.Progress(stepID).clone()
	collected := *a
	collected.Collected = true
	p.Tries = slices.Clone(p.Tries)
	p.Tries[slices.Index(p.Tries, a)] = &collected
	n.setProgress(p)
	return n
}

// withOwnNewest returns a copy whose newest try is a copy, too.
func (p *StepProgress) withOwnNewest() *StepProgress {
	n := p.clone()
	n.Tries = append(slices.Clone(p.Tries[:len(p.Tries)-1]), new(*p.Newest()))
	return n
}

// voided returns the progress with its open try made void, or p if none is open.
func (p *StepProgress) voided(why string, at time.Time) *StepProgress {
	if !p.Newest().Open() {
		return p
	}
	n := p.withOwnNewest()
	a := n.Newest()
	a.State = TryVoid
	a.Error = new(why)
	a.ClosedAt = new(at)
	return n
}

// movedOn is the reason of a try that is void because its step has moved on.
const movedOn = "the step moved on before there was a verdict"

// settle makes void the open tries of steps that the transition to s left. s is being made.
func (s *State) settle(at time.Time) {
	var changed []*StepProgress
	for _, p := range s.StepProgress {
		if p.Value.Newest().Open() && !s.IsCurrent(p.Key) {
			changed = append(changed, p.Value.voided(movedOn, at))
		}
	}
	if changed != nil {
		s.setProgress(changed...)
	}
}

// IsCurrent reports whether a step has begun and is neither finished nor left.
func (s *State) IsCurrent(stepID string) bool {
	return s.Status == Active && s.Progress(stepID).Current()
}

// Current reports whether a step of an active session has begun and is neither finished nor left. p may be
// nil.
func (p *StepProgress) Current() bool {
	return p != nil && !p.Done() && !p.Unreported && p.Dropped == nil
}

// AwaitsReview reports whether a step is current and its newest try is open.
func (s *State) AwaitsReview(stepID string) bool {
	return s.IsCurrent(stepID) && s.Progress(stepID).Newest().Open()
}
