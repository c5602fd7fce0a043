package sqlstore

import (
	"context"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

const (
	spentRows = `SELECT count(*) AS executions, count(*) - count(micro_usd) AS unknown, ` +
		`coalesce(CAST(sum(micro_usd) AS bigint), 0) AS micro_usd,
	coalesce(CAST(sum(input_tokens) AS bigint), 0) AS input_tokens, coalesce(CAST(sum(cached_tokens) AS bigint), ` +
		`0) AS cached_tokens,
	coalesce(CAST(sum(output_tokens) AS bigint), 0) AS output_tokens, coalesce(CAST(sum(turns) AS bigint), 0) AS ` +
		`turns FROM usages `

	usageRows = `SELECT attempt_id, execution_id, executor, turns IS NOT NULL AS reported, micro_usd, ` +
		`coalesce(input_tokens, 0) AS input_tokens,
	coalesce(cached_tokens, 0) AS cached_tokens, coalesce(output_tokens, 0) AS output_tokens, coalesce(turns, 0) ` +
		`AS turns,
	coalesce(thread, '') AS thread, totals, ended_at FROM usages `
)

func (b board) Spent(ctx context.Context, taskID, attemptID string) (task.Spent, error) {
	return read(ctx, b, "adding up what executions used", func(t Tx) task.Spent {
		where, args := "", []any(nil)
		switch {
		case attemptID != "":
			t.mustSee("attempt", attemptID)
			where, args = `WHERE attempt_id = ?`, []any{attemptID}
		case taskID != "" || limited(t.who):
			t.mustSee("task", taskID)
			where, args = `WHERE attempt_id IN (SELECT id FROM attempts WHERE task_id = ?)`, []any{taskID}
		}
		return *firstRow[task.Spent](t, spentRows+where, args...)
	})
}

func (b board) Used(ctx context.Context, attemptID string) ([]task.Use, error) {
	return read(ctx, b, "reading what executions used", func(t Tx) []task.Use {
		t.mustSee("attempt", attemptID)
		return List[task.Use](t, usageRows+`WHERE attempt_id = ? ORDER BY seq`, attemptID)
	})
}

// belowLimits reports whether the use of what has ended is below the limits, so that an execution may start.
func (t Tx) belowLimits(l task.Limits) bool {
	if l == (task.Limits{}) {
		return true
	}

	var cost, unknown int64
	// of an index
	t.First(`SELECT coalesce(CAST(sum(micro_usd) AS bigint), 0), count(*) - count(micro_usd) FROM usages`, nil,
		&cost, &unknown)
	return (l.MicroUSD == nil || cost < *l.MicroUSD) && (l.Unknown == nil || unknown < *l.Unknown)
}

func (b board) ReachedAt(ctx context.Context, l task.Limits) (cost, unknown *time.Time, err error) {
	err = b.Run(ctx, "looking since when a budget is reached", Reading, func(t Tx) {
		since := func(each string, limit *int64) (at *time.Time) {
			if limit != nil {
				t.First(`SELECT ended_at FROM (SELECT seq, ended_at, CAST(sum(`+each+
					`) OVER (ORDER BY seq) AS bigint) AS total FROM usages) AS running
					WHERE total >= ? ORDER BY seq LIMIT 1`, []any{*limit},
					scanTime(func(ended *time.Time) { at = ended }))
			}
			return at
		}
		cost = since(`coalesce(micro_usd, 0)`, l.MicroUSD)
		unknown = since(`CASE WHEN micro_usd IS NULL THEN 1 ELSE 0 END`, l.Unknown)
	})
	return cost, unknown, err
}

func (b board) AddUse(ctx context.Context, u task.Use) error {
	return change(ctx, b, "recording what a reviewer used", func(t Tx) {
		t.changed(store.AttemptChanged, u.AttemptID)
		var usage *task.Usage
		if u.Reported {
			usage = &u.Usage
		}
		t.addUse(u.AttemptID, u.ExecutionID, u.Executor, usage, t.Now)
	})
}

// addUse records what an execution used. Executions that ended before they reported the totals of its thread
// used nothing that these totals do not contain.
func (t Tx) addUse(attemptID, executionID, executor string, u *task.Usage, at string) {
	if u == nil {
		t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, ended_at) VALUES (?, ?, ?, ?)`, executionID,
			attemptID, executor, at)
		return
	}
	if u.Thread != "" && u.Totals != nil {
		t.Exec(`UPDATE usages SET micro_usd = 0, input_tokens = 0, cached_tokens = 0, output_tokens = 0
			WHERE attempt_id = ? AND thread = ? AND totals IS NULL`, attemptID, u.Thread)
	}
	t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, micro_usd, input_tokens, cached_tokens, `+
		`output_tokens, turns, thread, totals, ended_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, executionID, attemptID, executor, u.MicroUSD, u.InputTokens,
		u.CachedTokens, u.OutputTokens, u.Turns,
		task.NonEmpty(&u.Thread), textOf(u.Totals), at)
}
