package page

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// startRun starts a run of a workflow.
func (s *Site) startRun(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	var a attempt.RunWorkflowArgs
	if err := fill(r, &a); err != nil {
		return "", err
	}
	if job, name := workflowOf(r); job != nil {
		a.JobName, a.WorkflowName = *job, *name
	}
	run := board.Run{}
	if err := budgets(r, &run); err != nil {
		return "", err
	}
	if run.MaxTime > 0 {
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
	if err := budgets(r, new(board.Run)); err != nil {
		return "", err
	}
	_, err := s.Board.ResumeRun(ctx, who, r.PathValue("id"), r.PostForm.Get("advice"), func(run *board.Run) {
		_ = budgets(r, run) // as above
	})
	if err != nil {
		return "", err
	}
	return s.said(who, attemptURL(r), "The run goes on where it was."), nil
}

// budgets sets those of a run that a form has; a blank field is no limit.
func budgets(r *http.Request, run *board.Run) error {
	var a attempt.RunWorkflowArgs
	if err := fill(r, &a); err != nil {
		return err
	}
	if _, given := r.PostForm["max_cost_usd"]; given {
		run.MaxCostUSD = a.MaxCostUSD
	}
	if _, given := r.PostForm["max_unknown"]; given {
		run.MaxUnknown = a.MaxUnknown
	}
	if given, is := r.PostForm["max_minutes"]; is {
		run.MaxTime = 0
		if text := strings.TrimSpace(given[0]); text != "" {
			minutes, err := strconv.ParseFloat(text, 64)
			if err != nil || !(minutes > 0 && minutes <= 1e6) {
				return session.Wrong(codes.OutOfRange, "The minutes are %q: expected a positive number, or nothing for any time.", text)
			}
			run.MaxTime = time.Duration(minutes * float64(time.Minute))
		}
	}
	return nil
}
