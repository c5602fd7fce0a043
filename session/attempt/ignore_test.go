package attempt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIgnore(t *testing.T) {
	root := t.TempDir()
	read := func(parts ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, parts...)...))
		must(t, err)
		return string(text)
	}
	must(t, os.MkdirAll(filepath.Join(root, ".deepwork"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, ".deepwork", ".gitignore"), []byte("mine\ntmp/"), 0o644))
	for range 2 {
		must(t, ignore(root, filepath.Join(root, ".deepwork", "worktrees")))
	}
	if got := read(".deepwork", ".gitignore"); got != "mine\ntmp/\nworktrees/\nboard.db*\nlogs/\n" {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(root, ".deepwork", "trees", "here")))
	if got := read(".deepwork", ".gitignore"); !strings.HasSuffix(got, "/trees/here/\n") {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(root, "trees")))
	if got := read("trees", ".gitignore"); got != "*\n" {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")))
	if exists(filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")) {
		t.Error("a folder outside the project was made")
	}
}
