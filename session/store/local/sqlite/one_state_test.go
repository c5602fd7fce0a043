package sqlite

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"
)

// A reader that holds its transaction while a writer starts an execution goes on to
// see what was before it: without that, what is read second is of another moment.
func TestReq004_AnAttemptIsReadFromOneState(t *testing.T) {
	b, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	statements := 0
	before, err := spied(b, func(string, []any) {
		if statements++; statements == 2 {
			run(t, b) // in the middle of the reading
		}
	}).AttemptDetails(t.Context(), a.ID)
	if err != nil || statements < 3 {
		t.Fatal(statements, err)
	}
	if before.Attempt.State != task.Waiting || before.Attempt.LatestSessionID != nil || before.Execution.State != task.Waiting || before.Session != nil {
		t.Errorf("two moments: %+v %+v", before.Attempt, before.Execution)
	}
	if now, err := b.AttemptDetails(t.Context(), a.ID); err != nil || now.Execution.State != task.Running || now.Session == nil {
		t.Errorf("%+v %v", now, err)
	}
}

// The cost of what is called often must not grow with the board: every access is by an index, and
// nothing is sorted.
func TestListsUseIndexes(t *testing.T) {
	b, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	testkit.Must(t, second(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "do it"}, task.Request{})))
	seen := make(map[string][]any)
	spy := spied(b, func(query string, args []any) { seen[query] = args })
	page := task.Page{Limit: 50}
	for what, err := range map[string]error{
		"tasks":             last(spy.Tasks(t.Context(), p.ID, "", page)),
		"tasks of a status": last(spy.Tasks(t.Context(), p.ID, task.Done, page)),
		"attempts":          second(spy.TaskAttempts(t.Context(), s.ID, page)),
		"details":           second(spy.AttemptDetails(t.Context(), a.ID)),
		"open executions":   second(spy.OpenExecutions(t.Context())),
		"a branch":          second(spy.BranchTaken(t.Context(), "b")),
		"a creation":        second(spy.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "two"}, task.Request{Identity: "me", Tool: "t", RequestID: "r"})),
		"a claim":           second(spy.ClaimNext(t.Context(), "me", 5, nil, task.Limits{})),
	} {
		if err != nil {
			t.Error(what, err)
		}
	}
	if len(seen) < 15 {
		t.Error("only", len(seen), "statements")
	}
	testkit.Must(t, b.DB.Run(t.Context(), "explaining", sqlstore.Reading, func(x sqlstore.Tx) {
		for query, args := range seen {
			if strings.HasPrefix(query, "DELETE FROM changes") {
				continue // once a minute
			}
			for _, s := range sqlstore.List[struct {
				ID, Parent, NotUsed int
				Detail              string
			}](x, "EXPLAIN QUERY PLAN "+query, args...) {
				// Those that run are few: they may be sorted.
				if strings.HasPrefix(s.Detail, "SCAN") && s.Detail != "SCAN CONSTANT ROW" || strings.Contains(s.Detail, "TEMP B-TREE") && !strings.Contains(query, "'running') AND step_id IS NULL ORDER BY") {
					t.Errorf("%s\n%s", s.Detail, query)
				}
			}
		}
	}))
}

func second[T any](_ T, err error) error             { return err }
func last[A, B, C any](_ A, _ B, _ C, e error) error { return e }
