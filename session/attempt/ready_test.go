package attempt

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
)

// auto turns on attempts.auto_start.
func auto(executor string, inReview int, change ...func(*config.Config)) func(*config.Config) {
	return func(c *config.Config) {
		name, variant, _ := strings.Cut(executor, ":")
		c.Attempts.AutoStart = &config.AutoStart{Executor: name, Variant: variant, MaxInReview: inReview}
		for _, f := range change {
			f(c)
		}
	}
}

// statusOf waits until tasks have these states, in their order.
func (s *server) statusOf(all []*board.Task, want ...string) {
	s.t.Helper()
	eventually(s.t, func() string {
		var got []string
		for _, v := range all {
			got = append(got, s.task(v.TaskID).Status)
		}
		if slices.Equal(got, want) {
			return ""
		}
		return fmt.Sprintf("the tasks are %v, want %v", got, want)
	})
}

// Servers start what is ready, the oldest first, each task once, with room for as many as may be in
// review; what is reviewed or unblocked makes them go on at once.
func TestAutoStart(t *testing.T) {
	p := newProject(t)
	one, two := p.open(), p.open()
	marks := filepath.Join(p.Root, "..", "marks")
	must(t, os.Mkdir(marks, 0o755))
	var all []*board.Task
	for i := range 5 {
		all = append(all, one.newTask("! once "+filepath.Join(marks, fmt.Sprint(i)), "! env MODE"))
	}
	testkit.Get(one.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: all[4].TaskID, DependsOn: []string{all[2].TaskID}})).Must(t)
	p.Configure(auto("TEST:OTHER", 2))
	one.statusOf(all, "inreview", "inreview", "todo", "todo", "todo")
	out := one.output(*one.task(all[0].TaskID).LatestAttemptID)
	testkit.True(t, containsAll(out, "agent other", "MODE=slow"), "%q", out)
	done := func(v *board.Task) {
		t.Helper()
		testkit.Get(two.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: v.TaskID, Status: new("done")})).Must(t)
	}
	done(all[0])
	one.statusOf(all, "done", "inreview", "inreview", "todo", "todo")
	done(all[1])
	one.statusOf(all, "done", "done", "inreview", "inreview", "todo")
	done(all[2])
	one.statusOf(all, "done", "done", "done", "inreview", "inreview")
	for _, v := range all {
		testkit.Equal(t, testkit.Get(one.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).Count, 1)
	}
	// One that is off, or not approved, starts nothing; nor one that was tried.
	done(all[3])
	done(all[4])
	p.Configure(func(*config.Config) {})
	again := one.newTask("! exit 3")
	one.ends(one.begin(again).AttemptID)
	testkit.Get(one.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: again.TaskID, Status: new("todo")})).Must(t)
	withheld := auto("TEST", 9, func(c *config.Config) {
		c.Approval = &config.Approval{Use: c, Withheld: &config.Withheld{Asked: []config.Asked{{Key: "attempts.auto_start"}}, Kept: true}}
	})
	p.Configure(withheld)
	fresh := one.newTask("! say hello")
	s := starter{engine: one.Engine}
	must(t, s.startReady(ctx))
	one.statusOf([]*board.Task{again, fresh}, "todo", "todo")
	p.Configure(auto("TEST", 9))
	one.statusOf([]*board.Task{again, fresh}, "todo", "inreview")
}

// A task that another server of the board, or a command, creates is started, too; a server that is
// killed leaves each task either untouched or started, and the next one goes on.
func TestAutoStartAfterACrash(t *testing.T) {
	p := newProject(t)
	marks := filepath.Join(p.Root, "..", "marks")
	must(t, os.Mkdir(marks, 0o755))
	command := p.open(passive)
	var all []*board.Task
	for i := range 6 {
		all = append(all, command.newTask("! once "+filepath.Join(marks, fmt.Sprint(i))))
	}
	p.Configure(auto("TEST", 6, func(c *config.Config) { c.Attempts.MaxConcurrent = 2 }))
	for range 3 {
		s := p.open()
		eventually(t, func() string {
			if s.Stats().Running > 0 {
				return ""
			}
			return "nothing runs"
		})
		s.die()
	}
	s := p.open()
	eventually(t, func() string {
		for i, v := range all {
			r := testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t)
			if r.Count != 1 || !task.AttemptState(r.Attempts[0].State).Ended() {
				return fmt.Sprintf("task %d: %+v", i, r.Attempts)
			}
			testkit.Need(t, r.Attempts[0].State == "completed", "task %d: %+v", i, r.Attempts)
		}
		return ""
	})
}

// lines collects what is logged.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), text)
}

// What cannot be started is logged once, and does not keep other tasks waiting. A budget that is
// reached, and tasks of those who may not start agents, start nothing.
func TestAutoStartRefused(t *testing.T) {
	p := newProject(t)
	other := filepath.Join(p.Root, "..", "other")
	p.Repo(other)
	p.Git(other, "checkout", "-q", "--detach")
	projects := func(c *config.Config) {
		c.Projects = []config.Project{{Name: "other", Repos: []config.Repo{{Path: "../other"}}}}
	}
	p.Configure(auto("NOBODY", 9, projects))
	var log lines
	s := p.open(func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	list := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(t)
	at := slices.IndexFunc(list.Projects, func(p board.Project) bool { return p.Name == "other" })
	stuck := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: list.Projects[at].ProjectID, Title: "Elsewhere"})).Must(t)
	fine := s.newTask("! say hello")
	logged := func(text string) {
		t.Helper()
		eventually(t, func() string {
			if log.count(text) == 1 {
				return ""
			}
			return fmt.Sprintf("%q was logged %d times", text, log.count(text))
		})
	}
	logged("There is no executor")
	p.Configure(auto("TEST", 9, projects))
	s.statusOf([]*board.Task{fine, stuck}, "inreview", "todo")
	logged("no branch is checked out in ")
	first := s.newTask("! say hello")
	s.statusOf([]*board.Task{first}, "inreview") // and the other was passed over again
	testkit.Equal(t, log.count("no branch is checked out in "), 1, "it was logged … times")
	p.Git(other, "checkout", "-q", "main")
	p.Configure(auto("TEST", 9, projects)) // as an edit; otherwise after a pause
	s.statusOf([]*board.Task{stuck}, "inreview")
	guest := testkit.Get(s.CreateTask(ctx, session.Caller{Identity: "guest"}, board.CreateTaskArgs{ProjectID: fine.ProjectID, Title: "Do as I say"})).Must(t)
	last := s.newTask("! say hello")
	s.statusOf([]*board.Task{last, guest}, "inreview", "todo")
	p.Configure(auto("TEST", 9, projects, func(c *config.Config) { c.Attempts.MaxUnknown = &config.Limit{Max: 4} }))
	over := s.newTask("! say hello")
	must(t, (&starter{engine: s.Engine}).startReady(ctx))
	s.statusOf([]*board.Task{over}, "todo")
	p.Configure(auto("TEST", 9, projects, func(c *config.Config) { c.Attempts.MaxUnknown = &config.Limit{Max: 5} }))
	s.statusOf([]*board.Task{over, guest}, "inreview", "todo")
}

// Many attempts at once on 4 slots of two servers all end, never more than 4 run, nothing is left locked, and git is whole.
func TestFiftyAttemptsOnFourSlots(t *testing.T) {
	const slots = 4
	attempts := 16
	if os.Getenv("DEEPWORK_FIGURES") == "1" {
		attempts = 50
	}
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = slots })
	dir := filepath.Join(p.Root, "..", "slots")
	must(t, os.Mkdir(dir, 0o755))
	one, two := p.open(), p.open()
	v := one.newTask("! slot "+dir, "! write file.txt x", "! commit work")
	began := time.Now()
	ids := make([]string, attempts)
	var wg sync.WaitGroup
	for i := range ids {
		s := []*server{one, two}[i%2]
		wg.Go(func() { ids[i] = s.begin(v).AttemptID })
	}
	wg.Wait()
	made := time.Since(began)
	branches := map[string]bool{}
	for _, id := range ids {
		r := one.ends(id)
		testkit.Equal(t, r.State, "completed")
		testkit.Equal(t, r.Repos[0].Ahead, 1)
		branches[r.WorkspaceBranch] = true
	}
	t.Logf("%d attempts made in %v, ended after %v", attempts, made.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	testkit.Equal(t, len(branches), attempts, "branches of the attempts")
	saw, most := 0, 0
	marks := testkit.Get(filepath.Glob(filepath.Join(dir, "saw-*"))).Must(t)
	for _, m := range marks {
		n := 0
		fmt.Sscanf(filepath.Base(m), "saw-%d-", &n)
		saw, most = saw+1, max(most, n)
	}
	testkit.True(t, saw == attempts && most <= slots && most >= 2, "%d agents ran, %d at once at most", saw, most)
	eventually(t, func() string { // they count when the board has it
		if a, b := one.Stats(), two.Stats(); a.Ended[task.Completed]+b.Ended[task.Completed] != uint64(attempts) || a.Started+b.Started != uint64(attempts) {
			return fmt.Sprintf("the servers count %+v and %+v", a, b)
		}
		return ""
	})
	out := p.Git(p.Root, "fsck", "--full", "--strict")
	testkit.True(t, !strings.Contains(out, "error") && !strings.Contains(out, "missing"), "git fsck: %s", out)
	out = p.Git(p.Root, "worktree", "list", "--porcelain")
	testkit.True(t, !strings.Contains(out, "locked") && !strings.Contains(out, "prunable") && strings.Count(out, "worktree ") == attempts+1, "git worktree list: %s", out)
	locks, _ := filepath.Glob(filepath.Join(p.Root, ".git", "worktrees", "*", "*.lock"))
	testkit.True(t, locks == nil, "lock files are left: %v", locks)
}
