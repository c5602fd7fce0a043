package board

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/why"
)

func TestMain(m *testing.M) {
	attempttest.Main(m, "TestReq004_ProjectsAndRepos TestReq004_Tasks TestCreateTaskOnce")
}

var (
	ctx           = context.Background()
	me            = session.LocalCaller(session.ChannelStdio)
	must, refused = testkit.Must, attempttest.Refused
)

const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

type project struct{ *attempttest.Project }

func newProject(t *testing.T) *project { return &project{attempttest.New(t)} }

// A server is a board as a server process has it.
type server struct {
	*Board
	t    testing.TB
	stop func()
}

func (p *project) open(change ...func(*Options)) *server {
	o := Options{
		Root:   p.Root,
		Stores: p.Stores(),
		Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil },
	}
	for _, f := range change {
		f(&o)
	}
	s := &server{Board: New(o), t: p.T}
	s.stop = sync.OnceFunc(func() {
		must(p.T, s.Close(ctx))
		if o.Stores != nil {
			must(p.T, o.Stores.Close(ctx))
		}
	})
	p.T.Cleanup(s.stop)
	return s
}

// rootProject is the id of the project root and of its repository, which may be "".
func (s *server) rootProject() (projectID, repoID string) {
	s.t.Helper()
	r := testkit.Get(s.ListProjects(ctx, me, ListProjectsArgs{})).Must(s.t)
	for _, v := range r.Projects {
		if v.IsRoot {
			projectID = v.ProjectID
		}
	}
	repos := testkit.Get(s.ListRepos(ctx, me, ListReposArgs{ProjectID: projectID})).Must(s.t)
	if len(repos.Repos) == 1 {
		repoID = repos.Repos[0].RepoID
	}
	return projectID, repoID
}

func (s *server) newTask(lines ...string) *Task {
	s.t.Helper()
	id, _ := s.rootProject()
	return testkit.Get(s.CreateTask(ctx, me,
		CreateTaskArgs{ProjectID: id, Title: "Add a basket", Description: OrNull(strings.Join(lines, "\n"))})).Must(s.t)
}

// attempt makes an attempt at a task, perhaps a run, and brings it to a state.
func (s *server) attempt(v *Task, state task.AttemptState, run *Run) *task.Attempt {
	s.t.Helper()
	records := testkit.Get(s.Store(ctx)).Must(s.t)
	a := task.Attempt{TaskID: v.TaskID, Executor: "TEST", Branch: "deepwork/" + Short(v.TaskID), Workspace: s.o.Root}
	if run != nil {
		a.Run = testkit.Get(json.Marshal(run)).Must(s.t)
	}
	made := testkit.Get(records.CreateAttempt(ctx, a, task.Execution{Prompt: "p"}, task.Request{})).Must(s.t)
	if state != task.Waiting {
		s.brings(state)
	}
	return testkit.Get(records.Attempt(ctx, made.ID)).Must(s.t)
}

// brings has the execution that waits run, and perhaps end.
func (s *server) brings(state task.AttemptState) {
	s.t.Helper()
	records := testkit.Get(s.Store(ctx)).Must(s.t)
	x := testkit.Get(records.ClaimNext(ctx, "0011223344556677", 9, nil, task.Limits{})).Must(s.t)
	testkit.Get(records.StartExecution(ctx, x.ID, "TEST", "", time.Time{})).Must(s.t)
	if state != task.Running {
		_, _, err := records.EndExecution(ctx, x.ID,
			task.Ending{State: state, Task: map[task.AttemptState]task.Status{task.Completed: task.InReview}[state]})
		must(s.t, err)
	}
}

func TestNeedsAttention(t *testing.T) {
	p := newProject(t)
	soon := time.Now().Add(time.Hour)
	var broken error
	s := p.open(func(o *Options) {
		o.Steps = func(_ context.Context, who session.Caller, _ []string) ([]session.AwaitingStep, error) {
			if who.Identity != me.Identity {
				return nil, broken
			}
			return []session.AwaitingStep{{SessionID: "0a1b2c3d", Step: "write", Goal: "A report", Since: soon}}, broken
		}
	})
	eve := session.Caller{Identity: "eve"}
	kinds := func(who session.Caller) (all []string) {
		t.Helper()
		r := testkit.Get(s.NeedsAttention(ctx, who)).Must(t)
		testkit.Equal(t, r.Count, len(r.Items))
		for _, i := range r.Items {
			all = append(all, i.Kind+" "+i.ID)
		}
		return all
	}
	testkit.Same(t, kinds(eve), nil, "at first")

	good := s.newTask("good")
	bad := s.newTask("bad")
	led := s.newTask("led")
	done, failed := s.attempt(good, task.Completed, nil), s.attempt(bad, task.Failed, nil)
	run := s.attempt(led, task.Failed, &Run{JobName: "texts", WorkflowName: "write"})
	s.attempt(s.newTask("stopped"), task.Stopped, &Run{})
	want := []string{"step_waits 0a1b2c3d", "run_to_resume " + run.ID, "attempt_failed " + failed.ID,
		"attempt_to_review " + done.ID}
	testkit.Same(t, kinds(me), want)
	testkit.Same(t, kinds(eve), nil, "another caller sees")

	r := testkit.Get(s.NeedsAttention(ctx, me)).Must(t)
	for i, want := range []string{"deepwork sessions override 0a1b2c3d write --reason TEXT", "deepwork run resume " +
		Short(run.ID), "deepwork board tail " + Short(failed.ID), "deepwork board diff " + Short(done.ID)} {
		testkit.Equal(t, r.Items[i].Command, want)
	}
	testkit.Equal(t, r.Items[0].Title+" "+*r.Items[0].Since, "Step write: A report "+Stamp(soon))
	testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: good.TaskID, Status: new("done")})).Must(t)
	testkit.Same(t, kinds(me), want[:3], "after it was accepted")

	wait := RunWait{Kind: WaitsForLimit, SessionID: "0123abcd", StepID: "fix", Since: soon.Add(time.Hour), Until: &soon}
	unclear := wait
	unclear.Tries = 3
	limited := s.attempt(s.newTask("limited"), task.Running, &Run{Waits: []RunWait{wait, unclear}})
	testkit.Same(t, kinds(me), append([]string{AttentionLimit + " " + limited.ID, want[0],
		AttentionRun + " " + limited.ID}, want[1:3]...), "with a limit of which nobody knows the end")

	limit := testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items[0]
	testkit.Equal(t, limit.Title+" "+limit.Command, "Add a basket: "+
		waitsOf(&Run{Waits: []RunWait{unclear}}, true)[0].Text()+" deepwork run status "+Short(limited.ID))
	testkit.Same(t, kinds(eve), nil, "another caller sees")

	// A source asks the person who called it, and the user.
	for i, who := range []session.Caller{me, eve, {Identity: "bob"}} {
		x := store.RemoteRun{
			ID:                fmt.Sprint(nobody[:35], i),
			Identity:          who.Identity,
			Source:            "trips",
			WorkflowName:      "book",
			State:             store.RemoteRunning,
			StatusSupported:   true,
			SourceExecutionID: new("7"),
			StartedAt:         soon.Add(time.Duration(i) * time.Second),
			Progress:          testkit.Get(json.Marshal(source.Progress{Asks: "Which city?"})).Must(t),
		}
		must(t, s.Database.RemoteRuns().Add(ctx, &x, store.WorkRow{Kind: store.RemoteWork, Key: x.ID}))
	}
	testkit.Same(t, kinds(eve), []string{AttentionSource + " " + nobody[:35] + "1"}, "another caller is asked")

	var asked []string
	for _, i := range testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items {
		if i.Kind == AttentionSource {
			asked = append(asked, i.ID[35:]+" "+i.Title)
		}
	}
	testkit.Same(t, asked, []string{"2 trips asks for book: Which city?", "1 trips asks for book: Which city?",
		"0 trips asks for book: Which city?"})

	agents, source := config.Asked{Key: config.AgentsKey}, config.Asked{Key: "workflow_tools.sources.ci", Text: "./ci"}
	for name, test := range map[string]struct {
		config.Withheld
		title string
	}{
		"agents alone": {config.Withheld{Asked: []config.Asked{agents}}, ""},
		"denied":       {config.Withheld{Asked: []config.Asked{source}, Denied: true}, ""},
		"a source": {config.Withheld{Asked: []config.Asked{agents, source}},
			"Not approved: agents, workflow_tools.sources.ci"},
		"a fault": {config.Withheld{Asked: []config.Asked{source}, Fault: "it is a link."},
			"Not approved: workflow_tools.sources.ci. It cannot be approved: it is a link"},
	} {
		p.Configure(func(c *config.Config) { c.Approval = &config.Approval{Withheld: &test.Withheld} })
		r := testkit.Get(s.NeedsAttention(ctx, me)).Must(t)
		i := r.Items[len(r.Items)-1]
		testkit.True(t, (i.Kind == AttentionUntrusted) == (test.title != "") && (i.Kind != AttentionUntrusted ||
			i.Title == test.title && i.Command == "deepwork trust" && len(i.ID) == 16), "%s: %+v", name, i)
	}
	p.Configure(func(c *config.Config) { c.Attempts.MaxUnknown = &config.Limit{Max: 2, File: "mine.yml"} })
	testkit.Contains(t, strings.Join(kinds(me), "\n"), "budget_reached attempts.max_unknown")
	testkit.Contains(t, *testkit.Get(s.HeldBack(ctx, me, p.Config.Load())).Must(t), "attempts.max_unknown is 2")
	for who, sum := range map[*session.Caller]bool{&me: true, &eve: false} {
		err := s.WithinBudget(ctx, *who, p.Config.Load())
		refused(t, err, session.StateError, codes.BudgetReached, "attempts.max_unknown is 2", "mine.yml")
		testkit.Equal(t, strings.Contains(err.Error(), "2 executions have ended"), sum, "%v", err)
	}
	testkit.Works(t, s.WithinBudget(ctx, me, config.Default()))

	broken = errors.New("no sessions")
	testkit.FailsWith(t, testkit.Get(s.NeedsAttention(ctx, me)).Err(), broken)
}

// What a caller sees of runs and attempts; others are told that there are none.
func TestRunsOnABoard(t *testing.T) {
	p := newProject(t)
	changed := 0
	s := p.open(func(o *Options) { o.Changed = func() { changed++ } })
	plain := s.attempt(s.newTask("plain"), task.Running, nil)
	testkit.Equal(t, changed, 2, "the board was opened and got a task")
	done := s.attempt(s.newTask("done"), task.Completed, nil)
	run := &Run{JobName: "texts", WorkflowName: "write", Goal: "A text", SessionID: "0a1b2c3d"}
	ended := s.attempt(s.newTask("ended"), task.Stopped, run)
	waits := s.attempt(s.newTask("waits"), task.Waiting, run)
	eve := session.Caller{Identity: "eve", Rights: session.RightAgents}
	all := testkit.Get(s.Runs(ctx, me)).Must(t)
	var got []string
	for _, r := range all {
		got = append(got, r.RunID+" "+string(r.State)+" "+r.Workflow)
	}
	testkit.Same(t, got, []string{waits.ID + " queued texts/write", ended.ID + " stopped texts/write"})
	testkit.True(t, *all[1].Reason == "It was stopped." && len(testkit.Get(s.Runs(ctx, eve)).Must(t)) == 0,
		"it ended otherwise, or another caller has runs")
	testkit.Equal(t, *testkit.Get(s.GetRun(ctx, me, RunArgs{ended.ID})).Must(t).SessionID, "0a1b2c3d")
	refused(t, testkit.Get(s.GetRun(ctx, me, RunArgs{plain.ID})).Err(), session.ToolError, "unknown_run", plain.ID)
	refused(t, testkit.Get(s.GetRun(ctx, eve, RunArgs{ended.ID})).Err(), session.ToolError, "unknown_run")
	// What an agent cost, and why none starts any more.
	testkit.Equal(t, *testkit.Get(s.GetTask(ctx, me, TaskArgs{plain.TaskID})).Must(t).LatestAttemptState, Running)

	costs := testkit.Get(s.Costs(ctx, me, []string{done.TaskID, waits.TaskID, nobody})).Must(t)
	testkit.True(t, len(costs) == 1 && costs[done.TaskID].Unknown == 1, "%+v", costs)

	for _, reached := range []bool{false, true} {
		if reached {
			p.Configure(func(c *config.Config) { c.Attempts.MaxUnknown = &config.Limit{Max: 1, File: "mine.yml"} })
		}
		for at, held := range map[*task.Attempt]bool{plain: false, waits: reached} {
			notice := testkit.Get(s.ListTaskAttempts(ctx, me, ListTaskAttemptsArgs{TaskID: at.TaskID})).Must(t).Notice
			testkit.True(t, (notice != nil) == held &&
				(!held || strings.Contains(*notice, "attempts.max_unknown is 1")), "notice %s", OrEmpty(notice))
		}
		reason := testkit.Get(s.GetRun(ctx, me, RunArgs{waits.ID})).Must(t).Reason
		testkit.True(t, (reason != nil) == reached &&
			(!reached || strings.Contains(*reason, "attempts.max_unknown is 1")), "reason %s", OrEmpty(reason))
	}
	for prefix, want := range map[string]int{"": 4, plain.ID[:8]: 1, "no": 0} {
		testkit.Equal(t, len(testkit.Get(s.FindAttempts(ctx, me, prefix)).Must(t)), want, "%q", prefix)
	}
	testkit.Equal(t, len(testkit.Get(s.FindAttempts(ctx, eve, "")).Must(t)), 0, "another caller finds")

	open, over, err := s.Work(ctx, me)
	must(t, err)
	testkit.True(t, len(open) == 2 && len(over) == 2, "open: %+v, ended: %+v", open, over)
	testkit.Equal(t, testkit.Get(testkit.Get(OpenContext(strings.ToUpper(waits.ID), s.Database)).Must(t).
		GetContext(ctx)).Must(t).AttemptID, waits.ID)
	testkit.Fails(t, testkit.Get(OpenContext("x", s.Database)).Err(), "attempt_id")
}

// What is the same thing to a person has the same key, and a run that stopped because of a step has none beside it.
func TestKeys(t *testing.T) {
	step := Attention{Kind: AttentionStep, ID: "s", Since: new("1"), Waits: &session.AwaitingStep{AttemptID: "r"}}
	for name, c := range map[string]struct {
		of   Attention
		want string
	}{
		"a step":           {step, "step_waits s 1"},
		"its run":          {Attention{Kind: AttentionRun, ID: "r", Since: new("2")}, ""},
		"another run":      {Attention{Kind: AttentionRun, ID: "x", Since: new("2")}, "run_to_resume x 2"},
		"a config":         {Attention{Kind: AttentionUntrusted, ID: "c", Since: new("3")}, "untrusted c"},
		"a try at a limit": {Attention{Kind: AttentionLimit, ID: "r", Since: new("3")}, "limit_unclear r"},
		"a source":         {Attention{Kind: AttentionSource, ID: "x", Title: "Which?"}, "source_asks x  Which?"},
		"a budget":         {Attention{Kind: AttentionBudget, ID: "b"}, "budget_reached b"},
		"a question of one": {Attention{Kind: AttentionSource, ID: "x", Since: new("1"), Title: "W"},
			"source_asks x 1 W"},
		"an attempt":         {Attention{Kind: AttentionFailed, ID: "a", Since: new("1")}, "attempt_failed a 1"},
		"conflicts":          {Attention{Kind: AttentionConflicts, ID: "a", Since: new("1")}, "attempt_conflicts a 1"},
		"what is to be read": {Attention{Kind: AttentionReview, ID: "a", Since: new("1")}, "attempt_to_review a 1"},
	} {
		testkit.Equal(t, keyOf(&c.of, []Attention{step}), c.want, "%s", name)
	}
}

// Each item is notified once, by any number of servers, also of a later one; a failure that comes
// again is new. A command that fails or hangs is logged once, and holds nothing up.
func TestNotify(t *testing.T) {
	t.Parallel()
	p, got := newProject(t), filepath.Join(t.TempDir(), "got")
	ways := config.Notify{}
	use := func(script string) {
		ways.Command = []string{"sh", "-c", script, "sh", got}
		p.Configure(func(c *config.Config) { c.Notify = ways })
	}
	use(`cat >> "$1"; pwd >> "$1.dir"`)
	soon := time.Now().Add(time.Hour)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	open := func() (*server, func()) {
		s := p.open(func(o *Options) {
			o.Logger = logger
			o.Steps = func(context.Context, session.Caller, []string) ([]session.AwaitingStep, error) {
				return []session.AwaitingStep{{SessionID: "0a1b2c3d", Step: "write", Goal: "A report", Since: soon,
					Why: why.Why{Kind: why.Review, Step: "write"}}}, nil
			}
		})

		ctx, cancel := context.WithCancel(ctx)
		var notifying sync.WaitGroup
		notifying.Go(func() { s.Notify(ctx) })
		stop := sync.OnceFunc(func() {
			cancel()
			notifying.Wait()
			s.stop()
		})
		t.Cleanup(stop)
		return s, stop
	}

	notified := func(want ...string) (last Notification) {
		t.Helper()
		testkit.Eventually(t, func() string {
			data, _ := os.ReadFile(got)
			var all []string
			for line := range strings.Lines(string(data)) {
				if err := json.Unmarshal([]byte(line), &last); err != nil {
					return fmt.Sprintf("%v: %s", err, data)
				}
				all = append(all, last.Kind+" "+last.ID)
			}
			if fmt.Sprint(all) != fmt.Sprint(want) {
				return fmt.Sprintf("notified of %v, want %v", all, want)
			}
			data, _ = os.ReadFile(state.Of(p.Root).Notified())
			if !strings.Contains(string(data), last.Kind+" "+last.ID+" "+OrEmpty(last.Since)) {
				return fmt.Sprintf("%+v is not in %s", last, data)
			}

			return ""
		})

		return last
	}
	s, stop := open()
	want := []string{"step_waits 0a1b2c3d"}
	n := notified(want...)
	testkit.Equal(t, n.Project, p.Root)
	testkit.Equal(t, n.Title, "Step write: A report")
	testkit.Equal(t, OrEmpty(n.Since), Stamp(soon))
	testkit.True(t, strings.HasPrefix(n.Command, "deepwork sessions override 0a1b2c3d write"), "%+v", n)
	testkit.True(t, strings.HasSuffix(n.Link, "/sessions/0a1b2c3d?decide=write#decide-0a1b2c3d-write"),
		"the link is %s", n.Link)

	_, stopOther := open()
	v := s.newTask()
	x := s.attempt(v, task.Failed, nil)
	want = append(want, "attempt_failed "+x.ID)
	n = notified(want...)
	testkit.Equal(t, n.Title, "Add a basket")

	dir := testkit.Get(os.ReadFile(got + ".dir")).Must(t)
	testkit.True(t, !strings.Contains(string(dir), p.Root), "it ran in %s", dir)
	stop()
	stopOther()
	use(`cat >> "$1"; echo broken >&2; exit 3`)
	s, stop = open() // repeats nothing
	latest := testkit.Get(testkit.Get(s.Store(ctx)).Must(t).Task(ctx, v.TaskID)).Must(t).LatestSessionID
	testkit.Get(testkit.Get(s.Store(ctx)).Must(t).AddExecution(ctx, *latest, "p", nil, task.Request{})).Must(t)
	s.brings(task.Failed)
	want = append(want, "attempt_failed "+x.ID)
	notified(want...)
	want = append(want, "attempt_to_review "+s.attempt(s.newTask(), task.Completed, nil).ID)
	notified(want...)
	var mu sync.Mutex
	posts := map[string]int{} // how often each was received
	webhook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Text string }
		err := json.NewDecoder(r.Body).Decode(&body)
		mu.Lock()
		defer mu.Unlock()
		what, _, _ := strings.Cut(strings.TrimPrefix(body.Text, "deepwork: "+filepath.Base(p.Root)+"\n"), "\nhttp://")
		posts[cmp.Or(what, fmt.Sprint(err))]++
	}))
	t.Cleanup(webhook.Close)
	posted := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		return posts[what]
	}
	ways.Webhook = webhook.URL
	use(`echo >> "$1.hangs"; trap "" TERM; sleep 1000 & wait; sleep 1000`)
	z := s.attempt(s.newTask(), task.Failed, nil)
	testkit.Until(t, "the command to hang", func() bool { return exists(got + ".hangs") })
	testkit.Until(t, "the webhook, which does not wait for the command", func() bool {
		return posted("Attempt "+Short(z.ID)+": failed") == 1
	})
	testkit.Equal(t, len(testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items), 4)

	stop() // ends it
	failures := strings.Count(log.String(), "a notification was not sent")
	testkit.True(t, failures == 2 && strings.Contains(log.String(), "broken"), "%d failures were logged:\n%s", failures,
		log.String())

	ways.Content = true
	use(`cat >> "$1"`)
	s, _ = open() // what was cut short is notified of again, in the way that was
	want = append(want, "attempt_failed "+z.ID)
	notified(want...)
	testkit.Until(t, "what the command held up, in its own words, since they are wanted", func() bool {
		return posted("Step write waits for you\nStep write: A report\nStep write: its review failed.") == 1
	})
	testkit.Equal(t, posted("Attempt "+Short(x.ID)+": failed"), 1, "posts of the failed attempt")
	testkit.Equal(t, posted("Attempt "+Short(x.ID)+": failed\nAdd a basket"), 0, "repeated posts of it")

	// Each question of a source, also if no look is between two, and in its own words, since they are wanted.
	run := store.RemoteRun{
		ID:                nobody,
		Source:            "trips",
		State:             store.RemoteRunning,
		StatusSupported:   true,
		SourceExecutionID: new("7"),
		StartedAt:         soon,
	}
	must(t, s.Database.RemoteRuns().Add(ctx, &run, store.WorkRow{Kind: store.RemoteWork, Key: run.ID}))
	for _, asks := range []string{"Which city?", "Which day?"} {
		run.Progress = json.RawMessage(`{"asks":"` + asks + `"}`)
		must(t, s.Database.RemoteRuns().Save(ctx, &run, store.RemoteRunning))
		want = append(want, "source_asks "+nobody)
		title := notified(want...).Title
		testkit.Until(t, "the question in its own words", func() bool {
			return posted("A workflow of another system asks you\n"+title) == 1
		})
	}
}
