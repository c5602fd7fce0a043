package attempt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
)

// A service is an Executor whose agents are no processes of this machine: each says what its prompt says, writes it to a
// file of its workspace, and, if it was asked to wait, runs until it is stopped. It knows of its clients what they can send.
type service struct {
	mu   sync.Mutex
	jobs map[string]*job           // by execution
	logs map[string][]runner.Entry // by log
}

// A job is an execution at the service.
type job struct {
	started time.Time
	once    sync.Once
	exit    runner.Exit
	ended   chan struct{} // closed when exit is set
}

func (j *job) end(x runner.Exit) {
	j.once.Do(func() {
		x.StartedAt, x.EndedAt = j.started, time.Now().UTC()
		j.exit = x
		close(j.ended)
	})
}

func (j *job) StartedAt() time.Time { return j.started }

func (j *job) Ended() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

func (j *job) Wait(ctx context.Context) (runner.Exit, error) {
	select {
	case <-j.ended:
		return j.exit, nil
	case <-ctx.Done():
		return runner.Exit{}, ctx.Err()
	}
}

func (j *job) Stop(ctx context.Context, _ time.Duration) (runner.Exit, error) {
	j.end(runner.Exit{Code: -1, Stopped: true})
	return j.Wait(ctx)
}

func (*service) Describe(_ context.Context, variant *string) (attempt.Abilities, error) {
	if variant != nil {
		return attempt.Abilities{}, session.Wrong("unknown_variant", "The service has no variants.")
	}
	return attempt.Abilities{Program: "https://agents", Available: true, Continues: true, Reports: true}, nil
}

func (*service) Check(_ context.Context, w attempt.Work) error {
	if strings.Contains(w.Prompt, "refuse") {
		return session.Wrong("refused", "The service does not do this.")
	}
	return nil
}

func (s *service) Start(_ context.Context, given attempt.Work) (attempt.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(given)
	var w attempt.Work
	if err = errors.Join(err, json.Unmarshal(data, &w)); err != nil || s.jobs[w.Execution] != nil {
		return s.jobs[w.Execution], err
	}
	j := &job{started: time.Now().UTC(), ended: make(chan struct{})}
	s.jobs[w.Execution] = j
	s.logs[w.Log] = append(s.logs[w.Log], runner.Entry{Index: int64(len(s.logs[w.Log])), Time: j.started, Stream: runner.Stdout, Text: "asked: " + strings.Fields(w.Prompt)[0]})
	if err := os.WriteFile(filepath.Join(w.Workspace, "said.txt"), []byte(w.Prompt), 0o600); err != nil {
		j.end(runner.Exit{Code: 1, Stderr: err.Error()})
	} else if !strings.Contains(w.Prompt, "wait") {
		j.end(runner.Exit{FinalMessage: fmt.Sprintf("done, continued: %v", w.Continue), Usage: &transcript.Usage{USD: new(0.25), Turns: 1}})
	}
	return j, nil
}

func (s *service) Find(_ context.Context, _, execution string) (attempt.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[execution]; j != nil {
		return j, nil
	}
	return nil, attempt.ErrNoRun
}

func (s *service) Tail(_ context.Context, log string, after *int64, limit int, _ time.Duration) ([]runner.Entry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.logs[log]
	from := 0
	if after != nil {
		from = min(int(*after)+1, len(all))
	}
	return all[from:min(from+limit, len(all))], int64(len(all)) - 1, nil
}

func (*service) Note(string, string) error { return nil }

func (s *service) Remove(log string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, log)
	return nil
}

// An executor whose agents are at a service does all that command lines do: attempts, follow-ups in the
// same conversation, stops, output, costs, and agents that outlive their server.
func TestAnExecutorThatIsAService(t *testing.T) {
	t.Parallel()
	ctx, me := t.Context(), session.LocalCaller(session.ChannelStdio)
	remote := &service{jobs: map[string]*job{}, logs: map[string][]runner.Entry{}}
	root := testkit.Dir(t)
	testkit.Git(t, root, "init", "-q", "-b", "main")
	testkit.Git(t, root, "commit", "-q", "--allow-empty", "-m", "first")
	open := func() *attempt.Engine {
		t.Helper()
		return testkit.Get(attempt.Open(ctx, attempt.Options{Options: board.Options{Root: root}, Poll: 20 * time.Millisecond,
			Executors: map[string]attempt.Executor{"SERVICE": remote}})).Must(t)
	}
	e := open()
	closed := func() { testkit.Same(t, e.Close(ctx), nil, "did not end") }
	defer func() { closed() }()
	listed := testkit.Get(e.ListExecutors(ctx, me)).Must(t)
	i := slices.IndexFunc(listed.Executors, func(x attempt.ExecutorInfo) bool { return x.Name == "SERVICE" })
	testkit.True(t, i >= 0 && listed.Executors[i].Available && listed.Executors[i].CanContinue && listed.Executors[i].Program == "https://agents", "it is not among %+v", listed.Executors)
	project := testkit.Get(e.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(t).Projects[0].ProjectID
	repo := testkit.Get(e.ListRepos(ctx, me, board.ListReposArgs{ProjectID: project})).Must(t).Repos[0].RepoID
	start := func(title string, variant *string) testkit.Result[*attempt.AttemptReply] {
		made := testkit.Get(e.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: title})).Must(t)
		return testkit.Get(e.StartTaskAttempt(ctx, me, attempt.StartArgs{TaskID: made.TaskID, Executor: "SERVICE", Variant: variant, Repos: []attempt.RepoArgs{{RepoID: repo, TargetBranch: "main"}}}))
	}
	reaches := func(id string, state task.AttemptState) (r *attempt.FullAttemptReply) {
		t.Helper()
		testkit.Until(t, string(state), func() bool {
			r = testkit.Get(e.GetAttempt(ctx, me, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}})).Must(t)
			return r.State == board.ExecutionState(state)
		})
		return r
	}
	testkit.Equal(t, session.CodeOf(start("one", new("BIG")).Err()), "unknown_variant")
	testkit.Equal(t, session.CodeOf(start("refuse", nil).Err()), "refused")
	quick := start("quick", nil).Must(t)
	reaches(quick.AttemptID, task.Completed)
	testkit.Get(e.FollowUp(ctx, me, attempt.FollowUpArgs{Target: board.Target{AttemptID: &quick.AttemptID}, Action: attempt.ActionSend, Prompt: new("more")})).Must(t)
	now := reaches(quick.AttemptID, task.Completed)
	testkit.Equal(t, *now.FinalMessage, "done, continued: true")
	testkit.Equal(t, *now.Cost.USD, 0.5)
	testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(now.Repos[0].WorktreePath, "said.txt"))).Must(t)), "more")
	tail := testkit.Get(e.TailAttempt(ctx, me, attempt.TailArgs{Target: board.Target{AttemptID: &quick.AttemptID}, ExecutionID: &now.Executions[0].ExecutionID})).Must(t)
	testkit.True(t, len(tail.Messages) == 1 && tail.Messages[0].Text == "asked: more", "the output of the follow-up: %+v", tail)
	long := start("wait", nil).Must(t)
	reaches(long.AttemptID, task.Running)
	closed()
	e = open() // and the agent goes on
	reaches(long.AttemptID, task.Running)
	testkit.Equal(t, testkit.Get(e.StopAttempt(ctx, me, attempt.AttemptArgs{Target: board.Target{AttemptID: &long.AttemptID}})).Must(t).State, board.Stopped)
	testkit.Get(e.DeleteTask(ctx, me, attempt.DeleteArgs{TaskID: quick.TaskID})).Must(t)
	remote.mu.Lock()
	defer remote.mu.Unlock()
	testkit.True(t, len(remote.jobs) == 3 && len(remote.logs) == 1, "it did %d jobs and has the logs %v, want 3 and that of the task that was not deleted", len(remote.jobs), slices.Collect(maps.Keys(remote.logs)))
}
