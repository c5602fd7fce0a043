package show

import (
	"cmp"
	"fmt"

	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// printEvidence prints why a step with reviews was finished, and the content that this is about. Of a
// session of an earlier version, which does not record it, it prints what can be said.
func printEvidence(detail func(format string, args ...any), p *machine.StepProgress) {
	e := p.Evidence
	switch last := p.Newest(); {
	case e == nil && !p.Done():
		return
	case e == nil && len(p.Overrides) > 0:
		detail("evidence: overridden, or reviewed by the agent itself; an earlier version did not record which")
		return
	case e == nil && last != nil && last.State == machine.AttemptPassed:
		detail("evidence: passed by a reviewer")
		return
	case e == nil: // it has no reviews
		return
	}
	what := fmt.Sprintf("not known here: %s", e.Kind)
	switch e.Kind {
	case machine.ByReviewer:
		what = "passed by the reviewer " + e.Reviewer
	case machine.BySelf:
		what = "reviewed by the agent itself, which was given the criteria for exactly these outputs"
	case machine.ByOverride:
		what = "overridden by the agent, without a review of these outputs"
	case machine.ByPerson:
		what = "overridden by a person"
	case machine.Unreviewed:
		what = "not reviewed, because the server ran without reviews"
	case machine.NotDue:
		what = "no review is of the outputs that were submitted"
	}
	detail("evidence: %s, %s, %s over %s", what, stamp(e.At), e.Identity, cmp.Or(e.Channel, "an unknown channel"))
	if e.Reason != "" {
		detail("  reason: %s", IndentRest(e.Reason, "    "))
	}
	if e.Kind == machine.ByPerson && e.Channel == session.ChannelTerminal && e.GivenFor == "" {
		detail("  given before any output was handed in")
	}
	if e.GivenFor != "" && e.GivenFor != e.Digest {
		detail("  a person had overridden its reviews, but with other outputs or criteria than these")
	}
	Hashes(detail, "  finished with", e.Files)
}
