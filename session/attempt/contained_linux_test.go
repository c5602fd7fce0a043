package attempt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/board"
	"deepwork/session/contain"
)

// contained makes the project of a test whose agents are contained shells, which run the description of their task. It
// skips the test where nothing can be contained.
func contained(t *testing.T, change ...func(*config.Config)) *project {
	t.Helper()
	_, err := contain.Check(t.Context())
	if _, ok := errors.AsType[*contain.Unavailable](err); ok && os.Getenv("DEEPWORK_TEST_CONTAIN_REQUIRED") == "" {
		t.Skip(err)
	}
	must(t, err)
	p := newProject(t)
	p.Git(p.Root, "config", "user.name", "Tester")
	p.Git(p.Root, "config", "user.email", "tester@example.com")
	p.Configure(func(c *config.Config) {
		c.Attempts.Contain.Mode = config.ContainRequired
		c.Executors = []config.Executor{{Name: "TEST", Command: []string{"/bin/sh"}, Resume: []string{"/bin/sh", "-s"}}}
		for _, f := range change {
			f(c)
		}
	})
	return p
}

func inContainment(x *task.Execution) bool {
	return strings.HasPrefix(x.Contained, "contained (bubblewrap ")
}

// A contained attempt commits on its branch, reaches nothing else of the user, and says under what it ran; what its
// agent keeps in its home is there in the follow-up.
func TestAContainedAttempt(t *testing.T) {
	p := contained(t, func(c *config.Config) {
		c.Attempts.Setup = []string{"/bin/sh", "-c", "echo set up >setup.txt; ls -A $HOME >home.txt"}
	})
	secret := filepath.Join(p.Root, "..", "secret")
	testkit.Write(t, secret, "s3cret")
	s := p.open()
	r := s.ran("cat "+secret+" || echo hidden; ls "+p.Root,
		`hooks=$(git rev-parse --git-common-dir)/hooks; mkdir -p $hooks; echo 'touch /tmp/x' >$hooks/post-commit`,
		"echo x >.git; echo pointer: $?", "mkdir .deepwork/jobs; echo jobs: $?",
		"echo x >basket; git add .; git commit -qm Basket; git branch side", "echo kept >~/.config/kept",
		"touch ~/gone; echo env: $"+config.AttemptEnv+" $"+config.BoardEnv+"; exit 0")
	testkit.Equal(t, r.State, "completed", "%s", s.output(r.AttemptID))
	out := s.output(r.AttemptID)
	testkit.ContainsAll(t, out, []string{"hidden", "pointer: ", "jobs: 1", "env: " + r.AttemptID})
	testkit.Lacks(t, out, []string{"s3cret", "pointer: 0", "README", s.boardPath()})
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", r.WorkspaceBranch), "Basket")
	testkit.Equal(t, p.Git(p.Root, "show", r.WorkspaceBranch+":home.txt"), ".cache")
	testkit.True(t, !Exists(filepath.Join(p.Root, ".git", "hooks", "post-commit")), "a hook was planted")
	testkit.True(t, inContainment(s.latest(r.AttemptID)), "%+v", s.latest(r.AttemptID))
	testkit.Equal(t, r.Repos[0].Ahead, 1, "%+v", r.Repos[0])

	again := "git log -1 --format=again:%s; cat ~/.config/kept; ls -A ~; echo y >basket; git commit -qam Two; exit 0"
	testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: &again})).Must(t)
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "completed", "%s", s.output(r.AttemptID))
	out = s.output(r.AttemptID)
	testkit.ContainsAll(t, out, []string{"again:Basket", "kept"})
	testkit.Lacks(t, out, []string{"gone"})
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", r.WorkspaceBranch), "Two")
	testkit.Contains(t, p.Git(p.Root, "for-each-ref", "--format=%(refname)", "refs/deepwork/attempt"), "heads/side")
}

// The commits of a contained agent whose server was killed are taken out by the next one, whether the agent has ended
// meanwhile, was killed, too, or goes on.
func TestAContainedAgentOutlivesItsServer(t *testing.T) {
	for _, how := range []string{"ends", "killed", "goes on"} {
		t.Run(how, func(t *testing.T) {
			p := contained(t)
			s := p.open()
			r := s.runs("echo x >basket; git add basket; git commit -qm Basket; echo committed",
				"while ! test -e hold; do sleep 0.05; done; exit 0")
			s.prints(r.AttemptID, "committed")
			shim := s.runOf(r.AttemptID)
			s.die()
			hold := filepath.Join(r.Repos[0].WorktreePath, "hold")
			switch how {
			case "ends":
				testkit.Write(t, hold, "")
				appears(t, filepath.Join(shim, "exit.json"))
			case "killed":
				p.EndAgents()
			}
			s = p.open()
			if how == "goes on" {
				testkit.Until(t, "the commit to be outside", func() bool {
					return p.Git(p.Root, "log", "-1", "--format=%s", r.WorkspaceBranch) == "Basket"
				})
				testkit.Write(t, hold, "")
			}
			r = s.ends(r.AttemptID)
			testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", r.WorkspaceBranch), "Basket", "%s", r.State)
			testkit.Equal(t, r.Repos[0].Ahead, 1, "%+v", r.Repos[0])
		})
	}
}

// The agents of a run share the private git folder of its worktree while they work at the same time, and what judges
// their work has neither their home nor their cache.
func TestAContainedRun(t *testing.T) {
	p := contained(t)
	judged := make(chan string, 1)
	s := p.open(func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			run := func(script string, started func(string)) *task.Execution {
				a := agentOf(l, script)
				a.MCP.URL, a.MCP.File = "http://127.0.0.1:40001/mcp", filepath.Join(p.Root, "README")
				a.Started = started
				return testkit.Get(l.RunAgent(ctx, a)).Must(t)
			}
			both := make(chan *task.Execution)
			up := make(chan bool)
			go func() {
				both <- run("while ! git log -1 --format=%s | grep -q Second; do sleep 0.05; done; "+
					"echo x >first; git add first; git commit -qm First; exit 0", func(string) { close(up) })
			}()
			<-up
			second := run("mkdir -p ~/.cache/go-build ~/.config; echo x >~/.cache/planted; echo x >~/.config/planted; "+
				"echo x >second; git add second; git commit -qm Second; exit 0", nil)
			first := <-both
			for _, x := range []*task.Execution{first, second} {
				testkit.True(t, x.State == task.Completed, "%s: %s", x.State, deref(x.Error))
			}
			var out string
			for _, reviewer := range []*string{nil, new(""), new("TEST")} {
				j := testkit.Get(l.Judge(ctx, l.Attempt.Workspace, reviewer)).Must(t)
				r, err := j.Run(ctx, process.Spec{Command: []string{"/bin/sh", "-c",
					"find ~ -name planted; git log -1 --format=%s; echo x >judged; echo writes: $?"}}, j.Refused)
				must(t, err)
				j.End()
				out += string(r.Stdout)
			}
			judged <- out
			return board.RunEnd{State: board.Completed}
		}
	})
	made := s.startRun(false)
	s.reaches(made.RunID, task.Completed)
	testkit.Equal(t, strings.ReplaceAll(<-judged, "writes: 1", "writes: 2"),
		"First\nwrites: 0\nFirst\nwrites: 2\nFirst\nwrites: 2\n")
	a := testkit.Get(s.store().Attempt(ctx, made.RunID)).Must(t)
	testkit.Equal(t, p.Git(p.Root, "log", "-2", "--format=%s", a.Branch), "First\nSecond")
	left, _ := filepath.Glob(filepath.Join(s.State().Dir, "contained", "judges", "*", "*"))
	testkit.Equal(t, len(left), 0, "caches of judges: %v", left)
	for _, x := range testkit.Get(s.store().Steps(ctx, made.RunID)).Must(t) {
		testkit.True(t, inContainment(&x), "%+v", x)
	}

	// What has run contained is judged contained, whatever the config says by now.
	p.Configure(func(*config.Config) {})
	l := &Lead{Attempt: a, records: s.store(), execution: &execution{engine: s.Engine, ctx: ctx}}
	j := testkit.Get(l.Judge(ctx, a.Workspace, nil)).Must(t)
	testkit.True(t, j != nil, "it is not contained")
	j.End()
	l.Run.InPlace = true
	_, err := l.Judge(ctx, a.Workspace, nil)
	testkit.Fails(t, err, "Start it without --in-place, or set contain: off in the config.")
}

// A run in place is refused, and one that cannot be contained, before anything runs.
func TestWhatCannotBeContained(t *testing.T) {
	p := contained(t)
	ended := make(chan error, 1)
	s := p.open(func(o *Options) {
		o.Leader = func(ctx context.Context, l *Lead) board.RunEnd {
			a := agentOf(l, "touch ran")
			a.MCP.URL, a.MCP.File = "http://127.0.0.1:40001/mcp", "/none"
			_, err := l.RunAgent(ctx, a)
			ended <- err
			return board.RunEnd{State: board.Completed}
		}
	})
	s.startRun(true)
	testkit.Fails(t, <-ended, "contain is required, and a run in place works in your own folder")
	testkit.True(t, !Exists(filepath.Join(p.Root, "ran")), "it ran")
	s.stop()

	testkit.Write(t, filepath.Join(p.Root, ".gitmodules"), "")
	p.Git(p.Root, "add", "-A")
	p.Git(p.Root, "commit", "-qm", "modules")
	r := p.open().ran("touch ran")
	testkit.Equal(t, r.State, "failed")
	testkit.Contains(t, deref(r.Error), "has submodules, which contained agents cannot use yet")
}
