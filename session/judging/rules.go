package judging

import (
	"time"

	"deepwork/catalog/config"
)

// A Judge is one of those who judge the submissions of a step.
type Judge struct {
	Kind   Kind   // ByProgram, ByReviewer or ByPerson
	Key    string // identifies it within the step
	Digest string // of what it judges in this content, and of how
	Name   string // of a check
	Ends   bool   // a check that ends rounds, and fails nothing
	Never  bool   // a check that nobody may pass over
	Again  bool   // a check that sees more than Digest covers: a failure stands only until its submission is told
}

// Rules say how the hand-ins of a step are judged, by its definition, the config and what is pinned.
type Rules struct {
	Judges   []Judge // in the order in which they judge
	Reviews  bool    // the step has reviews by others than people
	Off      bool    // this server skips those
	External bool    // a reviewer judges; else the agent itself
	Refused  error   // why nothing can be reviewed now, or nil
	Account  bool    // the reviews judge also how the work was done
	MaxTries int     // maximum number of failed tries (seed 000, 001.1.5)
	Override config.Override
	// why a person has to say how to go on, unless a program ends the rounds: this ends the last one; or ""
	LastRound string
}

// A HandIn is a call with outputs, or what is handed on to the next judge.
type HandIn struct {
	At                time.Time
	Identity, Channel string
	Content, Bound    string // the digests of its content now; see Submission
	Files             []FileHash
	Account           bool   // it says how the work was done
	Reason            string // why it skips the reviews, or ""
	Person            bool   // the caller may act as a person
	Misfits           string // how the outputs do not satisfy their schemas, or ""
	Waited            int64  // the submission that it, or the call that it repeats, waited for; 0 means none
	Only              bool   // it repeats a call, and begins nothing that this one did not hand in
}

// Past is what was handed in for a step before.
type Past struct {
	Submissions []*Submission // since the step began, the oldest first
	Withdrawn   []*Verdict    // of its checks before that, the oldest first
	Grant       *Override     // a person's override for the next hand-in, or nil
}

// Action says what follows a hand-in.
type Action int

// The actions.
const (
	Move   Action = iota // the step is finished
	Run                  // programs or reviewers judge the submission
	Await                // they judge it already, or a person has to
	Refuse               // the call is answered with what is wrong
)

// Why says why a hand-in is refused.
type Why int

// The reasons.
const (
	NoAccount    Why = iota + 1 // it does not say how the work was done
	AgentMayNot                 // only a person may override the reviews
	NobodyMay                   // nobody may override the reviews
	Unfit                       // its outputs do not satisfy their schemas
	ChecksFailed                // a program failed it
	SelfReview                  // its agent has to review it
	NotReviewed                 // no reviewer can be had now: Rules.Refused
	ReviewFailed                // a reviewer or a person failed it
	UsedUp                      // so did they, and there are no tries left
	UsedUpBefore                // it is the one that failed last, and there are no tries left
	MovedOn                     // the step was begun again meanwhile
	Superseded                  // other outputs were handed in meanwhile
	Changed                     // its content has changed since
	NoVerdict                   // what it waited for is void
)

// Now is what a hand-in leads to.
type Now struct {
	Do       Action
	Of       *Submission // the submission that it is about; nil means that it makes one
	With     Kind        // who judges it then: for Run, Await, and Refuse with SelfReview
	Number   int         // of the try, if it goes on with an earlier one; else 0
	Verdicts []*Verdict  // all that the submission then has
	Over     []string    // the names of the checks that a person passes over
	Ends     *RoundEnd   // what the program that ends rounds said, or nil
	Why      Why
	About    string // why a person is asked about the rounds, not about the content; or ""
	Others   bool   // a person has overridden the reviews, but of other outputs
}
