package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// executions is a Store as store.Executions.
type executions struct{ *Store }

const (
	savedColumns = `id, owner, identity, source, workflow_id, workflow_name, async, performed, state, source_execution_id,
	status_supported, timeout, deadline, started_at, ended_at, error, progress`
	executionColumns = savedColumns + `, cancel_asked, ` + isOpen + ` AND ` + isLapsed + ` AS lapsed`

	overAt = `coalesce(ended_at, started_at)`
	isOver = `(ended_at IS NOT NULL OR NOT status_supported)`
	isOpen = `ended_at IS NULL AND status_supported`

	dbTime   = `unixepoch('subsec')` // by the clock of the database, in seconds since 1970
	isLapsed = `until <= ` + dbTime
)

// textOf returns a column of JSON that may be null.
func textOf(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	return new(string(raw))
}

// forgetEvery is the number of executions that end between two cleanups of those beyond the limits,
// each of forgetBytes of its result counted as one more.
const (
	forgetEvery = 100
	forgetBytes = 1 << 17
)

// forgettable is the condition for executions beyond the limits.
const forgettable = isOver + ` AND ` + overAt + ` <= ?`

func (e executions) oldest() string {
	return task.FormatTime(e.o.Now().Add(-store.ExecutionKeptFor))
}

const (
	saveExecution = `INSERT INTO workflow_executions (` + savedColumns + `, result, until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ` + dbTime + ` + ?)
		ON CONFLICT (id) DO UPDATE SET until = excluded.until, state = excluded.state, source_execution_id = excluded.source_execution_id, status_supported = excluded.status_supported,
			deadline = excluded.deadline, ended_at = excluded.ended_at, error = excluded.error, progress = excluded.progress, result = excluded.result
		WHERE workflow_executions.owner = excluded.owner`
	forgetExecutions = `DELETE FROM workflow_executions WHERE id IN (SELECT id FROM workflow_executions WHERE ` + forgettable + `
		UNION ALL SELECT id FROM (SELECT id, row_number() OVER newest AS n, sum(octet_length(result)) OVER newest AS bytes FROM workflow_executions
			WHERE ` + isOver + ` WINDOW newest AS (ORDER BY ` + overAt + ` DESC, id)) AS ranked WHERE n > ? OR bytes > ?)`
)

func (e executions) Save(ctx context.Context, x *store.Execution, life time.Duration) error {
	const doing = "saving an execution"
	// A synchronous execution cannot be queried and is lost with this machine: only what can be
	// found again is worth a sync at its end.
	how := Writing
	if x.Over() && !x.Async {
		how = Unsynced
	}
	_, err := transact(ctx, e.Store, doing, how, func(t Tx) (none struct{}, err error) {
		n, err := t.Exec(saveExecution,
			x.ID, x.Owner, x.Identity, x.Source, x.WorkflowID, x.WorkflowName, x.Async, x.Performed, x.State, x.SourceExecutionID, x.StatusSupported,
			x.Timeout, optional(x.Deadline), task.FormatTime(x.StartedAt), optional(x.EndedAt), x.Error, textOf(x.Progress), textOf(x.Result), life.Seconds())
		if err == nil && n == 0 {
			err = fmt.Errorf("execution %s: %w", x.ID, store.ErrNotOwner)
		}
		t.changed(store.ExecutionChanged, x.ID)
		return none, err
	})
	if err == nil && x.Over() && e.lapsed.Add(1+int64(len(x.Result))/forgetBytes) >= forgetEvery {
		e.lapsed.Store(0)
		_, err = statement(ctx, e.Store, doing, Unsynced, forgetExecutions, e.oldest(), store.ExecutionsKept, store.ResultsKept)
	}
	return err
}

func (e executions) Execution(ctx context.Context, id string) (*store.Execution, error) {
	return read(ctx, e.Store, "reading an execution", func(t Tx) (*store.Execution, error) {
		return only[store.Execution](t, "execution", id, `SELECT `+executionColumns+`, result FROM workflow_executions WHERE id = ?`, id)
	})
}

func (e executions) Find(ctx context.Context, identity, id, sourceID string) ([]store.Execution, error) {
	return read(ctx, e.Store, "looking for an execution", func(t Tx) (found []store.Execution, err error) {
		for _, is := range [][2]string{{"id", id}, {"source_execution_id", sourceID}} {
			if len(found) == 0 && err == nil {
				found, err = List[store.Execution](t, `SELECT `+executionColumns+`, result FROM workflow_executions WHERE `+is[0]+` = ? AND identity = ? AND NOT (`+forgettable+`)
					ORDER BY started_at DESC`, is[1], identity, e.oldest())
			}
		}
		return found, err
	})
}

func (e executions) Newest(ctx context.Context, identity string, limit int) ([]store.Execution, int, error) {
	total := 0
	all, err := read(ctx, e.Store, "listing executions", func(t Tx) (all []store.Execution, err error) {
		const kept = `FROM workflow_executions WHERE identity = ? AND NOT (` + forgettable + `)`
		if total, err = t.Count(`SELECT count(*) `+kept, identity, e.oldest()); err != nil {
			return nil, err
		}
		return List[store.Execution](t, `SELECT `+executionColumns+` `+kept+` ORDER BY started_at DESC LIMIT ?`, identity, e.oldest(), limit)
	})
	return all, total, err
}

const doRun = "run the workflow again if its result is needed, after a look at its source"

// executionFlaws are the flaws of workflow_executions.
var executionFlaws = []flaw{
	{"the result of execution %s is damaged: it is not JSON", doRun, `SELECT id FROM workflow_executions WHERE NOT json_valid(result)`},
	{"the progress of execution %s is damaged: it is not JSON", doRun, `SELECT id FROM workflow_executions WHERE NOT json_valid(progress)`},
	{"the times of execution %s are damaged", doRun, `SELECT id FROM workflow_executions WHERE julianday(started_at) IS NULL
		OR (ended_at IS NOT NULL AND julianday(ended_at) IS NULL) OR (deadline IS NOT NULL AND julianday(deadline) IS NULL)`},
	{"execution %s has no owner", doRun, `SELECT id FROM workflow_executions WHERE owner = ''`},
	{"execution %s has a result and has not ended", doRun, `SELECT id FROM workflow_executions WHERE result IS NOT NULL AND ` + isOpen},
}

func (e executions) Inspect(ctx context.Context) (found []session.Finding, n, going int, err error) {
	found, err = read(ctx, e.Store, "inspecting executions", func(t Tx) (found []session.Finding, err error) {
		if found, err = t.find(executionFlaws); err != nil {
			return nil, err
		}
		_, err = t.First(`SELECT count(*), count(*) FILTER (WHERE `+isOpen+`) FROM workflow_executions`, nil, &n, &going)
		return found, err
	})
	return found, n, going, err
}
