package sqlstore

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// schedules is a Store in its role as store.Schedules.
type schedules struct{ *Store }

var (
	scheduleColumns = Columns[store.Schedule]()
	dueColumns      = Columns[store.DueTime]()
	dueOfSchedule   = "d." + strings.ReplaceAll(dueColumns, ", ", ", d.")
)

func (s schedules) Add(ctx context.Context, add *store.Schedule) error {
	return change(ctx, s, "adding a schedule", func(t Tx) {
		if t.has(`FROM schedules WHERE name = ?`, add.Name) {
			t.Fail(store.ErrExists)
		}
		t.Exec(`INSERT INTO schedules (`+scheduleColumns+`) VALUES (`+
			parameters(1+strings.Count(scheduleColumns, ","))+`)`, Values(add)...)
		t.changed(store.ScheduleChanged, add.ID)
		t.dueAt(add.ID, add.Next)
	})
}

// dueAt puts the row of work that wakes a schedule.
func (t Tx) dueAt(id string, next time.Time) {
	t.putWork(&store.WorkRow{Kind: store.ScheduleWork, Key: id, In: max(next.Sub(t.clock()), 0)})
}

// clock returns the time by the clock of the database.
func (t Tx) clock() time.Time {
	var seconds float64
	t.First(`SELECT `+dbTime, nil, &seconds)
	return time.UnixMicro(int64(seconds * 1e6)).UTC()
}

func (s schedules) States(ctx context.Context) ([]store.ScheduleState, error) {
	if !s.db.Exists() {
		return nil, nil
	}
	return read(ctx, s, "listing schedules", func(t Tx) (all []store.ScheduleState) {
		now := t.clock()
		for _, row := range List[store.Schedule](t, `SELECT `+scheduleColumns+` FROM schedules ORDER BY next, name`) {
			all = append(all, t.scheduleState(row, now))
		}
		return all
	})
}

// scheduleState reads what decides about a schedule.
func (t Tx) scheduleState(row store.Schedule, now time.Time) store.ScheduleState {
	state := store.ScheduleState{Schedule: row, Now: now}
	const runs = ` FROM due_times d JOIN attempts a ON a.id = d.run_id WHERE d.schedule = ? AND `
	t.First(`SELECT a.id`+runs+`a.state IN ('waiting', 'starting', 'running') LIMIT 1`, []any{row.ID}, &state.OpenRun)
	state.Queued = firstRow[store.DueTime](t, `SELECT `+dueOfSchedule+
		` FROM due_times d WHERE d.schedule = ? AND d.outcome = 'queued' ORDER BY d.due_at LIMIT 1`, row.ID)
	if row.PauseAfter > 0 {
		last := List[string](t, `SELECT a.state`+runs+`a.state NOT IN ('waiting', 'starting', 'running') AND `+
			`a.created_at > ? ORDER BY a.created_at DESC, a.id LIMIT ?`, row.ID, task.FormatTime(row.ResumedAt),
			row.PauseAfter)
		failed := 0
		for _, ended := range last {
			if ended == string(task.Failed) {
				failed++
			}
		}
		state.Failing = failed == row.PauseAfter
	}
	return state
}

func (t Tx) schedule(id string) *store.Schedule {
	found := firstRow[store.Schedule](t, `SELECT `+scheduleColumns+` FROM schedules WHERE id = ?`, id)
	if found == nil {
		t.Fail(store.ErrNotFound)
	}
	return found
}

func (s schedules) History(ctx context.Context, id string, limit int) ([]store.FiredTime, error) {
	return read(ctx, s, "reading the history of a schedule", func(t Tx) []store.FiredTime {
		return List[store.FiredTime](t, `SELECT `+dueOfSchedule+`, `+situation+` FROM due_times d
			LEFT JOIN attempts a ON a.id = d.run_id WHERE d.schedule = ? ORDER BY d.due_at DESC LIMIT ?`, id, limit)
	})
}

func (s schedules) Remove(ctx context.Context, id string) error {
	return change(ctx, s, "removing a schedule", func(t Tx) {
		t.mustChange(store.ErrNotFound, `DELETE FROM schedules WHERE id = ?`, id)
		t.changed(store.ScheduleChanged, id)
		t.endWork(&store.WorkRow{Kind: store.ScheduleWork, Key: id})
	})
}

func (s schedules) Pause(ctx context.Context, id string) error {
	return change(ctx, s, "pausing a schedule", func(t Tx) {
		t.mustChange(store.ErrNotFound, `UPDATE schedules SET paused = TRUE WHERE id = ?`, id)
		t.changed(store.ScheduleChanged, id)
	})
}

func (s schedules) Resume(ctx context.Context, id string, decide func(*store.ScheduleState) store.Decision) error {
	return change(ctx, s, "resuming a schedule", func(t Tx) {
		now := t.clock()
		state := t.scheduleState(*t.schedule(id), now)
		d := decide(&state)
		t.Exec(`UPDATE schedules SET paused = FALSE, resumed_at = ?, refusals = NULL WHERE id = ?`, t.Now, id)
		if !d.DueAt.IsZero() {
			t.record(&d)
		}
		t.dueAt(id, d.Next)
	})
}

// record writes what became of due times, and the next one.
func (t Tx) record(d *store.Decision) {
	t.Exec(`UPDATE schedules SET next = ?, refusals = NULL WHERE id = ?`, task.FormatTime(d.Next), d.Schedule)
	t.Exec(`INSERT INTO due_times (`+dueColumns+`) VALUES (`+parameters(1+strings.Count(dueColumns, ","))+
		`) ON CONFLICT (schedule, due_at) DO UPDATE SET outcome = excluded.outcome, run_id = excluded.run_id, `+
		`reason = excluded.reason`, Values(&d.DueTime)...)
	t.changed(store.ScheduleChanged, d.Schedule)
}

func (s schedules) Fire(
	ctx context.Context, id string, now time.Time, decide func(*store.ScheduleState) store.Decision,
	plan *store.PlannedRun,
) (store.Decision, error) {
	return write(ctx, s, "firing a schedule", func(t Tx) store.Decision {
		row := t.schedule(id)
		if now.IsZero() {
			now = t.clock()
		}
		state := t.scheduleState(*row, now)
		d := decide(&state)
		d.Schedule = id
		if d.DueAt.IsZero() {
			return d
		}

		if d.Outcome == store.DueStarted {
			if plan == nil || !plan.DueAt.Equal(d.DueAt) {
				return d
			}
			if plan.Skip != "" {
				d.Outcome, d.Reason = store.DueSkipped, plan.Skip
			} else {
				t.who = &session.Caller{Identity: row.Identity, Group: row.CallerGroup, Rights: session.RightAgents,
					Owner: row.Identity == session.LocalIdentity}
				plan.Attempt.TaskID = t.createTask(plan.Task)
				d.RunID = new(t.createAttempt(plan.Attempt, plan.First))
			}
		}
		t.record(&d)
		return d
	})
}

func (s schedules) Refuse(
	ctx context.Context, id string, dueAt time.Time, machine, reason string,
) (*store.Refusals, error) {
	return write(ctx, s, "recording why a schedule is not started", func(t Tx) *store.Refusals {
		row := t.schedule(id)
		var all store.Refusals
		_ = json.Unmarshal(row.Refusals, &all) // what cannot be read is replaced
		if !all.DueAt.Equal(dueAt) || all.Machines == nil {
			all = store.Refusals{DueAt: dueAt, Since: t.clock(), Machines: map[string]string{}}
		}
		all.Machines[machine] = reason
		raw, err := json.Marshal(all)
		t.Fail(err)
		t.Exec(`UPDATE schedules SET refusals = ? WHERE id = ?`, string(raw), id)
		t.changed(store.ScheduleChanged, id)
		return &all
	})
}

// wakeSchedule makes the schedule that has started a run look whether a due time waits for the run's end.
func (t Tx) wakeSchedule(runID string) {
	for _, id := range List[string](t, `SELECT q.schedule FROM due_times q WHERE q.outcome = 'queued' AND `+
		`q.schedule IN (SELECT schedule FROM due_times WHERE run_id = ?)`, runID) {
		t.Exec(`UPDATE work SET due = 0 WHERE kind = ? AND key = ?`, store.ScheduleWork, id)
		t.changed(store.WorkChanged, (&store.WorkRow{Kind: store.ScheduleWork, Key: id}).ID())
	}
}
