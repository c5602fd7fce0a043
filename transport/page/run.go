package page

import (
	"cmp"
	"context"
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
	"deepwork/session/workflow"
)

// A runView shows a run: the steps of its workflow with their agents.
type runView struct {
	*run.View
	Before, After int // steps that are left out

	engine *workflow.Engine
	handIn func(id, stepID string) (*workflow.HandIn, error)
	many   bool // what was said for steps that are finished or not begun is left out
}

// Complete reports whether the workflow is complete.
func (v *runView) Complete() bool { return v.State == board.Completed || v.State == board.Merged }

// Minutes returns how long one execution of the leader may take, 0 for any time.
func (v *runView) Minutes() float64 { return v.Kept.MaxTime.Minutes() }

// Waits returns the steps that wait for something outside of the run.
func (v *runView) Waits() (all []*run.Step) {
	if v.Live {
		v.Tree.Rows(func(x *run.Step, _ int) {
			if x.Why != "" {
				all = append(all, x)
			}
		})
	}
	return all
}

// Asks returns the first step that waits for a person to pass its outputs, or nil.
func (v *runView) Asks() (first *run.Step) {
	v.Tree.Each(func(x *run.Step, _ int) {
		if first == nil && x.State == board.WaitingForYou {
			first = x
		}
	})
	return first
}

// Brief reports whether what was said for a step is left out.
func (v *runView) Brief(x *run.Step) bool {
	return v.many && (x.State == board.Completed || x.State == board.NotBegun)
}

// Answer returns the form for a step whose outputs wait for a person, or nil.
func (v *runView) Answer(x *run.Step) *answerForm {
	if x.State != board.WaitingForYou || x.Session == nil {
		return nil
	}
	f := answerFormOf(v.engine, x.Session, x.ID)
	if f == nil || v.handIn == nil {
		return f
	}
	if h, err := v.handIn(x.Session.SessionID, x.ID); err == nil && h.Digest == f.Digest { // else the page will change
		f.show(h, x.Session.SessionID, x.ID, maxHandedIn/maxHandIns)
	}
	return f
}

// Took returns how long the ended processes of a step ran, or "".
func (v *runView) Took(x *run.Step) string {
	if x.Took == 0 {
		return ""
	}
	return duration(time.Time{}, new(time.Time{}.Add(x.Took)))
}

// Tries returns the newest processes of a step, nil unless there were several.
func (v *runView) Tries(x *run.Step) []board.RunStep {
	if len(x.Agents) < 2 {
		return nil
	}
	return x.Agents[:min(len(x.Agents), maxTries)]
}

// run reads a run.
func (s *Site) run(ctx context.Context, who session.Caller, id string) (*runView, error) {
	r, err := s.Board.GetRun(ctx, who, board.RunArgs{RunID: id})
	if err != nil {
		return nil, err
	}
	v := &runView{
		View:   run.Look(ctx, r, s.Engine, run.LastSaid(ctx, s.Board, who, r)),
		engine: s.Engine,
		handIn: func(id, stepID string) (*workflow.HandIn, error) {
			if _, err := s.readSession(ctx, who, id); err != nil {
				return nil, err
			}
			return s.Engine.HandIn(ctx, id, stepID)
		},
	}
	if v.Fault != nil {
		s.Logger.Debug("the sessions of a run cannot be read", "run", id, "error", v.Fault)
	}
	v.fit()
	return v, nil
}

const (
	// maxSteps is how many steps the page of a run shows.
	maxSteps = 80
	// maxTries is how many processes for a step it shows.
	maxTries = 10
	// maxTold is how many steps it may have and still show the messages of finished ones.
	maxTold = 12
)

// fit leaves out what does not fit on the page: first finished entries of the workflow, then those that have not begun,
// then the messages of finished steps.
func (v *runView) fit() {
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

	v.Tree.Each(func(x *run.Step, _ int) { x.Last = jsontext.Clip(x.Last, maxLast) })
	v.many = over+maxSteps > maxTold
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
