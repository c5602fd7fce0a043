package storetest_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
)

// A session in the workspace of an attempt moves the position of the attempt with it, if it is the workflow
// that counts.
func TestASessionMovesItsAttempt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	c := newClock()
	b, other := openAt(t, path, c.now), open(t, path, c.now)
	a, p := b.db.Sessions(), rootOf(t, b)

	// attempt makes one at a task that names a workflow, unless job is "".
	attempt := func(job, workflow string) string {
		t.Helper()
		n := task.NewTask{ProjectID: p.ID, Title: "of " + job}
		if job != "" {
			n.JobName, n.WorkflowName = &job, &workflow
		}
		s := returned(b.CreateTask(t.Context(), n, task.Request{})).of(t)
		return try(t, b, s).ID
	}
	position := func(attempt string, want ...string) {
		t.Helper()
		got := returned(b.Attempt(t.Context(), attempt)).of(t)
		have := []*string{got.WorkflowSessionID, got.WorkflowStatus, got.WorkflowStep}
		for i, field := range []string{"session", "status", "step"} {
			switch {
			case len(want) == 0 && have[i] != nil:
				t.Errorf("the %s of the attempt is %q, want none", field, *have[i])
			case len(want) > 0 && (have[i] == nil || *have[i] != want[i]):
				t.Errorf("the %s of the attempt is %v, want %q", field, have[i], want[i])
			}
		}
	}
	begin := func(id, attempt, parent, workflow string) *store.SessionWrite {
		t.Helper()
		w := newSession(id)
		w.AttemptID, w.Parent, w.Workflow = attempt, parent, workflow
		write(t, a, w)
		return w
	}
	abort := func(w *store.SessionWrite) { w.Status = "aborted" }

	plain := attempt("", "")
	position(plain)
	first := begin("00000001", plain, "", "main")
	position(plain, "00000001", "active", "one")
	next := moved(first, func(w *store.SessionWrite) { w.Step = "two" })
	write(t, other.Sessions(), next)
	position(plain, "00000001", "active", "two")
	refused(t, a, moved(first, func(w *store.SessionWrite) { w.Step = "late" }), nil)
	position(plain, "00000001", "active", "two")
	refused(t, a, moved(next, func(w *store.SessionWrite) {
		w.Step, w.Verdict = "late", &store.Review{Step: "two", Runner: "r1"}
	}), store.ErrReviewTaken)
	position(plain, "00000001", "active", "two")
	nested := begin("00000002", plain, "00000001", "main") // not the outermost one
	position(plain, "00000001", "active", "two")
	write(t, a, moved(nested, abort))
	position(plain, "00000001", "active", "two")
	begin("00000003", plain, "", "later")
	position(plain, "00000003", "active", "one")
	write(t, a, moved(next, abort)) // a later workflow counts
	position(plain, "00000003", "active", "one")

	ending := attempt("", "")
	write(t, a, moved(begin("00000004", ending, "", "main"), abort))
	position(ending, "00000004", "aborted", "one")

	named := attempt("alpha", "build")
	outer := begin("00000011", named, "", "main") // not the one that the task names
	position(named)
	counted := begin("00000012", named, "00000011", "build")
	position(named, "00000012", "active", "one")
	inner := begin("00000013", named, "00000012", "main")
	within := begin("00000014", named, "00000013", "build") // nested in the same workflow
	position(named, "00000012", "active", "one")
	write(t, a, moved(within, func(w *store.SessionWrite) { w.Status = "completed" }), moved(inner, abort))
	position(named, "00000012", "active", "one")
	write(t, a, moved(counted, func(w *store.SessionWrite) { w.Step, w.Status = "last", "completed" }), moved(outer, abort))
	position(named, "00000012", "completed", "last")

	// A run records its own position.
	s := addTask(t, b, p, "a run")
	led := returned(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "deepwork/run", Workspace: abs("w"), Run: json.RawMessage("{}")}, task.Execution{Prompt: "p"}, task.Request{})).of(t)
	begin("00000021", led.ID, "", "main")
	position(led.ID)

	// A session goes on when its attempt was deleted.
	gone := addTask(t, b, p, "deleted")
	of := try(t, b, gone)
	kept := begin("00000031", of.ID, "", "main")
	x := returned(b.LatestExecution(t.Context(), of.ID)).of(t)
	testkit.Must(t, second(b.Stop(t.Context(), x.ID)))
	testkit.Must(t, b.DeleteTask(t.Context(), gone.ID))
	last := moved(kept, abort)
	write(t, other.Sessions(), last)
	reads(t, a, last)
}
