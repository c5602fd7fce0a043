package sqlstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// executed is an execution with everything that one may have.
func executed(id string, s store.RemoteState, at time.Time) *store.RemoteRun {
	at = at.UTC().Truncate(time.Microsecond)
	x := &store.RemoteRun{
		ID:              id,
		Identity:        "me",
		Source:          "factory",
		WorkflowID:      "w",
		WorkflowName:    "wörk",
		Async:           true,
		Performed:       true,
		State:           s,
		StatusSupported: true,
		StartedAt:       at,
		Timeout:         time.Hour,
		Deadline:        new(at.Add(time.Hour)),
	}
	switch s {
	case store.RemoteWaiting, store.RemoteStarting:
	case store.RemoteRunning:
		x.SourceExecutionID = new("at source")
	default:
		x.SourceExecutionID = new("at source")
		x.EndedAt = new(at.Add(time.Second))
		x.Error = new("it broke")
		x.Progress, x.Result = json.RawMessage(`{"message":"half"}`),
			json.RawMessage(`{"b":9007199254740993,"a":[1.0,"<x>"]}`)
	}
	return x
}

func oneAndTwo(t *testing.T) (one, two store.Database, c *clock) {
	path, c := newPath(t)
	return open(t, path, c.now), open(t, path, c.now), c
}

// followedBy is the row of work of a run for a runner; nobody has it if that is "".
func followedBy(id, runner string) store.WorkRow {
	return store.WorkRow{Kind: store.RemoteWork, Key: id, Runner: runner, Life: time.Minute}
}

// add stores executions, which somebody follows.
func add(t testing.TB, e store.RemoteRuns, all ...*store.RemoteRun) {
	t.Helper()
	for _, x := range all {
		testkit.Must(t, e.Add(t.Context(), x, followedBy(x.ID, "a-1")))
	}
}

// endAll stores executions that were added and have ended.
func endAll(t testing.TB, e store.RemoteRuns, all ...*store.RemoteRun) {
	t.Helper()
	for _, x := range all {
		add(t, e, executed(x.ID, store.RemoteWaiting, x.StartedAt))
		testkit.Must(t, e.Save(t.Context(), x, store.RemoteWaiting))
	}
}

// Its row of work is there from the beginning to the end.
func TestAnExecutionIsStoredAtEachStage(t *testing.T) {
	one, two, c := oneAndTwo(t)
	at := map[store.RemoteState]*store.RemoteRun{}
	stages := []store.RemoteState{store.RemoteWaiting, store.RemoteStarting, store.RemoteRunning, store.RemoteFailed}
	for i, s := range stages {
		x := executed("x", s, c.at)
		at[s] = x
		if i == 0 {
			add(t, one.RemoteRuns(), x)
		} else {
			testkit.Must(t, one.RemoteRuns().Save(t.Context(), x, stages[i-1]))
		}
		is(t, x)(two.RemoteRuns().RemoteRun(t.Context(), "x"))
		follows := 1
		if s == store.RemoteFailed {
			follows = 0
		}
		_, gone := two.Work().Row(t.Context(), store.RemoteWork, "x")
		equal(t, s, gone == nil, follows == 1)
		found, n, going, err := one.RemoteRuns().Inspect(t.Context())
		testkit.Must(t, err)
		equal(t, len(found), 0, n, 1, going, follows)
	}
	testkit.FailsWith(t, second(one.RemoteRuns().RemoteRun(t.Context(), "y")), task.ErrNotFound)
	testkit.Must(t, two.RemoteRuns().Save(t.Context(), at[store.RemoteFailed], store.RemoteRunning)) // once more
	for s, x := range at {
		later := *x
		later.EndedAt = new(c.at.Add(time.Hour))
		testkit.FailsWith(t, two.RemoteRuns().Save(t.Context(), &later, s), store.ErrWorkTaken)
	}
	is(t, at[store.RemoteFailed])(one.RemoteRuns().RemoteRun(t.Context(), "x"))
}

// Of several servers that move an execution from one state, one does.
func TestAnExecutionIsMovedOnce(t *testing.T) {
	path, c := newPath(t)
	first := open(t, path, c.now).RemoteRuns()
	ends := []store.RemoteState{store.RemoteFailed, store.RemoteUnknown, store.RemoteStarting}
	for i := range 10 {
		id := fmt.Sprint(i)
		add(t, first, executed(id, store.RemoteWaiting, c.at))
		moved := atOnce(len(ends), func(i int) bool {
			err := open(t, path, c.now).RemoteRuns().Save(t.Context(), executed(id, ends[i], c.at), store.RemoteWaiting)
			testkit.True(t, err == nil || errors.Is(err, store.ErrWorkTaken), "%v", err)
			return err == nil
		})
		equal(t, won(moved), 1)
		is(t, executed(id, ends[slices.Index(moved, true)], c.at))(first.RemoteRun(t.Context(), id))
	}
}

// An execution has the progress of its work, and is lapsed while nobody does that.
func TestAnExecutionIsReadWithItsWork(t *testing.T) {
	one, two, c := oneAndTwo(t)
	x := executed("x", store.RemoteRunning, c.at)
	testkit.Must(t, one.RemoteRuns().Add(t.Context(), x, followedBy("x", "")))
	read := func() *store.RemoteRun { return testkit.Get(two.RemoteRuns().RemoteRun(t.Context(), "x")).Must(t) }
	equal(t, read().Lapsed, true)

	mine := followedBy("x", "b-1")
	equal(t, len(testkit.Get(one.Work().Claim(t.Context(), store.WorkClaim{WorkRow: mine, Limit: 9})).Must(t)), 1)
	equal(t, read().Lapsed, false)
	feed := two.Changes()
	position := latest(t, feed)
	mine.Progress = json.RawMessage(`{"message":"m","asks":"Which city?"}`)
	testkit.Must(t, second(one.Work().Renew(t.Context(), time.Minute, []store.WorkRow{mine})))
	equal(t, string(read().Progress), string(mine.Progress))
	equal(t, idsOf(testkit.Get(two.RemoteRuns().Asking(t.Context())).Must(t)), []string{"x"})
	equal(t, testkit.Get(feed.Since(t.Context(), position)).Must(t).Changes, changed(store.RemoteRunChanged, "x"))

	over := executed("x", store.RemoteCompleted, c.at)
	testkit.Must(t, one.RemoteRuns().Save(t.Context(), over, store.RemoteRunning))
	equal(t, string(read().Progress), string(over.Progress), read().Lapsed, false)
}

func TestExecutionsAreFoundByEitherIDByTheirCaller(t *testing.T) {
	one, _, c := oneAndTwo(t)
	e := one.RemoteRuns()
	other := executed("other", store.RemoteRunning, c.at)
	asks := executed("first", store.RemoteRunning, c.at)
	over := executed("second", store.RemoteCompleted, c.at.Add(time.Second))
	other.Identity = "you"
	asks.Progress, over.Progress = json.RawMessage(`{"message":"m","asks":"Which city?"}`),
		json.RawMessage(`{"asks":"old"}`)
	add(t, e, executed("old", store.RemoteCompleted, c.at.Add(-store.RemoteRunKeptFor-time.Hour)), asks,
		over, other)

	for query, want := range map[[3]string][]string{
		{"me", "first", ""}:           {"first"},
		{"me", "", "at source"}:       {"second", "first"},
		{"me", "first", "at source"}:  {"first"},
		{"me", "no one", "at source"}: {"second", "first"},
		{"me", "other", "other"}:      nil,
		{"you", "other", ""}:          {"other"},
		{"me", "old", ""}:             nil,
	} {
		equal(t, query, idsOf(testkit.Get(e.Find(t.Context(), query[0], query[1], query[2])).Must(t)), want)
	}

	list, total, err := e.Newest(t.Context(), "me", 1)
	testkit.Must(t, err)
	equal(t, total, 2, len(list), 1, list[0].ID, "second", list[0].Result, nil)

	// Those whose source asks a person something are found until they are over.
	found := testkit.Get(e.Asking(t.Context())).Must(t)
	equal(t, idsOf(found), []string{"first"}, found[0].Progress, asks.Progress)
}

func TestExecutionsBeyondTheBoundsAreForgotten(t *testing.T) {
	one, two, c := oneAndTwo(t)
	e, late := one.RemoteRuns(), two.RemoteRuns()
	kept := func() (total int) {
		_, total, err := e.Newest(t.Context(), "me", 1)
		testkit.Must(t, err)
		return total
	}
	const more = 100
	for i := range store.RemoteRunsKept + more {
		endAll(t, e, executed(fmt.Sprint(i), store.RemoteCompleted, c.at.Add(time.Duration(i)*time.Second)))
	}
	equal(t, "are kept", kept() < store.RemoteRunsKept, false, kept() >= store.RemoteRunsKept+more, false)
	testkit.Works(t, testkit.Get(e.RemoteRun(t.Context(), fmt.Sprint(store.RemoteRunsKept+more-1))).Err(), "the newest")

	large := executed("", store.RemoteCompleted, c.at.Add(time.Hour))
	large.Result = json.RawMessage(`"` + strings.Repeat("x", store.ResultsKept/20) + `"`)
	for i := range 21 {
		large.ID = fmt.Sprint("large ", i)
		*large.EndedAt = large.EndedAt.Add(time.Second)
		endAll(t, e, large)
	}

	equal(t, "with large results are kept", kept(), 19)
	c.forward(store.RemoteRunKeptFor + 2*time.Hour) // a process that ends a single one forgets others, too
	endAll(t, late, executed("last", store.RemoteCompleted, c.at))
	_, n, _, err := e.Inspect(t.Context())
	testkit.Must(t, err)
	equal(t, "are kept", n, 1)
}

func idsOf(all []store.RemoteRun) (found []string) {
	for _, x := range all {
		found = append(found, x.ID)
	}
	return found
}

// Of several callers with one key one stores its call, and all get that; it is its identity's, ends once, and
// is forgotten.
func TestLongCalls(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "board.db"), newClock()
	one, two := open(t, path, c.now).LongCalls(), open(t, path, c.now).LongCalls()
	made := func(id, who string) *store.LongCall {
		return &store.LongCall{
			ID:        id,
			Key:       "step",
			Identity:  who,
			Tool:      "finished_step",
			Work:      json.RawMessage(`{"a":1}`),
			Status:    store.CallWorking,
			CreatedAt: c.at.UTC().Truncate(time.Microsecond),
		}
	}

	const id3 = "00000000-0000-4000-8000-000000000003"
	got := atOnce(2, func(i int) *store.LongCall {
		return testkit.Get([]store.LongCalls{one, two}[i].Add(t.Context(),
			made(fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i), "ann"))).Must(t)
	})
	equal(t, got[0], got[1], got[0], made(got[0].ID, "ann"))
	id := got[0].ID
	is(t, 1)(two.Count(t.Context(), "ann"))
	is(t, 0)(two.Count(t.Context(), "bob"))
	for whoAfter, want := range map[[2]string]int{{"ann", ""}: 1, {"", ""}: 1, {"bob", ""}: 0, {"ann", id}: 0} {
		equal(t, whoAfter, len(testkit.Get(two.Working(t.Context(), whoAfter[0], whoAfter[1], 9)).Must(t)), want)
	}
	testkit.FailsWith(t, testkit.Get(two.LongCall(t.Context(), "bob", id)).Err(), task.ErrNotFound)

	c.forward(time.Minute)
	for _, status := range []string{store.CallCompleted, store.CallCancelled} { // the second changes nothing
		done := testkit.Get(two.End(t.Context(), "ann", id, status, json.RawMessage(`{"b":9007199254740993}`))).Must(t)
		testkit.Equal(t, done.Status, store.CallCompleted)
		testkit.Equal(t, string(done.Result), `{"b":9007199254740993}`)
		testkit.True(t, done.EndedAt.Equal(c.at.Truncate(time.Microsecond)), "%+v", done)
	}

	again := testkit.Get(one.Add(t.Context(), made(id3, "ann"))).Must(t)
	equal(t, "after the end there is another", again.ID, id3)
	c.forward(store.LongCallKeptFor - time.Second)
	testkit.Get(one.LongCall(t.Context(), "ann", id)).Must(t)
	c.forward(time.Second)
	testkit.FailsWith(t, testkit.Get(one.LongCall(t.Context(), "ann", id)).Err(), task.ErrNotFound)
	testkit.Get(one.LongCall(t.Context(), "ann", again.ID)).Must(t)
	is(t, 1, "calls that are working, however old")(one.Count(t.Context(), "ann"))
}

var (
	red  = task.Place{MachineID: "aaaaaaaa", MachineName: "red", Root: "/home/red/shop"}
	blue = task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: "/home/blue/shop"}
)

func claim(t *testing.T, b board, at task.Place, max int, executors, repos []string) *task.Execution {
	t.Helper()
	return testkit.Get(b.ClaimNext(t.Context(), "server of "+at.MachineName, max,
		&task.Claim{Place: at, Executors: executors, Repos: repos}, task.Limits{})).Must(t)
}

func unplaced(t *testing.T, b board, s *task.Summary, executor string) *task.Attempt {
	t.Helper()
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{
		TaskID:   s.ID,
		Executor: executor,
		Branch:   "deepwork/" + uuid.NewString(),
		Repos:    []task.AttemptRepo{{RepoID: "r", RepoName: "shop", TargetBranch: "main"}},
	}, task.Execution{Prompt: "do"}, task.Request{})).Must(t)
}

// A machine gets attempts whose executor and repositories it has, and what follows only where it began. Each
// has its own slots.
func TestClaimsOfMachines(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	first, next := unplaced(t, b, s, "CODEX"), unplaced(t, b, s, "GEMINI")
	repos := []string{"r"}
	equal(t, "without the executor", claim(t, b, red, 5, []string{"OTHER"}, repos), nil,
		claim(t, b, red, 5, []string{"CODEX"}, []string{"q"}), nil)
	equal(t, "without anything, or a slot", claim(t, b, red, 5, nil, nil), nil,
		claim(t, b, red, 0, []string{"CODEX"}, repos), nil)

	// What was made in a store of one machine is at no place, and nobody claims it by accident.
	alone := try(t, b, s)
	equal(t, claim(t, b, red, 5, []string{alone.Executor}, []string{alone.Repos[0].RepoID}), nil)
	x := claim(t, b, red, 1, []string{"GEMINI", "CODEX"}, repos)
	equal(t, "claimed", x.AttemptID, first.ID, x.Place, red, claim(t, b, red, 1, []string{"GEMINI"}, repos), nil)
	equal(t, "the slots of one machine are not those of another",
		claim(t, b, blue, 1, []string{"GEMINI"}, repos).AttemptID, next.ID)

	// Its paths are set once, by the machine that has it.
	at := []task.AttemptRepo{{RepoID: "r", RepoPath: "/r", Worktree: "/w/" + first.ID + "/shop"}}
	paths := task.Attempt{ID: first.ID, Situation: task.Situation{Place: red}, Workspace: at[0].Worktree, Repos: at}
	testkit.Must(t, b.SetPaths(t.Context(), &paths))
	testkit.FailsWith(t, b.SetPaths(t.Context(), &paths), task.ErrInvalid)

	a := testkit.Get(b.Attempt(t.Context(), first.ID)).Must(t)
	equal(t, "attempt", a.Place, red, a.Workspace, at[0].Worktree, a.Repos[0].Worktree, at[0].Worktree,
		a.Repos[0].RepoPath, "/r")
	for _, folder := range []string{"/a b/trees", "/c", "/a b/trees"} { // at no place
		repo := task.AttemptRepo{
			RepoID:       "r",
			RepoName:     "r",
			RepoPath:     "/r",
			TargetBranch: "main",
			Worktree:     filepath.Join(folder, uuid.NewString(), "r"),
		}
		testkit.Must(t,
			second(b.CreateAttempt(t.Context(), task.Attempt{
				ID:        filepath.Base(filepath.Dir(repo.Worktree)),
				TaskID:    s.ID,
				Branch:    "b",
				Workspace: repo.Worktree,
				Repos:     []task.AttemptRepo{repo},
			}, task.Execution{}, task.Request{})))
	}

	for here, want := range map[task.Place][]string{
		red:  {"/w"},
		blue: nil,
		{}:   {"/a b/trees", "/c", filepath.ToSlash(abs(""))},
	} {
		equal(t, "folders of",
			slices.Sorted(slices.Values(xslices.Map(testkit.Get(b.WorktreeFolders(t.Context(), here)).Must(t),
				filepath.ToSlash))), slices.Sorted(slices.Values(want)))
	}

	// Before its worktrees are begun, another machine may get it; later only the same one.
	is(t, true)(b.Release(t.Context(), x.ID, "server of red", true))
	equal(t, "begun worktrees of another machine are claimed", claim(t, b, blue, 2, []string{"CODEX"}, repos), nil)
	equal(t, "of its own", claim(t, b, red, 1, nil, nil).AttemptID, first.ID)
	is(t, true)(b.Release(t.Context(), x.ID, "server of red", false))
	x = claim(t, b, blue, 2, []string{"CODEX"}, repos)
	equal(t, "claimed after a release", x.Place, blue)
	testkit.FailsWith(t, b.SetPaths(t.Context(), &paths), task.ErrEnded, "of the machine that had it before")
	testkit.FailsWith(t, b.SetWorkspace(t.Context(), a, nil), task.ErrEnded, "of the machine that had it before")
	paths.Place = blue
	testkit.Must(t, errors.Join(b.SetPaths(t.Context(), &paths),
		b.SetWorkspace(t.Context(), &paths, map[string]string{"r": "abc"})))
	is(t, true)(b.Release(t.Context(), x.ID, "server of blue", false))
	equal(t, "a worktree of another machine is claimed", claim(t, b, red, 2, []string{"CODEX"}, repos), nil)
	elsewhere := testkit.Get(b.OpenElsewhere(t.Context(), red)).Must(t)
	equal(t, "elsewhere", len(elsewhere), 2, elsewhere[0].AttemptID, first.ID, elsewhere[0].Place, blue,
		elsewhere[0].State, task.Waiting)
	equal(t, "of its own", len(testkit.Get(b.OpenElsewhere(t.Context(), blue)).Must(t)), 0,
		claim(t, b, blue, 2, nil, nil).AttemptID, first.ID)
}

// A place is asked to remove worktrees of a task while that is marked; what it records is read until that is
// asked again.
func TestRemovals(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := unplaced(t, b, s, "CODEX")
	x := claim(t, b, red, 1, []string{"CODEX"}, []string{"r"})
	end(t, b, x, task.Ending{State: task.Completed})

	// done does what a place is asked for, and returns it.
	done := func(here task.Place, runner string) []store.WorkRow {
		t.Helper()
		return testkit.Get(b.db.Work().Claim(t.Context(), store.WorkClaim{Limit: 9, WorkRow: store.WorkRow{
			Kind: store.RemovalWork, Place: here.Key(), Runner: runner, Life: time.Minute,
		}})).Must(t)
	}
	record := func(w store.WorkRow, result string, want bool) {
		t.Helper()
		is(t, want)(b.db.Work().End(t.Context(), &w, store.Outcome{Result: json.RawMessage(result)}))
	}
	recorded := func(want string) { is(t, json.RawMessage(want))(b.Removal(t.Context(), a.ID)) }
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	equal(t, "of a task that is not marked", len(done(red, "r0")), 0)
	testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	equal(t, "at another place", len(done(blue, "b1")), 0)
	first := done(red, "r1")
	equal(t, "asked for", len(first), 1, first[0].Key, a.ID)
	recorded("")
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	record(first[0], `"of the first"`, false)
	recorded("")
	again := done(red, "r2")[0]
	record(again, `{"kept": []}`, true)
	recorded(`{"kept": []}`)
	equal(t, "what is done", len(done(red, "r3")), 0)
	testkit.Must(t, b.UndoDelete(t.Context(), s.ID))
	recorded("")
	record(again, `"too late"`, false)
	testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
	equal(t, "what nobody asks for", len(done(red, "r4")), 0)
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))

	// Its output and its changes are recorded, too.
	report := func() *task.Report { return testkit.Get(b.Report(t.Context(), a.ID)).Must(t) }
	r := report()
	equal(t, "at first", r.Output, nil, r.Diff, nil, r.DiffAt, nil)
	testkit.Must(t, b.SaveOutput(t.Context(), a.ID, json.RawMessage(`["one"]`)))
	c.forward(1)
	testkit.Must(t, b.SaveOutput(t.Context(), a.ID, json.RawMessage(`["two \u0000"]`)))
	r = report()
	equal(t, "output", string(r.Output), `["two \u0000"]`, r.OutputAt != nil, true, r.Diff, nil)
	testkit.Must(t, b.SaveDiff(t.Context(), a.ID, json.RawMessage(`{"of": "it"}`)))
	r = report()
	equal(t, "diff", string(r.Diff), `{"of": "it"}`, r.DiffAt != nil, true, r.Output != nil, true)
	testkit.Must(t, errors.Join(b.DeleteTask(t.Context(), s.ID),
		b.SaveOutput(t.Context(), a.ID, json.RawMessage(`[]`))))

	// the owner's view does not look for the attempt
	equal(t, testkit.Get(b.Report(t.Context(), a.ID)).Must(t).Output, nil)
	equal(t, "what is gone", len(done(red, "r5")), 0)
	testkit.FailsWith(t, b.AskRemoval(t.Context(), a.ID), task.ErrNotFound)
	testkit.FailsWith(t, second(b.Removal(t.Context(), a.ID)), task.ErrNotFound)
}
