// Package pin keeps what a session began with: by whom and by which rules its steps are reviewed and checked. An
// edit of its job or of the config reaches the session, but it drops no check or schema, and weakens no review of a
// session that is pinned (quality_gate.pin). What weakens the reviews of another session is recorded.
//
// The concepts to know:
//
//   - Reviewing, how steps are reviewed by the config of now; Policy, what else this process knows of reviews
//   - machine.Pinned, what a session began with; machine.Weakening, an edit that took something away
//   - Session, which decides by which reviewer, override rule and definition a session goes on
//   - weaker: whether a definition reviews or checks less than an earlier one in what is still to do
//     (machine.State.HadTurn)
package pin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"deepwork/catalog/config"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/definition"
	"deepwork/session/machine"
)

// Reviewing says how steps are reviewed.
type Reviewing struct {
	External    bool          // by the gate's reviewer; else by the agent itself
	MaxTries    int           // maximum number of failed external reviews (seed 000, 001.1.5)
	ReplyWithin time.Duration // how long a call waits for its review
	Refused     error         // why nothing can be reviewed, or nil
	Override    config.Override
	Reviewer    string // External and Refused said again, in the form of machine.Pinned; "" is the agent itself
	Pin         bool   // sessions keep the reviewer and the criteria that they began with
	// Earlier returns a reviewer of an earlier config, given in the form of machine.Pinned, or the reason why
	// it is not allowed or unable to run. nil means that no earlier reviewer can run.
	Earlier func(reviewer string) (*gate.Reviewer, error)
	// Use is the reviewer that a pinned session began with, if it replaces the configured one; set by
	// Session.Reviewing.
	Use *gate.Reviewer
}

// The values of machine.Pinned.Reviewer that are not commands.
const (
	ReviewerSelf     = "self"     // the agent itself
	ReviewerClaude   = "claude"   // the claude command line
	ReviewerWithheld = "withheld" // a command of the project that the user has not approved
	ReviewerOff      = "off"      // steps are finished without reviews
)

// A Policy is how a process reviews, whatever the session.
type Policy struct {
	Configured  func(context.Context) (Reviewing, error)
	Reviews     bool // false is --no-quality-gate
	Command     bool // the process is a command, which knows no reviewer
	Definitions *definition.Store
	Place       string // as in machine.State.Sources
	Logger      *slog.Logger
}

// Pin returns what a new session is pinned to. The reviews of a workflow that a step begins are at least as strict
// as those that its caller's session is pinned to; under is nil for another session.
func (p *Policy) Pin(how Reviewing, def *machine.Definition, under *machine.Pinned) *machine.Pinned {
	pinned := &machine.Pinned{
		Reviewer:   p.reviewer(how),
		Override:   how.Override,
		Pin:        how.Pin,
		Definition: def.Ref,
	}
	if under == nil || !under.Pin && !how.Pin {
		return pinned
	}

	pinned.Pin = true
	if weakerReviewer(under.Reviewer, pinned.Reviewer) != "" {
		pinned.Reviewer = under.Reviewer
	}
	if under.Override.Stricter(pinned.Override) {
		pinned.Override = under.Override
	}
	return pinned
}

// reviewer returns the current reviewer in the form of machine.Pinned.
func (p *Policy) reviewer(how Reviewing) string {
	if !p.Reviews {
		return ReviewerOff
	}
	return cmp.Or(how.Reviewer, ReviewerSelf)
}

// weakerReviewer returns how a reviewer is weaker than an earlier one, or "".
func weakerReviewer(was, now string) string {
	switch {
	case was == now || was == ReviewerOff:
		return ""
	case was == ReviewerSelf && now != ReviewerOff,
		was == ReviewerWithheld && now != ReviewerOff && now != ReviewerSelf:
		return ""
	}
	return fmt.Sprintf("the reviewer was %s, and is %s", was, now)
}

// Unclosable returns a notice about the steps, from an entry on, that nobody can finish, or "".
func (p *Policy) Unclosable(how Reviewing, def *machine.Definition, from int) string {
	if !p.Reviews || how.External || how.Override != config.OverrideNever {
		return ""
	}

	var steps []string
	for _, id := range slices.Concat(def.Workflow.Entries[from:]...) {
		if len(def.Job.Step(id).ReviewsBy(false)) > 0 {
			steps = append(steps, id)
		}
	}
	if steps == nil {
		return ""
	}
	return fmt.Sprintf("These steps have reviews and cannot be finished, because no reviewer is configured and "+
		"nobody may override reviews (quality_gate.override is never): %s. Tell the user before you begin.",
		session.Quoted(steps))
}
