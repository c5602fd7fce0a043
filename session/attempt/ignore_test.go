package attempt

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIgnore(t *testing.T) {
	root := t.TempDir()
	read := func(parts ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, parts...)...))
		must(t, err)
		return string(text)
	}
	must(t, ignore(root, filepath.Join(root, "trees")))
	if got := read("trees", ".gitignore"); got != "*\n" {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")))
	if Exists(filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")) {
		t.Error("a folder outside the project was made")
	}
}
