// Package judging decides what becomes of what an agent hands in for a step. It is pure: the content of files,
// the time and the rules are arguments.
//
// To change it, know these, 11 concepts:
//   - Submission: what was handed in for a step, once, and its turns: who had to judge it, and from when to when;
//   - Verdict and Kind: what a judge, or somebody in place of one, says about a content;
//   - Override and RoundEnd: what a person passes over, and what is said about the rounds;
//   - Void: why what was said about a submission counts for nothing;
//   - Judge and Rules: who judges the submissions of a step, in order, and what binds them;
//   - HandIn and Past: a call with outputs, and what was handed in before it;
//   - Now: what the hand-in leads to, as Next decides.
package judging

import (
	"cmp"
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// Kind says what a verdict is, and so who gives it.
type Kind string

// The kinds of verdicts: those of judges, in the order in which they judge, then those given in place of judges.
const (
	ByShape    Kind = "shape"    // the schemas of the outputs
	ByProgram  Kind = "program"  // a check
	ByReviewer Kind = "reviewer" // the external reviewer
	BySelf     Kind = "self"     // the agent, which was given the criteria for exactly these outputs
	ByPerson   Kind = "person"   // a person who was asked
	OnRounds   Kind = "rounds"   // likewise, about used up rounds: to go on or, not passed, for one more round

	ByReason   Kind = "override"           // an agent says why it goes on without a review of these outputs
	ByOverride Kind = "override_by_person" // a person passes over the reviews, and over checks that allow it
	Off        Kind = "off"                // the server ran without reviews
	NotDue     Kind = "not_due"            // no review applies to the submitted outputs
)

// A Submission is what was handed in for a step, once, with the verdicts on it (DESIGN "One submission").
type Submission struct {
	ID       int64       `json:"id"`     // the revision of the session that made it
	Number   int         `json:"number"` // of its try of the reviews, among those that count
	At       time.Time   `json:"at"`
	EndedAt  *time.Time  `json:"ended_at"` // nil while something may become of it
	Identity string      `json:"identity"` // of the caller that handed it in, and of its finish
	Channel  string      `json:"channel"`
	Call     string      `json:"call,omitempty"`  // the call that made it
	Outputs  outputs.Map `json:"outputs"`         // as submitted
	Files    []FileHash  `json:"files"`           // the content of the outputs
	Content  string      `json:"content"`         // the digest of outputs, content and criteria
	Bound    string      `json:"bound,omitempty"` // of that and of what the checks are about; "" without checks
	Notes    *string     `json:"notes"`
	Turns    []Turn      `json:"turns"`
	Verdicts []*Verdict  `json:"verdicts"`
	Void     *Void       `json:"void,omitempty"` // nil means that what was said counts
	Told     bool        `json:"told"`           // a call was answered by what became of it
	Declined []string    `json:"declined,omitempty"`
	GivenFor string      `json:"given_for,omitempty"` // of a person's override that its finish used up
	Imported bool        `json:"imported,omitempty"`  // taken from an export; its verdicts pass nothing
}

// A Turn is the time for which a submission was with a judge. Others than judges have no turns.
type Turn struct {
	With    Kind       `json:"with"`
	At      time.Time  `json:"at"`
	EndedAt *time.Time `json:"ended_at"`           // nil means that it is with this judge
	RunEach string     `json:"run_each,omitempty"` // of the review by a person; step if there are several
	About   string     `json:"about,omitempty"`    // why a person is asked about the rounds instead, or ""
}

// A Verdict says whether a judge passes a content. It applies to nothing else.
type Verdict struct {
	Kind       Kind                      `json:"kind"`
	At         time.Time                 `json:"at"`
	By         string                    `json:"by"`                // the reviewer; of others their identity
	Channel    string                    `json:"channel,omitempty"` // of the person or agent
	Client     bool                      `json:"client,omitempty"`  // only a client says that it was a person
	RunEach    string                    `json:"run_each"`          // of the review, or the name of the check
	TargetFile *string                   `json:"target_file"`
	Key        string                    `json:"key"`    // identifies the judge within the step
	Digest     string                    `json:"digest"` // of what it judged
	Files      []FileHash                `json:"files"`
	Passed     bool                      `json:"passed"`
	Feedback   string                    `json:"feedback"` // also the reason of who stands in for a judge
	Criteria   []replies.CriterionResult `json:"criteria_results"`
	Seconds    float64                   `json:"seconds"`
	Reused     bool                      `json:"reused"` // given on an earlier submission for the same content
	Check      *CheckRun                 `json:"check,omitempty"`
	GivenFor   string                    `json:"given_for,omitempty"` // of an override: the content that the person saw
}

// A CheckRun says how a check ended. Verdict.Digest covers what it judged, and its definition.
type CheckRun struct {
	Command []string `json:"command"`
	Code    int      `json:"exit_code"`         // -1 means none
	Bound   string   `json:"bound_to"`          // tree, files or outputs: see package check
	NotRun  bool     `json:"not_run,omitempty"` // not run, because protected files differ
	Ends    bool     `json:"ends,omitempty"`    // it only ends rounds, and fails no step
}

// LastLines stands in the feedback of a check before the last lines that it has printed.
const LastLines = " Its last lines:\n"

// A RoundEnd is the result of the program that ends a form's rounds, and what a person adds after the last one.
type RoundEnd struct {
	Passed bool   `json:"passed"`
	Why    string `json:"why,omitempty"`  // why it has not passed
	More   string `json:"more,omitempty"` // who asks for one more round, in a sentence; "" means nobody
}

// An Override says that reviews were skipped at the request of the caller or of a person.
type Override struct {
	At       time.Time `json:"at"`
	Identity string    `json:"identity"` // who asked for it
	Channel  string    `json:"channel"`
	Reason   string    `json:"reason"`
	Skipped  []string  `json:"skipped_reviews"`     // run_each of each skipped review
	GivenFor string    `json:"given_for,omitempty"` // Submission.Content, or Bound, of what a person saw
}

// A Void says why what was said about a submission counts for nothing. A call that waits for it is refused with
// Refusal, or told which files kept changing while they were judged.
type Void struct {
	Why       string         `json:"why"`
	Refusal   *session.Error `json:"refusal,omitempty"`
	Undecided []string       `json:"undecided,omitempty"`
	NotBegun  bool           `json:"not_begun,omitempty"` // nobody began to judge it: a call that waits begins again
	Cancelled bool           `json:"cancelled,omitempty"` // its caller has cancelled it
}

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

// Turn returns the current turn of a submission, or the zero Turn. s may be nil.
func (s *Submission) Turn() Turn {
	if s == nil || len(s.Turns) == 0 || s.Turns[len(s.Turns)-1].EndedAt != nil {
		return Turn{}
	}
	return s.Turns[len(s.Turns)-1]
}

// With returns the kind of the judge that a submission is with, or "". s may be nil.
func (s *Submission) With() Kind { return s.Turn().With }

// Running reports whether programs or reviewers judge a submission. s may be nil.
func (s *Submission) Running() bool { return s.With() == ByProgram || s.With() == ByReviewer }

// LastTurn returns the newest turn with a judge of this kind, or nil. s may be nil.
func (s *Submission) LastTurn(with Kind) *Turn {
	if s == nil {
		return nil
	}
	for i := range slices.Backward(s.Turns) {
		if s.Turns[i].With == with {
			return &s.Turns[i]
		}
	}
	return nil
}

// To returns the next version of a submission: it has these verdicts, and is with a judge of this kind, or with
// none. It has ended if that leaves it failed.
func (s *Submission) To(with Kind, verdicts []*Verdict, at time.Time) *Submission {
	n := s.clone()
	n.Verdicts = verdicts
	if n.With() != with {
		n.rest(at)
		if with != "" {
			n.Turns = append(n.Turns, Turn{With: with, At: at})
		}
	}
	overridden := n.Of(ByOverride) != nil
	if with == "" && slices.ContainsFunc(verdicts, func(v *Verdict) bool {
		return v.Fails() && !(overridden && v.Kind == ByShape)
	}) {
		n.EndedAt = new(at)
	}
	return n
}

// Ended returns the ended version of a submission: as it is, or void.
func (s *Submission) Ended(void *Void, at time.Time) *Submission {
	n := s.clone()
	n.rest(at)
	n.EndedAt = new(at)
	n.Void = void
	return n
}

// clone returns a copy whose turns may be changed.
func (s *Submission) clone() *Submission {
	n := *s
	n.Turns = slices.Clone(s.Turns)
	return &n
}

// rest ends the current turn. s is being made.
func (s *Submission) rest(at time.Time) {
	if s.With() != "" {
		s.Turns[len(s.Turns)-1].EndedAt = new(at)
	}
}

// Of returns the first verdict of this kind, or nil. s may be nil.
func (s *Submission) Of(kind Kind) *Verdict {
	if s == nil {
		return nil
	}
	for _, v := range s.Verdicts {
		if v.Kind == kind {
			return v
		}
	}
	return nil
}

// All returns the verdicts of this kind, in order. s may be nil.
func (s *Submission) All(kind Kind) (all []*Verdict) {
	if s == nil {
		return nil
	}
	for _, v := range s.Verdicts {
		if v.Kind == kind {
			all = append(all, v)
		}
	}
	return all
}

// Reviewed reports whether reviewers have judged a submission, all that had to. s may be nil.
func (s *Submission) Reviewed() bool {
	return s != nil && s.Void == nil && s.With() != ByReviewer && s.Of(ByReviewer) != nil
}

// Counts reports whether a submission is a try: reviewers have judged it, or a person has failed it (seed 000,
// 001.4.12). s may be nil.
func (s *Submission) Counts() bool { return s.Reviewed() || s.FailedBy(ByPerson) }

// FailedBy reports whether a judge of this kind has failed a submission. s may be nil.
func (s *Submission) FailedBy(kind Kind) bool {
	return s != nil && s.Void == nil && s.With() != kind && slices.ContainsFunc(s.All(kind), (*Verdict).Fails)
}

// Failed reports whether a reviewer or a person has failed a submission. s may be nil.
func (s *Submission) Failed() bool { return s.FailedBy(ByReviewer) || s.FailedBy(ByPerson) }

// Failures returns the verdicts of the reviewers, or of the person, that have failed a submission.
func (s *Submission) Failures() []*Verdict {
	kind := ByReviewer
	if s.FailedBy(ByPerson) {
		kind = ByPerson
	}
	return slices.DeleteFunc(s.All(kind), func(v *Verdict) bool { return v.Passed })
}

// Answer returns what a person answered last, or nil. s may be nil.
func (s *Submission) Answer() *Verdict { return cmp.Or(s.Of(OnRounds), s.Of(ByPerson)) }

// Fails reports whether the verdict fails the step.
func (v *Verdict) Fails() bool {
	return !v.Passed && v.Kind != OnRounds && (v.Check == nil || !v.Check.Ends)
}

// Word says what a person answered.
func (v *Verdict) Word() string {
	switch {
	case v.Kind == OnRounds && v.Passed:
		return "go on as it is"
	case v.Kind == OnRounds:
		return "one more round"
	case v.Passed:
		return "passed"
	}
	return "failed"
}

// inPlace are the kinds of the verdicts by which a step may be finished without its reviewers.
var inPlace = []Kind{BySelf, ByReason, ByOverride, Off, NotDue}

// Standing returns the verdict in place of those of reviewers, or nil. s may be nil.
func (s *Submission) Standing() *Verdict {
	if s == nil {
		return nil
	}
	for _, v := range s.Verdicts {
		if slices.Contains(inPlace, v.Kind) {
			return v
		}
	}
	return nil
}

// Why returns the verdicts that a step relies on which was finished with a submission: the one that decided, and, if
// that was a person who was asked, the one of its other reviews. Those of reviewers and programs are copies that say
// who finished the step, and when.
func (s *Submission) Why() (why []Verdict) {
	for _, kind := range []Kind{OnRounds, ByPerson} {
		if v := s.Of(kind); v != nil && s.Of(ByOverride) == nil {
			why = append(why, *v)
		}
	}
	v := s.Standing()
	if v == nil {
		v = s.Of(ByReviewer)
	}
	if v == nil && why == nil {
		v = s.Of(ByProgram)
	}
	if v == nil {
		return why
	}
	own := *v
	if v.Kind == ByReviewer || v.Kind == ByProgram {
		own.At, own.By, own.Channel, own.Feedback = *s.EndedAt, s.Identity, s.Channel, ""
	}
	return append(why, own)
}
