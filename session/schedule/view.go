package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
)

// A View is a schedule for people and programs. Its times are in RFC 3339, with the offset of its zone.
type View struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // active, paused, or failing: paused since its last runs failed
	Cron     string    `json:"cron"`
	Zone     string    `json:"zone"`
	Workflow string    `json:"workflow"` // JOB/WORKFLOW
	Goal     string    `json:"goal"`
	Overlap  string    `json:"overlap"`
	CatchUp  string    `json:"catch_up"`
	Next     *string   `json:"next"` // null while it is paused
	History  []DueView `json:"history"`
}

// A DueView is the record of a due time, or of several in a row that were skipped.
type DueView struct {
	Due      string       `json:"due"`
	Until    *string      `json:"until"`
	Count    int          `json:"count"`
	State    string       `json:"state"` // started, queued or skipped
	Reason   *string      `json:"reason"`
	RunID    *string      `json:"run_id"`
	RunState *board.State `json:"run_state"`
}

// View returns a schedule with its newest records, at most limit.
func (e *Engine) View(ctx context.Context, s *store.ScheduleState, limit int) (*View, error) {
	args, zone, err := argsOf(&s.Schedule)
	if err != nil {
		return nil, err
	}
	v := &View{Name: s.Name, State: "active", Cron: s.Cron, Zone: s.Zone, Goal: args.Goal, Overlap: s.Overlap,
		Workflow: args.JobName + "/" + args.WorkflowName, CatchUp: s.CatchUp, History: []DueView{}}
	switch {
	case s.Failing:
		v.State = "failing"
	case s.Paused:
		v.State = "paused"
	default:
		v.Next = new(s.Next.In(zone).Format(time.RFC3339))
	}

	history, err := e.Rows.History(ctx, s.ID, limit)
	for _, d := range history {
		due := DueView{Due: d.DueAt.In(zone).Format(time.RFC3339), Count: d.Count, State: d.Outcome, RunID: d.RunID,
			Reason: board.OrNull(d.Reason)}
		if d.Until != nil {
			due.Until = new(d.Until.In(zone).Format(time.RFC3339))
		}
		if ran := e.Attempts.StateOf(&d.Situation); ran != "" {
			due.RunState = &ran
		}
		v.History = append(v.History, due)
	}
	return v, err
}

// Words says what became of a due time.
func (d *DueView) Words() string {
	switch {
	case d.RunState != nil:
		return d.RunState.Words()
	case d.RunID != nil:
		return "deleted"
	}
	return d.State
}

// Named returns the schedule with a name, or store.ErrNotFound if the caller sees none.
func (e *Engine) Named(ctx context.Context, who session.Caller, name string) (*store.ScheduleState, error) {
	all, err := e.Rows.States(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing schedules: %w", err)
	}
	at := slices.IndexFunc(all, func(s store.ScheduleState) bool { return s.Name == name && s.VisibleTo(who) })
	if at < 0 {
		return nil, store.ErrNotFound
	}
	return &all[at], nil
}
