package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

	// inIDs is the condition that an id is in a text of ids, which all have the same length.
	inIDs = `instr(?1, id) > 0`
)

// notSaved has the columns of a run that Save does not write.
var notSaved = []string{"lapsed", "cancel_asked"}

var (
	savedColumns     = Columns[store.RemoteRun](notSaved...)
	remoteRunColumns = Columns[store.RemoteRun]("lapsed", "result") + `, ` + isOpen + ` AND ` + isLapsed + ` AS lapsed`
	saveRemoteRun    = `INSERT INTO workflow_executions (` + savedColumns + `, until) VALUES (` +
		parameters(1+strings.Count(savedColumns, ",")) + `, ` + dbTime + ` + ?)
		ON CONFLICT (id) DO UPDATE SET until = excluded.until, state = excluded.state, source_execution_id = ` +
		`excluded.source_execution_id, status_supported = excluded.status_supported,
			deadline = excluded.deadline, ended_at = excluded.ended_at, error = excluded.error, progress = ` +
		`excluded.progress, result = excluded.result
		WHERE workflow_executions.owner = excluded.owner`
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

func (e remoteRuns) Save(ctx context.Context, x *store.RemoteRun, life time.Duration) error {
	const doing = "saving an execution"
	// A synchronous run cannot be queried and is lost with this machine. Only what can be found again is
	// worth a sync at its end.
	how := Writing
	if x.Over() && !x.Async {
		how = Unsynced
	}
	err := e.Run(ctx, doing, how, func(t Tx) {
		t.mustChange(fmt.Errorf("execution %s: %w", x.ID, store.ErrNotOwner), saveRemoteRun,
			append(Values(x, notSaved...), life.Seconds())...)
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
			`SELECT `+remoteRunColumns+`, result FROM workflow_executions WHERE id = ?`, id)
	})
}

func (e remoteRuns) Find(ctx context.Context, identity, id, sourceID string) ([]store.RemoteRun, error) {
	return read(ctx, e.Store, "looking for an execution", func(t Tx) (found []store.RemoteRun) {
		for _, key := range [][2]string{{"id", id}, {"source_execution_id", sourceID}} {
			if len(found) == 0 {
				found = List[store.RemoteRun](t, `SELECT `+remoteRunColumns+`, result FROM workflow_executions WHERE `+
					key[0]+` = ? AND identity = ? AND NOT (`+forgettable+`)
					ORDER BY started_at DESC`, key[1], identity, e.oldest())
			}
		}
		return found
	})
}

func (e remoteRuns) Newest(ctx context.Context, identity string, limit int) ([]store.RemoteRun, int, error) {
	total := 0
	all, err := read(ctx, e.Store, "listing executions", func(t Tx) []store.RemoteRun {
		const kept = `FROM workflow_executions WHERE identity = ? AND NOT (` + forgettable + `)`
		total = t.count(`SELECT count(*) `+kept, identity, e.oldest())
		return List[store.RemoteRun](t, `SELECT `+remoteRunColumns+` `+kept+` ORDER BY started_at DESC LIMIT ?`,
			identity, e.oldest(), limit)
	})
	return all, total, err
}

func (e remoteRuns) Asking(ctx context.Context) ([]store.RemoteRun, error) {
	return readOnce(ctx, e.Store, "looking for questions of sources", func(t Tx) []store.RemoteRun {
		return List[store.RemoteRun](t, `SELECT `+remoteRunColumns+` FROM workflow_executions x WHERE `+isOpen+
			` AND progress LIKE '%"asks":%' ORDER BY started_at DESC`)
	})
}

func textOfIDs(ids []string) string { return strings.Join(ids, " ") }

func (e remoteRuns) Renew(
	ctx context.Context, owner string, life time.Duration, following map[string]json.RawMessage,
) ([]string, error) {
	ids := textOfIDs(slices.Collect(maps.Keys(following)))
	return transact(ctx, e.Store, "renewing executions", Unsynced, func(t Tx) []string {
		held := List[string](t, `UPDATE workflow_executions SET until = `+dbTime+` + ?2 WHERE owner = ?3 AND `+isOpen+
			` AND `+inIDs+` RETURNING id`, ids, life.Seconds(), owner)
		for _, id := range held {
			if progress := following[id]; progress != nil {
				t.Exec(`UPDATE workflow_executions SET progress = ? WHERE id = ? AND owner = ? AND `+isOpen,
					string(progress), id, owner)
				t.changed(store.RemoteRunChanged, id)
			}
		}
		return held
	})
}

func (e remoteRuns) Release(ctx context.Context, owner string) error {
	_, err := statement(ctx, e.Store, "leaving executions to other servers", Unsynced,
		`UPDATE workflow_executions SET until = `+dbTime+` WHERE owner = ? AND `+isOpen, owner)
	return err
}

func (e remoteRuns) Due(ctx context.Context, following []string) (in time.Duration, found bool, err error) {
	seconds, err := read(ctx, e.Store, "looking for executions of other servers", func(t Tx) (s *float64) {
		t.First(`SELECT min(CASE WHEN `+isAhead+` THEN 0 ELSE until - `+dbTime+` END) FROM workflow_executions WHERE `+
			isOpen+` AND NOT `+inIDs, []any{textOfIDs(following)}, &s)
		return s
	})
	if seconds == nil {
		return 0, false, err
	}
	return time.Duration(*seconds * float64(time.Second)), true, nil
}

func (e remoteRuns) TakeUp(
	ctx context.Context, owner string, life time.Duration, following []string,
) ([]store.RemoteRun, error) {
	return write(ctx, e.Store, "taking up executions", func(t Tx) []store.RemoteRun {
		// Their owners may live; then they renew the runs before this time is over.
		t.Exec(`UPDATE workflow_executions SET until = `+dbTime+` + ?2 WHERE `+isOpen+` AND `+isAhead+` AND NOT `+inIDs,
			textOfIDs(following), life.Seconds())
		all := List[store.RemoteRun](t, `UPDATE workflow_executions SET owner = ?2, until = `+dbTime+` + ?3,
			ended_at = CASE state WHEN 'running' THEN NULL ELSE max(?4, started_at) END,
			progress = CASE state WHEN 'running' THEN progress END,
			error = CASE state WHEN 'waiting' THEN ?5 WHEN 'starting' THEN ?6 ELSE error END,
			state = CASE state WHEN 'waiting' THEN 'failed' WHEN 'starting' THEN 'unknown' ELSE state END
			WHERE `+isOpen+` AND `+isLapsed+` AND NOT `+inIDs+` RETURNING `+remoteRunColumns,
			textOfIDs(following), owner, life.Seconds(), e.stamp(), store.NeverStarted, store.LostSight)
		for _, x := range all {
			t.changed(store.RemoteRunChanged, x.ID)
		}

		return all
	})
}

func (e remoteRuns) AskCancel(ctx context.Context, id string) error {
	return change(ctx, e.Store, "asking to cancel an execution", func(t Tx) {
		if t.Exec(`UPDATE workflow_executions SET cancel_asked = coalesce(cancel_asked, ?) WHERE id = ? AND `+isOpen,
			t.Now, id) > 0 {
			t.changed(store.RemoteRunChanged, id)
		}
	})
}

func (e remoteRuns) Asked(ctx context.Context, owner string) ([]string, error) {
	return read(ctx, e.Store, "looking for executions to cancel", func(t Tx) []string {
		return List[string](t, `SELECT id FROM workflow_executions WHERE owner = ? AND cancel_asked IS NOT NULL AND `+
			isOpen, owner)
	})
}

func (e remoteRuns) Watch(ctx context.Context, look func() (done bool, err error)) error {
	return e.watch(ctx, e.o.Poll, e.o.Feed.Version, look)
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
	{"execution %s has no owner", doRun, `SELECT id FROM workflow_executions WHERE owner = ''`},
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
