package machine

import (
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/codes"
)

// Evidence says why a step with reviews was finished. Steps without reviews have none.
type Evidence struct {
	Kind     EvidenceKind `json:"kind"`
	At       time.Time    `json:"at"`
	Identity string       `json:"identity"` // of the caller that finished the step, or of the person
	Channel  string       `json:"channel"`  // theirs: session.ChannelStdio, …
	Reviewer string       `json:"reviewer,omitempty"`
	Reason   string       `json:"reason,omitempty"`    // of an override
	GivenFor string       `json:"given_for,omitempty"` // the Digest of what a person saw who overrode the review in advance
	Digest   string       `json:"digest"`              // of the outputs, their content and the criteria; "" if reviews were off
	Files    []FileHash   `json:"files"`
	Others   *Evidence    `json:"others,omitempty"`   // why the step's reviews by others than people passed, if a person passed it
	Imported bool         `json:"imported,omitempty"` // it is what an export said
}

// EvidenceKind is what a finished step relies on.
type EvidenceKind string

// The values of EvidenceKind.
const (
	ByReviewer EvidenceKind = "reviewer"         // a reviewer passed it
	BySelf     EvidenceKind = "self"             // the agent, after it was given the criteria for exactly these outputs
	ByOverride EvidenceKind = "override"         // an agent's word, without a review of these outputs
	ByPerson   EvidenceKind = "person"           // a person overrode the reviews
	Passed     EvidenceKind = "passed_by_person" // a person reviewed these outputs, at a terminal or on a page
	PassedIn   EvidenceKind = "passed_in_client" // likewise, as the caller's client says, which nothing proves
	Unreviewed EvidenceKind = "off"              // the server ran without reviews
	NotDue     EvidenceKind = "not_due"          // no review is of the outputs that were submitted
)

// Grant records that a person overrides the reviews of a current step: its next finished_step goes
// on without them. o.GivenFor is the digest of the outputs that it is for, "" for any.
func (s *State) Grant(stepID string, o Override) (*State, error) {
	if s.Status != Active {
		return nil, s.Ended()
	}
	if !s.IsCurrent(stepID) {
		return nil, session.NotNow(codes.StepNotCurrent, "Step '%s' of session '%s' is not to be finished now; the current step is '%s'.", stepID, s.SessionID, s.CurrentStepID).
			With("session_id", s.SessionID).With("current_step", s.CurrentStepID)
	}
	n, p := s.Next(o.At), s.Progress(stepID).clone()
	p.Granted = &o
	n.setProgress(p)
	return n, nil
}

// HasGrant reports whether a person has overridden the reviews of a step. p may be nil.
func (p *StepProgress) HasGrant() bool { return p != nil && p.Granted != nil }

// Show records what the instructions of a self-review of a current step are about.
func (s *State) Show(stepID string, shown Shown) *State {
	n, p := s.Next(shown.At), s.ProgressOrNew(stepID, shown.At)
	p.Shown = &shown
	n.setProgress(p)
	return n
}

// prove sets why a step is finished. An override is kept among the step's overrides.
func (p *StepProgress) prove(e *Evidence, skipped []string) {
	p.Evidence, p.Granted, p.Question = e, nil, nil
	if e != nil && e.Others != nil {
		e = e.Others
	}
	if e != nil && (e.Kind == BySelf || e.Kind == ByOverride || e.Kind == ByPerson) {
		p.Overrides = append(slices.Clone(p.Overrides), Override{At: e.At, Identity: e.Identity, Channel: e.Channel, Reason: e.Reason, Skipped: skipped, GivenFor: e.GivenFor})
	}
}
