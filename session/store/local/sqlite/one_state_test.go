package sqlite

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// Readers that hold their transaction while a writer starts an execution go on to
// see what was before it: without that, what is read second is of another moment.
func TestReq004_AnAttemptIsReadFromOneState(t *testing.T) {
	b, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	err := inspect(t.Context(), b, func(x tx) error {
		before, err := x.attempt(a.ID)
		if err != nil {
			return err
		}
		run(t, b) // in the middle of the reading
		e, err := list[task.Execution](x, executionRows+`WHERE attempt_id = ?`, a.ID)
		if err != nil {
			return err
		}
		if before.State != task.Waiting || before.LatestSessionID != nil || e[0].State != task.Waiting || e[0].SessionID != nil {
			t.Errorf("two moments: %+v %+v", before, e[0])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if now, err := b.AttemptDetails(t.Context(), a.ID); err != nil || now.Execution.State != task.Running || now.Session == nil {
		t.Errorf("%+v %v", now, err)
	}
}

// The list's cost must not grow with the board: every access is by an index, and
// nothing is sorted.
func TestListsUseIndexes(t *testing.T) {
	b, p := newBoard(t)
	l, err := task.Page{Limit: 50}.Listing()
	if err != nil {
		t.Fatal(err)
	}
	err = inspect(t.Context(), b, func(x tx) error {
		for query, args := range map[string][]any{
			summary + `WHERE t.project_id = ? AND t.created_at <= ? AND (t.created_at < ? OR t.id > ?) ORDER BY t.created_at DESC, t.id LIMIT ?`:                  position(l, p.ID),
			summary + `WHERE t.project_id = ? AND t.status = ? AND t.created_at <= ? AND (t.created_at < ? OR t.id > ?) ORDER BY t.created_at DESC, t.id LIMIT ?`: position(l, p.ID, task.Done),
			attemptRows + `WHERE a.task_id = ? AND a.created_at <= ? AND (a.created_at < ? OR a.id > ?) ORDER BY a.created_at DESC, a.id LIMIT ?`:                 position(l, "x"),
			executionRows + `WHERE state IN ('starting', 'running') ORDER BY seq`:                                                                                 nil,
			executionRows + `WHERE attempt_id = ? ORDER BY seq DESC LIMIT 1`:                                                                                      {"x"},
			`SELECT id FROM executions WHERE state = 'waiting' ORDER BY seq LIMIT 1`:                                                                              nil,
			`SELECT count(*) FROM executions WHERE state IN ('starting', 'running')`:                                                                              nil,
			`SELECT 1 FROM executions WHERE attempt_id = ? AND state IN ('waiting', 'starting', 'running')`:                                                       {"x"},
			`SELECT coalesce(sum(tasks), 0) FROM task_counts t WHERE t.project_id = ?`:                                                                            {"x"},
			`SELECT count(*) FROM executions e JOIN executions o ON o.state = 'waiting' AND o.seq < e.seq WHERE e.id = ? AND e.state = 'waiting'`:                 {"x"},
			`SELECT 1 FROM attempts WHERE branch = ?`:                                                                                                             {"x"},
			`DELETE FROM requests WHERE created_at < ?`:                                                                                                           {"x"},
		} {
			steps, err := list[struct {
				ID, Parent, NotUsed int
				Detail              string
			}](x, "EXPLAIN QUERY PLAN "+query, args...)
			if err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
			for _, s := range steps {
				// Those that run are few: they may be sorted.
				if strings.HasPrefix(s.Detail, "SCAN") && s.Detail != "SCAN CONSTANT ROW" || strings.Contains(s.Detail, "TEMP B-TREE") && !strings.Contains(query, "'running') ORDER BY") {
					t.Errorf("%s\n%s", s.Detail, query)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A feed gathers the changes that it is told of.
type feed struct {
	store.Changes
	all []string
}

func (f *feed) Append(c store.Change) { f.all = append(f.all, c.Kind) }

func TestChangesAreToldOnceTheyAreDurable(t *testing.T) {
	f := &feed{}
	b, err := openBoard(t.Context(), Options{Path: filepath.Join(t.TempDir(), "board.db"), Changes: f})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p := rootOf(t, b)
	check := func(want ...string) {
		t.Helper()
		if !slices.Equal(f.all, want) {
			t.Errorf("told of %v, want %v", f.all, want)
		}
		f.all = nil
	}
	s := addTask(t, b, p, "one")
	check("task")
	try(t, b, s)
	check("attempt", "task")
	e, _ := run(t, b)
	check("attempt", "attempt")
	end(t, b, e, task.Ending{State: task.Failed, Task: task.InReview})
	check("attempt", "task")
	if err := b.DeleteTask(t.Context(), "nothing"); err == nil {
		t.Error("deleted what does not exist")
	}
	check()
	x := &store.Execution{ID: "x", Owner: "gone", Identity: "me", State: store.ExecutionWaiting, StatusSupported: true}
	if err := b.DB.Executions().Save(t.Context(), x); err != nil {
		t.Error(err)
	}
	if _, err := b.DB.Executions().Adopt(t.Context(), []string{"gone"}, "here"); err != nil {
		t.Error(err)
	}
	check("execution", "execution")
}
