package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session/workflow/machine"
)

// free runs every check.
func free() *Runner {
	return &Runner{Allowed: func(context.Context, *Subject, *job.StepCheck) error { return nil },
		Program: func(name string) (string, error) { return process.Look(name) }, Secrets: func() []string { return nil }}
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
	look := func() string {
		t.Helper()
		c := testkit.Get(s.Look(t.Context())).Must(t)
		return c.Digest(0)
	}
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
	testkit.True(t, begin != edited && edited == staged && staged == committed && committed == touched, "%s, edited %s, staged %s, committed %s, touched %s", begin, edited, staged, committed, touched)
	testkit.Write(t, filepath.Join(root, ".deepwork/tmp/session_1.json"), "{}")
	testkit.Equal(t, look(), committed, "the export of a session is a part of the tree")
	// A time that is as it was hides nothing: git looks at the change of the inode too.
	info := testkit.Get(os.Stat(filepath.Join(root, "new"))).Must(t)
	testkit.Git(t, root, "config", "core.trustctime", "false")
	testkit.Git(t, root, "config", "core.checkStat", "minimal")
	testkit.Git(t, root, "status")
	second := time.Now().Unix()
	// The clock of a file system may be some milliseconds late.
	testkit.Until(t, "another second, which git tells apart", func() bool { return time.Now().Add(-100*time.Millisecond).Unix() > second })
	testkit.Write(t, filepath.Join(root, "new"), "wen")
	testkit.Must(t, os.Chtimes(filepath.Join(root, "new"), info.ModTime(), info.ModTime()))
	testkit.True(t, runtime.GOOS == "windows" || look() != committed, "an edit with the old time and size is not seen")
}

// A round gives each check one more run if the content differs, and then names the files.
func TestARoundNamesTheCheckThatChangesWhatAnotherIsAbout(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("uses a shell")
	}
	root := repository(t, 1)
	count := filepath.Join(t.TempDir(), "count")
	s := &Subject{Root: root, Checks: []job.StepCheck{
		{Run: []string{"sh", "-c", "echo a >> " + count}, Name: "first"},
		{Run: []string{"sh", "-c", "echo formatted > d0/f0"}, Name: "second"},
	}}
	before := testkit.Get(s.Look(t.Context())).Must(t)
	var left []int
	r := &Round{Subject: s, Before: before, Known: make([]*machine.Verdict, 2), Over: make([]bool, 2), Done: func(n int) { left = append(left, n) }}
	testkit.Must(t, free().Run(t.Context(), r))
	testkit.Same(t, left, []int{1, 2, 2, 2})
	if runs, _ := os.ReadFile(count); len(runs) != 4 || r.Undecided != nil || !r.Verdicts[0].Passed || r.Verdicts[0].Digest != r.After.Digest(0) {
		t.Errorf("%q, undecided %v", runs, r.Undecided)
	}
}

// What a step protects is compared with its beginning, in git and without it.
func TestProtectedFilesThatChanged(t *testing.T) {
	plain := testkit.Dir(t)
	testkit.Write(t, filepath.Join(plain, "d0", "f0"), "")
	testkit.Write(t, filepath.Join(plain, "d0", "f1"), "")
	for _, root := range []string{repository(t, 2), plain} {
		testkit.Equal(t, testkit.Get(Protect(t.Context(), root, []job.StepCheck{{Name: "x"}})).Must(t), nil, "nothing is protected")
		was := testkit.Get(Protect(t.Context(), root, []job.StepCheck{{Protect: []string{"d0/*"}}, {Protect: []string{"other/**"}}})).Must(t)
		testkit.Same(t, testkit.Get(Changed(t.Context(), root, was)).Must(t), nil, "at once")
		testkit.Must(t, os.Remove(filepath.Join(root, "d0", "f0")))
		for _, name := range []string{"d0/f1", "other/deep/new", "elsewhere"} {
			testkit.Write(t, filepath.Join(root, name), "edited")
		}
		testkit.Same(t, testkit.Get(Changed(t.Context(), root, was)).Must(t), []string{"'d0/f0' was deleted", "'d0/f1' was changed", "'other/deep/new' was added"})
	}
}
