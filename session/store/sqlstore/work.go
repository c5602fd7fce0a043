package sqlstore

import (
	"context"
	"slices"
	"time"

	"deepwork/actor/xslices"
	"deepwork/session/store"
)

// work is a Store in its role as store.Work.
type work struct{ *Store }

const (
	workColumns = `kind, key, about, place, runner, runner_place, claims, stop, progress, result`
	putWork     = `INSERT INTO work (kind, key, about, place, due, runner, runner_place, until, claims, stop) ` +
		`VALUES (?, ?, ?, ?, ` + dbTime + ` + ?, ?, ?, CASE WHEN ? = '' THEN 0 ELSE ` + dbTime + ` + ? END, ?, FALSE)
		ON CONFLICT (kind, key) DO UPDATE SET about = excluded.about, place = excluded.place, due = excluded.due, ` +
		`runner = excluded.runner, runner_place = excluded.runner_place, until = excluded.until,
			claims = excluded.claims, stop = FALSE, progress = NULL, result = NULL`
	removeWork = `DELETE FROM work WHERE kind = ? AND key = ?`
	ofRunner   = ` WHERE kind = ? AND key = ? AND runner = ? AND result IS NULL`
	untilFree  = `CASE WHEN runner = '' THEN due - ` + dbTime + ` WHEN ` + isAhead + ` THEN 0 ELSE until - ` + dbTime +
		` END AS seconds`
	openWork = `SELECT kind, key, place, runner, runner_place, stop, ` + untilFree + ` FROM work w WHERE ` +
		`result IS NULL AND runner <> ''
		UNION ALL SELECT kind, '', place, '', '', FALSE, min(due) - ` + dbTime +
		` FROM work w WHERE result IS NULL AND runner = '' GROUP BY kind, place`
)

// putWork adds or replaces a row.
func (t Tx) putWork(w *store.WorkRow) {
	claims := 0
	if w.Runner != "" {
		claims = 1
	}
	t.Exec(putWork, w.Kind, w.Key, textOf(w.About), w.Place, w.In.Seconds(), w.Runner, w.RunnerPlace, w.Runner,
		w.Life.Seconds(), claims)
	t.changed(store.WorkChanged, w.ID())
}

// endWork removes a row. If a runner is given, the row must be that runner's.
func (t Tx) endWork(w *store.WorkRow) {
	if w.Runner != "" {
		t.mustChange(store.ErrWorkTaken, removeWork+` AND runner = ?`, w.Kind, w.Key, w.Runner)
	} else if t.Exec(removeWork, w.Kind, w.Key) == 0 {
		return
	}
	t.changed(store.WorkChanged, w.ID())
}

// changeRows runs a statement on the rows that a condition selects, without those that another transaction is
// changing, so that no two transactions wait for each other.
func (w work) changeRows(t Tx, set, condition, columns string, args ...any) []store.WorkRow {
	return List[store.WorkRow](t, `WITH these AS MATERIALIZED (SELECT kind, key FROM work WHERE `+condition+
		w.o.SkipLocked+`) UPDATE work SET `+set+` WHERE (kind, key) IN (SELECT kind, key FROM these)
		RETURNING `+columns, args...)
}

func (w work) Put(ctx context.Context, row *store.WorkRow) error {
	return w.Run(ctx, "putting work", Swapping, func(t Tx) { t.putWork(row) })
}

func (w work) AskStop(ctx context.Context, kind, key string) (bool, error) {
	return transact(ctx, w.Store, "asking to stop work", Swapping, func(t Tx) bool {
		row := store.WorkRow{Kind: kind, Key: key}
		if t.Exec(`UPDATE work SET stop = TRUE WHERE kind = ? AND key = ? AND result IS NULL`, kind, key) == 0 {
			return false
		}
		t.changed(store.WorkChanged, row.ID())
		return true
	})
}

// A timedRow is a row with the seconds until Claim may return it.
type timedRow struct {
	store.WorkRow
	Seconds float64
}

func (r timedRow) row() store.WorkRow {
	r.In = time.Duration(r.Seconds * float64(time.Second))
	return r.WorkRow
}

func (w work) Row(ctx context.Context, kind, key string) (*store.WorkRow, error) {
	return readOnce(ctx, w.Store, "reading work", func(t Tx) *store.WorkRow {
		row := firstRow[timedRow](t,
			`SELECT `+workColumns+`, `+untilFree+` FROM work w WHERE kind = ? AND key = ?`, kind, key)
		if row == nil {
			t.Fail(store.ErrNotFound)
		}
		return new(row.row())
	})
}

func (w work) Open(ctx context.Context) ([]store.WorkRow, error) {
	if !w.db.Exists() {
		return nil, nil
	}
	rows, err := readOnce(ctx, w.Store, "looking for work", func(t Tx) []timedRow {
		return List[timedRow](t, openWork)
	})
	return xslices.Map(rows, timedRow.row), err
}

func (w work) Claim(ctx context.Context, c store.WorkClaim) ([]store.WorkRow, error) {
	return transact(ctx, w.Store, "claiming work", Swapping, func(t Tx) []store.WorkRow {
		// What was begun once is due, whatever the clock says.
		free := `runner = '' AND due <= ` + dbTime
		args := []any{c.Kind, c.Place}
		if c.Lapsed {
			// Their runners may live; then they renew the rows before this time is over.
			w.changeRows(t, `until = `+dbTime+` + ?`, `kind = ? AND result IS NULL AND `+isAhead, `kind`, c.Kind,
				c.Life.Seconds())
			free += ` OR runner <> '' AND ` + isLapsed
		}
		if len(c.Gone) > 0 {
			gone, runners := inCondition("runner", c.Gone)
			free += ` OR ` + gone
			args = append(args, runners...)
		}
		free = `(` + free + `)`
		if len(c.Except) > 0 {
			except, keys := inCondition("key", c.Except)
			free += ` AND NOT ` + except
			args = append(args, keys...)
		}
		all := w.changeRows(t, `runner = ?, runner_place = ?, until = `+dbTime+` + ?, claims = claims + 1`,
			`kind = ? AND result IS NULL AND place IN ('', ?) AND `+free+` ORDER BY due LIMIT ?`, workColumns,
			append(args, c.Limit, c.Runner, c.RunnerPlace, c.Life.Seconds())...)
		for _, row := range all {
			t.changed(store.WorkChanged, row.ID())
		}
		return all
	})
}

func (w work) Renew(ctx context.Context, life time.Duration, rows []store.WorkRow) ([]store.WorkRow, error) {
	return transact(ctx, w.Store, "renewing work", Swapping, func(t Tx) []store.WorkRow {
		const columns = `kind, key, runner, stop`
		these, args := inCondition("runner", runnersOf(rows))
		kept := w.changeRows(t, `until = `+dbTime+` + ?`, these+` AND result IS NULL`, columns,
			append(args, life.Seconds())...)
		mine := make(map[string]bool, len(kept))
		for _, r := range kept {
			mine[r.ID()] = true
		}
		if len(kept) < len(rows) { // some are taken, or another transaction is changing them
			kept = List[store.WorkRow](t, `SELECT `+columns+` FROM work WHERE `+these+` AND result IS NULL`, args...)
		}
		for _, r := range rows {
			if r.Progress != nil && mine[r.ID()] { // so no other transaction waits for rows that this one waits for
				n := t.Exec(`UPDATE work SET progress = ?`+ofRunner, string(r.Progress), r.Kind, r.Key, r.Runner)
				if n > 0 && r.Kind == store.RemoteWork { // which pages show
					t.changed(store.RemoteRunChanged, r.Key)
				}
			}
		}
		return kept
	})
}

func runnersOf(rows []store.WorkRow) (runners []string) {
	for _, r := range rows {
		if !slices.Contains(runners, r.Runner) {
			runners = append(runners, r.Runner)
		}
	}
	return runners
}

func (w work) End(ctx context.Context, row *store.WorkRow, o store.Outcome) (bool, error) {
	return transact(ctx, w.Store, "ending work", Swapping, func(t Tx) bool {
		query, args := `DELETE FROM work`, []any(nil)
		switch {
		case o.Result != nil:
			query = `UPDATE work SET until = 0, progress = NULL, result = ?`
			args = []any{string(o.Result)}
		case o.Again > 0:
			query = `UPDATE work SET due = ` + dbTime + ` + ?, runner = '', runner_place = '', until = 0, ` +
				`claims = CASE WHEN ? THEN claims ELSE 0 END, stop = FALSE, progress = NULL`
			args = []any{o.Again.Seconds(), o.Failed}
		}
		if t.Exec(query+ofRunner, append(args, row.Kind, row.Key, row.Runner)...) == 0 {
			return false
		}
		t.changed(store.WorkChanged, row.ID())
		return true
	})
}

func (w work) Release(ctx context.Context, runners []string) error {
	return w.Run(ctx, "releasing work", Swapping, func(t Tx) {
		these, args := inCondition("runner", runners)
		const free = `runner = '', runner_place = '', until = 0, due = 0, claims = claims - 1`
		for _, row := range w.changeRows(t, free, these+` AND result IS NULL`, `kind, key`, args...) {
			t.changed(store.WorkChanged, row.ID())
		}
	})
}
