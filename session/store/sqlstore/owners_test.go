package sqlstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// byID are the methods of a View that name something of a task.
var byID = map[string]func(context.Context, store.View, row) error{
	"Task": func(ctx context.Context, v store.View, r row) error { return second(v.Task(ctx, r.task)) },
	"UpdateTask": func(ctx context.Context, v store.View, r row) error {
		return second(v.UpdateTask(ctx, r.task, task.TaskChange{Title: new("changed")}))
	},
	"BeginDelete": func(ctx context.Context, v store.View, r row) error { return second(v.BeginDelete(ctx, r.task)) },
	"UndoDelete":  func(ctx context.Context, v store.View, r row) error { return v.UndoDelete(ctx, r.task) },
	"DeleteTask":  func(ctx context.Context, v store.View, r row) error { return v.DeleteTask(ctx, r.task) },
	"CreateAttempt": func(ctx context.Context, v store.View, r row) error {
		return second(v.CreateAttempt(ctx, task.Attempt{TaskID: r.task, Executor: "X", Branch: "deepwork/y", Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{}))
	},
	"Attempt":        func(ctx context.Context, v store.View, r row) error { return second(v.Attempt(ctx, r.attempt)) },
	"Report":         func(ctx context.Context, v store.View, r row) error { return second(v.Report(ctx, r.attempt)) },
	"AttemptDetails": func(ctx context.Context, v store.View, r row) error { return second(v.AttemptDetails(ctx, r.attempt)) },
	"TaskAttempts": func(ctx context.Context, v store.View, r row) error {
		return second(v.TaskAttempts(ctx, r.task, task.Page{Limit: 9}))
	},
	"LatestExecution": func(ctx context.Context, v store.View, r row) error { return second(v.LatestExecution(ctx, r.attempt)) },
	"AddExecution": func(ctx context.Context, v store.View, r row) error {
		return second(v.AddExecution(ctx, r.session, "p", nil))
	},
	"Executions": func(ctx context.Context, v store.View, r row) error { return second(v.Executions(ctx, r.attempt)) },
	"Steps":      func(ctx context.Context, v store.View, r row) error { return second(v.Steps(ctx, r.attempt)) },
	"Used":       func(ctx context.Context, v store.View, r row) error { return second(v.Used(ctx, r.attempt)) },
	"Spent":      func(ctx context.Context, v store.View, r row) error { return second(v.Spent(ctx, r.task, "")) },
	"Comments":   func(ctx context.Context, v store.View, r row) error { return second(v.Comments(ctx, r.attempt)) },
	"ChangeComments": func(ctx context.Context, v store.View, r row) error {
		return second(v.ChangeComments(ctx, r.attempt, nil, []task.Comment{{File: "f", Line: 1, Side: task.NewSide}}, task.Request{}))
	},
	"SetLanded": func(ctx context.Context, v store.View, r row) error {
		_, err := v.SetLanded(ctx, r.attempt, task.LandedConflicts, false)
		return err
	},
	"SetTargets": func(ctx context.Context, v store.View, r row) error {
		return v.SetTargets(ctx, r.attempt, map[string]string{"r1": "next"})
	},
	"AskRemoval": func(ctx context.Context, v store.View, r row) error { return v.AskRemoval(ctx, r.attempt) },
	"Removal":    func(ctx context.Context, v store.View, r row) error { return second(v.Removal(ctx, r.attempt)) },
	"Stop":       func(ctx context.Context, v store.View, r row) error { return second(v.Stop(ctx, r.waiting)) },
	"Session":    func(ctx context.Context, v store.View, r row) error { return second(v.Session(ctx, r.session)) },
	"Queue": func(ctx context.Context, v store.View, r row) error {
		_, _, err := v.Queue(ctx, r.session, nil)
		return err
	},
}

// others are the other methods of a View; TestLists and TestHistory are about those that depend on the caller.
var others = []string{"Projects", "Project", "Repos", "Repo", "Tasks", "CreateTask", "CreateRun", "FindRequest", "BranchTaken", "VisibleBranches", "Attention", "Work", "WorkedOn", "History"}

// made makes a task of a caller, with an attempt that has ended and one that waits.
func made(t *testing.T, b board, p task.Project, who session.Caller) row {
	t.Helper()
	v := board{Board: viewed{b.Board, b.For(who)}, db: b.db}
	s := addTask(t, v, p, "of "+who.Identity)
	a := try(t, v, s)
	var e *task.Execution
	for e == nil || e.AttemptID != a.ID { // those of other tasks wait on
		if e != nil {
			defer b.Release(t.Context(), e.ID, "server")
		}
		var err error
		if e, err = b.ClaimNext(t.Context(), "server", 1000, nil, task.Limits{}); err != nil || e == nil {
			t.Fatal("nothing to claim", err)
		}
	}
	conversation := returned(b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})).of(t)
	end(t, b, e, task.Ending{State: task.Completed})
	return row{p.ID, "", s.ID, a.ID, conversation.ID, returned(b.LatestExecution(t.Context(), try(t, v, s).ID)).of(t).ID}
}

// viewed makes tasks and attempts as a caller.
type viewed struct {
	store.Board
	as store.View
}

func (v viewed) CreateTask(ctx context.Context, n task.NewTask, r task.Request) (*task.Summary, error) {
	return v.as.CreateTask(ctx, n, r)
}

func (v viewed) CreateAttempt(ctx context.Context, a task.Attempt, first task.Execution, r task.Request) (*task.Attempt, error) {
	return v.as.CreateAttempt(ctx, a, first, r)
}

// Each method lets the maker, its group and the owner read and change, and says to anybody else
// what it says where there is nothing.
func TestEachMethodKeepsToTheCallersTasks(t *testing.T) {
	b, _, p := newBoard(t)
	methods := slices.Clone(others)
	for name := range byID {
		methods = append(methods, name)
	}
	for m := range reflect.TypeFor[store.View]().Methods() {
		equal(t, "no test of whose tasks shows", slices.Contains(methods, m.Name), true)
	}
	kept := made(t, b, p, ann)
	alone := made(t, b, p, session.Caller{Identity: "solo"})
	state := func() string {
		l := returned(b.TaskAttempts(t.Context(), kept.task, task.Page{Limit: 9})).of(t)
		text := returned(json.Marshal([]any{l, returned(b.Executions(t.Context(), kept.attempt)).of(t)})).of(t)
		return string(text)
	}
	was := state()
	for name, call := range byID {
		for _, who := range strangers {
			for _, of := range []row{kept, alone} {
				got, want := call(t.Context(), b.For(who), of), call(t.Context(), b.For(who), nowhere)
				text := fmt.Sprint(got)
				for _, pair := range [][2]string{{of.task, nowhere.task}, {of.attempt, nowhere.attempt}, {of.session, nowhere.session}, {of.waiting, nowhere.waiting}} {
					text = strings.ReplaceAll(text, pair[0], pair[1])
				}
				fails(t, got, task.ErrNotFound, name)
				equal(t, name, text, fmt.Sprint(want))
			}
		}
		equal(t, name, state(), was)
		fails(t, call(t.Context(), b.For(bob), alone), task.ErrNotFound, name)
		for _, who := range []session.Caller{ann, bob, owner} {
			own := made(t, b, p, ann)
			if err := call(t.Context(), b.For(who), own); err != nil && !errors.Is(err, task.ErrRunning) {
				t.Errorf("%s by %+v: %v", name, who, err)
			}
			// made passes over every execution that waits.
			if _, err := b.Stop(t.Context(), own.waiting); err != nil && !errors.Is(err, task.ErrNotFound) {
				t.Error(err)
			}
		}
	}
}

// A list has and counts what its caller sees, page by page.
func TestLists(t *testing.T) {
	b, c, p := newBoard(t)
	for i := range 12 {
		c.forward(1000)
		who := []session.Caller{ann, bob, {Identity: "eve"}, {Identity: "ann"}}[i%4]
		s := returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: fmt.Sprint(i)}, task.Request{Identity: who.Identity, Tool: "t", RequestID: "r" + fmt.Sprint(i), ArgsDigest: "d"})).of(t)
		if i%3 == 0 {
			testkit.Must(t, second(b.For(who).UpdateTask(t.Context(), s.ID, task.TaskChange{Status: new(task.Done)})))
		}
		testkit.Must(t, second(b.For(who).CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "deepwork/" + s.Title, Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{})))
		if i%3 == 0 {
			testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: new(task.Done)})))
		}
	}
	testkit.Must(t, b.For(ann).DeleteTask(t.Context(), returned(b.For(bob).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "gone"}, task.Request{})).of(t).ID))
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
		seen, err := v.VisibleBranches(t.Context())
		if err != nil || len(seen) != len(want.all) || slices.ContainsFunc(seen, func(branch string) bool {
			return !slices.Contains(want.all, strings.TrimPrefix(branch, "deepwork/"))
		}) {
			t.Errorf("%+v sees the branches %v, %v", want.who, seen, err)
		}
		equal(t, "works on", len(returned(v.WorkedOn(t.Context())).of(t)), len(want.all)-len(want.done))
		if open, ended, err := v.Work(t.Context()); err != nil || len(ended) != 0 || len(open) != len(want.all) || slices.ContainsFunc(open, func(w task.Work) bool {
			return !slices.Contains(want.all, w.Title)
		}) {
			t.Errorf("%+v sees the work %v, %v, %v", want.who, open, ended, err)
		}
		// Two attempts must not have the same branch, even if different callers made them.
		is(t, true)(v.BranchTaken(t.Context(), "deepwork/10"))
		list, total, _, err := v.Projects(t.Context(), task.Page{Limit: 9})
		testkit.Must(t, err)
		equal(t, total, 1, len(list), 1)
		if list, total, _, err := v.Repos(t.Context(), p.ID, task.Page{Limit: 9}); err != nil || total != 1 {
			t.Error(list, total, err)
		} else if repo, err := v.Repo(t.Context(), list[0].ID); err != nil {
			t.Error(repo, err)
		}
	}
}

// The maker of an attempt is who started it; the owner does that for the maker of the task.
func TestMakerOfAnAttempt(t *testing.T) {
	b, _, p := newBoard(t)
	for _, c := range []struct{ made, tried, want session.Caller }{
		{ann, bob, session.Caller{Identity: "bob", Group: "team"}},
		{ann, owner, session.Caller{Identity: "ann", Group: "team"}},
		{owner, owner, session.Caller{Identity: session.LocalIdentity}},
		{session.Caller{Identity: "eve", Rights: session.RightAgents, Channel: session.ChannelHTTP}, session.Caller{Identity: "eve"}, session.Caller{Identity: "eve"}},
	} {
		s := returned(b.For(c.made).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, task.Request{})).of(t)
		a := returned(b.For(c.tried).CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{})).of(t)
		is(t, c.want)(b.Maker(t.Context(), a.ID))
	}
	fails(t, second(b.Maker(t.Context(), "x")), task.ErrNotFound)
}
