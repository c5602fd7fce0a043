package machine

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
)

// Evidence says why a step with reviews or checks was finished. Other steps have no evidence.
type Evidence struct {
	Kind     EvidenceKind `json:"kind"`
	At       time.Time    `json:"at"`
	Identity string       `json:"identity"` // of the caller that finished the step, or of the person
	Channel  string       `json:"channel"`  // their channel: session.ChannelStdio, …
	Reviewer string       `json:"reviewer,omitempty"`
	Reason   string       `json:"reason,omitempty"` // of an override
	// the Digest of what a person saw who overrode the review in advance
	GivenFor string     `json:"given_for,omitempty"`
	Digest   string     `json:"digest"` // of the outputs, their content and the criteria; "" if reviews were off
	Files    []FileHash `json:"files"`
	// the schema errors in the outputs that a person has accepted
	Misfits string `json:"misfits,omitempty"`
	// the evidence of the reviews by others, if a person passed the step
	Others   *Evidence  `json:"others,omitempty"`
	Imported bool       `json:"imported,omitempty"` // taken from an export
	Checks   []*Verdict `json:"checks,omitempty"`   // results of the checks, except those that a person passed over
}

// EvidenceKind says what a finished step relies on.
type EvidenceKind string

// The values of EvidenceKind.
const (
	ByReviewer EvidenceKind = "reviewer"         // a reviewer passed it
	BySelf     EvidenceKind = "self"             // the agent, after it got the criteria for exactly these outputs
	ByOverride EvidenceKind = "override"         // an agent says so, without a review of these outputs
	ByPerson   EvidenceKind = "person"           // a person overrode the reviews
	Passed     EvidenceKind = "passed_by_person" // a person reviewed these outputs, at a terminal or on a page
	PassedIn   EvidenceKind = "passed_in_client" // the same, but only the caller's client says so, without proof
	Unreviewed EvidenceKind = "off"              // the server ran without reviews
	NotDue     EvidenceKind = "not_due"          // no review applies to the submitted outputs
	ByChecks   EvidenceKind = "checks"           // its checks passed, and it has no reviews
)

// Grant records that a person overrides the reviews of a current step: its next finished_step is not
// reviewed. o.GivenFor is the digest of the outputs that the override is for, "" for any.
func (s *State) Grant(stepID string, o Override) (*State, error) {
	if s.Status != Active {
		return nil, s.Ended()
	}

	if !s.IsCurrent(stepID) {
		return nil, session.NotNow(codes.StepNotCurrent,
			"Step '%s' of session '%s' is not to be finished now; the current step is '%s'.", stepID, s.SessionID,
			s.CurrentStepID).
			With("session_id", s.SessionID).With("current_step", s.CurrentStepID)
	}

	n, p := s.Next(o.At), s.Progress(stepID).clone()
	p.Granted = &o
	n.setProgress(p)
	return n, nil
}

// HasGrant reports whether a person has overridden the reviews of a step. p may be nil.
func (p *StepProgress) HasGrant() bool { return p != nil && p.Granted != nil }

// Show records what the instructions of a current step's self-review are about.
func (s *State) Show(stepID string, shown Shown) *State {
	n, p := s.Next(shown.At), s.ProgressOrNew(stepID, shown.At)
	p.Shown = &shown
	n.setProgress(p)
	return n
}

// Misfit records that outputs of a current step do not satisfy their schemas.
func (s *State) Misfit(stepID string, unfit Shown) *State {
	n, p := s.Next(unfit.At), s.ProgressOrNew(stepID, unfit.At)
	p.Unfit = &unfit
	n.setProgress(p)
	return n
}

// prove records why a step is finished, and adds an override to the step's overrides.
func (p *StepProgress) prove(e *Evidence, skipped []string) {
	p.Evidence = e
	p.Granted = nil
	p.Question = nil
	p.Unfit = nil
	if e != nil && e.Others != nil {
		e = e.Others
	}
	if e != nil && (e.Kind == BySelf || e.Kind == ByOverride || e.Kind == ByPerson) {
		p.Overrides = append(slices.Clone(p.Overrides), Override{
			At:       e.At,
			Identity: e.Identity,
			Channel:  e.Channel,
			Reason:   e.Reason,
			Skipped:  skipped,
			GivenFor: e.GivenFor,
		})
	}
}

// Pinned says how the steps of a session were to be reviewed when it began.
type Pinned struct {
	Reviewer   string          `json:"reviewer"` // a constant below, or the words of a command as a JSON list
	Override   config.Override `json:"override"`
	Pin        bool            `json:"pin"`        // the session ignores an edit that weakens its reviews
	Definition DefinitionRef   `json:"definition"` // with the criteria
}

// The values of Pinned.Reviewer that are not commands.
const (
	ReviewerSelf     = "self"     // the agent itself
	ReviewerClaude   = "claude"   // the claude command line
	ReviewerWithheld = "withheld" // a command of the project that the user has not approved
	ReviewerOff      = "off"      // steps are finished without reviews
)

// A Weakening is an edit that removed or weakened reviews before a step was finished.
type Weakening struct {
	At   time.Time `json:"at"`
	Step string    `json:"step"` // the finished step
	What []string  `json:"what"`
}

// WeakerReviewer returns how a reviewer is weaker than the pinned one, or "".
func (p *Pinned) WeakerReviewer(now string) string {
	switch {
	case p.Reviewer == now || p.Reviewer == ReviewerOff:
		return ""
	case p.Reviewer == ReviewerSelf && now != ReviewerOff,
		p.Reviewer == ReviewerWithheld && now != ReviewerOff && now != ReviewerSelf:
		return ""
	}
	return fmt.Sprintf("the reviewer was %s, and is %s", p.Reviewer, now)
}

// Weaker returns in what way a definition reviews the session's unfinished steps less strictly than an
// earlier one.
func (s *State) Weaker(was, now *Definition) (what []string) {
	for i, entry := range was.Workflow.Entries {
		for _, id := range entry {
			st, at := was.Job.Step(id), now.Workflow.Find(id)
			if len(st.Reviews) == 0 && st.Call == nil || s.hadTurn(was, now, i, id) {
				continue
			}
			what = append(what, within(st, was, now, (*State).Weaker)...)
			if st.Call != nil {
				continue
			}
			if at < 0 || at < now.Workflow.Find(s.CurrentStepID) {
				what = append(what, fmt.Sprintf("step '%s', which has reviews, is gone from what is still to do", id))
				continue
			}
			of := now.Job.Step(id)
			if forEach(now, at) == nil && id == entry[0] && id != now.Workflow.Entries[at][0] &&
				len(of.ReviewsBy(true))+len(of.Checks) == 0 {
				what = append(what,
					fmt.Sprintf("step '%s', which has reviews, need not be reported, since it is in a group now", id))
			}
			for _, r := range st.Reviews {
				what = append(what, weakerReview(st, of, r)...)
			}
		}
	}
	return what
}

// hadTurn reports whether a step of an earlier definition, in the entry at this index, is finished or no
// longer due.
func (s *State) hadTurn(was, now *Definition, index int, id string) bool {
	at, p := now.Workflow.Find(id), s.Progress(id)
	return p.Done() || p != nil && p.Unreported ||
		at >= 0 && at < now.Workflow.Find(s.CurrentStepID) && s.passedBy(now, at) && s.passedBy(was, index) &&
			index < s.reached(was)
}

// within compares two versions of the workflow that a step is, if it belongs to the same job.
func within(st *job.Step, was, now *Definition, compare func(s *State, was, now *Definition) []string) []string {
	of := now.Job.Step(st.ID)
	if st.Call == nil || of == nil || of.Call == nil || of.Call.String() != st.Call.String() ||
		st.Call.Job != "" && st.Call.Job != was.Job.Name {
		return nil
	}
	return compare(new(State), Define(was.Job, st.Call.Workflow), Define(now.Job, st.Call.Workflow))
}

// weakerReview returns how the best counterpart of a review is weaker than it.
func weakerReview(was, now *job.Step, r job.Review) (best []string) {
	of := fmt.Sprintf("step '%s', review of %s: ", was.ID, r.RunEach)
	for _, n := range now.Reviews {
		if n.RunEach != r.RunEach {
			continue
		}

		what := []string{}
		for _, c := range r.Criteria {
			switch i := slices.IndexFunc(n.Criteria, func(o job.Criteria) bool { return o.Name == c.Name }); {
			case i < 0:
				what = append(what, of+fmt.Sprintf("the criterion %q is gone", c.Name))
			case n.Criteria[i] != c:
				what = append(what, of+fmt.Sprintf("the criterion %q was changed", c.Name))
			}
		}
		if r.ByHuman && !n.ByHuman {
			what = append(what, of+"it is no longer by a person")
		}
		if n.Together != r.Together || n.Brief != r.Brief || n.OtherOutputs != r.OtherOutputs {
			what = append(what, of+"its strategy, context or depth was changed")
		}
		if guidance(n) != guidance(r) {
			what = append(what, of+"its guidance was changed")
		}
		if o, p := was.Output(r.RunEach), now.Output(r.RunEach); o != nil && o.Required && (p == nil || !p.Required) {
			what = append(what, of+"the output is no longer required")
		}
		if best == nil || len(what) < len(best) {
			best = what
		}
	}
	if best == nil {
		best = []string{of + "it is gone"}
	}
	return best
}

// LessChecked returns in what way a definition checks the session's unfinished steps less strictly than an
// earlier one, by checks and schemas. Added checks are not reported.
func (s *State) LessChecked(was, now *Definition) (what []string) {
	here := now.Workflow.Find(s.CurrentStepID)
	for i, entry := range was.Workflow.Entries {
		for _, id := range entry {
			st := was.Job.Step(id)
			hasSchema := slices.ContainsFunc(st.Outputs, func(o job.Output) bool {
				return o.Schema.File != "" || o.Schema.JSON != nil
			})
			switch at := now.Workflow.Find(id); {
			case len(st.Checks) == 0 && !hasSchema && st.Call == nil, s.hadTurn(was, now, i, id):
			case (at < 0 || at < here) && st.Call != nil:
				what = append(what, fmt.Sprintf("step '%s', which is a workflow, is gone from what is still to do", id))
			case at < 0, at < here:
				what = append(what, fmt.Sprintf("step '%s', which has checks, is gone from what is still to do", id))
			case st.Call != nil:
				what = append(what, within(st, was, now, (*State).LessChecked)...)
			default:
				what = append(what, lessChecked(st, now.Job.Step(id),
					len(entry) == 1 && len(now.Workflow.Entries[at]) > 1)...)
			}
		}
	}
	return what
}

// passedBy reports whether the steps of an entry need not be done, because its condition does not hold or its
// items are done or dropped.
func (s *State) passedBy(def *Definition, index int) bool {
	if forEach(def, index) == nil {
		return s.leftOut(def, index)
	}

	all := s.byID()
	for i := range s.items(def, index) {
		if all.pending(def.Workflow.Entries[index], i) != nil {
			return false
		}
	}
	return true
}

// reached returns the index of the session's current entry in an earlier definition. If that lacks the
// current step, it is the entry after the finished ones.
func (s *State) reached(was *Definition) int {
	if at := was.Workflow.Find(s.CurrentStepID); at >= 0 {
		return at
	}

	last := -1
	for _, p := range s.StepProgress {
		if p.Value.Done() {
			last = max(last, was.Workflow.Find(p.Key))
		}
	}
	return s.skip(was, last+1)
}

func lessChecked(was, now *job.Step, grouped bool) (what []string) {
	of := fmt.Sprintf("step '%s': ", was.ID)
	for _, c := range was.Checks {
		i := slices.IndexFunc(now.Checks, func(n job.StepCheck) bool { return n.Name == c.Name })
		switch {
		case i < 0:
			what = append(what, of+fmt.Sprintf("the check %q is gone", c.Name))
		case !reflect.DeepEqual(now.Checks[i], c):
			what = append(what, of+fmt.Sprintf("the check %q was changed", c.Name))
		case grouped && c.Files == nil:
			what = append(what,
				of+fmt.Sprintf("the check %q is bound to the outputs alone, since the step is in a group now", c.Name))
		}
	}
	for _, o := range was.Outputs {
		switch n := now.Output(o.Name); {
		case o.Schema.File == "" && o.Schema.JSON == nil:
		case n == nil || n.Schema.File != o.Schema.File ||
			o.Schema.File == "" && !bytes.Equal(n.Schema.JSON, o.Schema.JSON):
			what = append(what, of+fmt.Sprintf("the schema of the output '%s' was dropped or changed", o.Name))
		case o.Required && !n.Required:
			what = append(what, of+fmt.Sprintf("the output '%s', which has a schema, is no longer required", o.Name))
		}
	}
	return what
}

func guidance(r job.Review) string {
	if r.Guidance == nil {
		return ""
	}
	return *r.Guidance
}

// weaken records how the reviews are weaker than the pinned ones, unless that is already recorded. s is being
// made.
func (s *State) weaken(stepID string, what []string, at time.Time) {
	what = slices.DeleteFunc(slices.Clone(what), func(text string) bool {
		return slices.ContainsFunc(s.Weakened, func(w Weakening) bool { return slices.Contains(w.What, text) })
	})
	if len(what) > 0 {
		s.Weakened = append(slices.Clone(s.Weakened), Weakening{at, stepID, what})
	}
}

// A Question asks whether a person passes the outputs of a step. All its reviews by people are one question,
// which is asked once its other reviews have passed. The answer finishes only outputs with this Digest.
type Question struct {
	AskedAt time.Time   `json:"asked_at"`
	RunEach string      `json:"run_each"` // of the review; step if there are several reviews
	Outputs outputs.Map `json:"outputs"`  // as submitted
	Files   []FileHash  `json:"files"`    // the content of the outputs
	Digest  string      `json:"digest"`   // of what is judged, including the criteria
	Notes   *string     `json:"notes,omitempty"`
	Others  *Evidence   `json:"others,omitempty"` // why the other reviews passed; nil without other reviews
	Answer  *Answer     `json:"answer,omitempty"` // nil means unanswered
	// Declined are the callers whose client's user closed the form without an answer; they are not asked
	// again.
	Declined []string `json:"declined,omitempty"`
}

// An Answer is a person's answer to a Question.
type Answer struct {
	At       time.Time `json:"at"`
	Identity string    `json:"identity"`
	Channel  string    `json:"channel"`
	Client   bool      `json:"client,omitempty"` // an agent's client says that it asked a person
	Passed   bool      `json:"passed"`
	Feedback string    `json:"feedback"`
}

// humanKey is the key of a person's verdict, next to the keys of the step's reviews.
const humanKey = "human"

// ByPerson reports whether a person judged a try.
func (a *Try) ByPerson() bool { return len(a.Verdicts) == 1 && a.Verdicts[0].Key == humanKey }

// LastByPerson returns the last try that a person failed, or nil. p may be nil.
func (p *StepProgress) LastByPerson() *Try {
	if p == nil {
		return nil
	}

	for _, a := range slices.Backward(p.Tries) {
		if a.ByPerson() {
			return a
		}
	}
	return nil
}

// Open reports whether a question is unanswered. q may be nil.
func (q *Question) Open() bool { return q != nil && q.Answer == nil }

// Evidence returns the evidence of a step that a person has passed.
func (q *Question) Evidence() *Evidence {
	a := q.Answer
	e := &Evidence{
		Kind:     Passed,
		At:       a.At,
		Identity: a.Identity,
		Channel:  a.Channel,
		Reason:   a.Feedback,
		Digest:   q.Digest,
		Files:    q.Files,
		Others:   q.Others,
	}

	if a.Client {
		e.Kind = PassedIn
	}
	return e
}

// notice says what a person decided about a finished step; "" if no person did.
func (e *Evidence) notice(stepID string) string {
	switch {
	case e == nil:
	case e.Kind == ByPerson:
		return fmt.Sprintf("A person (%s, %s) overrode the reviews of step '%s': %s", e.Identity, e.Channel,
			stepID, e.Reason)
	case (e.Kind == Passed || e.Kind == PassedIn) && e.Reason != "":
		return fmt.Sprintf("The person who passed step '%s' says: %s", stepID, e.Reason)
	}
	return ""
}

// Ask records a question to a person, replacing an earlier one.
func (s *State) Ask(stepID string, q *Question) *State {
	n, p := s.Next(q.AskedAt), s.ProgressOrNew(stepID, q.AskedAt)
	p.Question = q
	n.setProgress(p)
	return n
}

// Unask drops an unanswered question about outputs with another digest. It returns s if there is no such
// question.
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

// ToAnswer returns the unanswered question about a step. digest identifies the outputs that the person saw;
// "" means any.
func (s *State) ToAnswer(stepID, digest string) (*Question, error) {
	if s.Status != Active {
		return nil, s.Ended()
	}

	p := s.Progress(stepID)
	switch {
	case !s.IsCurrent(stepID) || p.Question == nil:
		return nil, session.NotNow(codes.PersonNotAsked,
			"Step '%s' of session '%s' does not wait for a person: its agent has handed in no outputs that need one. "+
				"`deepwork sessions show %s` says where it is.", stepID, s.SessionID, s.SessionID)
	case !p.Question.Open():
		a := p.Question.Answer
		return nil, session.NotNow(codes.PersonAnswered,
			"%s (%s) has answered already about these outputs of step '%s' of session '%s': %s.", a.Identity, a.Channel,
			stepID, s.SessionID, map[bool]string{true: "passed", false: "failed"}[a.Passed])
	case digest != "" && digest != p.Question.Digest:
		return nil, session.NotNow(codes.OutputsChanged,
			"The outputs of step '%s' of session '%s' are not those that you were shown: other ones were handed in "+
				"since. Look at those, and answer again.", stepID, s.SessionID)
	}

	return p.Question, nil
}

// Decline records that the user of a caller's client does not want to answer about the outputs with this
// digest. Others still can.
func (s *State) Decline(stepID, digest, identity string, at time.Time) (*State, error) {
	q, err := s.ToAnswer(stepID, digest)
	if err != nil || slices.Contains(q.Declined, identity) {
		return s, err
	}
	declined := *q
	declined.Declined = append(slices.Clone(q.Declined), identity)
	n, p := s.Next(at), s.Progress(stepID).clone()
	p.Question = &declined
	n.setProgress(p)
	return n, nil
}

// maxAnswer is the maximum length of a person's feedback that is kept, in characters.
const maxAnswer = 8000

// Answer records a person's answer about the outputs with this digest. A negative one counts as a try, like a
// reviewer's verdict; the next finished_step collects it.
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
		p.QualityTries++
		number := p.nextTry()
		if last := p.LastCounted(); last != nil && last.State == TryPassed && last.Digest == q.Digest {
			number = last.Number
		}
		p.Tries = append(slices.Clone(p.Tries), &Try{
			Number:   number,
			State:    TryFailed,
			OpenedAt: q.AskedAt,
			ClosedAt: &a.At,
			Outputs:  q.Outputs,
			Files:    q.Files,
			Digest:   q.Digest,
			Verdicts: []*Verdict{{
				At:       a.At,
				Reviewer: fmt.Sprintf("a person (%s, %s)", a.Identity, a.Channel),
				RunEach:  q.RunEach,
				Key:      humanKey,
				Digest:   q.Digest,
				Files:    q.Files,
				Feedback: a.Feedback,
				Seconds:  a.At.Sub(q.AskedAt).Seconds(),
			}},
		})
	}
	n.setProgress(p)
	return n, nil
}
