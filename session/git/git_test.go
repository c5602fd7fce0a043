package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

var must = testkit.Must

// repo makes a repository with settings and a hook that hinder every commit.
func repo(t *testing.T) (dir string, run func(args ...string) string) {
	dir = t.TempDir()
	run = func(args ...string) string {
		t.Helper()
		out := testkit.Get(Line(t.Context(), Command{Dir: dir, Args: args})).Must(t)
		return out
	}
	testkit.Git(t, dir, "init", "--quiet", "--initial-branch=main")
	for key, value := range map[string]string{"commit.gpgSign": "true", "gpg.program": "false", "user.name": "Someone",
		"core.fsmonitor": filepath.Join(dir, "no-such-monitor"), "core.hooksPath": filepath.Join(dir, ".git", "hooks")} {
		run("config", key, value)
	}
	must(t, os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, ".git", "hooks", "pre-commit"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	return dir, run
}

// commit commits what is staged, as the parts of git commit that are used here do.
func commit(run func(args ...string) string) {
	run("update-ref", "refs/heads/main", run("commit-tree", run("write-tree"), "-m", "one"))
}

// Neither the environment nor the repository's settings and hooks change what git
// does, and the settings of a run are not written into the repository.
func TestRunIsGuarded(t *testing.T) {
	dir, run := repo(t)
	other, _ := repo(t)
	for _, name := range Bound {
		t.Setenv(name, filepath.Join(other, ".git"))
	}
	t.Setenv("GIT_AUTHOR_NAME", "Someone")
	t.Setenv("GIT_AUTHOR_EMAIL", "someone@example.com")
	t.Setenv("GIT_EXTERNAL_DIFF", "false")
	before := testkit.Get(os.ReadFile(filepath.Join(dir, ".git", "config"))).Must(t)
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a\n"), 0o644))
	run("add", "a")
	commit(run)
	testkit.Equal(t, run("show", "--no-patch", "--format=%an %ae %cn"), "deepwork deepwork@localhost deepwork", "the commit is by")
	ident := testkit.Get(Line(t.Context(), Command{Dir: dir, Args: []string{"var", "GIT_AUTHOR_IDENT"}, User: true})).Must(t)
	testkit.True(t, strings.HasPrefix(ident, "Someone <someone@example.com> "), "a commit in the user's name would be by %s", ident)
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("b\n"), 0o644))
	testkit.Equal(t, run("diff", "--name-only"), "a", "changed")
	if run("diff"); slices.ContainsFunc(Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_DIR=") }) {
		t.Error("GIT_DIR is passed on")
	}
	after, err := os.ReadFile(filepath.Join(dir, ".git", "config"))
	testkit.True(t, err == nil && string(after) == string(before), "the repository's settings are now %s, %v", after, err)
	testkit.Fails(t, testkit.Get(os.Stat(filepath.Join(other, ".git", "index"))).Err(), "", "git worked in the other repository")
}

// A lock of another git is waited for.
func TestRunWaitsForLocks(t *testing.T) {
	dir, run := repo(t)
	lock := filepath.Join(dir, ".git", "index.lock")
	must(t, os.WriteFile(lock, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644))
	began := time.Now()
	if _, err := Once(t.Context(), Command{Dir: dir, Args: []string{"add", "a"}}); !Said(err, "index.lock': File exists") {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+10*time.Since(began)) // time for one more, on any machine
	defer cancel()
	_, err := Output(ctx, Command{Dir: dir, Args: []string{"add", "a"}})
	testkit.FailsWith(t, err, context.DeadlineExceeded, "a lock that stays")
	testkit.Fails(t, err, "remove it: rm ", "a lock that stays")
	defer time.AfterFunc(50*time.Millisecond, func() { os.Remove(lock) }).Stop()
	run("add", "a")
}

func TestErrors(t *testing.T) {
	dir, _ := repo(t)
	_, err := Output(t.Context(), Command{Dir: dir, Args: []string{"rev-parse", "--verify", "--quiet", "no-such-branch"}})
	testkit.Equal(t, ExitCode(err), 1, "%v", err)
	_, err = Output(t.Context(), Command{Dir: dir, Args: []string{"config", "--list"}, Limit: 10})
	if !errors.Is(err, process.ErrTooMuchOutput) || ExitCode(err) != -1 {
		t.Errorf("%d, %v", ExitCode(err), err)
	}
	t.Setenv("PATH", t.TempDir())
	testkit.Fails(t, testkit.Get(Output(t.Context(), Command{Dir: dir, Args: []string{"status"}})).Err(), "git program is not in PATH")
	got := Fields("a\x00b\x00")
	testkit.True(t, slices.Equal(got, []string{"a", "b"}) && Fields("") == nil, "%q", got)
}

// A prepared repository does not have git run anything, and work nowhere else; what the
// user's own config has for the same works on.
func TestARepositoryRunsNothing(t *testing.T) {
	dir, _ := repo(t)
	mark, users := filepath.Join(t.TempDir(), "mark"), filepath.Join(t.TempDir(), "users")
	own := "touch " + mark + "; cat"
	run := func(args ...string) string {
		t.Helper()
		out := testkit.Get(Line(t.Context(), Command{Dir: dir, Filters: true, Args: args})).Must(t)
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("a program of the repository's config ran in git %s", args)
			os.Remove(mark)
		}
		return out
	}
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1") // which may set up LFS
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(t.TempDir(), "config"))
	must(t, os.WriteFile(os.Getenv("GIT_CONFIG_GLOBAL"), []byte("[filter \"lfs\"]\n\tclean = \"touch "+users+"; cat\"\n"), 0o600))
	more := filepath.Join(dir, "more")
	must(t, os.WriteFile(more, []byte("[filter \"included\"]\n\tclean = \""+own+"\"\n\trequired = true\n"), 0o600))
	for key, value := range map[string]string{
		"filter.a.clean": own, "filter.a.smudge": own, "filter.b.process": own, "filter.lfs.clean": own, "include.path": more,
		"core.sshCommand": own, "diff.external": own, "diff.a.textconv": own, "diff.a.command": own, "core.alternateRefsCommand": own,
		"remote.origin.url": "ssh://example.com/x", "remote.origin.promisor": "true", "core.pager": own, "core.editor": own,
	} {
		run("config", key, value)
	}
	must(t, os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("a filter=a diff=a\nb filter=b\nc filter=included\nl filter=lfs\n"), 0o644))
	for _, name := range []string{"a", "b", "c", "l"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("1\n"), 0o644))
	}
	run("add", ".")
	commit(run)
	must(t, os.Remove(filepath.Join(dir, "a")))
	run("reset", "--hard")
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("2\n"), 0o644))
	run("status", "--porcelain")
	run("diff", "--no-textconv", "--no-ext-diff")
	testkit.Fails(t, testkit.Get(Output(t.Context(), Command{Dir: dir, Args: []string{"fetch", "origin"}})).Err(), "", "it fetched")
	testkit.Fails(t, testkit.Get(os.Stat(mark)).Err(), "", "a program of the repository's config ran")
	testkit.Works(t, testkit.Get(os.Stat(users)).Err(), "the filter of the user's config did not run")
	// A setting that comes later counts at once.
	run("config", "filter.late.clean", own)
	must(t, os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("d filter=late\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "d"), []byte("1\n"), 0o644))
	run("add", ".")
	testkit.Fails(t, testkit.Get(os.Stat(mark)).Err(), "", "a program of a later setting ran")
	// A bare repository that lies in the folder is not used, and one that works elsewhere is refused.
	bare := filepath.Join(dir, "bare")
	testkit.Git(t, dir, "init", "--quiet", "--bare", "bare")
	testkit.Fails(t, testkit.Get(Output(t.Context(), Command{Dir: bare, Args: []string{"rev-parse", "--git-dir"}})).Err(), "", "a bare repository was taken")
	run("config", "core.worktree", t.TempDir())
	testkit.Fails(t, testkit.Get(Output(t.Context(), Command{Dir: dir, Args: []string{"status"}})).Err(), "core.worktree", "a repository that works elsewhere")
}

func TestLinksInPlaceOfABranchAreRefused(t *testing.T) {
	for _, path := range []string{"", "refs", "refs/heads", "refs/heads/deepwork", "refs/heads/deepwork/b", "logs", "logs/refs/heads/deepwork/b", "packed-refs", "worktrees"} {
		dir := t.TempDir()
		if path != "" {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
			if err := os.Symlink(t.TempDir(), filepath.Join(dir, path)); err != nil {
				t.Skip(err)
			}
		}
		err := CheckBranch(dir, "deepwork/b", "worktrees")
		testkit.True(t, (err != nil) == (path != "") && (err == nil || strings.Contains(err.Error(), filepath.Join(dir, path))), "with a link at %q: %v", path, err)
	}
}

// Without Filters, not even the user's run; a repository's setting is replaced by the user's, and removed
// where the user has none.
func TestFilters(t *testing.T) {
	dir, run := repo(t)
	mark := filepath.Join(t.TempDir(), "mark")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(t.TempDir(), "config"))
	must(t, os.WriteFile(os.Getenv("GIT_CONFIG_GLOBAL"), []byte("[filter \"mine\"]\n\tclean = tr a-z A-Z\n"), 0o600))
	run("config", "filter.mine.clean", "touch "+mark+"; cat")
	run("config", "filter.theirs.process", "touch "+mark)
	run("config", "filter.theirs.required", "true")
	must(t, os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("*.mine filter=mine\n*.theirs filter=theirs\n"), 0o644))
	for filters, want := range map[bool]string{false: "text", true: "TEXT"} {
		for _, name := range []string{"a.mine", "a.theirs"} {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o644))
		}
		index := filepath.Join(t.TempDir(), "index")
		c := Command{Dir: dir, Index: index, Filters: filters, Args: []string{"add", "."}}
		testkit.Get(Output(t.Context(), c)).Must(t)
		for name, want := range map[string]string{"a.mine": want, "a.theirs": "text"} {
			testkit.Equal(t, testkit.Get(Line(t.Context(), Command{Dir: dir, Index: index, Args: []string{"cat-file", "blob", ":" + name}})).Must(t), want, "filters %v: %s", filters, name)
		}
	}
	testkit.Fails(t, testkit.Get(os.Stat(mark)).Err(), "", "a filter of the repository ran")
	run("config", "hook.a=b.command", "touch "+mark)
	testkit.Fails(t, testkit.Get(Output(t.Context(), Command{Dir: dir, Args: []string{"add", "."}})).Err(), "remove or rename it", "a setting that cannot be switched off")
}

// A program of the repository signs nothing, unless the user's config names it too.
func TestProgramsThatSignNothing(t *testing.T) {
	dir, run := repo(t)
	user := filepath.Join(t.TempDir(), "config")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("GIT_CONFIG_GLOBAL", user)
	for _, c := range []struct {
		user   string
		own    []string
		signs  bool
		unused map[string]string
	}{
		{"", nil, true, map[string]string{"gpg.program": "false"}},
		{"[gpg]\n\tprogram = gpg\n", nil, true, map[string]string{}},
		{"[gpg]\n\tprogram = gpg\n", []string{"gpg.ssh.program", "x"}, true, map[string]string{}},
		{"", []string{"gpg.format", "ssh"}, true, map[string]string{"gpg.ssh.program": "x"}},
		{"", []string{"commit.gpgSign", "false"}, false, nil},
	} {
		must(t, os.WriteFile(user, []byte(c.user), 0o600))
		if c.own != nil {
			run("config", c.own[0], c.own[1])
		}
		signs, unused, err := Signing(t.Context(), Command{Dir: dir, User: true})
		must(t, err)
		testkit.Equal(t, signs, c.signs, "%v", c.own)
		testkit.Same(t, unused, c.unused, "%v", c.own)
	}
}

// What a killed git has left is named, with the command that removes it; so is a git that is too old.
func TestErrorsSayWhatHelps(t *testing.T) {
	dir, _ := repo(t)
	lock := filepath.Join(dir, ".git", "index.lock")
	must(t, os.WriteFile(lock, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644))
	real := testkit.Get(filepath.EvalSymlinks(dir)).Must(t)
	_, err := Once(t.Context(), Command{Dir: dir, Args: []string{"add", "a"}})
	testkit.True(t, err != nil && strings.Contains(filepath.ToSlash(err.Error()), "rm \""+filepath.ToSlash(filepath.Join(real, ".git", "index.lock"))), "the error is %v", err)
	if runtime.GOOS == "windows" {
		return
	}
	fake := t.TempDir()
	t.Setenv("PATH", fake)
	checked.Store(false)
	defer checked.Store(true)
	for version, old := range map[string]bool{"2.37.9": true, "1.9": true, "2.38.0.rc1": false, "3.0 (Apple)": false} {
		checked.Store(false)
		must(t, os.WriteFile(filepath.Join(fake, "git"), []byte("#!/bin/sh\necho 'git version "+version+"'\n"), 0o755))
		if err := Check(t.Context()); (err != nil) != old || old && !strings.Contains(err.Error(), "2.38 or later") {
			t.Errorf("git %s: %v", version, err)
		}
	}
}
