package workflow

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session/workflow/machine"
)

// submission is the input of the gate.
func (a *sessionActor) submission(c *candidate) gate.Submission {
	s := gate.Submission{
		SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step, Goal: a.state.Goal,
	}
	for _, in := range a.state.In(a.engine.Place).Inputs(c.def, c.plan.Step) {
		if in.FromStep != "" {
			s.Inputs = append(s.Inputs, gate.Input{Name: in.Name, Description: in.Description, FromStep: in.FromStep, Paths: in.Paths, Omitted: in.Omitted})
		}
	}
	for _, o := range c.outputs {
		s.Outputs = append(s.Outputs, gate.Output{Name: o.Key, Paths: o.Value.Paths})
	}
	if c.m.args.Notes != nil {
		s.Notes = *c.m.args.Notes
	}
	return s
}

// contentDigest returns the digest of what a review judges: the outputs as submitted, and for each
// task its criteria and its files' content. Calls with the same digest share a review.
func contentDigest(outputs machine.Outputs, tasks []gate.Task) string {
	h := sha256.New()
	for _, o := range outputs {
		fmt.Fprintf(h, "%q %v %q\n", o.Key, o.Value.List, o.Value.Paths)
	}
	for _, t := range tasks {
		fmt.Fprintf(h, "%q %s\n", t.Key, t.Digest)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// recorded converts the gate's results for the session, in the order of the step's reviews;
// failure says what prevented a verdict, or "".
func recorded(r *review) (verdicts []*machine.Verdict, failure string) {
	verdicts = slices.Clone(r.reused)
	slices.SortStableFunc(r.verdicts, func(a, b gate.Verdict) int { return cmp.Compare(r.order[a.Task.Key], r.order[b.Task.Key]) })
	var failures []string
	for _, v := range r.verdicts {
		if v.Err != nil {
			failures = append(failures, v.Err.Error())
			continue
		}
		out := &machine.Verdict{
			At: v.EndedAt.UTC(), Reviewer: v.Reviewer, RunEach: v.Task.RunEach, TargetFile: v.Task.Target,
			Key: v.Task.Key, Digest: v.Task.Digest, Passed: v.Passed, Feedback: v.Feedback,
			Seconds: v.EndedAt.Sub(v.StartedAt).Seconds(),
		}
		for _, f := range v.Task.Files {
			out.Files = append(out.Files, machine.FileHash{Path: f.Path, SHA256: f.SHA256})
		}
		for _, c := range v.Criteria {
			out.Criteria = append(out.Criteria, machine.CriterionResult{Criterion: questionOf(v.Task.Criteria, c.Criterion), Passed: c.Passed, Feedback: c.Feedback})
		}
		if out.Passed && len(out.Criteria) == 0 {
			// It passed as a whole: so did each of its criteria.
			for _, c := range v.Task.Criteria {
				out.Criteria = append(out.Criteria, machine.CriterionResult{Criterion: c.Question, Passed: true})
			}
		}
		verdicts = append(verdicts, out)
	}
	slices.SortStableFunc(verdicts, func(a, b *machine.Verdict) int { return cmp.Compare(r.order[a.Key], r.order[b.Key]) })
	return verdicts, strings.Join(failures, "\n\n")
}

// questionOf returns the text of the criterion with this name (seed 001,
// "QualityCriteriaResult").
func questionOf(criteria []job.Criteria, name string) string {
	for _, c := range criteria {
		if c.Name == name {
			return c.Question
		}
	}
	return name
}
