package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

// dependOn sets what a task depends on.
func dependOn(b board, s *task.Summary, on ...*task.Summary) (*task.Summary, error) {
	ids := []string{}
	for _, o := range on {
		ids = append(ids, o.ID)
	}
	return b.UpdateTask(context.Background(), s.ID, task.TaskChange{DependsOn: ids})
}

func TestABlockedTaskDoesNotStart(t *testing.T) {
	b, c, p := newBoard(t)
	first, other := addTask(t, b, p, "first"), addTask(t, b, p, "second")
	last := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "last", DependsOn: []string{other.ID, first.ID, other.ID}}, task.Request{})).of(t)
	both := slices.Sorted(slices.Values([]string{first.ID, other.ID}))
	equal(t, last.DependsOn, both, last.BlockedBy, both)
	start := func() error {
		_, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: last.ID, Executor: "X", Branch: "deepwork/last", Workspace: abs("w")}, task.Execution{Prompt: "p"},
			task.Request{Identity: "me", Tool: "start", RequestID: "r", ArgsDigest: "d"})
		return err
	}
	finish := func(s *task.Summary, status task.Status) {
		t.Helper()
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &status})))
	}
	finish(first, task.Done)
	finish(other, task.Cancelled)
	err := start()
	blocked, ok := errors.AsType[*task.BlockedError](err)
	want := task.BlockedError{TaskID: last.ID, By: []task.Blocker{{ID: other.ID, Title: "second", Status: task.Cancelled}}}
	equal(t, ok, true, errors.Is(err, task.ErrBlocked), true, *blocked, want, strings.Contains(err.Error(), other.ID+` ("second", cancelled)`), true)
	if now := taskOf(t, b, last.ID); now.Status != task.Todo || now.LatestAttemptID != nil || !slices.Equal(now.BlockedBy, []string{other.ID}) {
		t.Errorf("%+v", now)
	}
	list, total, _, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 1})
	if at := slices.IndexFunc(list, func(s task.Summary) bool { return s.ID == last.ID }); err != nil || total != 3 || at == 0 && !slices.Equal(list[0].DependsOn, both) {
		t.Error(list, total, err)
	}
	c.forward(time.Minute)
	before := taskOf(t, b, last.ID)
	is(t, before)(b.UpdateTask(t.Context(), last.ID, task.TaskChange{DependsOn: both}))
	dependOn := returned(dependOn(b, last, first)).of(t)
	equal(t, len(dependOn.BlockedBy), 0, dependOn.DependsOn, []string{first.ID}, dependOn.UpdatedAt.After(before.UpdatedAt), true)
	testkit.Must(t, start())
	finish(first, task.Todo)
	testkit.Must(t, start()) // it repeats the call, whose attempt was begun
	testkit.Must(t, b.DeleteTask(t.Context(), first.ID))
	if now := taskOf(t, b, last.ID); len(now.DependsOn)+len(now.BlockedBy) != 0 {
		t.Errorf("after the other was deleted: %+v", now)
	}
}

func TestDependenciesThatAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root, {Name: "front"}}, false))
	projects, _, _, err := b.Projects(t.Context(), task.Page{Limit: 2})
	testkit.Must(t, err)
	front := projects[slices.IndexFunc(projects, func(p task.Project) bool { return p.Name == "front" })]
	foreign := addTask(t, b, front, "foreign")
	var chain []*task.Summary // each depends on the one before
	for i := range 4 {
		chain = append(chain, addTask(t, b, p, fmt.Sprint(i)))
		if i > 0 {
			testkit.Must(t, second(dependOn(b, chain[i], chain[i-1])))
		}
	}
	_, diamond := dependOn(b, chain[3], chain[2], chain[1], chain[0])
	testkit.Must(t, diamond)
	many := make([]string, task.MaxDependencies+1)
	for i := range many {
		many[i] = fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
	}
	before := taskOf(t, b, chain[0].ID)
	change := func(id string, on ...string) error {
		_, err := b.UpdateTask(t.Context(), id, task.TaskChange{Title: new("changed"), DependsOn: on})
		return err
	}
	create := func(on ...string) error {
		_, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "x", DependsOn: on}, task.Request{})
		return err
	}
	const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"
	for name, test := range map[string]struct {
		err, want error
		text      string
	}{
		"itself":          {change(before.ID, before.ID), task.ErrCycle, "depends on itself"},
		"a cycle of two":  {change(before.ID, chain[1].ID), task.ErrCycle, before.ID + " depends on " + chain[1].ID + " depends on " + before.ID},
		"a cycle of four": {change(before.ID, chain[3].ID), task.ErrCycle, before.ID + " depends on " + chain[3].ID + " depends on "},
		"another project": {change(before.ID, foreign.ID), task.ErrDependency, foreign.ID},
		"nobody":          {change(before.ID, nobody), task.ErrDependency, nobody},
		"too many":        {change(before.ID, many...), task.ErrInvalid, "51"},
		"new and nobody":  {create(chain[0].ID, nobody), task.ErrDependency, nobody},
		"new and foreign": {create(foreign.ID), task.ErrDependency, foreign.ID},
	} {
		equal(t, name, errors.Is(test.err, test.want), true, strings.Contains(fmt.Sprint(test.err), test.text), true)
	}
	equal(t, "a refusal changed to", taskOf(t, b, before.ID), before)
	if _, total, _, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 1}); total != len(chain) || err != nil {
		t.Error(total, err)
	}
}

// Two processes that would close a cycle together: one of them is refused.
func TestCyclesOfTwoProcesses(t *testing.T) {
	c := newClock()
	path := t.TempDir() + "/board.db"
	a, b := openAt(t, path, c.now), openAt(t, path, c.now)
	p := rootOf(t, a)
	for range 5 {
		x, y := addTask(t, a, p, "x"), addTask(t, a, p, "y")
		refused := make(chan error, 2)
		go func() { _, err := dependOn(a, x, y); refused <- err }()
		go func() { _, err := dependOn(b, y, x); refused <- err }()
		one, two := <-refused, <-refused
		if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), task.ErrCycle) {
			t.Errorf("%v, %v; want one refused", one, two)
		}
	}
}

// A caller depends on what it sees, keeps what others made its task depend on, and learns no more
// of that than the id.
func TestDependenciesOnWhatACallerDoesNotSee(t *testing.T) {
	b, _, p := newBoard(t)
	eve, who := session.Caller{Identity: "eve"}, session.Caller{Identity: "solo"}
	create := func(who session.Caller, title string) *task.Summary {
		s := returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).of(t)
		return s
	}
	hidden, mine, other := create(eve, "secret"), create(who, "mine"), create(who, "other")
	set := func(on ...string) error {
		_, err := b.For(who).UpdateTask(t.Context(), mine.ID, task.TaskChange{DependsOn: on})
		return err
	}
	if err := set(hidden.ID); !errors.Is(err, task.ErrDependency) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	testkit.Must(t, second(dependOn(b, mine, hidden)))
	testkit.Must(t, set(hidden.ID, other.ID))
	_, err := b.For(who).CreateAttempt(t.Context(), task.Attempt{TaskID: mine.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{})
	equal(t, errors.Is(err, task.ErrBlocked), true, strings.Contains(err.Error(), hidden.ID), true, strings.Contains(err.Error(), "secret"), false, strings.Contains(err.Error(), "other"), true)
}
