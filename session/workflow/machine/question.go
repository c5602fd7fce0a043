package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// A Question is whether a person passes the outputs of a step: its reviews by people are one question,
// which is asked once its other reviews have passed. Only outputs with its Digest are finished by the
// answer.
type Question struct {
	AskedAt time.Time  `json:"asked_at"`
	RunEach string     `json:"run_each"` // of the review; step if there are several
	Outputs Outputs    `json:"outputs"`  // as submitted
	Files   []FileHash `json:"files"`    // their content
	Digest  string     `json:"digest"`   // of what is judged, and the criteria
	Notes   *string    `json:"notes,omitempty"`
	Others  *Evidence  `json:"others,omitempty"` // why the other reviews passed; nil if there are none
	Answer  *Answer    `json:"answer,omitempty"` // nil means that nobody has answered
}

// An Answer is what a person says to a Question.
type Answer struct {
	At       time.Time `json:"at"`
	Identity string    `json:"identity"`
	Channel  string    `json:"channel"`
	Client   bool      `json:"client,omitempty"` // the client of an agent says that it asked a person
	Passed   bool      `json:"passed"`
	Feedback string    `json:"feedback"`
}

// humanKey is the key of a person's verdict, beside those of the step's reviews.
const humanKey = "human"

// ByPerson reports whether an attempt was judged by a person.
func (a *Attempt) ByPerson() bool { return len(a.Verdicts) == 1 && a.Verdicts[0].Key == humanKey }

// Open reports whether a question waits for its answer. q may be nil.
func (q *Question) Open() bool { return q != nil && q.Answer == nil }

// Evidence is the evidence of a step that a person has passed.
func (q *Question) Evidence() *Evidence {
	a := q.Answer
	e := &Evidence{Kind: Passed, At: a.At, Identity: a.Identity, Channel: a.Channel, Reason: a.Feedback, Digest: q.Digest, Files: q.Files, Others: q.Others}
	if a.Client {
		e.Kind = PassedIn
	}
	return e
}

// notice says what a person decided about a step that is finished, "" if none did.
func (e *Evidence) notice(stepID string) string {
	switch {
	case e == nil:
	case e.Kind == ByPerson:
		return fmt.Sprintf("A person (%s, %s) overrode the reviews of step '%s': %s", e.Identity, e.Channel, stepID, e.Reason)
	case (e.Kind == Passed || e.Kind == PassedIn) && e.Reason != "":
		return fmt.Sprintf("The person who passed step '%s' says: %s", stepID, e.Reason)
	}
	return ""
}

// Ask records a question to a person, in place of an earlier one.
func (s *State) Ask(stepID string, q *Question) *State {
	n, p := s.Next(q.AskedAt), s.ProgressOrNew(stepID, q.AskedAt)
	p.Question = q
	n.setProgress(p)
	return n
}

// Unask drops a question without an answer, if it is about other outputs than those with this digest.
// It returns s otherwise.
func (s *State) Unask(stepID, digest string, at time.Time) *State {
	p := s.Progress(stepID)
	if p == nil || !p.Question.Open() || p.Question.Digest == digest {
		return s
	}
	n, p := s.Next(at), p.clone()
	p.Question = nil
	n.setProgress(p)
	return n
}

// ToAnswer returns the question about a step that waits for its answer. digest is that of the outputs
// that the person saw, "" for any.
func (s *State) ToAnswer(stepID, digest string) (*Question, error) {
	if s.Status != Active {
		return nil, s.Ended()
	}
	p := s.Progress(stepID)
	switch {
	case !s.IsCurrent(stepID) || p.Question == nil:
		return nil, session.NotNow(codes.PersonNotAsked, "Step '%s' of session '%s' does not wait for a person: its agent has handed in no outputs that need one. `deepwork sessions show %s` says where it is.", stepID, s.SessionID, s.SessionID)
	case !p.Question.Open():
		a := p.Question.Answer
		return nil, session.NotNow(codes.PersonAnswered, "%s (%s) has answered already about these outputs of step '%s' of session '%s': passed is %t.", a.Identity, a.Channel, stepID, s.SessionID, a.Passed)
	case digest != "" && digest != p.Question.Digest:
		return nil, session.NotNow(codes.OutputsChanged, "The outputs of step '%s' of session '%s' are not those that you were shown: other ones were handed in since. Look at those, and answer again.", stepID, s.SessionID)
	}
	return p.Question, nil
}

// maxAnswer is how much of a person's feedback is kept, in characters.
const maxAnswer = 8000

// Answer records a person's answer about the outputs with a digest. A failed one counts as an attempt,
// like the verdict of a reviewer, and is collected by the next finished_step.
func (s *State) Answer(stepID, digest string, a Answer) (*State, error) {
	q, err := s.ToAnswer(stepID, digest)
	if err != nil {
		return nil, err
	}
	a.Feedback = jsontext.Clip(strings.TrimSpace(a.Feedback), maxAnswer)
	if !a.Passed && a.Feedback == "" {
		a.Feedback = "A person did not pass it, and gave no reason."
	}
	answered := *q
	answered.Answer = &a
	n, p := s.Next(a.At), s.Progress(stepID).clone()
	p.Question = &answered
	if !a.Passed {
		p.QualityAttempts++
		p.Attempts = append(slices.Clone(p.Attempts), &Attempt{
			Number: p.QualityAttempts, State: AttemptFailed, OpenedAt: q.AskedAt, ClosedAt: &a.At, Outputs: q.Outputs, Files: q.Files, Digest: q.Digest,
			Verdicts: []*Verdict{{
				At: a.At, Reviewer: fmt.Sprintf("a person (%s, %s)", a.Identity, a.Channel), RunEach: q.RunEach, Key: humanKey, Digest: q.Digest,
				Files: q.Files, Feedback: a.Feedback, Seconds: a.At.Sub(q.AskedAt).Seconds(),
			}},
		})
	}
	n.setProgress(p)
	return n, nil
}
