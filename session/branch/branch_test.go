package branch

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func TestBranchNamesAreLegalRefs(t *testing.T) {
	at := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	for instance, want := range map[string]string{
		"":                       "2026-03-04",
		"acme":                   "acme",
		"q1-2026":                "q1-2026",
		"a b\tc":                 "a-b-c",
		"..":                     "2026-03-04",
		"x..y":                   "x.y",
		"x.lock":                 "x",
		"x.lock.lock":            "x",
		"-x-":                    "x",
		"a~^:?*[\\b":             "a-b",
		"@{":                     "2026-03-04",
		"größe":                  "größe",
		"a/b":                    "a-b",
		".lock":                  "lock",
		strings.Repeat("x", 300): strings.Repeat("x", 101),
		"\x00\xff":               "2026-03-04",
	} {
		got := Name("job", "flow", &instance, at)
		testkit.Equal(t, got, "deepwork/job-flow-"+want, "%q", instance)
		testkit.Works(t, exec.Command("git", "check-ref-format", "--branch", got).Run(), "git does not take %q", got)
	}
	testkit.Equal(t, Name("job", "flow", nil, at), "deepwork/job-flow-2026-03-04")
}

func FuzzBranchName(f *testing.F) {
	f.Add("a/..b.lock")
	f.Fuzz(func(t *testing.T, s string) {
		got := refPart(s)
		testkit.True(t, !strings.ContainsAny(got, "/ ~^:?*[\\\x7f"), "%q gives %q", s, got)
		testkit.True(t, !strings.Contains(got, ".."), "%q gives %q", s, got)
		testkit.True(t, !strings.Contains(got, "@{"), "%q gives %q", s, got)
		testkit.True(t, !strings.HasPrefix(got, "."), "%q gives %q", s, got)
		testkit.True(t, !strings.HasSuffix(got, "."), "%q gives %q", s, got)
		testkit.True(t, !strings.HasSuffix(got, ".lock"), "%q gives %q", s, got)
		testkit.True(t, !strings.HasPrefix(got, "-"), "%q gives %q", s, got)
	})
}

// A tag that is named like a branch of a session neither hides that branch nor is it checked out instead. A
// branch named deepwork is in the way of those of sessions, and the error says how to rename it. One in
// another case may be in the way, too.
func TestField07_NamesInTheWay(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string { return testkit.Git(t, dir, args...) }
	testkit.Equal(t, Tree{Root: dir}.Outside(), true)
	git("init", "-q")
	testkit.Equal(t, Tree{Root: filepath.Join(dir, "below")}.Outside(), false)
	git("commit", "-q", "--allow-empty", "-m", "first")
	git("branch", "deepwork")
	testkit.Fails(t, testkit.Get(Tree{Root: dir}.Free(t.Context(), "deepwork/a", false, map[string]bool{})).Err(),
		"git branch -m deepwork NEW-NAME")

	git("branch", "-m", "deepwork", "other")
	git("commit", "-q", "--allow-empty", "-m", "second")
	for _, tag := range []string{"deepwork/a", "deepwork/a-2", "main"} {
		git("tag", tag, "HEAD~1")
	}
	git("branch", "deepwork/a", "HEAD")
	name, err := Tree{Root: dir}.Free(t.Context(), "deepwork/a", true, map[string]bool{})
	testkit.Need(t, err == nil && name == "deepwork/a-2", "the free name is %q, %v", name, err)
	err = (Tree{Root: dir}).Make(t.Context(), name, true)
	testkit.Need(t, err == nil, "%v: on %s", err, git("symbolic-ref", "HEAD"))
	testkit.Equal(t, git("symbolic-ref", "HEAD"), "refs/heads/deepwork/a-2", "%v: on %s", err,
		git("symbolic-ref", "HEAD"))
	testkit.Equal(t, git("log", "-1", "--format=%s"), "second", "%v: on %s", err, git("symbolic-ref", "HEAD"))

	bin := t.TempDir() // has a git that finds deepwork/b where the file system has deepwork/B, which it does not list
	fake := "#!/bin/sh\ncase \"$*\" in *update-ref*) grep -q 'heads/deepwork/b ' && echo already exists >&2 && exit " +
		"128; exit 0; esac\nexec " + testkit.Get(exec.LookPath("git")).Must(t) + " \"$@\"\n"
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "git"), []byte(fake), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	name, err = Tree{Root: dir}.Free(t.Context(), "deepwork/b", true, map[string]bool{})
	testkit.True(t, err == nil && name == "deepwork/b-2" || runtime.GOOS == "windows", "the free name is %q, %v",
		name, err)
}

// In the middle of an operation of git, or without a branch, no branch is switched.
func TestField06_OperationsInProgress(t *testing.T) {
	for state, c := range map[string]struct {
		steps   []string // git commands; the last one may fail
		refused string
	}{
		"rebase":            {[]string{"rebase -q other"}, "git rebase is in progress"},
		"rebase by patches": {[]string{"rebase -q --apply other"}, "git rebase is in progress"},
		"stopped rebase": {[]string{"-c sequence.editor=true rebase -q -i --exec false HEAD~1"},
			"git rebase is in progress"},
		"merge":       {[]string{"merge -q other"}, "git merge is in progress"},
		"clean merge": {[]string{"merge -q --no-ff --no-commit -X ours other"}, "git merge is in progress"},
		"cherry-pick": {[]string{"cherry-pick other"}, "git cherry-pick is in progress"},
		"revert":      {[]string{"revert --no-edit HEAD~1"}, "git revert is in progress"},
		"bisect":      {[]string{"bisect start HEAD HEAD~2"}, "git bisect is in progress"},
		"am":          {[]string{"format-patch -q -1 other", "am -q 0001-other.patch"}, "git am is in progress"},
		"detached":    {[]string{"switch -q --detach"}, "detached HEAD"},
		"a tag":       {[]string{"tag v1", "checkout -q v1"}, "detached HEAD"},
		"changes":     {[]string{"mv file größe"}, "uncommitted changes: file, größe"},
		"nothing":     {},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			commit := func(text string) {
				testkit.Write(t, filepath.Join(dir, "file"), text)
				testkit.Git(t, dir, "add", "file")
				testkit.Git(t, dir, "commit", "-q", "-m", text)
			}
			testkit.Git(t, dir, "init", "-q")
			commit("first")
			testkit.Git(t, dir, "switch", "-q", "-c", "other")
			commit("other")
			testkit.Git(t, dir, "switch", "-q", "main")
			commit("second")
			commit("third")
			for i, step := range c.steps {
				out, err := testkit.TryGit(dir, strings.Fields(step)...)
				testkit.Need(t, err == nil || i == len(c.steps)-1, "%s, %v", out, err)
			}
			head := func() string {
				on, _ := testkit.TryGit(dir, "symbolic-ref", "HEAD")
				return on + testkit.Git(t, dir, "rev-parse", "HEAD") + testkit.Git(t, dir, "status", "--porcelain")
			}
			before := head()
			err := Tree{Root: dir}.Switchable(t.Context())
			made := Tree{Root: dir}.Make(t.Context(), "deepwork/a", true)
			if c.refused == "" {
				testkit.Need(t, err == nil, "%v, %v", err, made)
				testkit.Need(t, made == nil, "%v, %v", err, made)
				testkit.Equal(t, testkit.Git(t, dir, "symbolic-ref", "HEAD"), "refs/heads/deepwork/a")
				return
			}
			for _, err := range []error{err, made} {
				testkit.True(t, err != nil && strings.Contains(err.Error(), c.refused), "the error is %v, expected %q",
					err, c.refused)
			}
			testkit.Equal(t, head(), before)
		})
	}
}

// A file that git shows as modified right after a checkout is no change.
func TestAFileModifiedByItsCheckoutIsNoChange(t *testing.T) {
	dir := t.TempDir()
	testkit.Git(t, dir, "init", "-q")
	file := filepath.Join(dir, "sub", "w.bat")
	testkit.Write(t, file, "x\r\n")
	testkit.Git(t, dir, "add", ".")
	testkit.Git(t, dir, "commit", "-q", "-m", "one")
	testkit.Write(t, filepath.Join(dir, ".git", "info", "attributes"), "*.bat text eol=crlf\n")
	testkit.Age(file)
	testkit.Equal(t, testkit.Git(t, dir, "status", "--porcelain"), " M sub/w.bat")
	testkit.Works(t, Tree{Root: filepath.Join(dir, "sub")}.Switchable(t.Context()))
	testkit.Write(t, file, "y\r\n")
	testkit.Fails(t, Tree{Root: dir}.Switchable(t.Context()), "sub/w.bat")
}
