package workflow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/replies"
)

// A round is a turn of programs or reviewers with a submission, to be carried out.
type round struct {
	kind   judging.Kind
	total  int // number of verdicts to come
	order  map[string]int
	known  []*judging.Verdict // those of this kind that the submission has already
	checks *check.Round       // for programs; there is one verdict of the gate then
	start  func(ctx context.Context, each func(gate.Verdict)) error
	said   chan gate.Verdict // has room for all
}

// hear returns what takes the verdicts of a round as they come.
func (r *round) hear(j *running) func(gate.Verdict) {
	return func(v gate.Verdict) {
		r.said <- v
		if r.checks == nil {
			j.tell(len(r.said))
		}
	}
}

// roundOf returns the turn of the judges of a kind that have not judged the content yet.
func (a *sessionActor) roundOf(c *candidate, kind judging.Kind, have []*judging.Verdict) (*round, error) {
	r := &round{kind: kind, order: map[string]int{}}
	for _, v := range have {
		if v.Kind == kind {
			r.known = append(r.known, v)
		}
	}
	if kind == judging.ByProgram {
		return r, a.checking(c, r)
	}

	var todo []gate.Task
	for i, t := range c.tasks {
		r.order[t.Key] = i
		if !slices.ContainsFunc(r.known, func(v *judging.Verdict) bool { return v.Key == t.Key }) {
			todo = append(todo, t)
		}
	}
	r.total = len(todo)
	r.said = make(chan gate.Verdict, r.total)
	sub := a.submission(c)
	r.start = func(ctx context.Context, each func(gate.Verdict)) error {
		return a.engine.Gate.Run(ctx, a.id, sub, todo, each)
	}
	return r, nil
}

// checking fills in the turn of the checks.
func (a *sessionActor) checking(c *candidate, r *round) error {
	e, stepID := a.engine, c.plan.Step.ID
	if e.Checks == nil {
		return session.NotNow(codes.CheckNotRun,
			"Step '%s' has checks, and this process does not run any. Call a server of the project.", stepID)
	}

	checks := c.read.subject.Checks
	r.checks = &check.Round{
		Subject: c.read.subject,
		Before:  c.read.content,
		Known:   make([]*judging.Verdict, len(checks)),
		Over:    make([]bool, len(checks)),
	}
	for i := range checks {
		key := check.Key(&checks[i])
		r.checks.Over[i] = slices.Contains(c.now.Over, checks[i].Name)
		if at := slices.IndexFunc(r.known, func(v *judging.Verdict) bool { return v.Key == key }); at >= 0 {
			r.checks.Known[i] = r.known[at]
		}
		if !r.checks.Over[i] {
			r.total++
		}
	}
	r.said = make(chan gate.Verdict, 1)
	task := gate.Task{
		Key:     "checks",
		RunEach: "step",
		Do:      func(ctx context.Context) error { return e.Checks.Run(ctx, r.checks) },
	}
	sub := gate.Submission{SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step}
	r.start = func(ctx context.Context, each func(gate.Verdict)) error {
		return e.Checks.Pool.Run(ctx, a.id, sub, []gate.Task{task}, each)
	}
	return nil
}

// results returns the verdicts of a round, in the order of the step's reviews or checks, and why the submission is
// void, or nil.
func (r *round) results(stepID string, said []gate.Verdict) ([]*judging.Verdict, *judging.Void) {
	if r.checks != nil {
		return r.checkResults(stepID, said[0].Err)
	}

	verdicts := slices.Clone(r.known)
	slices.SortStableFunc(said, func(a, b gate.Verdict) int {
		return cmp.Compare(r.order[a.Task.Key], r.order[b.Task.Key])
	})
	var failures []string
	for _, v := range said {
		if v.Err != nil {
			failures = append(failures, v.Err.Error())
			continue
		}
		verdicts = append(verdicts, verdictOf(v))
	}
	slices.SortStableFunc(verdicts, func(a, b *judging.Verdict) int {
		return cmp.Compare(r.order[a.Key], r.order[b.Key])
	})
	if failures == nil {
		return verdicts, nil
	}
	why := strings.Join(failures, "\n\n")
	return verdicts, &judging.Void{
		Why:     why,
		Refusal: session.Wrong(codes.ReviewFailed, "%s\nNothing has moved.", why).With("step_id", stepID),
	}
}

// checkResults returns the results of the checks, or why there are none.
func (r *round) checkResults(stepID string, err error) ([]*judging.Verdict, *judging.Void) {
	if refused, ok := errors.AsType[*session.Error](err); ok {
		return nil, &judging.Void{Why: err.Error(), Refusal: refused}
	}
	if err != nil {
		return nil, &judging.Void{Why: err.Error(), Refusal: session.NotNow(codes.CheckNotRun,
			"Step '%s': %v. Nothing counts and nothing has moved; correct that, or tell the user, and make the same "+
				"call again.", stepID, err).With("step_id", stepID).Because(err)}
	}
	if files := r.checks.Undecided; len(files) > 0 {
		return nil, &judging.Void{
			Why:       "not decided, because files went on changing: " + strings.Join(files, ", "),
			Undecided: files,
		}
	}
	return slices.DeleteFunc(slices.Clone(r.checks.Verdicts), func(v *judging.Verdict) bool { return v == nil }), nil
}

// verdictOf converts a verdict of the gate.
func verdictOf(v gate.Verdict) *judging.Verdict {
	out := &judging.Verdict{
		Kind: judging.ByReviewer, At: v.EndedAt.UTC(), By: v.Reviewer, RunEach: v.Task.RunEach,
		TargetFile: v.Task.Target, Key: v.Task.Key, Digest: v.Task.Digest, Passed: v.Passed, Feedback: v.Feedback,
		Seconds: v.EndedAt.Sub(v.StartedAt).Seconds(),
	}
	for _, f := range v.Task.Files {
		hash := judging.FileHash{Path: f.Path, SHA256: f.SHA256}
		if f.Text != nil {
			hash.Output = f.Output
		}
		out.Files = append(out.Files, hash)
	}
	for _, c := range v.Criteria {
		out.Criteria = append(out.Criteria, replies.CriterionResult{
			Criterion: questionOf(v.Task.Criteria, c.Criterion),
			Passed:    c.Passed,
			Feedback:  c.Feedback,
		})
	}
	if out.Passed && len(out.Criteria) == 0 {
		// It passed as a whole, so each of its criteria passed.
		for _, c := range v.Task.Criteria {
			out.Criteria = append(out.Criteria, replies.CriterionResult{Criterion: c.Question, Passed: true})
		}
	}
	return out
}

// questionOf returns the text of the criterion with this name (seed 001, "QualityCriteriaResult").
func questionOf(criteria []job.Criteria, name string) string {
	for _, c := range criteria {
		if c.Name == name {
			return c.Question
		}
	}
	return name
}
