package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/hosts"
	"deepwork/catalog/job"
)

// The user's scalars win, and entries with names are merged.
func TestTheUsersConfigWins(t *testing.T) {
	project := parsed(t, `
quality_gate: {agent_review_command: theirs, default_max_attempts: 7}
toolsets: [board]
executors: {CODEX: {command: theirs}, OTHER: {command: other}}
workflow_tools: {sources: [{name: a, command: theirs}, {name: b, command: b}]}
projects: [{name: p, repos: [{path: /theirs}]}]
`)

	u := parsedUser(t, `
trusted_folders: [/src/, /home/ann]
quality_gate: {agent_review_command: mine}
executors: {CODEX: {command: mine}}
workflow_tools: {sources: [{name: a, url: "https://mine.example.com"}, {name: c, command: c}]}
`)
	c := u.Over(project)
	var sources, executors []string
	for _, s := range c.WorkflowTools.Sources {
		sources = append(sources, s.Name+strings.Join(s.Command, "")+s.URL)
	}
	for _, e := range c.Executors {
		executors = append(executors, e.Name+e.Command[0])
	}
	testkit.Same(t, [][]string{c.QualityGate.AgentReviewCommand, sources, executors, c.Toolsets, {c.Projects[0].Name},
		u.TrustedFolders}, [][]string{
		{"mine"}, {"ahttps://mine.example.com", "bb", "cc"}, {"CODEXmine", "OTHERother"}, {"board"}, {"p"},
		{filepath.Clean("/src"), filepath.Clean("/home/ann")},
	})
	testkit.Equal(t, c.QualityGate.DefaultMaxAttempts, 7,
		"a key that the user does not set was changed, or the project's config")
	testkit.Equal(t, project.QualityGate.AgentReviewCommand[0], "theirs",
		"a key that the user does not set was changed, or the project's config")
}

// A project can only make overrides stricter than the default; the user's word is the last.
func TestOverridesOfProjectAndUser(t *testing.T) {
	for _, test := range [][3]string{
		{"", "", "agent"}, {"agent", "", "agent"}, {"human", "", "human"}, {"never", "", "never"},
		{"agent", "human", "human"}, {"never", "agent", "agent"}, {"agent", "never", "never"},
		{"human", "human", "human"},
	} {
		project := parsed(t, "quality_gate: {override: "+test[0]+"}")
		user := parsedUser(t, "quality_gate: {override: "+test[1]+"}")
		testkit.Equal(t, string(user.Over(project).QualityGate.Override), test[2], "%v %v", test[0], test[1])
	}
	testkit.True(t, OverrideNever.Stricter(OverrideHuman) && !OverrideAgent.Stricter(OverrideAgent),
		"the order of the modes is wrong")
}

// There is one reviewer: the user's own config replaces the project's, whichever key either has.
func TestTheUsersReviewerWins(t *testing.T) {
	for _, test := range []struct{ project, user, command, executor string }{
		{"agent_review_command: theirs", "reviewer_executor: MINE", "", "MINE"},
		{"reviewer_executor: THEIRS", "agent_review_command: mine", "mine", ""},
		{"reviewer_executor: THEIRS", "reviewer_executor: MINE", "", "MINE"},
		{"reviewer_executor: 'THEIRS:PLAN'", "pin: true", "", "THEIRS:PLAN"},
	} {
		q := parsedUser(t, "quality_gate: {"+test.user+"}").Over(parsed(t, "quality_gate: {"+test.project+"}")).
			QualityGate
		testkit.Equal(t, strings.Join(q.AgentReviewCommand, " "), test.command)
		testkit.Equal(t, q.ReviewerExecutor, test.executor)
	}
}

// What is not approved is not in force, whatever else the project's config says.
func TestWhatIsWithheld(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	write := func(text string) {
		t.Helper()
		testkit.Write(t, filepath.Join(root, ".deepwork", FileName), text)
	}
	write("quality_gate: {agent_review_command: one, default_max_attempts: 7}\ngit: {branch: checkout}\nexecutors: " +
		"{A: {command: a}}\nattempts: {auto_start: {executor: A, max_in_review: 1}}")
	s := Open(root)
	var good *Config
	answers := map[*Config]*Approval{}
	s.Approve = func(project *Config, _ *User) *Approval {
		if answers[project] == nil {
			answers[project] = &Approval{Use: good, Withheld: &Withheld{Kept: good != nil}}
		}
		return answers[project]
	}

	is := func(command string, executors, attempts int, branch GitBranch) {
		t.Helper()
		c := testkit.Get(s.Current(t.Context())).Must(t)
		got := fmt.Sprint(strings.Join(c.QualityGate.AgentReviewCommand, ""), len(c.Executors),
			c.QualityGate.DefaultMaxAttempts, c.Git.Branch, c.Attempts.AutoStart != nil)
		testkit.Equal(t, got, fmt.Sprint(command, executors, attempts, branch, executors > 0), "in force")
		again, err := s.Current(t.Context())
		testkit.True(t, again == c && err == nil, "it was made again though nothing changed")
	}
	is("", 0, 7, BranchName)
	for project := range answers { // as if the user approved it
		good, answers[project] = project, &Approval{Use: project}
	}

	is("one", 1, 7, BranchCheckout)
	write("quality_gate: {agent_review_command: two, default_max_attempts: 9}")
	is("one", 1, 9, BranchCheckout)
	// The user's own commands run in a project that they have not approved, and not in one that they denied.
	testkit.Equal(t, s.Telemetry(t.Context()), Default().Telemetry)

	testkit.Write(t, UserFile(),
		"quality_gate: {agent_review_command: mine}\ntelemetry: {trace_url: 'https://x/{trace_id}'}")
	must(t, os.Chmod(UserFile(), 0o600))
	is("mine", 1, 9, BranchCheckout)
	testkit.Equal(t, s.Telemetry(t.Context()).Link("7"), "https://x/7")
	testkit.True(t, s.User() == testkit.Get(s.Own(t.Context())).Must(t),
		"the user's config of the last look is another one")

	good = nil
	s.Approve = func(*Config, *User) *Approval { return &Approval{Withheld: &Withheld{Denied: true}} }
	testkit.Same(t, testkit.Get(s.Current(t.Context())).Must(t).QualityGate.AgentReviewCommand, nil)

	agents, ci := Asked{Key: AgentsKey}, Asked{Key: SourcesKey + "ci", Text: "./ci"}
	w := &Withheld{Asked: []Asked{agents, ci}, Changed: []string{"a.sh", "git.branch"}}
	testkit.True(t, !w.Plain(), "agents alone are not told apart")
	testkit.True(t, (&Withheld{Asked: []Asked{agents}}).Plain(), "agents alone are not told apart")
	testkit.True(t, !(&Withheld{Asked: []Asked{ci}}).Plain(), "agents alone are not told apart")
	testkit.Equal(t, w.Since()+(&Withheld{}).Since(), ". Changed since the last approval: a.sh, git.branch")

	for key, want := range map[string]Asked{
		SourcesKey:        ci,
		SourcesKey + "ci": ci,
		SourcesKey + "c":  {},
		"agents":          agents,
		"agent":           {},
	} {
		got, ok := w.Of(key)
		testkit.True(t, got == want && ok == (want != Asked{}), "of %s: %+v, %t", key, got, ok)
		_, ok = (*Withheld)(nil).Of(key)
		testkit.Equal(t, ok, false)
	}

	c := Default()
	testkit.Equal(t, len(c.WithheldSources()), 0)
	c.Approval = &Approval{Withheld: w}
	testkit.Same(t, c.WithheldSources(), []Asked{ci})

	c.WorkflowTools.Sources = []WorkflowSource{{Name: "ci"}} // an earlier one is in force
	testkit.Equal(t, len(c.WithheldSources()), 0)
	c.WorkflowTools = WorkflowTools{}
	testkit.Equal(t, len(c.WithheldSources()), 0)

	for rights, want := range map[string]string{
		"":                    "",
		" person, agents ":    "agents,person",
		"agents,merge,person": "agents,merge,person",
	} {
		testkit.Equal(t, testkit.Get(ParseRights(rights)).Must(t).String(), want)
	}
	testkit.Fails(t, testkit.Get(ParseRights("agents,all")).Err(),
		`"all" is not a right: the rights are agents, merge, person`)
}

func TestSecretsAreTheVariablesOfHeaders(t *testing.T) {
	c, faults := Parse("config.yml",
		[]byte(`workflow_tools: {sources: [{name: a, url: "https://a.com", headers: {Authorization: "Bearer `+
			`${ONE}", X: "${TWO}-${THREE}"}}]}`))
	testkit.True(t, faults == nil && strings.Join(c.Secrets(), " ") == "ONE TWO THREE", "%v, %v", c.Secrets(), faults)
}

// What others may write to is not the user's config, whatever it says.
func TestAUsersConfigThatEverybodyMayWriteTo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not looked at there")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	file := UserFile()
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte("quality_gate: {agent_review_command: mine}\n"), 0o644))
	mode := func(m os.FileMode) {
		t.Helper()
		must(t, os.Chmod(file, m))
	}
	reviewer := func(s *Source, want, fault string) {
		t.Helper()
		c, err := s.Current(t.Context())
		got := ""
		if err == nil {
			got, err = strings.Join(c.QualityGate.AgentReviewCommand, " "), s.Refused()
		}
		testkit.Equal(t, got, want, "the reviewer")
		testkit.True(t, (err != nil) == (fault != "") && (err == nil || strings.Contains(err.Error(), fault)),
			"the error is %v", err)
	}

	const chmod = "everybody may write to it: run chmod o-w on it"
	running, _ := open(t)
	reviewer(running, "mine", "")
	mode(0o646)
	later, _ := open(t)
	reviewer(later, "", file)
	reviewer(later, "", chmod)
	reviewer(running, "mine", chmod) // what was good before
	mode(0o644)
	reviewer(later, "mine", "")
	reviewer(running, "mine", "")
}

func TestWorkerAndStore(t *testing.T) {
	u := parsedUser(t, "worker: {projects: {shop: /srv/shop/, web: /srv/web}}\nstore: "+
		"postgres://me:secret@db.example/work\n")
	testkit.Need(t, len(u.WorkerProjects) == 2, "%+v", u)
	testkit.Equal(t, u.WorkerProjects["shop"], filepath.FromSlash("/srv/shop"))
	testkit.Equal(t, u.Store, "postgres://me:secret@db.example/work")
}

func TestAdditionalJobs(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	t.Setenv(JobsFoldersEnv, strings.Join([]string{" " + a + " ", "", "  ", "relative/jobs",
		b + string(filepath.Separator)}, string(filepath.ListSeparator)))
	testkit.Same(t, JobsFolders(), []string{a, "relative/jobs", b})

	with := filepath.Join(a, "with"+listSeparator+"one")
	t.Setenv(JobsFoldersEnv, QuoteFolder(with)+listSeparator+QuoteFolder(b)+listSeparator+" "+QuoteFolder(with))
	testkit.Same(t, JobsFolders(), []string{with, b, with}, "with the separator in a name")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*Source, *testkit.Log) {
	t.Helper()
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, ".deepwork"), 0o755))
	s, log := Open(root), new(testkit.Log)
	s.Logger = slog.New(slog.NewTextHandler(log, nil))
	return s, log
}

var must = testkit.Must

// parsed returns the config of a file without faults, and parsedUser that of a user's own.
func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, faults := Parse("config.yml", []byte(text))
	must(t, faults.Err())
	return c
}

func parsedUser(t *testing.T, text string) *User {
	t.Helper()
	u, faults := ParseUser("config.yml", []byte(text))
	must(t, faults.Err())
	return u
}

func put(t *testing.T, s *Source, text string) {
	t.Helper()
	must(t, os.WriteFile(s.Path(), []byte(text), 0o644))
}

func current(t *testing.T, s *Source) *Config {
	t.Helper()
	return testkit.Get(s.Current(t.Context())).Must(t)
}

const (
	create = "git:\n  branch: create\nquality_gate:\n  default_max_attempts: 7\n"
	bad    = "git:\n  branch: nowhere\n"
)

func TestEditTakesEffectAtOnce(t *testing.T) {
	testkit.Same(t, current(t, Open(filepath.Join(t.TempDir(), "no", "such", "folder"))), Default())
	s, _ := open(t)
	testkit.Equal(t, current(t, s).Git.Branch, BranchName, "at first")

	put(t, s, create)
	first := current(t, s)
	testkit.Equal(t, first.Git.Branch, BranchCreate, "after a write: %+v", first)
	testkit.Equal(t, current(t, s), first, "another config though nothing changed")

	temp := s.Path() + ".tmp"
	must(t, os.WriteFile(temp, []byte("git: {branch: checkout}\n"), 0o644))
	must(t, os.Rename(temp, s.Path()))
	testkit.Equal(t, current(t, s).Git.Branch, BranchCheckout)
}

func TestBadEditLeavesTheLastGoodOne(t *testing.T) {
	s, log := open(t)
	put(t, s, create)
	good := current(t, s)
	put(t, s, bad)
	for range 3 {
		testkit.Equal(t, current(t, s), good, "serves")
	}
	testkit.Equal(t, log.Count("config.yml:2:11: git.branch"), 1, "logged … times")
	testkit.Equal(t, log.Count("the last good one stays in use"), 1, "logged … times")

	put(t, s, bad+"nonsense: 1\n")
	current(t, s)
	testkit.Equal(t, log.Count("nonsense: unknown key"), 1, "another fault logged … times")

	put(t, s, create)
	c := current(t, s)
	testkit.True(t, c == good && log.Count("good again") == 1, "after the correction: %+v", c)
}

func TestBadSinceStartIsAnError(t *testing.T) {
	s, log := open(t)
	put(t, s, bad)
	for range 2 {
		c, err := s.Current(t.Context())
		testkit.Need(t, c == nil && err != nil, "%+v %v", c, err)
		faults, ok := errors.AsType[job.Diagnostics](err)
		testkit.Need(t, ok, "error %v", err)
		testkit.Need(t, len(faults) == 1, "error %v", err)
		testkit.Equal(t, faults[0].Line, 2, "error %v", err)
		testkit.Equal(t, faults[0].Column, 11, "error %v", err)
		testkit.Contains(t, err.Error(), s.Path(), "the error does not say which file: %v", err)
	}
	testkit.Equal(t, log.Count("configuration refused; calls are, too"), 1, "logged … times")

	put(t, s, create)
	testkit.Equal(t, current(t, s).Git.Branch, BranchCreate)

	// So is a file that cannot be read.
	s, _ = open(t)
	must(t, os.Mkdir(s.Path(), 0o755))
	testkit.Fails(t, testkit.Get(s.Current(t.Context())).Err(), "", "a directory is accepted")
	must(t, os.Remove(s.Path()))
	put(t, s, strings.Repeat("#", MaxBytes+1))
	testkit.Fails(t, testkit.Get(s.Current(t.Context())).Err(), "1048577 bytes", "a huge file")
	must(t, os.Remove(s.Path()))
	testkit.Same(t, current(t, s), Default(), "after it is gone")
}

// TestSaveInProgress is what a save looks like in the middle: the last good config stays for 500 ms, then the
// file is taken for what it is.
func TestSaveInProgress(t *testing.T) {
	for name, tear := range map[string]func(t *testing.T, s *Source){
		"missing": func(t *testing.T, s *Source) { must(t, os.Remove(s.Path())) },
		"empty":   func(t *testing.T, s *Source) { must(t, os.Truncate(s.Path(), 0)) },
		"half": func(t *testing.T, s *Source) {
			must(t, os.Truncate(s.Path(), int64(strings.Index(create, "quality"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := open(t)
			synctest.Test(t, func(t *testing.T) {
				put(t, s, create)
				good := current(t, s)
				tear(t, s)
				testkit.Equal(t, current(t, s), good, "at once")

				time.Sleep(450 * time.Millisecond)
				testkit.Equal(t, current(t, s), good, "after 450 ms")
				time.Sleep(100 * time.Millisecond)
				testkit.Equal(t, current(t, s).QualityGate.DefaultMaxAttempts, 3, "after 550 ms")
				testkit.Equal(t, log.Count("refused"), 0, "logged … times")
			})
		})
	}
}

func TestOnlyWholeConfigsAreServed(t *testing.T) {
	s, _ := open(t)
	versions := []string{create, strings.NewReplacer("7", "9", "create", "checkout").Replace(create)}
	put(t, s, create)
	current(t, s) // from here on there is a last good one
	var over atomic.Bool
	var longest time.Duration // that a save took
	var saves sync.WaitGroup
	saves.Go(func() {
		for i := 1; !over.Load(); i++ {
			began := time.Now()
			f := testkit.Get(os.Create(s.Path())).Must(t) // truncated, then written in halves
			_, err1 := f.WriteString(versions[i%2][:25])
			_, err2 := f.WriteString(versions[i%2][25:])
			testkit.Works(t, errors.Join(err1, err2, f.Close()))
			longest = max(longest, time.Since(began))
			time.Sleep(5 * time.Millisecond)
		}
	})

	wrong := ""
	for end := time.Now().Add(500 * time.Millisecond); wrong == "" && time.Now().Before(end); {
		c, err := s.Current(t.Context())
		if err != nil {
			wrong = err.Error()
		} else if is := fmt.Sprint(c.Git.Branch, c.QualityGate.DefaultMaxAttempts); is != "create7" &&
			is != "checkout9" {
			wrong = is
		}
	}
	over.Store(true)
	saves.Wait() // a save that took long may be taken for what it then was: see TestSaveInProgress
	testkit.True(t, wrong == "" || longest >= 100*time.Millisecond, "serves half a file: %s", wrong)
}

func TestConcurrentCallsAgree(t *testing.T) {
	s, _ := open(t)
	put(t, s, create)
	got := make([]*Config, 16)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = current(t, s) })
	}
	wg.Wait()
	for _, c := range got {
		testkit.Equal(t, c, got[0], "the file was read more than once")
	}
}

func TestCallWhoseContextIsOverDoesNotWait(t *testing.T) {
	s, _ := open(t)
	put(t, s, create) // too young to be believed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.FailsWith(t, testkit.Get(s.Current(ctx)).Err(), context.Canceled, "error")
	testkit.Equal(t, current(t, s).Git.Branch, BranchCreate)
}

func TestReq003_4_4_ARefusedEditIsTold(t *testing.T) {
	s, _ := open(t)
	for _, c := range []struct{ enabled, fault string }{{"true", ""},
		{"maybe", "config.yml:1:27: workflow_tools.enabled"}, {"false", ""}} {
		put(t, s, "workflow_tools: {enabled: "+c.enabled+"}\n")
		current(t, s)
		if c.fault == "" {
			testkit.Works(t, s.Refused())
			continue
		}
		testkit.Fails(t, s.Refused(), c.fault)
	}
}

// Without approval a project's config cannot have sessions removed sooner; the user's own value wins.
func TestOnlyLongerTimesToKeepSessionsCountWithoutApproval(t *testing.T) {
	hours := func(n int) *Config {
		c := *Default()
		c.Sessions.KeepEnded = time.Duration(n) * time.Hour
		return &c
	}
	for _, c := range []struct{ approved, asked, want int }{
		{0, 1, 0}, {0, 0, 0}, {48, 1, 48}, {48, 72, 72}, {48, 0, 0},
	} {
		a := &Approval{Use: hours(c.approved), Withheld: &Withheld{}}
		got := a.apply(hours(c.asked)).Sessions.KeepEnded
		testkit.Equal(t, got, time.Duration(c.want)*time.Hour, "approved %d, asked %d", c.approved, c.asked)
	}

	root, own := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", own)
	t.Setenv("APPDATA", own)
	testkit.Write(t, filepath.Join(root, ".deepwork", FileName), "sessions: {keep_ended: 1h}")
	for _, denied := range []bool{false, true} {
		s := Open(root)
		s.Approve = func(*Config, *User) *Approval { return &Approval{Withheld: &Withheld{Denied: denied}} }
		testkit.Equal(t, testkit.Get(s.Current(t.Context())).Must(t).Sessions.KeepEnded, 0)
		testkit.Write(t, filepath.Join(own, "deepwork", FileName), "sessions: {keep_ended: 720h}")
		s = Open(root)
		s.Approve = func(*Config, *User) *Approval { return &Approval{Withheld: &Withheld{Denied: denied}} }
		testkit.Equal(t, testkit.Get(s.Current(t.Context())).Must(t).Sessions.KeepEnded, 720*time.Hour)
		testkit.Must(t, os.Remove(filepath.Join(own, "deepwork", FileName)))
	}
}

// The strictest mode counts, and all that is allowed. A project's config only turns it on and allows hosts; those of
// the user's own are added.
func TestContained(t *testing.T) {
	project := parsed(t, "attempts: {contain: {allow: ['a.example.com:443', npm]}}\nrun: {contain: required}\n"+
		"executors: {MINE: {command: x, contain: {home: new}}}")
	dir := testkit.Dir(t)
	c := parsedUser(t, "attempts: {contain: {mode: outer, allow: ['b.example.com:443', npm], forward: [5432]}}\n"+
		"run: {contain: {forward: [5432, 6379], read: ['"+dir+"'], write: ['"+dir+"'], pass_env: [KEY]}}").Over(project)
	attempt := Contain{
		Mode: ContainOuter, Home: HomeKeep, Forward: []int{5432},
		Allow: []string{"a.example.com:443", "npm", "b.example.com:443"},
	}
	testkit.Same(t, c.Contained("OTHER", false), attempt)
	run := attempt
	run.Mode, run.Home, run.Forward, run.PassEnv = ContainRequired, HomeNew, []int{5432, 6379}, []string{"KEY"}
	run.Read, run.Write = []string{dir}, []string{dir}
	testkit.Same(t, c.Contained("MINE", true), run)

	testkit.Same(t, Default().Contained("OTHER", true), Contain{Mode: ContainOff, Home: HomeKeep})
	for _, name := range KnownExecutors {
		vendor := Default().Contained(name, false).Allow
		testkit.Equal(t, len(vendor) > 0, name != "OPENCODE", "%s connects to %v", name, vendor)
		for _, host := range vendor {
			testkit.Equal(t, testkit.Get(hosts.Parse(host)).Must(t), host)
		}
	}
}

func TestWhatIsNarrower(t *testing.T) {
	for name, c := range map[string]struct {
		is, was Contain
		want    bool
	}{
		"the same":       {Contain{Mode: ContainRequired}, Contain{Mode: ContainRequired}, true},
		"turned on":      {Contain{Mode: ContainRequired}, Contain{}, true},
		"off as before":  {Contain{}, Contain{Mode: ContainOff}, true},
		"turned off":     {Contain{}, Contain{Mode: ContainRequired}, false},
		"a host less":    {Contain{Allow: []string{"a"}}, Contain{Allow: []string{"a", "b"}}, true},
		"another host":   {Contain{Allow: []string{"c"}}, Contain{Allow: []string{"a", "b"}}, false},
		"a new home":     {Contain{Home: HomeNew}, Contain{Home: HomeKeep}, true},
		"home as before": {Contain{}, Contain{Home: HomeKeep}, true},
		"a kept home":    {Contain{}, Contain{Home: HomeNew}, false},
	} {
		testkit.Equal(t, c.is.Narrower(c.was), c.want, name)
	}
}

// Until the user approves a project, it only turns containment on.
func TestContainWithoutApproval(t *testing.T) {
	project := parsed(t, "attempts: {contain: {mode: required, home: new, allow: ['a.example.com:443']}}")
	approved := parsed(t, "attempts: {contain: {allow: ['b.example.com:443']}}")
	a := Approval{Use: approved, Withheld: &Withheld{}}
	testkit.Same(t, a.apply(project).Attempts.Contain,
		Contain{Mode: ContainRequired, Home: HomeNew, Allow: []string{"b.example.com:443"}})
}
