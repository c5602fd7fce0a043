package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// remoteRuns is a Store in its role as store.RemoteRuns.
type remoteRuns struct{ *Store }

const (
	overAt = `coalesce(ended_at, started_at)`
	isOver = `(ended_at IS NOT NULL OR NOT status_supported)`
	isOpen = `ended_at IS NULL AND status_supported`

	dbTime   = `unixepoch('subsec')` // by the database's clock, in seconds since 1970
	isLapsed = `until <= ` + dbTime
	// isAhead is true if the clock was set back after until was set: runs in progress are renewed for seconds
	// only.
	isAhead = `until > ` + dbTime + ` + 120`
)

var (
	savedColumns = Columns[store.RemoteRun]("lapsed")
	addRemoteRun = `INSERT INTO workflow_executions (` + savedColumns + `) VALUES (` +
		parameters(1+strings.Count(savedColumns, ",")) + `)`
	readColumns = Columns[store.RemoteRun]("lapsed", "progress", "result") +
		`, ` + runProgress + ` AS progress, ` + isOpen + ` AND coalesce(w.` + isLapsed + `, TRUE) AS lapsed`
)

const (
	runProgress   = `coalesce(w.progress, x.progress)`
	remoteRow     = `w.kind = '` + store.RemoteWork + `' AND w.key = x.id`
	fromRuns      = ` FROM workflow_executions x LEFT JOIN work w ON ` + remoteRow + ` `
	saveRemoteRun = `UPDATE workflow_executions SET state = ?, source_execution_id = ?, status_supported = ?, ` +
		`deadline = ?, ended_at = ?, error = ?, progress = ?, result = ?
		WHERE id = ? AND (state = ? AND ended_at IS NULL OR state = ? AND ended_at IS NOT DISTINCT FROM ?)`
)

// forgetEvery is how many runs end between two cleanups of runs beyond the limits. Each forgetBytes of a
// result count as one more run.
const (
	forgetEvery = 100
	forgetBytes = 1 << 17
)

const (
	// forgettable is the condition for runs beyond the limits.
	forgettable      = isOver + ` AND ` + overAt + ` <= ?`
	forgetRemoteRuns = `DELETE FROM workflow_executions WHERE id IN (SELECT id FROM workflow_executions WHERE ` +
		forgettable + `
		UNION ALL SELECT id FROM (SELECT id, row_number() OVER newest AS n, sum(octet_length(result)) OVER newest ` +
		`AS bytes FROM workflow_executions
			WHERE ` + isOver + ` WINDOW newest AS (ORDER BY ` + overAt +
		` DESC, id)) AS ranked WHERE n > ? OR bytes > ?)`
)

func (e remoteRuns) oldest() string {
	return task.FormatTime(e.o.Now().Add(-store.RemoteRunKeptFor))
}

func (e remoteRuns) Add(ctx context.Context, x *store.RemoteRun, w store.WorkRow) error {
	return e.Run(ctx, "adding an execution", Swapping, func(t Tx) {
		t.Exec(addRemoteRun, Values(x, "lapsed")...)
		if !x.Over() {
			t.putWork(&w)
		}
		t.changed(store.RemoteRunChanged, x.ID)
	})
}

func (e remoteRuns) Save(ctx context.Context, x *store.RemoteRun, from store.RemoteState) error {
	const doing = "saving an execution"
	// A synchronous run cannot be queried and is lost with this machine. Only what can be found again is
	// worth a sync at its end.
	how := Swapping
	if x.Over() && !x.Async {
		how = Unsynced
	}
	ended := optional(x.EndedAt)
	err := e.Run(ctx, doing, how, func(t Tx) {
		t.mustChange(fmt.Errorf("execution %s: %w", x.ID, store.ErrWorkTaken), saveRemoteRun, x.State,
			x.SourceExecutionID, x.StatusSupported, optional(x.Deadline), ended, x.Error, textOf(x.Progress),
			textOf(x.Result), x.ID, from, x.State, ended)
		if x.Over() {
			t.endWork(&store.WorkRow{Kind: store.RemoteWork, Key: x.ID})
		}
		t.changed(store.RemoteRunChanged, x.ID)
	})
	if err == nil && x.Over() && e.lapsed.Add(1+int64(len(x.Result))/forgetBytes) >= forgetEvery {
		e.lapsed.Store(0)
		_, err = statement(ctx, e.Store, doing, Unsynced, forgetRemoteRuns, e.oldest(), store.RemoteRunsKept,
			store.ResultsKept)
	}

	return err
}

func (e remoteRuns) RemoteRun(ctx context.Context, id string) (*store.RemoteRun, error) {
	return read(ctx, e.Store, "reading an execution", func(t Tx) *store.RemoteRun {
		return mustFirstRow[store.RemoteRun](t, "execution", id,
			`SELECT `+readColumns+`, x.result`+fromRuns+`WHERE id = ?`, id)
	})
}

func (e remoteRuns) Find(ctx context.Context, identity, id, sourceID string) ([]store.RemoteRun, error) {
	return read(ctx, e.Store, "looking for an execution", func(t Tx) (found []store.RemoteRun) {
		for _, key := range [][2]string{{"id", id}, {"source_execution_id", sourceID}} {
			if len(found) == 0 {
				found = List[store.RemoteRun](t, `SELECT `+readColumns+`, x.result`+fromRuns+`WHERE `+key[0]+
					` = ? AND identity = ? AND NOT (`+forgettable+`) ORDER BY started_at DESC`, key[1], identity,
					e.oldest())
			}
		}
		return found
	})
}

func (e remoteRuns) Newest(ctx context.Context, identity string, limit int) ([]store.RemoteRun, int, error) {
	total := 0
	all, err := read(ctx, e.Store, "listing executions", func(t Tx) []store.RemoteRun {
		const kept = fromRuns + `WHERE identity = ? AND NOT (` + forgettable + `)`
		total = t.count(`SELECT count(*)`+kept, identity, e.oldest())
		return List[store.RemoteRun](t, `SELECT `+readColumns+kept+` ORDER BY started_at DESC LIMIT ?`,
			identity, e.oldest(), limit)
	})
	return all, total, err
}

func (e remoteRuns) Asking(ctx context.Context) ([]store.RemoteRun, error) {
	return readOnce(ctx, e.Store, "looking for questions of sources", func(t Tx) []store.RemoteRun {
		return List[store.RemoteRun](t, `SELECT `+readColumns+fromRuns+`WHERE `+isOpen+
			` AND `+runProgress+` LIKE '%"asks":%' ORDER BY started_at DESC`)
	})
}

const doRun = "run the workflow again if its result is needed, after a look at its source"

// executionFlaws are the flaws of workflow_executions.
var executionFlaws = []flaw{
	{"the result of execution %s is damaged: it is not JSON", doRun,
		`SELECT id FROM workflow_executions WHERE NOT json_valid(result)`},
	{"the progress of execution %s is damaged: it is not JSON", doRun,
		`SELECT id FROM workflow_executions WHERE NOT json_valid(progress)`},
	{"the times of execution %s are damaged", doRun,
		`SELECT id FROM workflow_executions WHERE julianday(started_at) IS NULL
		OR (ended_at IS NOT NULL AND julianday(ended_at) IS NULL) OR (deadline IS NOT NULL AND julianday(deadline) ` +
			`IS NULL)`},
	{"execution %s has not ended, and no server will follow it", doRun, `SELECT id FROM workflow_executions x WHERE ` +
		isOpen + ` AND NOT EXISTS (SELECT 1 FROM work w WHERE ` + remoteRow + `)`},
	{"execution %s has a result and has not ended", doRun,
		`SELECT id FROM workflow_executions WHERE result IS NOT NULL AND ` + isOpen},
}

func (e remoteRuns) Inspect(ctx context.Context) (found []session.Finding, n, going int, err error) {
	found, err = read(ctx, e.Store, "inspecting executions", func(t Tx) []session.Finding {
		t.First(`SELECT count(*), count(*) FILTER (WHERE `+isOpen+`) FROM workflow_executions`, nil, &n, &going)
		return t.find(executionFlaws)
	})
	return found, n, going, err
}
