package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// wide is room for anything.
var wide = task.Room{InReview: 1000, Slots: 1000}

// startReady starts a task that is ready.
func startReady(b store.Board, id string, r task.Room) error {
	return b.StartReady(context.Background(), task.Attempt{TaskID: id, Executor: "SCRIPTED", Branch: "deepwork/x", Workspace: abs("w")}, task.Execution{Prompt: "p"}, r)
}

// Tasks are ready that are todo, were never tried, depend on none that is not done, and were made and
// changed by callers who may start agents.
func TestReady(t *testing.T) {
	b, c, p := newBoard(t)
	ready := func(r task.Room) (titles []string) {
		t.Helper()
		for _, r := range testkit.Get(b.Ready(t.Context(), r)).Must(t) {
			equal(t, r.ProjectID, p.ID)
			titles = append(titles, taskOf(t, b, r.ID).Title)
		}
		return titles
	}
	made := func(title string) *task.Summary {
		c.forward(time.Second)
		return addTask(t, b, p, title)
	}
	blocker, free := made("blocker"), made("free")
	blocked := made("blocked")
	testkit.Must(t, second(dependOn(b, blocked, blocker)))
	tried := made("tried")
	try(t, b, tried)
	first, _ := run(t, b)
	end(t, b, first, task.Ending{State: task.Failed})
	b.set(t, tried, task.Todo)
	b.set(t, made("cancelled"), task.Cancelled)
	deleted := made("deleted")
	testkit.Must(t, second(b.BeginDelete(t.Context(), deleted.ID)))
	addAs(t, b, p, session.Caller{Identity: "guest"}, "guest")
	addAs(t, b, p, session.Caller{Identity: "friend", Rights: session.RightAgents}, "friend")
	changed := made("changed")
	testkit.Must(t, second(b.For(session.Caller{Identity: session.LocalIdentity}).UpdateTask(t.Context(), changed.ID, task.TaskChange{Title: new("taken over")})))
	equal(t, ready(wide), []string{"blocker", "free", "friend"})
	b.set(t, blocker, task.Done)
	equal(t, ready(wide), []string{"free", "blocked", "friend"})
	testkit.Must(t, startReady(b, free.ID, wide))
	equal(t, taskOf(t, b, free.ID).Status, task.InProgress, taskOf(t, b, free.ID).HasInProgressAttempt, true)
	for _, s := range []*task.Summary{free, tried, deleted, changed, blocker} {
		testkit.FailsWith(t, startReady(b, s.ID, wide), task.ErrNotReady)
	}
	reached := wide
	reached.Limits.Unknown = new(int64(0))
	testkit.FailsWith(t, startReady(b, blocked.ID, reached), task.ErrNotReady, "with a budget that is reached")
	equal(t, len(ready(reached)), 0)
	// Now one waits.
	for _, room := range []task.Room{{InReview: 1, Slots: 9}, {InReview: 9, Slots: 1}} {
		equal(t, room, len(ready(room)), 0)
		testkit.FailsWith(t, startReady(b, blocked.ID, room), task.ErrNotReady, "%+v", room)
	}
	equal(t, len(ready(task.Room{InReview: 2, Slots: 9})), 2, len(ready(task.Room{InReview: 9, Slots: 2})), 2)
	testkit.Must(t, startReady(b, blocked.ID, task.Room{InReview: 2, Slots: 2}))
}

// What is in review or will be, and what has failed, takes room; what was stopped does not.
func TestRoomForReady(t *testing.T) {
	b, _, p := newBoard(t)
	addTask(t, b, p, "ready")
	full := func() bool {
		t.Helper()
		return len(testkit.Get(b.Ready(t.Context(), task.Room{InReview: 1, Slots: 9})).Must(t)) == 0
	}
	equal(t, "full at first", full(), false)
	for state, want := range map[task.AttemptState]bool{task.Completed: true, task.Failed: true, task.Interrupted: true, task.Stopped: false} {
		s := addTask(t, b, p, string(state))
		try(t, b, s)
		equal(t, state, full(), true)
		x, _ := run(t, b)
		equal(t, state, full(), true)
		end(t, b, x, task.Ending{State: state, Task: map[task.AttemptState]task.Status{task.Completed: task.InReview}[state]})
		equal(t, state, full(), want)
		b.set(t, s, task.Done)
		equal(t, state, full(), false)
	}
}

// Two processes start each task once, and never more than there is room for.
func TestReadyOfTwoProcesses(t *testing.T) {
	const tasks, most = 8, 5
	path, c := newPath(t)
	one, two := openAt(t, path, c.now), openAt(t, path, c.now)
	p := rootOf(t, one)
	for i := range tasks {
		addTask(t, one, p, fmt.Sprint(i))
	}
	room, started := task.Room{InReview: most, Slots: tasks}, make(chan string, 2*tasks)
	var both sync.WaitGroup
	for _, b := range []board{one, two} {
		both.Go(func() {
			for all, err := b.Ready(t.Context(), room); len(all) > 0 || err != nil; all, err = b.Ready(t.Context(), room) {
				if err == nil {
					err = startReady(b, all[0].ID, room)
				}
				if err == nil {
					started <- all[0].ID
				} else if !errors.Is(err, task.ErrNotReady) {
					t.Error(err)
					return
				}
			}
		})
	}
	both.Wait()
	close(started)
	seen := map[string]bool{}
	for id := range started {
		testkit.True(t, !seen[id], "task %s was started twice", id)
		seen[id] = true
	}
	equal(t, "were started", len(seen), most)
}

func TestAttention(t *testing.T) {
	b, c, p := newBoard(t)
	var want []task.Attention // newest first
	for _, test := range []struct {
		title    string
		how      task.AttemptState
		status   task.Status // of the task afterwards; "" leaves it
		attended bool
	}{
		{"failed", task.Failed, "", true},
		{"interrupted", task.Interrupted, "", true},
		{"completed", task.Completed, task.InReview, true},
		{"early", task.Completed, "", true}, // before its workflow was complete
		{"stopped", task.Stopped, "", false},
		{"stopped in review", task.Stopped, task.InReview, true},
		{"put back", task.Failed, task.Todo, false},
		{"accepted", task.Completed, task.Done, false},
		{"given up", task.Failed, task.Cancelled, false},
		{"being deleted", task.Failed, "", false},
		{"tried again", task.Failed, "", false},
	} {
		c.forward(time.Minute)
		s := addTask(t, b, p, test.title)
		a := try(t, b, s)
		e, _ := run(t, b)
		c.forward(time.Minute)
		end(t, b, e, task.Ending{State: test.how})
		if test.status != "" {
			b.set(t, s, test.status)
		}
		switch test.title {
		case "being deleted":
			testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
		case "tried again":
			c.forward(time.Minute)
			try(t, b, s)
		}
		if test.attended {
			want = append([]task.Attention{{TaskID: s.ID, Title: test.title, AttemptID: a.ID, Situation: task.Situation{State: test.how, Leader: "server"}, Began: true, Since: c.at.UTC().Truncate(time.Microsecond)}}, want...)
		}
	}
	addTask(t, b, p, "never tried")
	got, more := attention(t, b)
	equal(t, more, false, got, want)
	testkit.Must(t, b.SetWorkflow(t.Context(), want[0].AttemptID, task.WorkflowProgress{SessionID: "00000000", Status: "active", Step: "one"}))
	got, _ = attention(t, b)
	equal(t, "after its workflow moved", got, want)
}

// What needs a person, and the work that has ended, are bounded; that of a caller is only its own.
func TestWork(t *testing.T) {
	b, c, p := newBoard(t)
	of := func(who session.Caller, title string, how task.AttemptState) task.Work {
		c.forward(time.Second)
		s := addAs(t, b, p, who, title)
		a := try(t, b, s)
		e, _ := run(t, b)
		c.forward(time.Second)
		if how != task.Running {
			end(t, b, e, task.Ending{State: how})
		}
		now := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
		return task.Work{TaskID: s.ID, Title: s.Title, AttemptID: a.ID, Executor: now.Executor, Situation: now.Situation}
	}
	var want []task.Work
	for i := range task.MaxWork + 1 {
		want = append(want, of(owner, fmt.Sprint(i), task.Failed))
	}
	want = append(want, of(session.Caller{Identity: "ann"}, "of ann", task.Failed), of(owner, "now", task.Running))
	slices.Reverse(want)
	open, ended, err := b.Work(t.Context())
	testkit.Must(t, err)
	for i := range open {
		open[i].Since = time.Time{}
	}
	last := ended[0].Since
	for i := range ended {
		testkit.True(t, !ended[i].Since.After(last) && !ended[i].Since.IsZero(), "%+v is not in order", ended[i])
		last, ended[i].Since = ended[i].Since, time.Time{}
	}
	equal(t, "open ended", open, want[:1], ended, want[1:task.MaxWork+1])
	ann := b.For(session.Caller{Identity: "ann"})
	open, ended, err = ann.Work(t.Context())
	testkit.Must(t, err)
	equal(t, "ann sees", len(open), 0, len(ended), 1, ended[0].Title, "of ann")
	all, more := attention(t, b)
	equal(t, more, true, len(all), task.MaxAttention, all[0].Title, "of ann", all[1].Title, fmt.Sprint(task.MaxWork))
	all, more = attention(t, ann)
	equal(t, more, false, len(all), 1, all[0].Title, "of ann")
}

// ids are the ids of what is listed, by name; repos as project/repo.
func ids(t *testing.T, b board) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, p := range b.projects(t) {
		all[p.Name] = p.ID
		repos, total, _, err := b.Repos(t.Context(), p.ID, task.Page{Limit: 100})
		testkit.Must(t, err)
		equal(t, total, len(repos))
		for _, r := range repos {
			all[p.Name+"/"+r.Name] = r.ID
			equal(t, *testkit.Get(b.Repo(t.Context(), r.ID)).Must(t), r, r.ProjectID, p.ID)
		}
		equal(t, *testkit.Get(b.Project(t.Context(), p.ID)).Must(t), p)
	}
	return all
}

func resync(t *testing.T, b board, all ...task.ProjectSpec) map[string]string {
	t.Helper()
	testkit.Must(t, b.SyncProjects(t.Context(), all, false))
	return ids(t, b)
}

func project(name string, repos ...string) task.ProjectSpec {
	p := task.ProjectSpec{Name: name}
	for _, r := range repos {
		p.Repos = append(p.Repos, task.RepoSpec{Name: r, Path: abs(r)})
	}
	return p
}

func TestProjectsKeepTheirIDs(t *testing.T) {
	path, c := newPath(t)
	b := openAt(t, path, c.now)
	shop := task.ProjectSpec{Name: "shop", Root: true, Repos: []task.RepoSpec{{Name: "shop", Path: abs("shop")}}}
	was := resync(t, b, shop, project("web", "web", "api"), project("shop", "tool")) // one of the root's name
	equal(t, len(slices.Compact(slices.Sorted(maps.Values(was)))), len(was))
	root := func() task.Project {
		list := b.projects(t)
		return list[slices.IndexFunc(list, func(p task.Project) bool { return p.Root })]
	}
	before := root()
	web := was["web"]
	s := addTask(t, b, task.Project{ID: web}, "kept")
	c.forward(time.Hour)
	shop.Name = "store" // the folder was renamed, and the other projects are gone
	now := resync(t, b, shop)
	after := root()
	equal(t, after.ID, before.ID, after.Name, "store", after.CreatedAt, before.CreatedAt, after.UpdatedAt.Equal(before.UpdatedAt), false)
	equal(t, "listed are", len(now), 2, now["store/shop"] == "", false)
	testkit.FailsWith(t, second(b.Repo(t.Context(), was["web/api"])), task.ErrNotFound)
	_, total, _ := b.tasks(t, web, task.Filter{}, task.Page{Limit: 5})
	equal(t, taskOf(t, b, s.ID), s, total, 1)
	says(t, second(b.CreateTask(t.Context(), task.NewTask{ProjectID: web, Title: "x"}, task.Request{})), task.ErrNotFound, "no longer in the config")
	testkit.Must(t, b.Close())
	b = openAt(t, path, c.now)
	now = resync(t, b, project("web", "api", "new"), shop)
	equal(t, now["web"], web, now["web/api"], was["web/api"], now["web/web"], "", now["web/new"] == "", false)
	now = resync(t, b, project("web", "web", "api"), shop)
	equal(t, now["web/web"], was["web/web"], now["web/new"], "")
	addTask(t, b, task.Project{ID: web}, "x")
	// Unchanged projects are not written.
	repo, all := testkit.Get(b.Repo(t.Context(), now["web/api"])).Must(t), b.projects(t)
	c.forward(time.Hour)
	again := project("web", "web", "api")
	resync(t, b, again, shop)
	equal(t, b.projects(t), all)
	again.Repos[1].Path = abs("elsewhere")
	resync(t, b, again, shop)
	got := testkit.Get(b.Repo(t.Context(), repo.ID)).Must(t)
	equal(t, got.Path, abs("elsewhere"), got.UpdatedAt.After(repo.UpdatedAt), true, got.CreatedAt, repo.CreatedAt)
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{shop, {Name: "of another machine"}}, true)) // those of others stay
	equal(t, len(ids(t, b)), len(now)+1)
}
