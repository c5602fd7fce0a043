package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session/judging"
	"deepwork/session/machine"
)

// free runs every check.
func free() *Runner {
	return &Runner{Allowed: func(context.Context, *Subject, *job.StepCheck) error { return nil },
		Program: func(name string) (string, error) { return process.Look(name) }, Secrets: func() []string {
			return nil
		}}
}

// round runs the checks of a subject, of which it tells done after each run.
func round(t *testing.T, s *Subject, done func(n int)) (*Round, error) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("uses a shell")
	}
	n := len(s.Checks)
	r := &Round{
		Subject: s,
		Before:  testkit.Get(s.Look(t.Context())).Must(t),
		Known:   make([]*judging.Verdict, n),
		Over:    make([]bool, n),
		Done:    done,
	}
	return r, free().Run(t.Context(), r)
}

// repository is a git repository with n committed files in folders of a hundred.
func repository(t testing.TB, n int) string {
	t.Helper()
	root := testkit.Dir(t)
	for i := range n {
		testkit.Write(t, filepath.Join(root, fmt.Sprint("d", i/100), fmt.Sprint("f", i)), fmt.Sprintf("file %d\n", i))
	}
	testkit.Git(t, root, "init", "-q")
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-qm", "begin")
	return root
}

// The digest of a tree is of the content alone: neither git add, a commit, nor a new time of a file changes it.
func TestATreeIsItsContent(t *testing.T) {
	root := repository(t, 3)
	s := &Subject{Root: root, Checks: []job.StepCheck{{Run: []string{"true"}, Name: "x"}}}
	look := func() string { return testkit.Get(s.Look(t.Context())).Must(t).Digest(0) }
	begin := look()
	testkit.Write(t, filepath.Join(root, "new"), "new")
	edited := look()
	testkit.Git(t, root, "add", "-A")

	staged := look()
	testkit.Git(t, root, "commit", "-qm", "new")
	committed := look()
	then := time.Now().Add(-time.Hour)
	testkit.Must(t, os.Chtimes(filepath.Join(root, "new"), then, then))
	touched := look()
	testkit.True(t, begin != edited, "%s, edited %s, staged %s, committed %s, touched %s", begin, edited, staged,
		committed, touched)
	testkit.Equal(t, edited, staged, "%s, edited %s, staged %s, committed %s, touched %s", begin, edited, staged,
		committed, touched)
	testkit.Equal(t, staged, committed, "%s, edited %s, staged %s, committed %s, touched %s", begin, edited, staged,
		committed, touched)
	testkit.Equal(t, committed, touched, "%s, edited %s, staged %s, committed %s, touched %s", begin, edited, staged,
		committed, touched)

	testkit.Write(t, filepath.Join(root, ".deepwork/tmp/session_1.json"), "{}")
	testkit.Equal(t, look(), committed, "the export of a session is a part of the tree")

	// A time that is as it was hides nothing: git looks at the change of the inode too.
	info := testkit.Get(os.Stat(filepath.Join(root, "new"))).Must(t)
	testkit.Git(t, root, "config", "core.trustctime", "false")
	testkit.Git(t, root, "config", "core.checkStat", "minimal")
	testkit.Git(t, root, "status")

	second := time.Now().Unix()
	// The clock of a file system may be some milliseconds late.
	testkit.Until(t, "another second, which git tells apart", func() bool {
		return time.Now().Add(-100*time.Millisecond).Unix() > second
	})

	testkit.Write(t, filepath.Join(root, "new"), "wen")
	testkit.Must(t, os.Chtimes(filepath.Join(root, "new"), info.ModTime(), info.ModTime()))
	testkit.True(t, runtime.GOOS == "windows" || look() != committed, "an edit with the old time and size is not seen")
}

// A round gives each check one more run if the content differs, and then names the files.
func TestARoundNamesTheCheckThatChangesWhatAnotherIsAbout(t *testing.T) {
	root, count := repository(t, 1), filepath.Join(t.TempDir(), "count")
	s := &Subject{Root: root, Checks: []job.StepCheck{
		{Run: []string{"sh", "-c", "echo a >> " + count}, Name: "first"},
		{Run: []string{"sh", "-c", "echo formatted > d0/f0"}, Name: "second"},
	}}
	var left []int
	r := testkit.Get(round(t, s, func(n int) { left = append(left, n) })).Must(t)
	testkit.Same(t, left, []int{1, 2, 2, 2})
	testkit.Equal(t, string(testkit.Get(os.ReadFile(count)).Must(t)), "a\na\n")
	testkit.Need(t, r.Undecided == nil, "undecided %v", r.Undecided)
	testkit.True(t, r.Verdicts[0].Passed, "undecided %v", r.Undecided)
	testkit.Equal(t, r.Verdicts[0].Digest, r.After.Digest(0), "undecided %v", r.Undecided)
}

// What a step protects is compared with its beginning, in git, without it, and in a folder that git ignores.
func TestProtectedFilesThatChanged(t *testing.T) {
	plain := testkit.Dir(t)
	testkit.WriteAll(t, plain, map[string]string{"d0/f0": "", "d0/f1": ""})
	around := repository(t, 1) // which ignores a folder with a project
	testkit.WriteAll(t, around, map[string]string{".gitignore": "ignored/", "ignored/d0/f0": "", "ignored/d0/f1": ""})

	for _, root := range []string{repository(t, 2), plain, filepath.Join(around, "ignored")} {
		testkit.Equal(t, testkit.Get(Protect(t.Context(), root, []job.StepCheck{{Name: "x"}})).Must(t), nil,
			"nothing is protected")
		was := testkit.Get(Protect(t.Context(), root,
			[]job.StepCheck{{Protect: []string{"d0/*"}}, {Protect: []string{"other/**"}}})).Must(t)
		testkit.Same(t, testkit.Get(Changed(t.Context(), root, was)).Must(t), nil, "at once")
		testkit.Must(t, os.Remove(filepath.Join(root, "d0", "f0")))
		for _, name := range []string{"d0/f1", "other/deep/new", "elsewhere"} {
			testkit.Write(t, filepath.Join(root, name), "edited")
		}
		testkit.Same(t, testkit.Get(Changed(t.Context(), root, was)).Must(t),
			[]string{"'d0/f0' was deleted", "'d0/f1' was changed", "'other/deep/new' was added"})
	}
}

// What git ignores hides no protected file, unless it was ignored when the step began or a tool made its own folder.
func TestProtectedFilesThatGitIgnores(t *testing.T) {
	repo := repository(t, 1)
	testkit.Write(t, filepath.Join(repo, ".gitignore"), "# comment\n*.log\n")
	testkit.Write(t, filepath.Join(repo, "sub", "tests", "old", "case"), "")
	testkit.Git(t, repo, "add", "-A")

	for root, prefix := range map[string]string{repo: "sub/", filepath.Join(repo, "sub"): ""} {
		was := testkit.Get(Protect(t.Context(), root, []job.StepCheck{{Protect: []string{prefix + "tests/**"}}})).
			Must(t)
		testkit.True(t, slices.IsSorted(was.Ignored), "%q", was.Ignored)
		testkit.True(t, slices.Contains(was.Ignored, ".gitignore\t*.log"), "%q", was.Ignored)
		testkit.True(t, !slices.Contains(was.Ignored, ".gitignore\t# comment"), "%q", was.Ignored)

		made := map[string]string{
			// by an old rule, a new one, and one of this machine
			"tests/a.log": "", "tests/b.skip": "", "tests/c.exclude": "",
			"tests/cache/.gitignore": "*", "tests/cache/entry": "", // of a tool
			"tests/old/.gitignore": "hidden\n", "tests/old/hidden": "", // among files from then
		}
		testkit.WriteAll(t, filepath.Join(repo, "sub"), made)
		testkit.Write(t, filepath.Join(repo, ".gitignore"), "*.log\n*.skip\n")
		testkit.Write(t, filepath.Join(repo, ".git", "info", "exclude"), "*.exclude\n")
		var want []string
		for _, name := range []string{"old/.gitignore", "b.skip", "c.exclude", "old/hidden"} {
			want = append(want, "'"+prefix+"tests/"+name+"' was added")
		}

		got := testkit.Get(Changed(t.Context(), root, was)).Must(t)
		slices.Sort(got)
		slices.Sort(want)
		testkit.Same(t, got, want, "in %q", prefix)

		for name := range made {
			testkit.Must(t, os.Remove(filepath.Join(repo, "sub", name)))
		}
		testkit.Write(t, filepath.Join(repo, ".gitignore"), "# comment\n*.log\n")
		testkit.Write(t, filepath.Join(repo, ".git", "info", "exclude"), "")
	}
}

// The rules of a file that is not the repository's are not kept as they are, since it may be any of the user's; and a
// pipe or a device in the place of one ends.
func TestRulesOfOtherFilesAreNotCopied(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no pipes in folders")
	}
	secret := filepath.Join(testkit.Dir(t), "secret")
	testkit.Write(t, secret, "*.password\n")
	protect := func(repo string) (*machine.Protected, error) {
		return Protect(t.Context(), repo, []job.StepCheck{{Protect: []string{"d0/**"}}})
	}
	for _, lead := range []func(repo string){
		func(repo string) { testkit.Git(t, repo, "config", "core.excludesFile", secret) },
		func(repo string) {
			exclude := filepath.Join(repo, ".git", "info", "exclude")
			testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(exclude), 0o755),
				os.RemoveAll(exclude), os.Symlink(secret, exclude)))
		},
		func(repo string) { testkit.Must(t, os.Symlink(secret, filepath.Join(repo, "d0", ".gitignore"))) },
	} {
		repo := repository(t, 1)
		lead(repo)
		was := testkit.Get(protect(repo)).Must(t)
		testkit.True(t, !strings.Contains(fmt.Sprint(was.Ignored), "password"), "%q", was.Ignored)
		testkit.Write(t, filepath.Join(repo, "d0", "mine.password"), "")
		if _, err := os.Lstat(filepath.Join(repo, "d0", ".gitignore")); err != nil { // git follows no link there
			testkit.Same(t, testkit.Get(Changed(t.Context(), repo, was)).Must(t), nil, "it was ignored before")
		}
	}

	for name, lead := range map[string]func(repo string) string{
		"config": func(repo string) string {
			testkit.Git(t, repo, "config", "core.excludesFile", filepath.Join(repo, ".git", "pipe"))
			return ".git/pipe"
		},
		"tree": func(string) string { return "d0/.gitignore" },
	} {
		repo := repository(t, 1)
		pipe := lead(repo)
		testkit.Must(t, exec.Command("mkfifo", filepath.Join(repo, pipe)).Run())
		testkit.Fails(t, testkit.Get(protect(repo)).Err(), pipe+", which is a named pipe: remove it", name)
	}
	for _, device := range []string{"/dev/zero", "/dev/stdin", os.DevNull} {
		repo := repository(t, 1)
		testkit.Git(t, repo, "config", "core.excludesFile", device)
		testkit.Must(t, testkit.Get(protect(repo)).Err())
	}
}

// Checks that undo each other are told with the files that go on changing, of what each is about.
func TestARoundThatDoesNotEnd(t *testing.T) {
	grows := job.StepCheck{
		Run:  []string{"sh", "-c", "echo x >> d0/f0; echo x >> out.md; echo x >> other"},
		Name: "grows",
	}
	named := grows
	named.Files = []string{"d0/*"}
	for _, c := range []struct {
		check  job.StepCheck
		shared bool
		bound  string
		want   []string
	}{
		{grows, false, ToTree, []string{"d0/f0", "other", "out.md"}},
		{grows, true, ToOutputs, []string{"out.md"}},
		{named, true, ToFiles, []string{"d0/f0", "out.md"}},
	} {
		root := repository(t, 1)
		testkit.Write(t, filepath.Join(root, "out.md"), "x")
		s := &Subject{Root: root, Checks: []job.StepCheck{c.check}, Outputs: []string{"out.md"}, Shared: c.shared}
		r := testkit.Get(round(t, s, func(int) {})).Must(t)
		testkit.Same(t, r.Undecided, c.want, "%s", c.bound)
		testkit.Equal(t, r.Verdicts[0].Check.Bound, c.bound)
	}
}

// A check does not run while what it protects has changed, and a verdict says what is wrong.
func TestWhatAVerdictSays(t *testing.T) {
	root := repository(t, maxNamed+1)
	fails := job.StepCheck{Run: []string{"sh", "-c", "echo no; exit 3"}, Name: "fails", Protect: []string{"d0/*"}}
	gone := job.StepCheck{Run: []string{"./none"}, Name: "gone"}
	s := &Subject{
		Root:   root,
		Checks: []job.StepCheck{fails},
		Began:  testkit.Get(Protect(t.Context(), root, []job.StepCheck{fails})).Must(t),
	}
	run := func() (*judging.Verdict, error) {
		r, err := round(t, s, func(int) {})
		return append(r.Verdicts, nil)[0], err
	}
	v := testkit.Get(run()).Must(t)
	testkit.True(t, !v.Passed, "%+v", v)
	testkit.Equal(t, v.Check.Code, 3)
	testkit.True(t, !v.Check.NotRun, "%+v", v)
	testkit.ContainsAll(t, v.Feedback, []string{"exit code 3", "Its last lines:\nno"})

	for n, more := range []string{"f9' was changed. Restore", ", and 1 more. Restore"} {
		for i := range maxNamed + n {
			testkit.Write(t, filepath.Join(root, "d0", fmt.Sprint("f", i)), "edited")
		}

		v = testkit.Get(run()).Must(t)
		testkit.True(t, v.Check.NotRun, "%+v", v)
		testkit.True(t, !v.Passed, "%+v", v)
		testkit.Equal(t, v.Check.Code, -1)
		testkit.ContainsAll(t, v.Feedback, []string{"'d0/f0' was changed, ", more})
	}

	s.Checks, s.Began = []job.StepCheck{gone}, nil
	testkit.Fails(t, testkit.Get(run()).Err(), "check 'gone' could not be run: its program './none' cannot be started")
}
