package sqlstore_test

import (
	"encoding/json"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"

	"github.com/google/uuid"
)

var (
	red  = task.Place{MachineID: "aaaaaaaa", MachineName: "red", Root: "/home/red/shop"}
	blue = task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: "/home/blue/shop"}
)

// claim claims the next execution for a place that has these executors and repositories.
func claim(t *testing.T, b board, at task.Place, max int, executors, repos []string) *task.Execution {
	t.Helper()
	return testkit.Get(b.ClaimNext(t.Context(), "server of "+at.MachineName, max, &task.Claim{Place: at, Executors: executors, Repos: repos}, task.Limits{})).Must(t)
}

// unplaced makes an attempt of an executor that no machine has taken yet.
func unplaced(t *testing.T, b board, s *task.Summary, executor string) *task.Attempt {
	t.Helper()
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: executor, Branch: "deepwork/" + uuid.NewString(),
		Repos: []task.AttemptRepo{{RepoID: "r", RepoName: "shop", TargetBranch: "main"}}}, task.Execution{Prompt: "do"}, task.Request{})).Must(t)
}

// A machine gets attempts whose executor and repositories it has, and what follows only where it began. Each has its own slots.
func TestClaimsOfMachines(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	first, second := unplaced(t, b, s, "CODEX"), unplaced(t, b, s, "GEMINI")
	repos := []string{"r"}
	equal(t, "without the executor", claim(t, b, red, 5, []string{"OTHER"}, repos), nil)
	equal(t, "without the repository", claim(t, b, red, 5, []string{"CODEX"}, []string{"q"}), nil)
	equal(t, "without anything, or a slot", claim(t, b, red, 5, nil, nil), nil, claim(t, b, red, 0, []string{"CODEX"}, repos), nil)
	// What was made in a store of one machine is at no place, and nobody claims it by accident.
	alone := try(t, b, s)
	equal(t, claim(t, b, red, 5, []string{alone.Executor}, []string{alone.Repos[0].RepoID}), nil)
	x := claim(t, b, red, 1, []string{"GEMINI", "CODEX"}, repos)
	equal(t, "claimed", x.AttemptID, first.ID, x.Place, red)
	equal(t, "a second one of one", claim(t, b, red, 1, []string{"GEMINI"}, repos), nil)
	y := claim(t, b, blue, 1, []string{"GEMINI"}, repos)
	equal(t, "the slots of one machine are not those of another", y.AttemptID, second.ID)

	// Its paths are set once, by the machine that has it.
	at := []task.AttemptRepo{{RepoID: "r", RepoPath: "/r", Worktree: "/w/" + first.ID + "/shop"}}
	testkit.Must(t, b.SetPaths(t.Context(), first.ID, at[0].Worktree, at))
	testkit.FailsWith(t, b.SetPaths(t.Context(), first.ID, "/else", at), task.ErrInvalid)
	a := testkit.Get(b.Attempt(t.Context(), first.ID)).Must(t)
	equal(t, "attempt", a.Place, red, a.Workspace, at[0].Worktree, a.Repos[0].Worktree, at[0].Worktree, a.Repos[0].RepoPath, "/r")
	for here, want := range map[task.Place]int{red: 1, blue: 0} {
		equal(t, "folders of", len(testkit.Get(b.WorktreeFolders(t.Context(), here)).Must(t)), want)
	}

	// Before its worktrees are made, another machine may get it; later only the same one.
	is(t, true)(b.Release(t.Context(), x.ID, "server of red"))
	x = claim(t, b, blue, 2, []string{"CODEX"}, repos)
	equal(t, "claimed after a release", x.Place, blue)
	testkit.Must(t, b.SetPaths(t.Context(), first.ID, at[0].Worktree, at))
	testkit.Must(t, b.SetWorkspace(t.Context(), first.ID, map[string]string{"r": "abc"}))
	is(t, true)(b.Release(t.Context(), x.ID, "server of blue"))
	equal(t, "a worktree of another machine is claimed", claim(t, b, red, 2, []string{"CODEX"}, repos), nil)
	elsewhere := testkit.Get(b.OpenElsewhere(t.Context(), red)).Must(t)
	equal(t, "elsewhere", len(elsewhere), 2, elsewhere[0].AttemptID, first.ID, elsewhere[0].Place, blue, elsewhere[0].State, task.Waiting)
	equal(t, "of its own", len(testkit.Get(b.OpenElsewhere(t.Context(), blue)).Must(t)), 0)
	equal(t, "its own", claim(t, b, blue, 2, nil, nil).AttemptID, first.ID)
}

func TestReports(t *testing.T) {
	b, c, p := newBoard(t)
	a := unplaced(t, b, addTask(t, b, p, "one"), "CODEX")
	read := func() *task.Report { return testkit.Get(b.Report(t.Context(), a.ID)).Must(t) }
	r := read()
	equal(t, "at first", r.Output, nil, r.Diff, nil, r.DiffAt, nil)
	testkit.Must(t, b.SaveOutput(t.Context(), a.ID, json.RawMessage(`["one"]`)))
	c.forward(1)
	testkit.Must(t, b.SaveOutput(t.Context(), a.ID, json.RawMessage(`["two \u0000"]`)))
	r = read()
	equal(t, "output", string(r.Output), `["two \u0000"]`, r.OutputAt != nil, true, r.Diff, nil)
	testkit.Must(t, b.SaveDiff(t.Context(), a.ID, json.RawMessage(`{"of": "it"}`)))
	r = read()
	equal(t, "diff", string(r.Diff), `{"of": "it"}`, r.DiffAt != nil, true, r.Output != nil, true)
	gone := uuid.NewString()
	testkit.Must(t, b.SaveOutput(t.Context(), gone, json.RawMessage(`[]`)))
	equal(t, testkit.Get(b.Report(t.Context(), gone)).Must(t).Output, nil) // the owner's view does not look for the attempt
}

// A place is asked to remove worktrees of a task while that is marked; what it records is read until that is asked again.
func TestRemovals(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := unplaced(t, b, s, "CODEX")
	x := claim(t, b, red, 1, []string{"CODEX"}, []string{"r"})
	end(t, b, x, task.Ending{State: task.Completed})
	asked := func(here task.Place, want int) task.Removal {
		t.Helper()
		all := testkit.Get(b.Removals(t.Context(), here)).Must(t)
		equal(t, "is asked for", len(all), want)
		if want == 0 {
			return task.Removal{}
		}
		return all[0]
	}
	recorded := func(want string) {
		t.Helper()
		is(t, json.RawMessage(want))(b.Removal(t.Context(), a.ID))
	}
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	asked(red, 0) // its task is not marked
	testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
	asked(blue, 0)
	first := asked(red, 1)
	equal(t, "asked for", first.AttemptID, a.ID)
	recorded("")
	c.forward(time.Second)
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	testkit.Must(t, b.SaveRemoval(t.Context(), first, json.RawMessage(`"of the first"`)))
	recorded("")
	again := asked(red, 1)
	testkit.Must(t, b.SaveRemoval(t.Context(), again, json.RawMessage(`{"kept": []}`)))
	recorded(`{"kept": []}`)
	asked(red, 0)
	testkit.Must(t, b.UndoDelete(t.Context(), s.ID))
	recorded("")
	testkit.Must(t, b.SaveRemoval(t.Context(), again, json.RawMessage(`"too late"`)))
	recorded("")
	testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
	asked(red, 0)
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	asked(red, 0)
	testkit.FailsWith(t, b.AskRemoval(t.Context(), a.ID), task.ErrNotFound)
	testkit.FailsWith(t, second(b.Removal(t.Context(), a.ID)), task.ErrNotFound)
}
