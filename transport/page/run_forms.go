package page

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/attempt"
)

// startRun starts a run of a workflow.
func (s *Site) startRun(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	a := attempt.RunWorkflowArgs{Goal: r.PostForm.Get("goal"), Executor: optional(r, "executor"), Context: optional(r, "context")}
	if job, name := workflowOf(r); job != nil {
		a.JobName, a.WorkflowName = *job, *name
	}
	if r.PostForm.Get("where") == "here" {
		a.InPlace = new(true)
	}
	parallel, err := number(r, "parallel")
	if err != nil {
		return "", err
	}
	if parallel != nil {
		a.Parallel = new(int(*parallel))
	}
	run := attempt.Run{}
	if err := budgets(r, &run); err != nil {
		return "", err
	}
	if a.MaxCostUSD, a.MaxUnknown = run.MaxCostUSD, run.MaxUnknown; run.MaxTime > 0 {
		a.MaxSeconds = new(run.MaxTime.Seconds())
	}
	made, err := s.Board.RunWorkflow(ctx, who, a)
	if err != nil {
		return "", err
	}
	return "/attempts/" + made.RunID, nil
}

// resumeRun lets a run go on that has ended, with the budgets of the form.
func (s *Site) resumeRun(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if err := budgets(r, new(attempt.Run)); err != nil {
		return "", err
	}
	_, err := s.Board.ResumeRun(ctx, who, r.PathValue("id"), r.PostForm.Get("advice"), func(run *attempt.Run) {
		_ = budgets(r, run) // as above
	})
	if err != nil {
		return "", err
	}
	return s.said(who, attemptURL(r), "The run goes on where it was."), nil
}

// budgets sets those of a run that a form has; a blank field is no limit.
func budgets(r *http.Request, run *attempt.Run) error {
	cost, err := number(r, "max_cost")
	if err != nil {
		return err
	}
	unknown, err := number(r, "max_unknown")
	if err != nil {
		return err
	}
	minutes, err := number(r, "max_minutes")
	if err != nil {
		return err
	}
	if _, given := r.PostForm["max_cost"]; given {
		run.MaxCostUSD = cost
	}
	if _, given := r.PostForm["max_unknown"]; given {
		if run.MaxUnknown = nil; unknown != nil {
			run.MaxUnknown = new(int(*unknown))
		}
	}
	if _, given := r.PostForm["max_minutes"]; given {
		if run.MaxTime = 0; minutes != nil {
			if *minutes <= 0 || *minutes > 1e6 {
				return session.Wrong("out_of_range", "The minutes are %v: expected a positive number, or nothing for any time.", *minutes)
			}
			run.MaxTime = time.Duration(*minutes * float64(time.Minute))
		}
	}
	return nil
}

// number reads a field of a form, nil if it is blank.
func number(r *http.Request, name string) (*float64, error) {
	given := strings.TrimSpace(r.PostForm.Get(name))
	if given == "" {
		return nil, nil
	}
	n, err := strconv.ParseFloat(given, 64)
	if err != nil || n != n {
		return nil, session.Wrong("invalid_argument", "%q is not a number.", given)
	}
	return &n, nil
}
