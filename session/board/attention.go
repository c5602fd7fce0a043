package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/why"
)

// The kinds of things that need a person.
const (
	AttentionFailed    = "attempt_failed"    // the latest attempt of a task failed or was interrupted
	AttentionConflicts = "attempt_conflicts" // a merge in it has conflicts
	// the latest attempt of a task is a run that failed, was interrupted, or was paused by a budget, and can
	// be resumed
	AttentionRun       = "run_to_resume"
	AttentionReview    = "attempt_to_review" // the latest attempt of a task has ended
	AttentionUntrusted = "untrusted"         // the user has not approved what the config asks for
	AttentionBudget    = "budget_reached"    // no agent starts until a person raises the budget
	// a step of a run waits for a limit whose provider does not say when it ends
	AttentionLimit    = "limit_unclear"
	AttentionSchedule = "schedule_failing" // a schedule is paused, since its last runs have failed
	AttentionSource   = "source_asks"      // a workflow of another system asks a person, who has to answer there
	// only a person can pass a step of a workflow: they review it, or override its review
	AttentionStep = "step_waits"
)

// NeedsAttention returns what needs a person, as far as the caller sees it, newest first.
func (b *Board) NeedsAttention(ctx context.Context, who session.Caller) (*AttentionReply, error) {
	return b.NeedsAttentionBy(ctx, who, b.o.Steps)
}

// FindSteps returns the steps that wait for a person: those of a caller's sessions, and of sessions that
// began in the workspaces of these attempts.
type FindSteps func(ctx context.Context, who session.Caller, attempts []string) ([]session.AwaitingStep, error)

// NeedsAttentionBy is NeedsAttention for a caller that knows the sessions. find returns the waiting steps,
// instead of Options.Steps.
func (b *Board) NeedsAttentionBy(ctx context.Context, who session.Caller, find FindSteps) (*AttentionReply, error) {
	v, cfg, err := b.View(ctx, who)
	if err != nil {
		return nil, err
	}
	attempts, more, err := v.Attention(ctx)
	if err != nil {
		return nil, Fault("looking for what needs a person", err)
	}

	var all []Attention
	for _, a := range attempts {
		state := b.StateOf(&a.Situation)
		run := Run{}
		// the leader may have ended the run, and itself, after the state was read
		if state == Interrupted && a.State.Open() {
			if at, err := v.Attempt(ctx, a.AttemptID); err == nil {
				a.Situation = at.Situation
				state = b.StateOf(&a.Situation)
			}
		}
		if a.Run != nil {
			_ = json.Unmarshal(a.Run, &run) // a run that cannot be read has no budgets and no end
		}
		kind, command, err := v.needs(ctx, &a, state, &run)
		if err != nil {
			return nil, err
		}
		if kind == "" {
			continue
		}
		said, err := b.why(ctx, v, &a, state, &run)
		if err != nil {
			return nil, err
		}

		all = append(all, Attention{
			Kind:    kind,
			ID:      a.AttemptID,
			State:   &state,
			Title:   a.Title,
			Why:     OrNull(said),
			Since:   new(Stamp(a.Since)),
			Command: command,
			TaskID:  a.TaskID,
			End:     run.End,
			InPlace: run.InPlace,
			at:      a.Since,
		})
	}

	limits, err := unclearLimits(ctx, v.View)
	if err != nil {
		return nil, err
	}
	all = append(all, limits...)
	questions, err := b.questions(ctx, v.Who)
	if err != nil {
		return nil, err
	}
	all = append(all, questions...)
	failing, err := b.failing(ctx, v.Who)
	if err != nil {
		return nil, err
	}
	all = append(all, failing...)
	if u := b.untrusted(cfg); u != nil {
		all = append(all, *u)
	}

	budgets, err := b.ReachedBudgets(ctx, who)
	if err != nil {
		return nil, err
	}
	all = append(all, budgets...)
	if find != nil {
		attempts, err := v.WorkedOn(ctx)
		if err != nil {
			return nil, Fault("looking for attempts that are worked on", err)
		}
		steps, err := find(ctx, v.Who, attempts)
		if err != nil {
			return nil, fmt.Errorf("looking for steps that wait for a person: %w", err)
		}
		for _, s := range steps {
			all = append(all, StepAttention(s))
		}
	}
	slices.SortStableFunc(all, func(x, y Attention) int { return y.at.Compare(x.at) })
	return &AttentionReply{Items: NonNil(all), Count: len(all), Truncated: more}, nil
}

// Page returns the path of the page that shows the item.
func (a *Attention) Page() string {
	switch {
	case a.Kind == AttentionStep:
		return "/sessions/" + a.ID + "#decide-" + a.ID + "-" + a.Waits.Step
	case a.Kind == AttentionUntrusted:
		return "/trust"
	case a.Kind == AttentionSource:
		return "/sources"
	case a.Kind == AttentionSchedule:
		return "/schedules/" + a.ID
	case a.Kind == AttentionBudget:
		return "/board"
	case a.TaskID == "":
		return "/"
	}
	return "/attempts/" + a.ID
}

// Summary says what the item is, without words of the work.
func (a *Attention) Summary() string {
	switch a.Kind {
	case AttentionStep:
		return "Step " + a.Waits.Step + " waits for you"
	case AttentionUntrusted:
		return "The config waits for your approval"
	case AttentionSource:
		return "A workflow of another system asks you"
	case AttentionSchedule:
		return "The schedule " + a.ID + " is paused, since its runs fail"
	case AttentionBudget:
		return "The budget " + a.ID + " is reached"
	}

	name := "Attempt"
	if a.Kind == AttentionRun || a.Kind == AttentionLimit || a.End != nil {
		name = "Run"
	}
	return name + " " + Short(a.ID) + ": " + a.State.Words()
}

// needs returns the kind of attention that an attempt in a state needs, or "", and the command for it. run is the
// attempt's own, or empty.
func (v View) needs(
	ctx context.Context, a *task.Attention, state State, run *Run,
) (kind, command string, err error) {
	isRun := a.Run != nil
	switch {
	case state == Conflicted:
		return AttentionConflicts, "deepwork board show " + Short(a.TaskID), nil
	case isRun && state != Completed && state != Failed && state != Paused && state != Interrupted:
		return "", "", nil // the run goes on, or a person has stopped it
	// an open run goes on, even if its leader was killed
	case isRun && state != Completed && !a.Began && !a.State.Open():
		return AttentionFailed, "deepwork board start " + Short(a.TaskID), nil
	case isRun && state != Completed:
		cost, err := v.Cost(ctx, a.TaskID, a.AttemptID)
		if err != nil {
			return "", "", Fault("reading the cost of the run", err)
		}
		return AttentionRun, "deepwork run resume " + Short(a.AttemptID) + run.LargerBudget(cost), nil
	case state == Failed || state == Interrupted:
		return AttentionFailed, "deepwork board tail " + Short(a.AttemptID), nil
	}
	return AttentionReview, "deepwork board diff " + Short(a.AttemptID), nil
}

// why says why an attempt in a state needs a person, or returns "". run is the attempt's own, or empty.
func (b *Board) why(ctx context.Context, v View, a *task.Attention, state State, run *Run) (string, error) {
	switch {
	case state == Conflicted:
		w := why.Why{Kind: why.Conflict}
		at, err := v.Attempt(ctx, a.AttemptID)
		if err == nil && b.o.Conflicts != nil { // else the page of the attempt shows the error
			w.Said = Enumerate(b.o.Conflicts(ctx, at), "")
		}
		return w.Sentence(), nil
	case run.End != nil:
		return run.End.Reason(), nil
	case a.State.Open() && state == Interrupted:
		return why.Why{Kind: why.Gone}.Sentence(), nil
	}
	now, err := v.AttemptDetails(ctx, a.AttemptID)
	if errors.Is(err, task.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", Fault("reading an attempt", err)
	}
	return WhyOf(now.Execution).Sentence(), nil
}

// unclearLimits returns the steps of runs that wait for a limit without a known end.
func unclearLimits(ctx context.Context, v store.View) (all []Attention, err error) {
	open, _, err := v.Work(ctx)
	if err != nil {
		return nil, Fault("listing what agents work on", err)
	}
	for _, w := range open {
		if w.Run == nil {
			continue
		}

		at, err := v.Attempt(ctx, w.AttemptID)
		if errors.Is(err, task.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, Fault("reading a run", err)
		}

		run, err := runIn(at)
		if err != nil {
			return nil, err
		}
		for i, r := range waitsOf(run, true) {
			if r.tries > 0 {
				all = append(all, Attention{
					Kind:    AttentionLimit,
					ID:      at.ID,
					State:   new(WaitingForLimit),
					Title:   w.Title + ": " + r.Text(),
					Since:   &r.Since,
					Command: "deepwork run status " + Short(at.ID),
					TaskID:  at.TaskID,
					at:      run.Waits[i].Since,
				})
			}
		}
	}
	return all, nil
}

// questions returns what sources of workflows ask a person: in the caller's executions, or in all for the
// user.
func (b *Board) questions(ctx context.Context, who session.Caller) (all []Attention, err error) {
	if !b.Database.Exists() {
		return nil, nil
	}

	asking, err := b.Database.RemoteRuns().Asking(ctx)
	if err != nil {
		return nil, Fault("looking for questions of sources", err)
	}
	for _, x := range asking {
		var p source.Progress
		if !who.Owner && x.Identity != who.Identity || json.Unmarshal(x.Progress, &p) != nil {
			continue
		}
		all = append(all, Attention{
			Kind:  AttentionSource,
			ID:    x.ID,
			Title: fmt.Sprintf("%s asks for %s: %s", x.Source, x.WorkflowName, p.Asks),
			Since: new(Stamp(x.StartedAt)),
			at:    x.StartedAt,
		})
	}
	return all, nil
}

// failing returns the schedules that the caller sees and that start nothing, since their last runs have failed.
func (b *Board) failing(ctx context.Context, who session.Caller) (all []Attention, err error) {
	states, err := b.Database.Schedules().States(ctx)
	for _, s := range states {
		if s.Failing && s.VisibleTo(who) {
			all = append(all, Attention{
				Kind:    AttentionSchedule,
				ID:      s.Name,
				Title:   "Schedule " + s.Name,
				Why:     new(fmt.Sprintf("It is paused: its last runs (%d) failed.", s.PauseAfter)),
				Command: "deepwork schedule resume " + s.Name,
			})
		}
	}
	return all, Fault("looking for schedules that are failing", err)
}

// StepAttention describes a step that waits for a person as a thing that needs one.
func StepAttention(s session.AwaitingStep) Attention {
	return Attention{
		Kind:    AttentionStep,
		ID:      s.SessionID,
		Title:   fmt.Sprintf("Step %s: %s", s.Step, s.Goal),
		Why:     OrNull(s.Why.Sentence()),
		Since:   new(Stamp(s.Since)),
		Command: s.Command(),
		Waits:   &s,
		at:      s.Since,
	}
}

// ReachedBudgets returns the reached budgets, because of which no agent starts.
func (b *Board) ReachedBudgets(ctx context.Context, who session.Caller) (all []Attention, err error) {
	v, cfg, err := b.View(ctx, who)
	if err != nil {
		return nil, err
	}

	records, err := b.Store(ctx)
	if err != nil {
		return nil, err
	}
	reached, err := b.Reached(ctx, records, cfg)
	if err != nil || len(reached) == 0 {
		return nil, err
	}
	cost, unknown, err := records.ReachedAt(ctx, Limits(cfg))
	if err != nil {
		return nil, Fault("reading the budget", err)
	}
	for _, r := range reached {
		a := Attention{
			Kind:    AttentionBudget,
			ID:      r.Key,
			Title:   r.title(v.Who),
			Command: "${EDITOR:-vi} " + r.Limit.File,
		}

		since := cost
		if r.Key == "attempts.max_unknown" {
			since = unknown
		}
		a.Since = StampOrNull(since)
		if since != nil {
			a.at = *since
		}
		all = append(all, a)
	}
	return all, nil
}

// Work returns the attempts that the caller sees: open ones, whose agents wait or run, and ended ones. Both
// lists begin with the newest execution and have at most task.MaxWork entries.
func (b *Board) Work(ctx context.Context, who session.Caller) (open, ended []task.Work, err error) {
	v, _, err := b.View(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	open, ended, err = v.Work(ctx)
	return open, ended, Fault("listing what agents work on", err)
}

// untrusted returns the part of the config that the user has neither approved nor denied, or nil. It asks for
// permission to start agents only along with something else.
func (b *Board) untrusted(cfg *config.Config) *Attention {
	if cfg.Approval == nil || cfg.Approval.Withheld == nil || cfg.Approval.Withheld.Denied ||
		cfg.Approval.Withheld.Plain() {
		return nil
	}

	var keys []string
	for _, asked := range cfg.Approval.Withheld.Asked {
		keys = append(keys, asked.Key)
	}
	a := &Attention{
		Kind:    AttentionUntrusted,
		ID:      digest(cfg.Approval.Withheld.Asked)[:16],
		Title:   "Not approved: " + Enumerate(keys, "nothing") + cfg.Approval.Withheld.Since(),
		Command: "deepwork trust",
	}
	if why := cfg.Approval.Withheld.Fault; why != "" {
		a.Title += ". It cannot be approved: " + strings.TrimSuffix(why, ".")
	}
	if fi, err := os.Stat(filepath.Join(b.o.Root, ".deepwork", config.FileName)); err == nil {
		a.at = fi.ModTime()
		a.Since = new(Stamp(a.at))
	}
	return a
}
