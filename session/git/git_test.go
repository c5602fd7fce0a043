package git

import (
	"context"
	"errors"
	"io/fs"
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

// A folder is a repository in a test.
type folder struct {
	t    *testing.T
	path string
}

// repo makes a repository with settings and a hook that hinder every commit.
func repo(t *testing.T) folder {
	f := folder{t, t.TempDir()}
	testkit.Git(t, f.path, "init", "--quiet", "--initial-branch=main")
	for key, value := range map[string]string{
		"commit.gpgSign": "true",
		"gpg.program":    "false",
		"user.name":      "Someone",
		"core.fsmonitor": filepath.Join(f.path, "no-such-monitor"),
		"core.hooksPath": filepath.Join(f.path, ".git", "hooks"),
	} {
		f.run("config", key, value)
	}
	testkit.Write(t, filepath.Join(f.path, ".git", "hooks", "pre-commit"), "#!/bin/sh\nexit 1\n")
	testkit.Must(t, os.Chmod(filepath.Join(f.path, ".git", "hooks", "pre-commit"), 0o755))
	return f
}

func (f folder) run(args ...string) string {
	f.t.Helper()
	return testkit.Get(Line(f.t.Context(), Command{Dir: f.path, Args: args})).Must(f.t)
}

// fails is the error of a command.
func (f folder) fails(args ...string) error {
	f.t.Helper()
	return testkit.Get(Output(f.t.Context(), Command{Dir: f.path, Args: args})).Err()
}

func (f folder) write(name, text string) { testkit.Write(f.t, filepath.Join(f.path, name), text) }

// commit commits what is staged, as the parts of git commit that are used here do.
func (f folder) commit() {
	f.run("update-ref", "refs/heads/main", f.run("commit-tree", f.run("write-tree"), "-m", "one"))
}

// userConfig gives the user a config of their own.
func userConfig(t *testing.T, text string) {
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1") // which may set up LFS
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(t.TempDir(), "config"))
	testkit.Write(t, os.Getenv("GIT_CONFIG_GLOBAL"), text)
}

// notMade checks that a program has not made a file.
func notMade(t *testing.T, mark, what string) {
	t.Helper()
	testkit.FailsWith(t, testkit.Get(os.Stat(mark)).Err(), fs.ErrNotExist, "%s", what)
}

// Neither the environment nor the repository's settings and hooks change what git
// does, and the settings of a run are not written into the repository.
func TestRunIsGuarded(t *testing.T) {
	f, other := repo(t), repo(t)
	for _, name := range Bound {
		t.Setenv(name, filepath.Join(other.path, ".git"))
	}
	t.Setenv("GIT_AUTHOR_NAME", "Someone")
	t.Setenv("GIT_AUTHOR_EMAIL", "someone@example.com")
	t.Setenv("GIT_EXTERNAL_DIFF", "false")
	config := func() string {
		return string(testkit.Get(os.ReadFile(filepath.Join(f.path, ".git", "config"))).Must(t))
	}
	before := config()
	f.write("a", "a\n")
	f.run("add", "a")
	f.commit()
	testkit.Equal(t, f.run("show", "--no-patch", "--format=%an %ae %cn"), "deepwork deepwork@localhost deepwork",
		"the commit is by")

	ident := testkit.Get(Line(t.Context(),
		Command{Dir: f.path, Args: []string{"var", "GIT_AUTHOR_IDENT"}, User: true})).Must(t)
	testkit.Contains(t, ident, "Someone <someone@example.com> ", "a commit in the user's name")
	f.write("a", "b\n")
	testkit.Equal(t, f.run("diff", "--name-only"), "a", "changed")
	f.run("diff")
	testkit.True(t, !slices.ContainsFunc(Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_DIR=") }),
		"GIT_DIR is passed on")
	testkit.Equal(t, config(), before, "the repository's settings")
	notMade(t, filepath.Join(other.path, ".git", "index"), "git worked in the other repository")
}

// A lock of another git is waited for. One that stays is named, with the command that removes it.
func TestRunWaitsForLocks(t *testing.T) {
	f := repo(t)
	lock := filepath.Join(testkit.Get(filepath.EvalSymlinks(f.path)).Must(t), ".git", "index.lock")
	testkit.Write(t, lock, "")
	f.write("a", "")
	began := time.Now()
	err := testkit.Get(Once(t.Context(), Command{Dir: f.path, Args: []string{"add", "a"}})).Err()
	testkit.Need(t, Said(err, "index.lock': File exists"), "%v", err)
	testkit.Contains(t, filepath.ToSlash(err.Error()), "rm "+filepath.ToSlash(lock))

	// time for one more, on any machine
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+10*time.Since(began))
	defer cancel()
	_, err = Output(ctx, Command{Dir: f.path, Args: []string{"add", "a"}})
	testkit.FailsWith(t, err, context.DeadlineExceeded, "a lock that stays")
	testkit.Fails(t, err, "remove it: rm ", "a lock that stays")
	defer time.AfterFunc(50*time.Millisecond, func() { os.Remove(lock) }).Stop()
	f.run("add", "a")
}

func TestErrors(t *testing.T) {
	f := repo(t)
	testkit.Equal(t, ExitCode(f.fails("rev-parse", "--verify", "--quiet", "no-such-branch")), 1)
	_, err := Output(t.Context(), Command{Dir: f.path, Args: []string{"config", "--list"}, Limit: 10})
	testkit.True(t, errors.Is(err, process.ErrTooMuchOutput) && ExitCode(err) == -1, "%d, %v", ExitCode(err), err)

	t.Setenv("PATH", t.TempDir())
	testkit.Fails(t, f.fails("status"), "git program is not in PATH")

	got := Fields("a\x00b\x00")
	testkit.True(t, slices.Equal(got, []string{"a", "b"}) && Fields("") == nil, "%q", got)
}

// A prepared repository does not have git run anything, and work nowhere else; what the
// user's own config has for the same works on.
func TestARepositoryRunsNothing(t *testing.T) {
	f := repo(t)
	mark, users := filepath.Join(t.TempDir(), "mark"), filepath.Join(t.TempDir(), "users")
	own := "touch " + mark + "; cat"
	run := func(args ...string) {
		t.Helper()
		testkit.Get(Line(t.Context(), Command{Dir: f.path, Filters: true, Args: args})).Must(t)
		notMade(t, mark, strings.Join(args, " "))
	}
	userConfig(t, "[filter \"lfs\"]\n\tclean = \"touch "+users+"; cat\"\n")
	f.write("more", "[filter \"included\"]\n\tclean = \""+own+"\"\n\trequired = true\n"+
		strings.Repeat("[branch \"old\"]\n\tdescription = "+strings.Repeat("x", 1000)+"\n", 1100))
	for key, value := range map[string]string{
		"filter.a.clean":            own,
		"filter.a.smudge":           own,
		"filter.b.process":          own,
		"filter.lfs.clean":          own,
		"include.path":              filepath.Join(f.path, "more"),
		"core.sshCommand":           own,
		"diff.external":             own,
		"diff.a.textconv":           own,
		"diff.a.command":            own,
		"core.alternateRefsCommand": own,
		"remote.origin.url":         "ssh://example.com/x",
		"remote.origin.promisor":    "true",
		"core.pager":                own,
		"core.editor":               own,
	} {
		run("config", key, value)
	}
	f.write(".gitattributes", "a filter=a diff=a\nb filter=b\nc filter=included\nl filter=lfs\n")
	for _, name := range []string{"a", "b", "c", "l"} {
		f.write(name, "1\n")
	}
	run("add", ".")
	f.commit()
	testkit.Must(t, os.Remove(filepath.Join(f.path, "a")))
	run("reset", "--hard")
	f.write("a", "2\n")
	run("status", "--porcelain")
	run("diff", "--no-textconv", "--no-ext-diff")
	testkit.Fails(t, f.fails("fetch", "origin"), "", "it fetched")

	notMade(t, mark, "a program of the repository's config ran")
	testkit.Works(t, testkit.Get(os.Stat(users)).Err(), "the filter of the user's config did not run")

	// A setting that comes later counts at once.
	run("config", "filter.late.clean", own)
	f.write(".gitattributes", "d filter=late\n")
	f.write("d", "1\n")
	run("add", ".")
	// A bare repository that lies in the folder is not used, and one that works elsewhere is refused.
	testkit.Git(t, f.path, "init", "--quiet", "--bare", "bare")
	testkit.Fails(t, folder{t, filepath.Join(f.path, "bare")}.fails("rev-parse", "--git-dir"), "",
		"a bare repository was taken")

	run("config", "core.worktree", t.TempDir())
	testkit.Fails(t, f.fails("status"), "core.worktree", "a repository that works elsewhere")
}

func TestLinksInPlaceOfABranchAreRefused(t *testing.T) {
	testkit.Works(t, CheckBranch(t.TempDir(), "deepwork/b", "worktrees"))
	for _, path := range []string{"refs", "refs/heads", "refs/heads/deepwork", "refs/heads/deepwork/b", "logs",
		"logs/refs/heads/deepwork/b", "packed-refs", "worktrees"} {
		dir := t.TempDir()
		at := filepath.Join(dir, path)
		testkit.Must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if err := os.Symlink(t.TempDir(), at); err != nil {
			t.Skip(err)
		}
		testkit.Fails(t, CheckBranch(dir, "deepwork/b", "worktrees"), at)
	}
}

// Without Filters, not even the user's run; a repository's setting is replaced by the user's, and removed
// where the user has none.
func TestFilters(t *testing.T) {
	f, mark := repo(t), filepath.Join(t.TempDir(), "mark")
	userConfig(t, "[filter \"mine\"]\n\tclean = tr a-z A-Z\n")
	f.run("config", "filter.mine.clean", "touch "+mark+"; cat")
	f.run("config", "filter.theirs.process", "touch "+mark)
	f.run("config", "filter.theirs.required", "true")
	f.write(".gitattributes", "*.mine filter=mine\n*.theirs filter=theirs\n")
	for filters, want := range map[bool]string{false: "text", true: "TEXT"} {
		f.write("a.mine", "text")
		f.write("a.theirs", "text")
		index := filepath.Join(t.TempDir(), "index")
		testkit.Get(Output(t.Context(),
			Command{Dir: f.path, Index: index, Filters: filters, Args: []string{"add", "."}})).Must(t)
		for name, want := range map[string]string{"a.mine": want, "a.theirs": "text"} {
			testkit.Equal(t,
				testkit.Get(Line(t.Context(), Command{
					Dir:   f.path,
					Index: index,
					Args:  []string{"cat-file", "blob", ":" + name},
				})).Must(t), want, "filters %v: %s", filters, name)
		}
	}

	notMade(t, mark, "a filter of the repository ran")
	f.run("config", "hook.a=b.command", "touch "+mark)
	testkit.Fails(t, f.fails("add", "."), "remove or rename it", "a setting that cannot be switched off")
}

// Filters of the repository count if files have them, and the user has none in their place.
func TestFiltersThatDoNotRun(t *testing.T) {
	f := repo(t)
	f.write(".gitattributes", "*.txt filter=one.x\n")
	f.write("sub/ä.txt", "x\n")
	f.run("add", ".")
	sub := filepath.Join(f.path, "sub")
	for _, c := range []struct{ user, key, value, says string }{
		{"", "other.clean", "x", ""},
		{"", "one.x.required", "true", ""},
		{"", "one.x.clean", "", ""},
		{"", "one.x.smudge", "x y", "ä.txt go through the filter one.x of"},
		{"[filter \"one.x\"]\n\tsmudge = other\n", "one.x.smudge", "x y", ""},
		{"[filter \"one.x\"]\n\tsmudge = other\n", "one.x.process", "p", "global filter.one.x.process p"},
		{"[filter \"one.x\"]\n\tprocess = other\n", "one.x.clean", "x", ""},
	} {
		userConfig(t, c.user)
		f.run("config", "filter."+c.key, c.value)
		for _, dir := range []string{f.path, sub} {
			err := CheckFilters(t.Context(), Command{Dir: dir})
			testkit.True(t, (err != nil) == (c.says != "") && (err == nil || strings.Contains(err.Error(), c.says)),
				"%v: %v", c, err)
		}
		f.run("config", "--unset", "filter."+c.key)
	}

	bare := filepath.Join(t.TempDir(), "bare.git")
	testkit.Git(t, f.path, "clone", "--quiet", "--bare", f.path, bare)
	testkit.Git(t, bare, "config", "filter.one.x.clean", "x")
	testkit.Works(t, CheckFilters(t.Context(), Command{Dir: bare, GitDir: bare}))
}

// A program of the repository signs nothing, unless the user's config names it too.
func TestProgramsThatSignNothing(t *testing.T) {
	f := repo(t)
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
		userConfig(t, c.user)
		if c.own != nil {
			f.run("config", c.own[0], c.own[1])
		}
		signs, unused, err := Signing(t.Context(), Command{Dir: f.path, User: true})
		testkit.Must(t, err)
		testkit.Equal(t, signs, c.signs, "%v", c.own)
		testkit.Same(t, unused, c.unused, "%v", c.own)
	}
}

func TestAGitThatIsTooOldIsNamed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("uses a shell")
	}
	fake := t.TempDir()
	t.Setenv("PATH", fake)
	defer checked.Store(true)
	for version, old := range map[string]bool{"2.37.9": true, "1.9": true, "2.38.0.rc1": false, "3.0 (Apple)": false} {
		checked.Store(false)
		testkit.Must(t, os.WriteFile(filepath.Join(fake, "git"),
			[]byte("#!/bin/sh\necho 'git version "+version+"'\n"), 0o755))
		err := Check(t.Context())
		testkit.True(t, (err != nil) == old && (!old || strings.Contains(err.Error(), "2.38 or later")), "git %s: %v",
			version, err)
	}
}

func TestIdentity(t *testing.T) {
	is := func(dir, remote, root, what string) {
		t.Helper()
		gotRemote, gotRoot, err := Identity(t.Context(), dir)
		testkit.Same(t, []any{gotRemote, gotRoot, err}, []any{remote, root, nil}, "%s", what)
	}
	is(t.TempDir(), "", "", "no repository")
	f := repo(t)
	is(f.path, "", "", "a repository without a commit")
	f.commit()
	first := f.run("rev-parse", "HEAD")
	f.run("update-ref", "refs/heads/main", f.run("commit-tree", f.run("write-tree"), "-p", first, "-m", "two"))
	is(f.path, "", first, "without a remote")
	testkit.Git(t, f.path, "remote", "add", "fork", "https://example.com/fork.git")
	testkit.Git(t, f.path, "remote", "add", "origin", "git@example.com:team/shop.git")
	is(f.path, "git@example.com:team/shop.git", first, "with remotes")
	shallow := filepath.Join(t.TempDir(), "clone")
	testkit.Git(t, f.path, "clone", "-q", "--depth=1", "file://"+f.path, shallow)
	is(shallow, "file://"+f.path, "", "a shallow clone")

	// A git that fails or takes too long does not pass for a folder without a repository.
	not := func(ctx context.Context, dir, says, what string) {
		t.Helper()
		_, _, err := Identity(ctx, dir)
		testkit.Fails(t, err, says, "%s", what)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	not(late, f.path, f.path, "too late")
	broken := t.TempDir()
	testkit.Write(t, filepath.Join(broken, ".git"), "gitdir: /not/there\n")
	not(t.Context(), broken, "", "a repository that is gone")
	f.write(".git/HEAD", strings.Repeat("1", 40)+"\n")
	not(t.Context(), f.path, "", "a damaged repository")
	t.Setenv("PATH", t.TempDir())
	not(t.Context(), f.path, "", "no git")
}
