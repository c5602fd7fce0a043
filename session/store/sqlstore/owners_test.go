package sqlstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// The callers of these tests: ann and bob share a group.
var (
	owner = session.LocalCaller(session.ChannelStdio)
	ann   = session.Caller{Identity: "ann", Group: "team"}
	bob   = session.Caller{Identity: "bob", Group: "team"}
)

// strangers see nothing of ann's. The names of some are those of others' groups.
var strangers = []session.Caller{
	{Identity: "eve"}, {Identity: "eve", Group: "others"}, {Identity: "team"}, {Identity: "eve", Group: "ann"}, {Identity: "local"}, {},
}

// A row names what belongs to one task.
type row struct{ project, repo, task, attempt, session, waiting string }

// nowhere names nothing.
var nowhere = row{"p", "r", "no task", "no attempt", "no session", "no execution"}

// byID are calls of the methods of a View that name something of a task.
func byID(ctx context.Context, v store.View, r row) map[string]func() error {
	return map[string]func() error{
		"Task":        func() error { return second(v.Task(ctx, r.task)) },
		"UpdateTask":  func() error { return second(v.UpdateTask(ctx, r.task, task.TaskChange{Title: new("changed")})) },
		"BeginDelete": func() error { return second(v.BeginDelete(ctx, r.task)) },
		"UndoDelete":  func() error { return v.UndoDelete(ctx, r.task) },
		"DeleteTask":  func() error { return v.DeleteTask(ctx, r.task) },
		"CreateAttempt": func() error {
			return second(v.CreateAttempt(ctx, task.Attempt{TaskID: r.task, Executor: "X", Branch: "deepwork/y", Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{}))
		},
		"Attempt":         func() error { return second(v.Attempt(ctx, r.attempt)) },
		"Report":          func() error { return second(v.Report(ctx, r.attempt)) },
		"AttemptDetails":  func() error { return second(v.AttemptDetails(ctx, r.attempt)) },
		"TaskAttempts":    func() error { return second(v.TaskAttempts(ctx, r.task, task.Page{Limit: 9})) },
		"LatestExecution": func() error { return second(v.LatestExecution(ctx, r.attempt)) },
		"AddExecution":    func() error { return second(v.AddExecution(ctx, r.session, "p", nil)) },
		"Executions":      func() error { return second(v.Executions(ctx, r.attempt)) },
		"Steps":           func() error { return second(v.Steps(ctx, r.attempt)) },
		"Used":            func() error { return second(v.Used(ctx, r.attempt)) },
		"Spent":           func() error { return second(v.Spent(ctx, r.task, "")) },
		"Comments":        func() error { return second(v.Comments(ctx, r.attempt)) },
		"ChangeComments": func() error {
			return second(v.ChangeComments(ctx, r.attempt, nil, []task.Comment{{File: "f", Line: 1, Side: task.NewSide}}, task.Request{}))
		},
		"SetLanded":  func() error { _, err := v.SetLanded(ctx, r.attempt, task.LandedConflicts, false); return err },
		"SetTargets": func() error { return v.SetTargets(ctx, r.attempt, map[string]string{"r1": "next"}) },
		"AskRemoval": func() error { return v.AskRemoval(ctx, r.attempt) },
		"Removal":    func() error { return second(v.Removal(ctx, r.attempt)) },
		"Stop":       func() error { return second(v.Stop(ctx, r.waiting)) },
		"Session":    func() error { return second(v.Session(ctx, r.session)) },
		"Queue":      func() error { _, _, err := v.Queue(ctx, r.session, nil); return err },
	}
}

// others are the other methods of a View; TestLists and TestHistory are about those that depend on the caller.
var others = []string{"Projects", "Project", "Repos", "Repo", "Tasks", "CreateTask", "CreateRun", "FindRequest", "BranchTaken", "VisibleBranches", "Attention", "Work", "WorkedOn", "History"}

// made makes a task of a caller, with an attempt that has ended and one that waits.
func made(t *testing.T, b board, p task.Project, who session.Caller) row {
	t.Helper()
	s := addAs(t, b, p, who, "of "+who.Identity)
	a := tryAs(t, b, who, s)
	e := claimed(t, b, 1000)
	for ; e != nil && e.AttemptID != a.ID; e = claimed(t, b, 1000) {
		defer b.Release(t.Context(), e.ID, "server") // those of other tasks wait on
	}
	testkit.Need(t, e != nil, "nothing to claim")
	conversation := testkit.Get(b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})).Must(t)
	end(t, b, e, task.Ending{State: task.Completed})
	return row{p.ID, "", s.ID, a.ID, conversation.ID, testkit.Get(b.LatestExecution(t.Context(), tryAs(t, b, who, s).ID)).Must(t).ID}
}

// Each method lets the maker, its group and the owner read and change, and says to anybody else what it says of nothing.
func TestEachMethodKeepsToTheCallersTasks(t *testing.T) {
	b, _, p := newBoard(t)
	methods := slices.AppendSeq(slices.Clone(others), maps.Keys(byID(t.Context(), b, nowhere)))
	for m := range reflect.TypeFor[store.View]().Methods() {
		equal(t, "a test of whose tasks shows "+m.Name, slices.Contains(methods, m.Name), true)
	}
	kept := made(t, b, p, ann)
	alone := made(t, b, p, session.Caller{Identity: "solo"})
	state := func() string {
		l := testkit.Get(b.TaskAttempts(t.Context(), kept.task, task.Page{Limit: 9})).Must(t)
		return string(testkit.Get(json.Marshal([]any{l, testkit.Get(b.Executions(t.Context(), kept.attempt)).Must(t)})).Must(t))
	}
	was := state()
	call := func(name string, who session.Caller, of row) error { return byID(t.Context(), b.For(who), of)[name]() }
	for name := range byID(t.Context(), b, nowhere) {
		for _, who := range strangers {
			for _, of := range []row{kept, alone} {
				got := call(name, who, of)
				testkit.FailsWith(t, got, task.ErrNotFound, name)
				of := strings.NewReplacer(of.task, nowhere.task, of.attempt, nowhere.attempt, of.session, nowhere.session, of.waiting, nowhere.waiting)
				equal(t, name, of.Replace(fmt.Sprint(got)), fmt.Sprint(call(name, who, nowhere)))
			}
		}
		equal(t, name, state(), was)
		testkit.FailsWith(t, call(name, bob, alone), task.ErrNotFound, name)
		for _, who := range []session.Caller{ann, bob, owner} {
			own := made(t, b, p, ann)
			err := call(name, who, own)
			testkit.True(t, err == nil || errors.Is(err, task.ErrRunning), "%s by %+v: %v", name, who, err)
			_, err = b.Stop(t.Context(), own.waiting) // made passes over every execution that waits
			testkit.True(t, err == nil || errors.Is(err, task.ErrNotFound), "%v", err)
		}
	}
}

// A list has and counts what its caller sees, page by page.
func TestLists(t *testing.T) {
	b, c, p := newBoard(t)
	for i := range 12 {
		c.forward(1000)
		who := []session.Caller{ann, bob, {Identity: "eve"}, {Identity: "ann"}}[i%4]
		s := addAs(t, b, p, who, fmt.Sprint(i))
		testkit.Must(t, second(b.For(who).CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "deepwork/" + s.Title, Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{})))
		if i%3 == 0 {
			testkit.Must(t, second(b.For(who).UpdateTask(t.Context(), s.ID, task.TaskChange{Status: new(task.Done)})))
		}
	}
	testkit.Must(t, b.For(ann).DeleteTask(t.Context(), addAs(t, b, p, bob, "gone").ID))
	for _, want := range []struct {
		who       session.Caller
		all, done []string
	}{
		{ann, []string{"11", "9", "8", "7", "5", "4", "3", "1", "0"}, []string{"9", "3", "0"}},
		{bob, []string{"9", "8", "5", "4", "1", "0"}, []string{"9", "0"}},
		{session.Caller{Identity: "eve"}, []string{"10", "6", "2"}, []string{"6"}},
		{session.Caller{Identity: "ann"}, []string{"11", "8", "7", "4", "3", "0"}, []string{"3", "0"}},
		{owner, []string{"11", "10", "9", "8", "7", "6", "5", "4", "3", "2", "1", "0"}, []string{"9", "6", "3", "0"}},
		{session.Caller{Identity: "team"}, nil, nil},
		{session.Caller{}, nil, nil},
	} {
		v := b.For(want.who)
		for status, want := range map[task.Status][]string{"": want.all, task.Done: want.done} {
			var got []string
			for cursor := ""; ; {
				list, total, next, err := v.Tasks(t.Context(), p.ID, task.Filter{Status: status}, task.Page{Limit: 2, Cursor: cursor})
				testkit.Must(t, err)
				equal(t, total, len(want))
				for _, s := range list {
					got = append(got, s.Title)
				}
				if cursor = next; next == "" {
					break
				}
			}
			equal(t, status, got, want)
		}
		var branches, works []string
		for _, title := range want.all {
			branches = append(branches, "deepwork/"+title)
		}
		equal(t, "branches", slices.Sorted(slices.Values(testkit.Get(v.VisibleBranches(t.Context())).Must(t))), slices.Sorted(slices.Values(branches)))
		equal(t, "works on", len(testkit.Get(v.WorkedOn(t.Context())).Must(t)), len(want.all)-len(want.done))
		open, ended, err := v.Work(t.Context())
		testkit.Must(t, err)
		for _, w := range open {
			works = append(works, w.Title)
		}
		equal(t, "work", slices.Sorted(slices.Values(works)), slices.Sorted(slices.Values(want.all)), len(ended), 0)
		// Two attempts must not have the same branch, even if different callers made them.
		is(t, true)(v.BranchTaken(t.Context(), "deepwork/10"))
		list, total, _, err := v.Projects(t.Context(), task.Page{Limit: 9})
		testkit.Must(t, err)
		repos, n, _, err := v.Repos(t.Context(), p.ID, task.Page{Limit: 9})
		testkit.Must(t, err)
		equal(t, total, 1, len(list), 1, n, 1)
		testkit.Must(t, second(v.Repo(t.Context(), repos[0].ID)))
	}
	// The maker of an attempt is who started it; the owner does that for the maker of the task.
	for _, c := range []struct{ made, tried, want session.Caller }{
		{ann, bob, session.Caller{Identity: "bob", Group: "team"}},
		{ann, owner, session.Caller{Identity: "ann", Group: "team"}},
		{owner, owner, session.Caller{Identity: session.LocalIdentity}},
		{session.Caller{Identity: "eve", Rights: session.RightAgents, Channel: session.ChannelHTTP}, session.Caller{Identity: "eve"}, session.Caller{Identity: "eve"}},
	} {
		is(t, c.want)(b.Maker(t.Context(), tryAs(t, b, c.tried, addAs(t, b, p, c.made, "one")).ID))
	}
}
