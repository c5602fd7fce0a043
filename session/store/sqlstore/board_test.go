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
	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// wide is room for anything.
var wide = task.Room{InReview: 1000, Slots: 1000}

func startReady(b store.Board, id string, r task.Room) error {
	return b.StartReady(context.Background(), task.Attempt{
		TaskID:    id,
		Executor:  "SCRIPTED",
		Branch:    "deepwork/x",
		Workspace: abs("w"),
	}, task.Execution{Prompt: "p"}, r)
}

// Tasks are ready that are todo, were never tried, wait for none, and were made and changed by callers who
// may start agents.
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
	testkit.Must(t, second(b.For(session.Caller{Identity: session.LocalIdentity}).UpdateTask(t.Context(), changed.ID,
		task.TaskChange{Title: new("taken over")})))
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
		return len(testkit.Get(b.Ready(t.Context(), task.Room{InReview: 1, Slots: 9})).Must(t)) == 0
	}
	equal(t, "full at first", full(), false)
	for state, want := range map[task.AttemptState]bool{
		task.Completed:   true,
		task.Failed:      true,
		task.Interrupted: true,
		task.Stopped:     false,
	} {
		s := addTask(t, b, p, string(state))
		try(t, b, s)
		equal(t, state, full(), true)
		x, _ := run(t, b)
		equal(t, state, full(), true)
		end(t, b, x, task.Ending{
			State: state,
			Task:  map[task.AttemptState]task.Status{task.Completed: task.InReview}[state],
		})
		equal(t, state, full(), want)
		b.set(t, s, task.Done)
		equal(t, state, full(), false)
	}
}

func TestReadyOfTwoProcesses(t *testing.T) {
	const tasks, most = 8, 5
	path, c := newPath(t)
	one, two := openAt(t, path, c.now), openAt(t, path, c.now)
	p := rootOf(t, one)
	var all []*task.Summary
	for i := range tasks {
		all = append(all, addTask(t, one, p, fmt.Sprint(i)))
	}

	room := task.Room{InReview: most, Slots: tasks}
	started := atOnce(2*tasks, func(i int) bool {
		err := startReady([]board{one, two}[i%2], all[i/2].ID, room)
		testkit.True(t, err == nil || errors.Is(err, task.ErrNotReady), "%v", err)
		return err == nil
	})
	equal(t, "were started", won(started), most)
	for i := range all {
		equal(t, "one was started twice", started[2*i] && started[2*i+1], false)
	}
}

func TestAttention(t *testing.T) {
	b, c, p := newBoard(t)
	// newest first
	var want []task.Attention

	// status "" leaves that of the task
	tried := func(attended bool, title string, how task.AttemptState, status task.Status) *task.Summary {
		c.forward(time.Minute)
		s := addTask(t, b, p, title)
		a := try(t, b, s)
		e, _ := run(t, b)
		c.forward(time.Minute)
		end(t, b, e, task.Ending{State: how})
		if status != "" {
			b.set(t, s, status)
		}
		if attended {
			want = append([]task.Attention{{
				TaskID:    s.ID,
				Title:     title,
				AttemptID: a.ID,
				Situation: task.Situation{State: how, Leader: "server"},
				Began:     true,
				Since:     c.at.UTC().Truncate(time.Microsecond),
			}}, want...)
		}

		return s
	}
	tried(true, "failed", task.Failed, "")
	tried(true, "interrupted", task.Interrupted, "")
	tried(true, "completed", task.Completed, task.InReview)
	tried(true, "early", task.Completed, "") // before its workflow was complete
	tried(false, "stopped", task.Stopped, "")
	tried(true, "stopped in review", task.Stopped, task.InReview)
	tried(false, "put back", task.Failed, task.Todo)
	tried(false, "accepted", task.Completed, task.Done)
	tried(false, "given up", task.Failed, task.Cancelled)
	testkit.Must(t, second(b.BeginDelete(t.Context(), tried(false, "being deleted", task.Failed, "").ID)))
	again := tried(false, "tried again", task.Failed, "")
	c.forward(time.Minute)
	try(t, b, again)
	addTask(t, b, p, "never tried")
	got, more := attention(t, b)
	equal(t, more, false, got, want)
	testkit.Must(t, b.SetWorkflow(t.Context(), want[0].AttemptID,
		task.WorkflowProgress{SessionID: "00000000", Status: "active", Step: "one"}))
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
		return task.Work{
			TaskID:    s.ID,
			Title:     s.Title,
			AttemptID: a.ID,
			Executor:  now.Executor,
			Situation: now.Situation,
		}
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
	before, web := root(), was["web"]
	s := addTask(t, b, task.Project{ID: web}, "kept")
	c.forward(time.Hour)
	shop.Name = "store" // the folder was renamed, and the other projects are gone
	now, after := resync(t, b, shop), root()
	equal(t, after.ID, before.ID, after.Name, "store", after.CreatedAt, before.CreatedAt,
		after.UpdatedAt.Equal(before.UpdatedAt), false)
	equal(t, "listed are", len(now), 2, now["store/shop"] == "", false)
	testkit.FailsWith(t, second(b.Repo(t.Context(), was["web/api"])), task.ErrNotFound)

	_, total, _ := b.tasks(t, web, task.Filter{}, task.Page{Limit: 5})
	equal(t, taskOf(t, b, s.ID), s, total, 1)
	says(t, second(b.CreateTask(t.Context(), task.NewTask{ProjectID: web, Title: "x"}, task.Request{})),
		task.ErrNotFound, "no longer in the config")
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
	// those of others stay
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{shop, {Name: "of another machine"}}, true))
	equal(t, len(ids(t, b)), len(now)+1)
}

// The callers of these tests: ann and bob share a group.
var (
	owner = session.LocalCaller(session.ChannelStdio)
	ann   = session.Caller{Identity: "ann", Group: "team"}
	bob   = session.Caller{Identity: "bob", Group: "team"}
)

// strangers see nothing of ann's. The names of some are those of others' groups.
var strangers = []session.Caller{
	{Identity: "eve"}, {Identity: "eve", Group: "others"}, {Identity: "team"}, {Identity: "eve", Group: "ann"},
	{Identity: "local"}, {},
}

// A row names what belongs to one task.
type row struct{ project, repo, task, attempt, session, waiting string }

var nowhere = row{"p", "r", "no task", "no attempt", "no session", "no execution"}

// byID are calls of the methods of a View that name something of a task.
func byID(ctx context.Context, v store.View, r row) map[string]func() error {
	return map[string]func() error{
		"Task": func() error { return second(v.Task(ctx, r.task)) },
		"UpdateTask": func() error {
			return second(v.UpdateTask(ctx, r.task, task.TaskChange{Title: new("changed")}))
		},
		"BeginDelete": func() error { return second(v.BeginDelete(ctx, r.task)) },
		"UndoDelete":  func() error { return v.UndoDelete(ctx, r.task) },
		"DeleteTask":  func() error { return v.DeleteTask(ctx, r.task) },
		"CreateAttempt": func() error {
			return second(v.CreateAttempt(ctx, task.Attempt{
				TaskID:    r.task,
				Executor:  "X",
				Branch:    "deepwork/y",
				Workspace: "/w",
			}, task.Execution{Prompt: "p"}, task.Request{}))
		},
		"Attempt":         func() error { return second(v.Attempt(ctx, r.attempt)) },
		"Report":          func() error { return second(v.Report(ctx, r.attempt)) },
		"AttemptDetails":  func() error { return second(v.AttemptDetails(ctx, r.attempt)) },
		"TaskAttempts":    func() error { return second(v.TaskAttempts(ctx, r.task, task.Page{Limit: 9})) },
		"LatestExecution": func() error { return second(v.LatestExecution(ctx, r.attempt)) },
		"AddExecution":    func() error { return second(v.AddExecution(ctx, r.session, "p", nil, task.Request{})) },
		"Executions":      func() error { return second(v.Executions(ctx, r.attempt)) },
		"Steps":           func() error { return second(v.Steps(ctx, r.attempt)) },
		"Used":            func() error { return second(v.Used(ctx, r.attempt)) },
		"Spent":           func() error { return second(v.Spent(ctx, r.task, "")) },
		"Comments":        func() error { return second(v.Comments(ctx, r.attempt)) },
		"ChangeComments": func() error {
			return second(v.ChangeComments(ctx, r.attempt, nil,
				[]task.Comment{{File: "f", Line: 1, Side: task.NewSide}}, task.Request{}))
		},
		"SetLanded": func() error {
			_, err := v.SetLanded(ctx, r.attempt, task.LandedConflicts, false)
			return err
		},
		"SetTargets": func() error { return v.SetTargets(ctx, r.attempt, map[string]string{"r1": "next"}) },
		"AskRemoval": func() error { return v.AskRemoval(ctx, r.attempt) },
		"Removal":    func() error { return second(v.Removal(ctx, r.attempt)) },
		"Stop":       func() error { return second(v.Stop(ctx, r.waiting)) },
		"Session":    func() error { return second(v.Session(ctx, r.session)) },
		"Queue": func() error {
			_, _, err := v.Queue(ctx, r.session, nil, task.Request{})
			return err
		},
	}
}

// others are the other methods of a View; TestLists and TestHistory are about those that depend on the caller.
var others = []string{"Projects", "Project", "Repos", "Repo", "Tasks", "CreateTask", "CreateRun", "FindRequest",
	"BranchTaken", "VisibleBranches", "Attention", "Work", "WorkedOn", "History", "HistoryTotals"}

// made makes a task of a caller, with an attempt that has ended and one that waits.
func made(t *testing.T, b board, p task.Project, who session.Caller) row {
	t.Helper()
	s := addAs(t, b, p, who, "of "+who.Identity)
	a, e := tryAs(t, b, who, s), claimed(t, b, 1000)
	for ; e != nil && e.AttemptID != a.ID; e = claimed(t, b, 1000) {
		defer b.Release(t.Context(), e.ID, "server", false) // those of other tasks wait on
	}
	testkit.Need(t, e != nil, "nothing to claim")

	conversation := testkit.Get(b.StartExecution(t.Context(), e.ID, "SCRIPTED", "", time.Time{})).Must(t)
	end(t, b, e, task.Ending{State: task.Completed})
	return row{p.ID, "", s.ID, a.ID, conversation.ID,
		testkit.Get(b.LatestExecution(t.Context(), tryAs(t, b, who, s).ID)).Must(t).ID}
}

// Each method lets the maker, its group and the owner read and change, and says to anybody else what it says
// of nothing.
func TestEachMethodKeepsToTheCallersTasks(t *testing.T) {
	b, _, p := newBoard(t)
	methods := slices.AppendSeq(slices.Clone(others), maps.Keys(byID(t.Context(), b, nowhere)))
	for m := range reflect.TypeFor[store.View]().Methods() {
		equal(t, "a test of whose tasks shows "+m.Name, slices.Contains(methods, m.Name), true)
	}
	kept, alone := made(t, b, p, ann), made(t, b, p, session.Caller{Identity: "solo"})
	state := func() string {
		l := testkit.Get(b.TaskAttempts(t.Context(), kept.task, task.Page{Limit: 9})).Must(t)
		return string(testkit.Get(json.Marshal([]any{l, testkit.Get(b.Executions(t.Context(), kept.attempt)).Must(t)})).
			Must(t))
	}
	was := state()
	call := func(name string, who session.Caller, of row) error { return byID(t.Context(), b.For(who), of)[name]() }
	for name := range byID(t.Context(), b, nowhere) {
		for _, who := range strangers {
			for _, of := range []row{kept, alone} {
				got := call(name, who, of)
				testkit.FailsWith(t, got, task.ErrNotFound, name)
				of := strings.NewReplacer(of.task, nowhere.task, of.attempt, nowhere.attempt, of.session,
					nowhere.session, of.waiting, nowhere.waiting)
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

func TestLists(t *testing.T) {
	b, c, p := newBoard(t)
	for i := range 12 {
		c.forward(1000)
		who := []session.Caller{ann, bob, {Identity: "eve"}, {Identity: "ann"}}[i%4]
		s := addAs(t, b, p, who, fmt.Sprint(i))
		testkit.Must(t,
			second(b.For(who).CreateAttempt(t.Context(), task.Attempt{
				TaskID:    s.ID,
				Executor:  "X",
				Branch:    "deepwork/" + s.Title,
				Workspace: "/w",
			}, task.Execution{Prompt: "p"}, task.Request{})))
		if i%3 == 0 {
			testkit.Must(t, second(b.For(who).UpdateTask(t.Context(), s.ID, task.TaskChange{Status: new(task.Done)})))
		}
	}
	testkit.Must(t, b.For(ann).DeleteTask(t.Context(), addAs(t, b, p, bob, "gone").ID))
	sees := func(who session.Caller, all, done string) {
		t.Helper()
		v := b.For(who)
		for status, want := range map[task.Status]string{"": all, task.Done: done} {
			var got []task.Summary
			for next := "first"; next != ""; {
				list, total, cursor, err := v.Tasks(t.Context(), p.ID, task.Filter{Status: status},
					task.Page{Limit: 2, Cursor: strings.TrimPrefix(next, "first")})
				testkit.Must(t, err)
				equal(t, total, len(strings.Fields(want)))
				got, next = append(got, list...), cursor
			}
			equal(t, status, titles(got), strings.ReplaceAll(want, " ", ", "))
		}
		sorted := slices.Sorted(slices.Values(strings.Fields(all)))
		open, ended, err := v.Work(t.Context())
		testkit.Must(t, err)
		equal(t, "work", slices.Sorted(slices.Values(xslices.Map(open, func(w task.Work) string { return w.Title }))),
			sorted, len(ended), 0)
		branches := testkit.Get(v.VisibleBranches(t.Context())).Must(t)
		equal(t, "branches",
			slices.Sorted(slices.Values(xslices.Map(branches, func(b string) string {
				return strings.TrimPrefix(b, "deepwork/")
			}))), sorted)
		equal(t, "works on", len(testkit.Get(v.WorkedOn(t.Context())).Must(t)), len(sorted)-len(strings.Fields(done)))
		// Two attempts must not have the same branch, even if different callers made them.
		is(t, true)(v.BranchTaken(t.Context(), "deepwork/10"))
		list, total, _, err := v.Projects(t.Context(), task.Page{Limit: 9})
		testkit.Must(t, err)
		repos, n, _, err := v.Repos(t.Context(), p.ID, task.Page{Limit: 9})
		testkit.Must(t, err)
		equal(t, total, 1, len(list), 1, n, 1)
		testkit.Must(t, second(v.Repo(t.Context(), repos[0].ID)))
	}
	sees(ann, "11 9 8 7 5 4 3 1 0", "9 3 0")
	sees(bob, "9 8 5 4 1 0", "9 0")
	sees(session.Caller{Identity: "eve"}, "10 6 2", "6")
	sees(session.Caller{Identity: "ann"}, "11 8 7 4 3 0", "3 0")
	sees(owner, "11 10 9 8 7 6 5 4 3 2 1 0", "9 6 3 0")
	sees(session.Caller{Identity: "team"}, "", "")
	sees(session.Caller{}, "", "")

	// The maker of an attempt is who started it; the owner does that for the maker of the task.
	for _, c := range []struct{ made, tried, want session.Caller }{
		{ann, bob, session.Caller{Identity: "bob", Group: "team"}},
		{ann, owner, session.Caller{Identity: "ann", Group: "team"}},
		{owner, owner, session.Caller{Identity: session.LocalIdentity}},
		{session.Caller{Identity: "eve", Rights: session.RightAgents, Channel: session.ChannelHTTP},
			session.Caller{Identity: "eve"}, session.Caller{Identity: "eve"}},
	} {
		is(t, c.want)(b.Maker(t.Context(), tryAs(t, b, c.tried, addAs(t, b, p, c.made, "one")).ID))
	}
}

// A task that the owner gives to a group is the group's, with its attempts: an agent that is led by its text sees what
// the group sees. Given back, it is the owner's alone.
func TestATaskIsGivenToAGroup(t *testing.T) {
	b, _, p := newBoard(t)
	secret := addAs(t, b, p, owner, "secret")
	s := addAs(t, b, p, owner, "given")
	first := tryAs(t, b, owner, s)
	give := func(group string) *task.Summary {
		t.Helper()
		return testkit.Get(b.For(owner).UpdateTask(t.Context(), s.ID, task.TaskChange{Group: &group})).Must(t)
	}
	sees := func(who session.Caller, id string, want bool) {
		t.Helper()
		err := second(b.For(who).Task(t.Context(), id))
		testkit.True(t, want == (err == nil), "%+v sees %s: %v", who, id, err)
	}
	sees(ann, s.ID, false)
	equal(t, give("team").CallerGroup, "team")
	for _, a := range []*task.Attempt{first, tryAs(t, b, owner, s)} {
		maker := testkit.Get(b.Maker(t.Context(), a.ID)).Must(t)
		sees(maker, s.ID, true)
		sees(maker, secret.ID, false)
		testkit.Must(t, second(b.For(bob).Attempt(t.Context(), a.ID)))
	}
	sees(ann, s.ID, true)
	for _, other := range strangers {
		sees(other, s.ID, false)
	}
	testkit.Must(t, second(b.For(bob).UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("better")})))
	give("others")
	sees(ann, s.ID, false)
	equal(t, give("").CallerGroup, "")
	sees(ann, s.ID, false)
	sees(session.Caller{Identity: "@team", Group: "team"}, s.ID, false)
	is(t, session.Caller{Identity: session.LocalIdentity})(b.Maker(t.Context(), first.ID))
}
