package trust

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
)

const asks = `
quality_gate: {agent_review_command: "python3 -u tools/review.py --fast", default_timeout: 60}
workflow_tools:
  sources:
    - {name: ci, command: "./tools/ci.sh", env: {A: b}}
    - {name: web, url: "https://example.com/mcp", headers: {Authorization: "Bearer ${TOKEN}"}}
executors:
  CODEX: {command: "codex exec", variants: {FAST: {command: "codex exec --fast"}}}
projects:
  - {name: other, repos: [{path: ../other, setup: "make deps"}]}
attempts: {push_to: origin, worktrees: /elsewhere, setup: "tools/setup.sh", copy: [.env], max_cost_usd: 5, ` +
	`auto_start: {executor: CODEX, max_in_review: 2}}
git: {branch: checkout}
`

func newProject(t *testing.T, files map[string]string) string {
	t.Helper()
	root := testkit.Dir(t)
	for name, text := range files {
		testkit.Write(t, filepath.Join(root, name), text)
		must(t, os.Chmod(filepath.Join(root, name), 0o755))
	}
	return root
}

var must = testkit.Must

func setOf(t *testing.T, root, text string) Set {
	t.Helper()
	c, faults := config.Parse("config.yml", []byte(text))
	testkit.Need(t, c != nil, "%v", faults)
	return testkit.Get(SetOf(root, c)).Must(t)
}

func TestASetHasWhatRunsConnectsOrReachesOutside(t *testing.T) {
	s := setOf(t, newProject(t, map[string]string{"tools/review.py": "1", "tools/ci.sh": "2", "tools/setup.sh": "3"}),
		asks)
	var got []string
	files := map[string]bool{}
	for _, e := range s {
		got = append(got, e.Key)
		for f := range e.Files {
			files[f] = true
		}
	}

	want := "agents attempts.auto_start attempts.copy attempts.push_to attempts.setup attempts.worktrees " +
		"executors.CODEX git.branch projects.other quality_gate.agent_review_command workflow_tools.sources.ci " +
		"workflow_tools.sources.web"
	testkit.Equal(t, strings.Join(got, " "), want)
	testkit.Same(t, files, map[string]bool{"tools/review.py": true, "tools/ci.sh": true, "tools/setup.sh": true})

	// That an executor reviews is approved, and its command is as an executor.
	s = setOf(t, newProject(t, nil), "quality_gate: {reviewer_executor: 'CODEX:PLAN'}")
	testkit.Need(t, len(s) == 2, "%+v", s)
	testkit.Equal(t, s[1].Key, "quality_gate.reviewer_executor")
	testkit.Equal(t, s[1].Text(), `"CODEX:PLAN"`)
}

func TestWhatChangesASet(t *testing.T) {
	root := newProject(t, map[string]string{"tools/review.py": "1", "tools/ci.sh": "2", "tools/setup.sh": "3"})
	was := setOf(t, root, asks)
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"default_timeout: 60", "default_timeout: 90", true},
		{"max_cost_usd: 5", "max_cost_usd: 50", true},
		{"max_in_review: 2", "max_in_review: 3", false},
		{"executor: CODEX", "executor: CODEX:FAST", false},
		{"{A: b}", "{A: c}", false},
		{"{A: b}", "{A: b}, tools: ['*']", false},
		{"{A: b}", "{A: b}, list_tool: wipe", false}, // it is called at once
		{"{A: b}", "{A: b}, list_tool: workflows-list-tool, execution_timeout: 5", true},
		{"${TOKEN}", "${OTHER}", false},
		{"--fast\"}", "--slow\"}", false},
		{"make deps", "make all", false},
		{"git: {branch: checkout}", "", false},
		{"git: {branch: checkout}", "git: {branch: create}", false},
		{"[.env]", "[.env, id]", false},
	} {
		is := setOf(t, root, strings.Replace(asks, c.from, c.to, 1))
		testkit.Equal(t, is.Hash() == was.Hash(), c.same, "%s instead of %s: the same", c.to, c.from)
		testkit.Equal(t, len(is.Changes(was)) == 0, c.same, "%s instead of %s: no changes", c.to, c.from)
	}

	command := []string{"python3", "-u", "tools/review.py"}
	approved := &config.Approval{Files: []map[string]string{was.files()}}
	must(t, Check(root, approved, command))
	must(t, Check(root, nil, command))
	script := filepath.Join(root, "tools/review.py")
	must(t, os.WriteFile(script, []byte("evil"), 0o755))
	testkit.FailsWith(t, Check(root, approved, command), ErrChanged, "a script that was changed")

	changes := setOf(t, root, asks).Changes(was)
	testkit.True(t, len(changes) == 1 && changes[0].Is.Key == "quality_gate.agent_review_command",
		"the changes are %v", changes)

	must(t, os.Remove(script))
	testkit.FailsWith(t, Check(root, approved, command), ErrChanged, "a script that is missing")
	must(t, os.Mkdir(script, 0o755)) // python3 runs __main__.py in it
	testkit.FailsWith(t, Check(root, approved, command), ErrChanged, "a folder in place of a script")
	must(t, os.Remove(script))
	must(t, os.WriteFile(script, []byte("1"), 0o755))
	must(t, Check(root, &config.Approval{Files: []map[string]string{}}, []string{"claude", "tools", "--print"}))
	if runtime.GOOS != "windows" {
		must(t, os.Chmod(filepath.Join(root, "tools/ci.sh"), 0o777))
		testkit.Contains(t, setOf(t, root, asks).Fault(), "chmod o-w", "a script that everybody may change")
		must(t, os.Chmod(filepath.Join(root, "tools/ci.sh"), 0o755))
		for _, dir := range []string{root, filepath.Join(root, "tools")} {
			must(t, os.Chmod(dir, 0o777))
			testkit.Contains(t, setOf(t, root, asks).Fault()+"\n",
				"everybody may write to "+dir+": run chmod o-w on it\n")
			must(t, os.Chmod(dir, 0o777|os.ModeSticky))
			testkit.Equal(t, setOf(t, root, asks).Fault(), "", "a folder like /tmp")
			must(t, os.Chmod(dir, 0o755))
		}
	}
}

func TestALedgerKeepsWhatTheUserSaid(t *testing.T) {
	root := newProject(t, nil)
	file := filepath.Join(t.TempDir(), "trust", "p.json")
	here, there := OpenLedger(file, root), OpenLedger(file, root) // another process
	one, two := setOf(t, root, ""), setOf(t, root, asks)
	ctx := context.Background()
	granted := func(s Set, want bool) {
		t.Helper()
		for _, l := range []*Ledger{here, there} {
			testkit.Equal(t, testkit.Get(l.Read()).Must(t).Granted(s), want)
		}
	}
	granted(one, false)
	must(t, here.Grant(ctx, one, time.Now()))
	granted(one, true)
	granted(two, false)
	must(t, there.Grant(ctx, two, time.Now()))
	granted(one, true) // switching back asks for nothing
	granted(two, true)
	kept := testkit.Get(there.Read()).Must(t).Grants[1].Set
	testkit.Equal(t, len(two.Changes(kept)), 0, "what was kept of a set differs from it: %v", kept)

	must(t, here.Deny(ctx))
	granted(two, false)
	must(t, here.Grant(ctx, two, time.Now()))
	granted(two, true)
	granted(one, false)
	read := testkit.Get(OpenLedger(file, root).Read()).Must(t).Grants[0].Set
	testkit.Equal(t, len(two.Changes(read)), 0, "what was read again differs: %v", read)

	must(t, here.Revoke(ctx))
	granted(two, false)
	r, err := OpenLedger(file, root+"-other").Read()
	testkit.True(t, err != nil && !r.Granted(one), "the record of another project was taken: %v", r)

	if runtime.GOOS == "windows" {
		return // permissions are not looked at there
	}
	must(t, here.Grant(ctx, one, time.Now()))
	granted(one, true)
	must(t, os.Chmod(file, 0o602))
	r, err = here.Read()
	testkit.Fails(t, err, "run chmod o-w", "a record that everybody may write to")
	testkit.True(t, !r.Granted(one), "it was taken")

	must(t, os.Chmod(file, 0o600))
	granted(one, true)
}

// What a project's agents may reach needs an approval; less does not, but no longer being contained does.
func TestLessReachNeedsNoApproval(t *testing.T) {
	root := newProject(t, map[string]string{"review.sh": "1"})
	const rest = "\nquality_gate: {agent_review_command: ./review.sh}"
	const approved = "attempts: {contain: {mode: required, allow: [npm, 'a.example.com:443']}}"
	ledger := OpenLedger(filepath.Join(t.TempDir(), "p.json"), root)
	must(t, ledger.Grant(context.Background(), setOf(t, root, approved+rest), time.Now()))
	r := testkit.Get(ledger.Read()).Must(t)
	for text, want := range map[string]bool{
		approved: true,
		"attempts: {contain: {mode: required, allow: [npm]}}":                        true,
		"attempts: {contain: {mode: required, home: new}}\nrun: {contain: required}": true,
		"attempts: {contain: required}\nexecutors: {CODEX: {contain: required}}":     true,
		"attempts: {contain: {mode: required, allow: [npm, go]}}":                    false,
		"attempts: {contain: {mode: required}}\nrun: {contain: {allow: [npm]}}":      false,
		"attempts: {contain: {allow: [npm]}}":                                        false,
		"":                                                                           false,
		"attempts: {contain: required}\nexecutors: {CODEX: {contain: required, command: codex --fast}}": false,
	} {
		s := setOf(t, root, text+rest)
		testkit.Equal(t, r.Granted(s), want, text)
		testkit.Equal(t, len(r.files(s)) > 0, want, text)
	}
	testkit.Write(t, filepath.Join(root, "review.sh"), "2")
	s := setOf(t, root, approved+rest)
	testkit.True(t, !r.Granted(s) && len(r.files(s)) > 0, "another script is approved")
}

func TestProgramsAreNotFoundInsideTheProject(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("scripts without an extension")
	}
	root := newProject(t, map[string]string{"bin/tool": "#!/bin/sh\n"})
	t.Setenv("PATH", filepath.Join(root, "bin"))
	testkit.FailsWith(t, testkit.Get(Find(root, "tool")).Err(), exec.ErrNotFound)
	testkit.Equal(t, testkit.Get(Find(root, "./bin/tool")).Must(t), filepath.Join(root, "bin", "tool"), "by its path")
}

func TestInFoldersComparesWholeElements(t *testing.T) {
	dir := newProject(t, map[string]string{"work/a/x": "", "worker/x": ""})
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(filepath.Join(dir, "work"), link))
	for c, want := range map[[2]string]bool{
		{"work/a", "work"}: true,
		{"work", "work"}:   true,
		{"worker", "work"}: false,
		{"work", "work/a"}: false,
		{"link/a", "work"}: true,
		{"work/a", "link"}: true,
	} {
		testkit.Equal(t, InFolders(filepath.Join(dir, c[0]), []string{filepath.Join(dir, c[1])}), want, "%v", c)
	}
	testkit.True(t, !InFolders(dir, []string{"relative", ""}), "a relative folder counts")
}

// The whole way: a config is asked for, granted, edited, granted again, revoked.
func TestAPolicyFollowsTheUser(t *testing.T) {
	root := newProject(t, map[string]string{"review.sh": "one"})
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ctx := context.Background()
	ledger := OpenLedger(filepath.Join(t.TempDir(), "p.json"), root)
	file := filepath.Join(root, ".deepwork", "config.yml")
	must(t, os.Mkdir(filepath.Dir(file), 0o755))
	var set Set
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o644))
		set = setOf(t, root, text)
	}
	s := config.Open(root)
	policy := &Policy{Root: root, File: file, Ledger: ledger}
	s.Approve = policy.Approve

	is := func(command string, withheld, kept bool) {
		t.Helper()
		c := testkit.Get(s.Current(ctx)).Must(t)
		w := c.Approval.Withheld
		got := strings.Join(c.QualityGate.AgentReviewCommand, " ")
		testkit.Equal(t, got, command, "in force is %q, withheld %+v", got, w)
		testkit.Equal(t, (w != nil), withheld, "in force is %q, withheld %+v", got, w)
		testkit.True(t, (w == nil || w.Kept == kept), "in force is %q, withheld %+v", got, w)
	}

	write("quality_gate: {agent_review_command: ./review.sh one}")
	is("", true, false)
	must(t, ledger.Grant(ctx, set, time.Now()))
	is("./review.sh one", false, false)
	write("quality_gate: {agent_review_command: ./review.sh two}")
	is("./review.sh one", true, true)
	must(t, ledger.Grant(ctx, set, time.Now()))
	is("./review.sh two", false, false)
	write("quality_gate: {agent_review_command: ./review.sh one}")
	is("./review.sh one", false, false) // granted before
	script := func(text string) error {
		must(t, os.WriteFile(filepath.Join(root, "review.sh"), []byte(text), 0o755))
		c := testkit.Get(s.Current(ctx)).Must(t)
		return Check(root, c.Approval, c.QualityGate.AgentReviewCommand)
	}
	testkit.FailsWith(t, script("evil"), ErrChanged, "a script that was changed")

	write("quality_gate: {agent_review_command: ./review.sh one}")
	must(t, ledger.Grant(ctx, set, time.Now()))                   // the other version of the script, too
	for _, text := range []string{"evil", "one", "evil", "one"} { // as by switching branches
		testkit.Works(t, script(text), "a script as it was approved once")
	}
	testkit.FailsWith(t, script("new"), ErrChanged)

	write("quality_gate: {agent_review_command: ./review.sh one} # read with another script")
	is("./review.sh one", true, true)
	must(t, os.WriteFile(filepath.Join(root, "review.sh"), []byte("one"), 0o755)) // as by switching back
	policy.recheckAt = time.Time{}
	is("./review.sh one", false, false)
	must(t, ledger.Revoke(ctx))
	is("", true, false)
	was := testkit.Get(s.Current(ctx)).Must(t)
	policy.recheckAt = time.Time{}
	testkit.True(t, testkit.Get(s.Current(ctx)).Must(t) == was, "without a change it is another config")

	testkit.Write(t, config.UserFile(), "trusted_folders: ['"+filepath.Dir(root)+"']")
	is("./review.sh one", false, false)

	if runtime.GOOS != "windows" {
		must(t, os.Chmod(file, 0o666))
		write("quality_gate: {agent_review_command: ./review.sh three}")
		is("", true, false) // everybody may have written it
		must(t, os.Chmod(file, 0o644))
		write("quality_gate: {agent_review_command: ./review.sh one}")
		is("./review.sh one", false, false)
	}
	must(t, ledger.Deny(ctx))
	is("", true, false)
}

// A check is approved separately: its command, folder, limit and variables, and the content of the script that it
// names. Everything else of a job may change.
func TestAChecksApprovalIsForWhatItRuns(t *testing.T) {
	root, workspace := testkit.Dir(t), testkit.Dir(t)
	script := func(root, text string) { testkit.Write(t, filepath.Join(root, "sub", "check.sh"), text) }
	script(root, "exit 0")
	ledger := OpenLedger(filepath.Join(testkit.Dir(t), "grants"), root)
	base := job.StepCheck{Run: []string{"sh", "check.sh", "arg"}, Name: "tests", In: "sub"}
	entry := func(root string, c job.StepCheck) Entry {
		t.Helper()
		return testkit.Get(CheckOf(root, "job", "step", &c)).Must(t)
	}
	approves := func(want bool, what string, e Entry, trusted ...string) {
		t.Helper()
		testkit.Equal(t, ledger.ApprovesCheck(e, trusted) == nil, want, "%v", what)
	}
	approves(false, "before", entry(root, base))
	approves(true, "a trusted folder", entry(root, base), filepath.Dir(root))
	granted := entry(root, base)
	testkit.Need(t, granted.Files["sub/check.sh"] != "", "the script is not a part of it: %+v", granted)
	testkit.Must(t, ledger.GrantChecks(t.Context(), Set{granted}))
	approves(true, "as it is", entry(root, base))
	for what, change := range map[string]func(*job.StepCheck){
		"command":  func(c *job.StepCheck) { c.Run = []string{"sh", "check.sh", "other"} },
		"folder":   func(c *job.StepCheck) { c.In = "project" },
		"limit":    func(c *job.StepCheck) { c.Timeout = time.Hour },
		"pass_env": func(c *job.StepCheck) { c.PassEnv = []string{"TOKEN"} },
	} {
		c := base
		change(&c)
		approves(false, what, entry(root, c))
	}
	other := base
	other.Name = "renamed"
	other.Files = []string{"src/**"}
	other.Protect = []string{"tests/**"}
	approves(true, "name, files and protect", entry(root, other))
	script(workspace, "exit 0")
	approves(true, "an attempt", entry(workspace, base))
	script(workspace, "exit 0 # edited")
	approves(false, "another script in an attempt", entry(workspace, base))
	testkit.Must(t, os.Remove(filepath.Join(workspace, "sub", "check.sh")))
	approves(false, "a missing script in an attempt", entry(workspace, base))
	script(root, "exit 1")
	approves(false, "an edited script", entry(root, base))
	script(root, "exit 0")
	testkit.Must(t, ledger.Deny(t.Context()))
	approves(false, "denied", entry(root, base), filepath.Dir(root))
	testkit.Must(t, os.Symlink(workspace, filepath.Join(root, "away")))
	for _, folder := range []string{"gone", "away"} { // missing, and outside
		testkit.Fails(t, testkit.Get(CheckOf(root, "job", "step", &job.StepCheck{Run: []string{"x"}, In: folder})).
			Err(), "", folder)
	}
}

// An approval that has ended names the files and keys that differ from the nearest one, also to a server that began
// later; that of a check names the script.
func TestField21_AnEndedApprovalNamesWhatChanged(t *testing.T) {
	root := newProject(t, map[string]string{
		"tools/review.py": "1",
		"tools/ci.sh":     "2",
		"tools/setup.sh":  "3",
		"check.sh":        "exit 0",
	})
	ledger := OpenLedger(filepath.Join(testkit.Dir(t), "p.json"), root)
	changed := func(text string, want ...string) {
		t.Helper()
		c, _ := config.Parse("config.yml", []byte(text))
		w := (&Policy{Root: root, File: filepath.Join(root, "config.yml"), Ledger: ledger}).Approve(c,
			&config.User{}).Withheld
		testkit.Need(t, w != nil, "it is approved")
		testkit.Same(t, w.Changed, want, "of what changed")
	}
	changed(asks)
	must(t, ledger.Grant(t.Context(), setOf(t, root, asks), time.Now()))
	other := strings.Replace(asks, "{A: b}", "{A: c}", 1)
	must(t, ledger.Grant(t.Context(), setOf(t, root, other), time.Now()))
	changed(strings.Replace(asks, "[.env]", "[.env, id]", 1), "attempts.copy in .deepwork/config.yml")
	must(t, os.WriteFile(filepath.Join(root, "tools/review.py"), []byte("edited"), 0o755))
	must(t, os.Remove(filepath.Join(root, "tools/setup.sh")))
	changed(asks, "tools/review.py", "tools/setup.sh")
	changed(strings.Replace(other, "git: {branch: checkout}", "", 1), "git.branch in .deepwork/config.yml",
		"tools/review.py", "tools/setup.sh")
	check := &job.StepCheck{Run: []string{"sh", "check.sh"}, Name: "tests"}
	entry := testkit.Get(CheckOf(root, "job", "step", check)).Must(t)
	testkit.Equal(t, ledger.ApprovesCheck(entry, nil), ErrUnapproved)
	must(t, ledger.GrantChecks(t.Context(), Set{entry}))
	must(t, os.WriteFile(filepath.Join(root, "check.sh"), []byte("exit 1"), 0o755))
	err := ledger.ApprovesCheck(testkit.Get(CheckOf(root, "job", "step", check)).Must(t), nil)
	testkit.FailsWith(t, err, ErrUnapproved)
	testkit.Contains(t, err.Error(), "since check.sh changed")
	must(t, ledger.Deny(t.Context()))
	changed(asks)
}

var update = flag.Bool("update", false, "write the golden files")

// What a person is shown of what they approve: each setting, with the files that are checked and those that
// are not, and what differs from before.
func TestWhatAPersonApproves(t *testing.T) {
	root := newProject(t, map[string]string{
		"tools/review.py": "1",
		"tools/setup.sh":  "3",
		"tools/lib/x":     "",
		"tools/more.sh":   "4",
		"check.sh":        "exit 0",
	})

	c, faults := config.Parse("config.yml", []byte(asks+"version: 1\n"))
	testkit.Need(t, c != nil, "%v", faults)

	c.WorkflowTools.Sources[0].Env["EMPTY\u202e"] = ""
	set := testkit.Get(SetOf(root, c)).Must(t)
	set = append(set, setOf(t, root, `
workflow_tools: {sources: [{name: words, command: 'tools/setup.sh -x tools/lib a~b é "" -- tools/more.sh /etc `+
		`check.sh'}, {name: none, url: "https://example.com"}]}
projects:
  - {name: own, repos: [{name: r, path: ., setup: "tools/setup.sh"}]}
  - {name: itself, repos: [{name: r, path: "`+filepath.ToSlash(root)+`", setup: "make"}]}
  - {name: quiet, repos: [{name: r, path: ../x}]}
  - {name: away, repos: [{name: r, path: /x, setup: "make"}]}
attempts: {setup: "tools/lib tools/more.sh"}
`)...)

	check := func(in string, words ...string) job.StepCheck {
		return job.StepCheck{Name: "tests", Run: words, In: in}
	}
	steps := []job.Step{{
		ID:     "a",
		Checks: []job.StepCheck{check("", "sh", "check.sh", "a     b"), check("gone", "make")},
	}, {
		ID:     "b",
		Checks: []job.StepCheck{check("gone", "make"), check("", "sh", "check.sh", "a     b"), check("", "make")},
	}}

	var b strings.Builder
	for _, e := range append(set, ChecksOf(root, []*job.Job{{Name: "job", Steps: steps}})...) {
		fmt.Fprintf(&b, "%s = %s\n", e.Key, e.Text())
		if fault, _, ok := strings.Cut(e.Fault, ":"); ok {
			fmt.Fprintf(&b, "  fault: %s\n", fault)
		}
		e.Print(&b, "  ")
	}
	testkit.Golden(t, "testdata/approves.txt", strings.ReplaceAll(b.String(), filepath.ToSlash(root), "ROOT"), *update)

	was := Entry{Key: "a", Value: []byte("1"), Files: map[string]string{"same": "1", "edited": "1", "gone": "1"}}
	is := Entry{Key: "a", Value: []byte("1"), Files: map[string]string{"same": "1", "edited": "2", "new\n": "1"}}
	changes := Set{is, Entry{Key: "b"}}.Changes(Set{was})
	testkit.Equal(t, len(changes), 2)
	testkit.Same(t, changes[0].Files(), []string{"edited", "gone", `"new\n"`})
	testkit.Same(t, changes[1].Files(), nil)

	is.Value = []byte("2")
	testkit.Same(t, Set{is}.Changes(Set{was})[0].Files(), nil, "its value differs too")
	testkit.Equal(t, len(Set{is}.Changes(Set{is})), 0)
}

// A command that the config had earlier is used again only as the user approved it.
func TestACommandApprovedEarlier(t *testing.T) {
	root := newProject(t, map[string]string{"review.sh": "one"})
	ledger := OpenLedger(filepath.Join(testkit.Dir(t), "p.json"), root)
	var logged strings.Builder
	p := &Policy{
		Root:   root,
		File:   filepath.Join(root, "config.yml"),
		Ledger: ledger,
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}

	const key = "quality_gate.agent_review_command"
	approved := func(files int, user *config.User, words ...string) {
		t.Helper()
		a, err := p.Approved(user, key, words)
		testkit.Equal(t, err == nil, files >= 0, "%v", err)
		testkit.True(t, files < 0 || len(a.Files) == files, "%+v", a)
	}
	trusted := &config.User{TrustedFolders: []string{filepath.Dir(root)}}
	approved(-1, new(config.User), "./review.sh")
	approved(0, trusted, "./review.sh")
	project, _ := config.Parse("config.yml", []byte("quality_gate: {agent_review_command: ./review.sh}"))
	p.Approve(project, new(config.User))
	must(t, ledger.Grant(t.Context(), testkit.Get(SetOf(root, project)).Must(t), time.Now()))
	approved(1, new(config.User), "./review.sh")
	approved(-1, new(config.User), "./review.sh", "-x")
	p.Approve(project, new(config.User))
	p.Approve(project, new(config.User))
	// of a later process, which says nothing
	(&Policy{Root: root, File: p.File, Ledger: ledger, Logger: p.Logger}).Approve(project, new(config.User))
	testkit.Equal(t, strings.Count(logged.String(), "the user approved the project's config"), 1, "%s", &logged)
	must(t, ledger.Deny(t.Context()))
	approved(-1, trusted, "./review.sh")
	p.Approve(project, trusted)
	testkit.ContainsAll(t, logged.String(),
		[]string{"does not run\" keys=\"agents, quality_gate", "the user denied what would run"})
}
