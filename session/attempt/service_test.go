package attempt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
)

// A job is an execution at the service, as it is told to clients.
type job struct {
	executors.Work
	Started time.Time
	Exit    *runner.Exit // nil while it runs
}

// A service has agents that are no processes: each says what its prompt says, writes it to a file of its
// workspace, and, if it was asked to wait, runs until it is stopped.
type service struct {
	mu    sync.Mutex
	jobs  map[string]*job           // by execution
	logs  map[string][]runner.Entry // by log
	ended *sync.Cond                // a job has
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.URL.Query().Get("id")
	var reply any
	switch r.Method + " " + r.URL.Path {
	case "POST /jobs":
		var work executors.Work
		_ = json.NewDecoder(r.Body).Decode(&work)
		if s.jobs[work.Execution] == nil {
			s.jobs[work.Execution] = s.begin(work)
		}
		reply = s.jobs[work.Execution]
	case "GET /jobs", "GET /end":
		j := s.jobs[id]
		if j == nil {
			http.NotFound(w, r)
			return
		}
		for r.URL.Path == "/end" && j.Exit == nil && r.Context().Err() == nil {
			s.ended.Wait()
		}
		reply = j
	case "POST /stop":
		s.end(s.jobs[id], runner.Exit{Code: -1, Stopped: true})
		reply = s.jobs[id]
	case "GET /log":
		reply = s.logs[id]
	case "DELETE /log":
		delete(s.logs, id)
	}
	json.NewEncoder(w).Encode(reply)
}

func (s *service) begin(w executors.Work) *job {
	j := &job{Work: w, Started: time.Now().UTC()}
	s.logs[w.Log] = append(s.logs[w.Log], runner.Entry{
		Index:  int64(len(s.logs[w.Log])),
		Time:   j.Started,
		Stream: runner.Stdout,
		Text:   "asked: " + strings.Fields(w.Prompt)[0],
	})
	err := os.WriteFile(filepath.Join(w.Workspace, "said.txt"), []byte(w.Prompt), 0o600)
	switch {
	case err != nil:
		s.end(j, runner.Exit{Code: 1, Stderr: err.Error()})
	case !strings.Contains(w.Prompt, "wait"):
		s.end(j, runner.Exit{
			FinalMessage: fmt.Sprintf("done, continued: %v", w.Continue),
			Usage:        &transcript.Usage{USD: new(0.25), Turns: 1},
		})
	}

	return j
}

func (s *service) end(j *job, x runner.Exit) {
	if j.Exit == nil {
		x.StartedAt, x.EndedAt = j.Started, time.Now().UTC()
		j.Exit = &x
		s.ended.Broadcast()
	}
}

// A client is the Executor whose agents are at a service.
type client string // its URL

func (c client) call(ctx context.Context, method, path, id string, body, reply any) error {
	data, _ := json.Marshal(body)
	r, err := http.NewRequestWithContext(ctx, method, string(c)+path+"?id="+id, bytes.NewReader(data))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return executors.ErrNoRun
	}
	return json.NewDecoder(answer.Body).Decode(reply)
}

func (c client) Describe(_ context.Context, variant *string) (executors.Abilities, error) {
	if variant != nil {
		return executors.Abilities{}, session.Wrong("unknown_variant", "The service has no variants.")
	}
	return executors.Abilities{Program: string(c), Available: true, Continues: true, Reports: true}, nil
}

func (c client) Check(_ context.Context, w executors.Work) error {
	if strings.Contains(w.Prompt, "refuse") {
		return session.Wrong("refused", "The service does not do this.")
	}
	return nil
}

func (c client) Start(ctx context.Context, w executors.Work) (executors.Process, error) {
	p := &remote{at: c}
	return p, c.call(ctx, "POST", "/jobs", "", w, &p.job)
}

func (c client) Find(ctx context.Context, _, execution string) (executors.Process, error) {
	p := &remote{at: c}
	return p, c.call(ctx, "GET", "/jobs", execution, nil, &p.job)
}

func (c client) Tail(
	ctx context.Context, log string, after *int64, limit int, _ time.Duration,
) (all []runner.Entry, next int64, err error) {
	if err := c.call(ctx, "GET", "/log", log, nil, &all); err != nil {
		return nil, 0, err
	}
	next = int64(len(all)) - 1
	if after != nil {
		all = all[min(int(*after)+1, len(all)):]
	}
	return all[:min(limit, len(all))], next, nil
}

func (c client) Note(string, string) error { return nil }

func (c client) Remove(log string) error {
	return c.call(context.Background(), "DELETE", "/log", log, nil, new(any))
}

// A remote is an agent at the service.
type remote struct {
	at  client
	job job
}

func (p *remote) StartedAt() time.Time { return p.job.Started }
func (p *remote) Contained() string    { return "" }
func (p *remote) Ended() bool          { return p.job.Exit != nil }

func (p *remote) Wait(ctx context.Context) (runner.Exit, error) { return p.exit(ctx, "GET", "/end") }

func (p *remote) Stop(ctx context.Context, _ time.Duration) (runner.Exit, error) {
	return p.exit(ctx, "POST", "/stop")
}

func (p *remote) exit(ctx context.Context, method, path string) (runner.Exit, error) {
	now := job{Exit: new(runner.Exit)}
	err := p.at.call(ctx, method, path, p.job.Execution, nil, &now)
	return *now.Exit, err
}

// An executor whose agents are at an HTTP service does all that command lines do: attempts, follow-ups in the
// same conversation, stops, output, costs, and agents that outlive their server.
func TestAnExecutorThatIsAService(t *testing.T) {
	t.Parallel()
	ctx, remotes := t.Context(), &service{jobs: map[string]*job{}, logs: map[string][]runner.Entry{}}
	remotes.ended = sync.NewCond(&remotes.mu)
	web := httptest.NewServer(remotes)
	t.Cleanup(web.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	root := testkit.Dir(t)
	testkit.Git(t, root, "init", "-q", "-b", "main")
	testkit.Git(t, root, "commit", "-q", "--allow-empty", "-m", "first")

	open := func() *attempt.Engine {
		return testkit.Get(attempt.Open(ctx, attempt.Options{
			Options:   board.Options{Root: root},
			Poll:      20 * time.Millisecond,
			Executors: map[string]executors.Executor{"SERVICE": client(web.URL)},
		})).Must(t)
	}
	closed := func(e *attempt.Engine) { testkit.Same(t, e.Close(ctx), nil, "did not end") }
	e := open()
	defer func() { closed(e) }()
	me := session.LocalCaller(session.ChannelStdio)

	listed := testkit.Get(e.ListExecutors(ctx, me)).Must(t)
	i := slices.IndexFunc(listed.Executors, func(x attempt.ExecutorInfo) bool { return x.Name == "SERVICE" })
	testkit.True(t, i >= 0, "it is not among %+v", listed.Executors)
	testkit.True(t, listed.Executors[i].Available, "it is not among %+v", listed.Executors)
	testkit.True(t, listed.Executors[i].CanContinue, "it is not among %+v", listed.Executors)
	testkit.Equal(t, listed.Executors[i].Program, web.URL, "it is not among %+v", listed.Executors)

	project := testkit.Get(e.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(t).Projects[0].ProjectID
	repos := testkit.Get(e.ListRepos(ctx, me, board.ListReposArgs{ProjectID: project})).Must(t)
	start := func(title string, variant *string) (*attempt.AttemptReply, error) {
		made := testkit.Get(e.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: title})).Must(t)
		return e.StartTaskAttempt(ctx, me, attempt.StartArgs{
			TaskID:   made.TaskID,
			Executor: "SERVICE",
			Variant:  variant,
			Repos:    []attempt.RepoArgs{{RepoID: repos.Repos[0].RepoID, TargetBranch: "main"}},
		})
	}

	reaches := func(id string, state task.AttemptState) (r *attempt.FullAttemptReply) {
		t.Helper()
		testkit.Eventually(t, func() string {
			r = testkit.Get(e.GetAttempt(ctx, me, attempt.AttemptArgs{Target: the(id)})).Must(t)
			if r.State == board.ExecutionState(state) {
				return ""
			}
			return fmt.Sprintf("it is %+v, and not %s", r, state)
		})
		return r
	}
	testkit.Equal(t, session.CodeOf(testkit.Get(start("one", new("BIG"))).Err())+" "+
		session.CodeOf(testkit.Get(start("refuse", nil)).Err()), "unknown_variant refused")

	quick := testkit.Get(start("quick", nil)).Must(t)
	reaches(quick.AttemptID, task.Completed)
	testkit.Get(e.FollowUp(ctx, me,
		attempt.FollowUpArgs{Target: the(quick.AttemptID), Action: attempt.ActionSend, Prompt: new("more")})).Must(t)
	now := reaches(quick.AttemptID, task.Completed)
	testkit.Equal(t, fmt.Sprint(*now.FinalMessage, ", ", *now.Cost.USD), "done, continued: true, 0.5",
		"after a follow-up")
	testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(now.Repos[0].WorktreePath, "said.txt"))).Must(t)),
		"more", "it wrote in the worktree")
	tail := testkit.Get(e.TailAttempt(ctx, me,
		attempt.TailArgs{Target: the(quick.AttemptID), ExecutionID: &now.Executions[0].ExecutionID})).Must(t)
	testkit.True(t, len(tail.Messages) == 1 && tail.Messages[0].Text == "asked: more",
		"the output of the follow-up: %+v", tail)

	long := testkit.Get(start("wait", nil)).Must(t)
	reaches(long.AttemptID, task.Running)
	closed(e)
	e = open() // and the agent goes on
	reaches(long.AttemptID, task.Running)
	testkit.Equal(t, testkit.Get(e.StopAttempt(ctx, me, attempt.AttemptArgs{Target: the(long.AttemptID)})).Must(t).
		State, board.Stopped)
	testkit.Works(t, testkit.Get(e.DeleteTask(ctx, me, attempt.DeleteArgs{TaskID: quick.TaskID})).Err())

	remotes.mu.Lock()
	defer remotes.mu.Unlock()
	testkit.True(t, len(remotes.jobs) == 3 && len(remotes.logs) == 1,
		"it did %d jobs and has %d logs, want 3 and that of the task that was not deleted", len(remotes.jobs),
		len(remotes.logs))
}

func the(id string) board.Target { return board.Target{AttemptID: &id} }
