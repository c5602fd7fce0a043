package workflow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/replies"
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

// hasJudges reports whether one of the Judges judges a step.
func (e *Engine) hasJudges(st *job.Step) bool {
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

// carryOut has the judges of a turn judge, and returns their verdicts, or why the submission is void. An error
// means that ctx has ended.
func (j *running) carryOut(ctx context.Context) ([]*judging.Verdict, *judging.Void, error) {
	all, n := make(chan gate.Verdict, len(j.tasks)), 0
	err := j.pool.Run(ctx, j.of.SessionID, j.of, j.tasks, func(v gate.Verdict) {
		n++
		if j.checks == nil {
			j.tell(n)
		}
		all <- v
	})
	if err != nil {
		return nil, &judging.Void{
			Why: "it was not begun: " + err.Error(),
			Refusal: session.NotNow(codes.ReviewNotStarted,
				"The review of step '%s' could not be begun: %v. The try does not count; make the same call again "+
					"later.", j.step, err).Because(err).Wait(10 * time.Second),
		}, nil
	}
	var said []gate.Verdict
	for range j.tasks {
		select {
		case v := <-all:
			said = append(said, v)
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
	verdicts, void := j.results(said)
	return verdicts, void, nil
}

// toJudge returns the turn of the judges who judge a hand-in now, without those that have judged it already.
func (a *sessionActor) toJudge(c *candidate) (*running, error) {
	j := &running{step: c.plan.Step.ID, look: c.read.look, order: map[string]int{}, news: make(chan struct{})}
	for _, v := range c.now.Verdicts {
		if v.Kind == c.now.With {
			j.known = append(j.known, v)
		}
	}
	if c.now.With == judging.ByProgram {
		return j, a.checking(c, j)
	}

	for i, t := range c.tasks {
		j.order[t.Key] = i
		if !slices.ContainsFunc(j.known, func(v *judging.Verdict) bool { return v.Key == t.Key }) {
			j.tasks = append(j.tasks, t)
		}
	}
	j.total = len(j.tasks)
	j.pool = a.engine.Gate
	j.of = a.submission(c)
	return j, nil
}

// checking fills in the turn of the checks.
func (a *sessionActor) checking(c *candidate, j *running) error {
	e, stepID := a.engine, c.plan.Step.ID
	if e.Checks == nil {
		return session.NotNow(codes.CheckNotRun,
			"Step '%s' has checks, and this process does not run any. Call a server of the project.", stepID)
	}

	checks := c.read.subject.Checks
	j.checks = &check.Round{
		Subject: c.read.subject,
		Before:  c.read.content,
		Known:   make([]*judging.Verdict, len(checks)),
		Over:    make([]bool, len(checks)),
		Done:    j.tell,
	}
	for i := range checks {
		key := check.Key(&checks[i])
		j.checks.Over[i] = slices.Contains(c.now.Over, checks[i].Name)
		if at := slices.IndexFunc(j.known, func(v *judging.Verdict) bool { return v.Key == key }); at >= 0 {
			j.checks.Known[i] = j.known[at]
		}
		if !j.checks.Over[i] {
			j.total++
		}
	}
	j.pool = e.Checks.Pool
	j.of = gate.Submission{SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step}
	j.tasks = []gate.Task{{
		Key:     "checks",
		RunEach: "step",
		Do:      func(ctx context.Context, v *gate.Verdict) { v.Err = e.Checks.Run(ctx, j.checks) },
	}}
	return nil
}

// results returns the verdicts of a turn, in the order of the step's reviews or checks, and why the submission is
// void, or nil.
func (j *running) results(said []gate.Verdict) ([]*judging.Verdict, *judging.Void) {
	if j.checks != nil {
		return j.checkResults(said[0].Err)
	}

	verdicts := slices.Clone(j.known)
	slices.SortStableFunc(said, func(a, b gate.Verdict) int {
		return cmp.Compare(j.order[a.Task.Key], j.order[b.Task.Key])
	})
	var faults, told []string
	for _, v := range said {
		if v.Err != nil {
			fault := v.Err.Error()
			told = append(told, fault)
			if e, ok := errors.AsType[*gate.Error](v.Err); ok {
				fault = strings.TrimSpace(e.Fault())
			}
			faults = append(faults, fault)
			continue
		}
		verdicts = append(verdicts, verdictOf(v))
	}
	slices.SortStableFunc(verdicts, func(a, b *judging.Verdict) int {
		return cmp.Compare(j.order[a.Key], j.order[b.Key])
	})
	if faults == nil {
		return verdicts, nil
	}
	return verdicts, &judging.Void{
		Why: strings.Join(faults, "\n\n"),
		Refusal: session.Wrong(codes.ReviewFailed, "%s\nNothing has moved.", strings.Join(told, "\n\n")).
			With("step_id", j.step),
	}
}

// checkResults returns the results of the checks, or why there are none.
func (j *running) checkResults(err error) ([]*judging.Verdict, *judging.Void) {
	if refused, ok := errors.AsType[*session.Error](err); ok {
		return nil, &judging.Void{Why: err.Error(), Refusal: refused}
	}
	if err != nil {
		return nil, &judging.Void{Why: err.Error(), Refusal: session.NotNow(codes.CheckNotRun,
			"Step '%s': %v. Nothing counts and nothing has moved; correct that, or tell the user, and make the same "+
				"call again.", j.step, err).With("step_id", j.step).Because(err)}
	}
	if files := j.checks.Undecided; len(files) > 0 {
		return nil, &judging.Void{
			Why:       "not decided, because files went on changing: " + strings.Join(files, ", "),
			Undecided: files,
		}
	}
	return slices.DeleteFunc(slices.Clone(j.checks.Verdicts), func(v *judging.Verdict) bool { return v == nil }), nil
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
