package attempt

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/state"
)

// crashConfig is the config of the servers that are killed.
func crashConfig(c *config.Config) {
	c.Attempts.MaxConcurrent = 3
	c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! sleep 20ms"}
}

// serverMain is the server of TestKilledServersLoseNothing: it makes tasks, attempts and follow-ups, deletes some, and
// says what was acknowledged, until it is killed.
func serverMain(args []string) {
	root, marks := args[0], args[1]
	p := &project{&attempttest.Project{Root: root}}
	p.Configure(crashConfig)
	o := p.options()
	o.Stores = p.Stores()
	e := orFail(Open(ctx, o))
	project := orFail(e.ListProjects(ctx, me, board.ListProjectsArgs{})).Projects[0].ProjectID
	repo := orFail(e.ListRepos(ctx, me, board.ListReposArgs{ProjectID: project})).Repos[0].RepoID
	for range 1 + rand.IntN(3) {
		name := strconv.FormatUint(rand.Uint64(), 36)
		v := orFail(e.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Task " + name, Description: new(strings.Join([]string{
			"! once " + filepath.Join(marks, "once-"+name), "! write committed " + name, "! commit " + name,
			"! touch " + filepath.Join(marks, "committed-"+name), "! write loose " + name, "! touch " + filepath.Join(marks, "loose-"+name),
			fmt.Sprintf("! sleep %dms", rand.IntN(400))}, "\n"))}))
		fmt.Println("task", v.TaskID, name)
		r := orFail(e.StartTaskAttempt(ctx, me, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}}))
		fmt.Println("attempt", v.TaskID, r.AttemptID)
	}
	for {
		e.meddle(project, marks)
	}
}

// meddle follows up on, or deletes, one of the newest tasks.
func (e *Engine) meddle(project, marks string) {
	tasks := orFail(e.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project, Limit: new(40)}))
	if tasks.Count == 0 {
		time.Sleep(5 * time.Millisecond) // until it is killed
		return
	}
	v := tasks.Tasks[rand.IntN(tasks.Count)]
	if v.LatestSessionID == nil {
		return
	}
	b := orFail(e.Store(ctx))
	all, s := orFail(b.Executions(ctx, *v.LatestAttemptID)), orFail(b.Session(ctx, *v.LatestSessionID))
	switch name := "follow-" + strconv.FormatUint(rand.Uint64(), 36); {
	case len(all) == 1 && s.Queued == nil:
		prompt := "! write " + name + " " + name + "\n! touch " + filepath.Join(marks, name)
		orFail(e.FollowUp(ctx, me, FollowUpArgs{SessionID: v.LatestSessionID, Action: ActionQueue, Prompt: &prompt}))
		fmt.Println("followed", *v.LatestAttemptID, name)
	case len(all) == 2 && !v.HasInProgressAttempt && rand.IntN(100) == 0:
		fmt.Println("deleting", v.TaskID)
		orFail(e.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID}))
		fmt.Println("deleted", v.TaskID)
	}
}

// orFail returns what a call returned, or ends the server.
func orFail[T any](value T, err error) T {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	return value
}

// acknowledged is what the killed servers said.
type acknowledged struct {
	names, attempts           map[string]string // of tasks
	followed                  map[string][]string
	deleting, deleted, killed map[string]bool // tasks; attempts whose shim was killed too
}

// rounds is how many servers are killed: DEEPWORK_CRASH_ROUNDS, or few.
func rounds(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("DEEPWORK_CRASH_ROUNDS")); err == nil {
		return n
	}
	return 5
}

// Killing the server at random moments loses no commit, no uncommitted byte and no task; no agent runs twice; each
// execution says how it ended.
func TestKilledServersLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	p := newProject(t)
	marks := filepath.Join(p.Root, "..", "marks")
	must(t, os.Mkdir(marks, 0o755))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	ack := acknowledged{names: map[string]string{}, attempts: map[string]string{}, followed: map[string][]string{},
		deleting: map[string]bool{}, deleted: map[string]bool{}, killed: map[string]bool{}}
	for range rounds(t) {
		p.killOne(t, marks, dice, &ack)
		if dice.IntN(2) == 0 {
			p.killShims(t, &ack)
		}
		p.removeLeftLock(t)
	}
	p.Configure(crashConfig)
	s := p.open()
	b := s.store()
	for _, a := range testkit.Get(b.AllAttempts(ctx)).Must(t) { // each ends with all that was queued
		testkit.Until(t, "at rest", func() bool { return !testkit.Get(b.LatestExecution(ctx, a.ID)).Must(t).State.Open() })
	}
	for id, name := range ack.names {
		s.checkCrashed(t, &ack, marks, id, name)
	}
	out := p.Git(p.Root, "fsck", "--full", "--strict")
	testkit.True(t, !strings.Contains(out, "error") && !strings.Contains(out, "missing"), "git fsck: %s", out)
	eventually(t, func() string { // what was being deleted is deleted beside all else
		if out := p.Git(p.Root, "worktree", "list", "--porcelain"); strings.Contains(out, "locked") || strings.Contains(out, "prunable") {
			return "git worktree list: " + out
		}
		return ""
	})
	t.Logf("%d tasks, %d attempts, %d followed, %d deletions begun, %d agents killed", len(ack.names), len(ack.attempts), len(ack.followed), len(ack.deleting), len(ack.killed))
}

// killOne runs a server and kills it at a random moment of its work.
func (p *project) killOne(t *testing.T, marks string, dice *rand.Rand, ack *acknowledged) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "server", p.Root, marks)
	cmd.Stderr = os.Stderr
	out := testkit.Get(cmd.StdoutPipe()).Must(t)
	must(t, cmd.Start())
	after := time.Duration(dice.IntN(900)) * time.Millisecond
	var timer *time.Timer
	var killed atomic.Bool
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if timer == nil {
			timer = time.AfterFunc(after, func() { killed.Store(true); cmd.Process.Kill() })
			defer timer.Stop()
		}
		f := strings.Fields(lines.Text())
		switch f[0] {
		case "task":
			ack.names[f[1]] = f[2]
		case "attempt":
			ack.attempts[f[1]] = f[2]
		case "followed":
			ack.followed[f[1]] = append(ack.followed[f[1]], f[2])
		case "deleting":
			ack.deleting[f[1]] = true
		case "deleted":
			ack.deleted[f[1]] = true
		default:
			t.Error(lines.Text())
		}
	}
	cmd.Wait()
	testkit.True(t, killed.Load(), "the server ended without being asked: %v", cmd.ProcessState)
}

// removeLeftLock does what the error about packed-refs.lock says, if a git that was ended within the moment between
// creating that file and being ready to remove it has left it. A git that runs has it for milliseconds.
func (p *project) removeLeftLock(t *testing.T) {
	t.Helper()
	lock := filepath.Join(p.Root, ".git", "packed-refs.lock")
	for range 50 {
		if !Exists(lock) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Log("a git has left", lock)
	must(t, os.Remove(lock))
}

// killShims kills what watches over the agents that run now, as the end of the machine does.
func (p *project) killShims(t *testing.T, ack *acknowledged) {
	t.Helper()
	for _, dir := range testkit.Get(filepath.Glob(filepath.Join(state.Of(p.Root).Logs(), "attempts", "*", "runs", "*"))).Must(t) {
		if !Exists(filepath.Join(dir, "exit.json")) && Exists(filepath.Join(dir, "started.json")) && killShim(t, dir) == nil {
			ack.killed[filepath.Base(filepath.Dir(filepath.Dir(dir)))] = true
		}
	}
}

// checkCrashed checks one acknowledged task against what its agent said it had done.
func (s *server) checkCrashed(t *testing.T, ack *acknowledged, marks, id, name string) {
	t.Helper()
	_, err := s.GetTask(ctx, me, board.TaskArgs{TaskID: id})
	if ack.deleted[id] != (err != nil) && !(ack.deleting[id] && err != nil) {
		t.Errorf("task %s: deleting %v, deleted %v, and: %v", id, ack.deleting[id], ack.deleted[id], err)
		return
	}
	there := err == nil
	attempt, began := ack.attempts[id]
	if !began {
		return
	}
	// What an agent said it had written is in its worktree, or under the ref; while a
	// deletion that was begun goes on, beside all else, it may be on its way there.
	look := func(file string) string {
		dir := s.State().Worktrees()
		folders, _ := os.ReadDir(dir) // there may be none
		for _, folder := range folders {
			text, err := os.ReadFile(filepath.Join(dir, folder.Name(), "shop", file))
			if err == nil && worktree.Owner(dir, folder.Name()) == attempt {
				return strings.TrimSpace(string(text))
			}
		}
		kept, _ := testkit.TryGit(s.o.Root, "show", "refs/deepwork/rescue/"+attempt+":"+file)
		return kept
	}
	read := func(file string) string {
		for end := time.Now().Add(time.Minute); ack.deleting[id] && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if text := look(file); text != "" {
				return text
			}
		}
		return look(file)
	}
	for _, file := range []string{"committed", "loose"} {
		testkit.True(t, !Exists(filepath.Join(marks, file+"-"+name)) || read(file) == name, "attempt %s of task %s has lost %s: %q", attempt, id, file, read(file))
	}
	for _, file := range ack.followed[attempt] {
		testkit.True(t, !Exists(filepath.Join(marks, file)) || read(file) == file, "attempt %s has lost %s", attempt, file)
	}
	if Exists(filepath.Join(marks, "committed-"+name)) {
		out, err := testkit.TryGit(s.o.Root, "log", "--branches=deepwork/*", "--format=%s", "--grep=^"+name+"$")
		testkit.True(t, err == nil && out == name, "the commit %s is lost: %q, %v", name, out, err)
	}
	if !there || ack.deleting[id] {
		return
	}
	states := map[task.AttemptState]bool{}
	for _, x := range testkit.Get(s.store().Executions(ctx, attempt)).Must(t) {
		states[x.State] = true
	}
	if !ack.killed[attempt] {
		testkit.True(t, len(states) == 1 && states[task.Completed], "attempt %s ended as %v", attempt, states)
		for _, file := range ack.followed[attempt] {
			testkit.Equal(t, read(file), file, "the follow-up of attempt %s did not run", attempt)
		}
	} else {
		delete(states, task.Completed)
		delete(states, task.Interrupted)
		testkit.Equal(t, len(states), 0, "attempt %s ended as %v", attempt, states)
	}
}
