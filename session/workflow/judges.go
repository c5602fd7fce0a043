package workflow

import (
	"slices"

	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
)

// A Judge judges what is handed in for steps, as an external reviewer does: a linter's service, for one. What it does
// not pass counts as a failed try. Its methods may be called from any goroutine.
type Judge interface {
	// Judges reports whether it judges a step.
	Judges(st *job.Step) bool
	// Tasks returns what it judges of a submission, each with a Key that no other task of the step has, a Digest of
	// all that its verdict depends on, and Do. hash has the hex SHA-256 of each submitted path.
	Tasks(s gate.Submission, hash map[string]string) []gate.Task
}

// judged reports whether one of the Judges judges a step.
func (e *Engine) judged(st *job.Step) bool {
	return slices.ContainsFunc(e.Judges, func(j Judge) bool { return j.Judges(st) })
}

// withoutReviewer returns why a step with Judges cannot be reviewed now, or nil: its agent does not review it beside
// them.
func (a *sessionActor) withoutReviewer(c *candidate) error {
	switch {
	case len(c.plan.Step.ReviewsBy(false)) == 0:
		return nil
	case c.how.Refused == nil && !c.how.External:
		return session.NotNow(codes.ReviewFailed, "Step '%s' cannot be reviewed: it is judged by services of this "+
			"server, so its reviews need an external reviewer, and none is configured. Configure one "+
			"(quality_gate), and make the same call again.", c.plan.Step.ID)
	}
	return c.how.Refused
}
