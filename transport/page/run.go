package page

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/run"
)

// A runView shows the steps of a run, or of a session, with their agents.
type runView struct {
	*run.View
	Before, After int    // steps that are left out
	Only          string // the id of the one step that is shown, "" for all

	many bool // what was done for steps that are finished or not begun is left out
}

// Complete reports whether the workflow is complete.
func (v *runView) Complete() bool { return v.State == board.Completed || v.State == board.Merged }

// Minutes returns how long one execution of the leader may take, 0 for any time.
func (v *runView) Minutes() float64 { return v.Kept.MaxTime.Minutes() }

// Brief reports whether what was done for a step is on a page of its own.
func (v *runView) Brief(x *run.Step) bool {
	return v.many && (x.State == board.Completed || x.State == board.NotBegun)
}

// Override returns what an override of the step's judges is about.
func (v *runView) Override(x *run.Step) *decision {
	return decisionOf(x, session.AwaitingStep{SessionID: x.SessionID, Step: x.ID})
}

// Took returns how long the ended processes of a step ran, or "".
func (v *runView) Took(x *run.Step) string {
	if x.Took == 0 {
		return ""
	}
	return lasted(x.Took)
}

const (
	// maxSteps is how many steps the page of a run shows.
	maxSteps = 80
	// maxTries is how many tries of a step it shows.
	maxTries = 10
	// maxTold is how many steps it may have, and maxDetails how many bytes of what was done for them, and still show
	// that of finished ones.
	maxTold    = 12
	maxDetails = 40 << 10
)

// fit leaves out all steps but one, or what does not fit on the page: first finished entries of the workflow, then
// those that have not begun, then what was done for finished steps.
func (v *runView) fit(only string) {
	v.Tree.Each(func(x *run.Step, _ int) {
		if x.ID == only && x.SessionID == v.Tree.SessionID {
			v.Only, v.Tree.Entries = only, [][]*run.Step{{x}}
		}
		x.Last = jsontext.Clip(x.Last, maxLast)
	})
	over := -maxSteps
	v.Tree.Rows(func(*run.Step, int) { over++ })
	steps := func(entry []*run.Step) (n int) {
		one := run.Tree{Entries: [][]*run.Step{entry}}
		one.Rows(func(*run.Step, int) { n++ })
		return n
	}
	idle := func(entry []*run.Step, state board.State) bool {
		return over > 0 && !slices.ContainsFunc(entry, func(x *run.Step) bool { return x.State != state })
	}
	for t := &v.Tree; len(t.Entries) > 0 && idle(t.Entries[0], board.Completed); t.Entries = t.Entries[1:] {
		over, v.Before = over-steps(t.Entries[0]), v.Before+len(t.Entries[0])
	}
	for t := &v.Tree; len(t.Entries) > 0 &&
		idle(t.Entries[len(t.Entries)-1], board.NotBegun); t.Entries = t.Entries[:len(t.Entries)-1] {
		last := t.Entries[len(t.Entries)-1]
		over, v.After = over-steps(last), v.After+len(last)
	}

	shown, size := 0, 0
	v.Tree.Rows(func(x *run.Step, _ int) {
		shown++
		if shown <= maxTold {
			all, _ := json.Marshal(x.Progress) // about what a page shows of it
			size += len(all)
		}
	})
	v.many = v.Only == "" && (shown > maxTold || size > maxDetails)
}

// maxLast is how many bytes of what an agent said last a page shows.
const maxLast = 600

// workflowAndTime adds what fill does not set.
func workflowAndTime(r *http.Request, a *attempt.RunWorkflowArgs) error {
	if job, name := workflowOf(r); job != nil {
		a.JobName = *job
		a.WorkflowName = *name
		a.Inputs = inputsOf(r)
	}
	most, err := minutes(r)
	if most > 0 {
		a.MaxSeconds = new(most.Seconds())
	}
	return err
}

// resumeRun resumes an ended run, with the form's budgets if it has any.
func (s *Site) resumeRun(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	budget, err := budgetOf(r)
	if err != nil {
		return "", err
	}
	_, err = s.Board.ResumeRun(ctx, who, r.PathValue("attempt_id"), r.PostForm.Get("advice"), func(run *board.Run) {
		if r.PostForm.Has("max_minutes") { // else the form has no budgets, and those of the run stay
			run.MaxCostUSD = budget.MaxCostUSD
			run.MaxUnknown = budget.MaxUnknown
			run.MaxTime = budget.MaxTime
		}
	})
	return s.withNotice(who, attemptURL(r), "The run goes on where it was."), err
}

// budgetOf returns a run with the budgets in a form, and nothing else.
func budgetOf(r *http.Request) (*board.Run, error) {
	var a attempt.RunWorkflowArgs
	most, err := minutes(r)
	err = cmp.Or(err, fill(r, &a))
	return &board.Run{MaxCostUSD: a.MaxCostUSD, MaxUnknown: a.MaxUnknown, MaxTime: most}, err
}

// minutes returns how long a run may take, 0 for any time.
func minutes(r *http.Request) (time.Duration, error) {
	text := strings.TrimSpace(r.PostForm.Get("max_minutes"))
	if text == "" {
		return 0, nil
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || !(minutes > 0 && minutes <= 1e6) {
		return 0, session.Wrong(codes.OutOfRange,
			"The minutes are %q: expected a positive number, or nothing for any time.", text)
	}
	return time.Duration(minutes * float64(time.Minute)), nil
}
