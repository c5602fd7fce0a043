package board

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
)

// The kinds of what needs a person.
const (
	AttentionFailed    = "attempt_failed"    // the latest attempt of a task failed or was interrupted
	AttentionRun       = "run_stopped"       // the latest attempt of a task is a run that a budget paused, or that stopped at a step
	AttentionReview    = "attempt_to_review" // the latest attempt of a task has ended
	AttentionUntrusted = "untrusted"         // what the config asks for is not approved
	AttentionBudget    = "budget_reached"    // no agent starts until a person raises it
	AttentionStep      = "step_waits"        // a step of a workflow that only a person can pass: they review it, or override its review
)

// NeedsAttention returns what waits for a person and is visible to the caller, newest first.
func (b *Board) NeedsAttention(ctx context.Context, who session.Caller) (*AttentionReply, error) {
	return b.NeedsAttentionBy(ctx, who, b.o.Steps)
}

// FindSteps returns the steps that wait for a person, of a caller's sessions and of those that were begun in
// the workspaces of these attempts.
type FindSteps func(ctx context.Context, who session.Caller, attempts []string) ([]session.AwaitingStep, error)

// NeedsAttentionBy is NeedsAttention for a caller that knows the sessions: it says how steps that wait
// are found, as Options.Steps.
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
		kind, command := AttentionReview, "deepwork board diff "
		if a.State == task.Failed || a.State == task.Interrupted {
			kind, command = AttentionFailed, "deepwork board tail "
		}
		end := endOf(a.Run)
		if end != nil && end.State != RunComplete {
			kind, command = AttentionRun, "deepwork run resume "
		}
		if a.State == task.Stopped && a.Run != "" && (end == nil || end.State == RunStopped) {
			continue // by a person, perhaps without a leader
		}
		all = append(all, Attention{Kind: kind, ID: a.AttemptID, Title: a.Title, Since: new(Stamp(a.Since)), Command: command + a.AttemptID, End: end, at: a.Since})
	}
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

// endOf returns how a run on the board has ended, nil for "" and for what cannot be read.
func endOf(run string) *RunEnd {
	r := Run{}
	if run == "" || json.Unmarshal([]byte(run), &r) != nil {
		return nil
	}
	return r.End
}

// StepAttention returns what a step that waits for a person is among the rest that needs one.
func StepAttention(s session.AwaitingStep) Attention {
	return Attention{Kind: AttentionStep, ID: s.SessionID, Title: fmt.Sprintf("Step %s: %s", s.Step, s.Goal), Since: new(Stamp(s.Since)), Command: s.Command(), Waits: &s, at: s.Since}
}

// ReachedBudgets returns the budgets that are reached, so that no agent starts.
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
		a := Attention{Kind: AttentionBudget, ID: r.Key, Title: r.title(v.Who), Command: "${EDITOR:-vi} " + r.Limit.File}
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

// Work returns the attempts whose agents wait or run, and those that have ended, as far as the caller
// sees them, the one with the newest execution first; of each at most task.MaxWork.
func (b *Board) Work(ctx context.Context, who session.Caller) (open, ended []task.Work, err error) {
	v, _, err := b.View(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	open, ended, err = v.Work(ctx)
	return open, ended, Fault("listing what agents work on", err)
}

// untrusted returns the part of the config that the user has neither approved nor denied, or nil.
// That agents may start is asked for only with something else.
func (b *Board) untrusted(cfg *config.Config) *Attention {
	if cfg.Approval == nil || cfg.Approval.Withheld == nil || cfg.Approval.Withheld.Denied || cfg.Approval.Withheld.Plain() {
		return nil
	}
	var keys []string
	for _, asked := range cfg.Approval.Withheld.Asked {
		keys = append(keys, asked.Key)
	}
	a := &Attention{Kind: AttentionUntrusted, ID: digest(cfg.Approval.Withheld.Asked)[:16], Title: "Not approved: " + Enumerate(keys, "nothing") + cfg.Approval.Withheld.Since(), Command: "deepwork trust"}
	if why := cfg.Approval.Withheld.Fault; why != "" {
		a.Title += ". It cannot be approved: " + strings.TrimSuffix(why, ".")
	}
	if fi, err := os.Stat(filepath.Join(b.o.Root, ".deepwork", config.FileName)); err == nil {
		a.at = fi.ModTime()
		a.Since = new(Stamp(a.at))
	}
	return a
}
