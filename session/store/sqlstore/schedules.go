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
	return read(ctx, s, "listing schedules", func(t Tx) []store.ScheduleState {
		return t.scheduleStates(` ORDER BY next, name`)
	})
}

// scheduleStates reads what decides about schedules.
func (t Tx) scheduleStates(which string, args ...any) []store.ScheduleState {
	const (
		runs = ` FROM (SELECT run_id FROM due_times WHERE schedule = s.id AND run_id IS NOT NULL ` +
			`ORDER BY due_at DESC LIMIT 100) AS d JOIN attempts a ON a.id = d.run_id WHERE a.state `
		open = `IN ('waiting', 'starting', 'running')`
	)
	all := List[store.ScheduleState](t, `SELECT `+scheduleColumns+`,
		coalesce((SELECT min(a.id)`+runs+open+`), '') AS open_run,
		(SELECT min(d.due_at) FROM due_times d WHERE d.schedule = s.id AND d.outcome = 'queued') AS queued,
		pause_after > 0 AND pause_after = (SELECT count(*) FROM (SELECT a.state,
			row_number() OVER (ORDER BY a.created_at DESC, a.id) AS n`+runs+`NOT `+open+`
			AND a.created_at > s.resumed_at) AS x WHERE n <= pause_after AND state = 'failed') AS failing
		FROM schedules s`+which, args...)
	now := t.clock()
	for i := range all {
		all[i].Now = now
	}
	return all
}

func (t Tx) schedule(id string) *store.ScheduleState {
	all := t.scheduleStates(` WHERE id = ?`, id)
	if len(all) == 0 {
		t.Fail(store.ErrNotFound)
	}
	return &all[0]
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
		t.mustChange(store.ErrNotFound, `UPDATE schedules SET paused = TRUE, resumed_at = ? WHERE id = ?`, t.Now, id)
		t.changed(store.ScheduleChanged, id)
	})
}

func (s schedules) Resume(ctx context.Context, id string, decide func(*store.ScheduleState) store.Decision) error {
	return change(ctx, s, "resuming a schedule", func(t Tx) {
		d := decide(t.schedule(id))
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
		state := t.schedule(id)
		if !now.IsZero() {
			state.Now = now
		}
		if state.Failing && !state.Paused { // what becomes of its runs does not let it go on
			t.Exec(`UPDATE schedules SET paused = TRUE WHERE id = ?`, id)
			t.changed(store.ScheduleChanged, id)
		}
		d := decide(state)
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
				t.who = &session.Caller{Identity: state.Identity, Group: state.CallerGroup, Rights: session.RightAgents,
					Owner: state.Identity == session.LocalIdentity}
				plan.Attempt.TaskID = t.createTask(plan.Task)
				d.RunID = new(t.createAttempt(plan.Attempt, plan.First))
			}
		}
		t.record(&d)
		return d
	})
}

func (s schedules) Refuse(
	ctx context.Context, id string, dueAt, now time.Time, machine, reason string,
) (*store.Refusals, error) {
	return write(ctx, s, "recording why a schedule is not started", func(t Tx) *store.Refusals {
		var all store.Refusals
		_ = json.Unmarshal(t.schedule(id).Refusals, &all) // what cannot be read is replaced
		if !all.DueAt.Equal(dueAt) || all.Machines == nil {
			all = store.Refusals{DueAt: dueAt, Since: now, Machines: map[string]string{}}
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
