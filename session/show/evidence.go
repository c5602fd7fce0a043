package show

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// printEvidence prints why a step with reviews or checks was finished, and the content that this is about.
func printEvidence(detail func(format string, args ...any), p *machine.StepProgress) {
	e := p.Evidence
	if e == nil { // it is not finished, or has no reviews
		return
	}
	detail("evidence: %s, %s, %s over %s", kind(e), Ago(e.At), e.Identity, cmp.Or(e.Channel, "an unknown channel"))
	if e.Reason != "" {
		detail("  reason: %s", IndentRest(e.Reason, "    "))
	}
	if e.Misfits != "" {
		detail("  although its outputs are not as their schemas demand:\n%s", Indent(e.Misfits, "    "))
	}
	if o := e.Others; o != nil {
		detail("  its other reviews: %s, %s, %s over %s", kind(o), Ago(o.At), o.Identity, cmp.Or(o.Channel, "an unknown channel"))
	}
	if e.Kind == machine.ByPerson && e.Channel == session.ChannelTerminal && e.GivenFor == "" {
		detail("  given before any output was handed in")
	}
	if e.GivenFor != "" && e.GivenFor != e.Digest {
		detail("  a person had overridden its reviews, but with other outputs or criteria than these")
	}
	for _, c := range e.Checks {
		detail("  check %s passed %s: exit code %d in %s, bound to %s sha256:%s", c.RunEach, Ago(c.At), c.Check.Code, took(time.Duration(c.Seconds*float64(time.Second))), c.Check.Bound, c.Digest[:min(shortHash, len(c.Digest))])
	}
	if !judged(p.Newest(), e.Files) {
		Hashes(detail, "  finished with", e.Files)
	}
}

// judged reports whether the verdicts of a review attempt, which are printed, are of these files.
func judged(at *machine.Attempt, files []machine.FileHash) bool {
	return at != nil && !slices.ContainsFunc(files, func(f machine.FileHash) bool {
		return !slices.ContainsFunc(at.Verdicts, func(v *machine.Verdict) bool { return slices.Contains(v.Files, f) })
	})
}

// kind says in words what a finished step relies on.
func kind(e *machine.Evidence) string {
	if e.Imported {
		own := *e
		own.Imported = false
		return "imported, where it says: " + kind(&own)
	}
	switch e.Kind {
	case machine.ByReviewer:
		return "passed by the reviewer " + e.Reviewer
	case machine.BySelf:
		return "reviewed by the agent itself, which was given the criteria for exactly these outputs"
	case machine.ByOverride:
		return "overridden by the agent, without a review of these outputs"
	case machine.ByPerson:
		return "overridden by a person"
	case machine.Passed:
		return "passed by a person, who reviewed these outputs"
	case machine.PassedIn:
		return "passed by a person, as the caller's client says"
	case machine.Unreviewed:
		return "not reviewed, because the server ran without reviews"
	case machine.ByChecks:
		return "its checks passed"
	case machine.NotDue:
		return "no review is of the outputs that were submitted"
	}
	return fmt.Sprintf("not known here: %s", e.Kind)
}
