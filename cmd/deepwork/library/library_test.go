package library

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
)

// Each piece is copied whole, replaces nothing, and leaves nothing else behind.
func TestAdd(t *testing.T) {
	root := testkit.Dir(t)
	for _, p := range All() {
		testkit.Must(t, Find(p.Name).Add(root))
		testkit.FailsWith(t, p.Add(root), fs.ErrExist)
		testkit.Must(t, fs.WalkDir(embedded, p.from, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}

			below, _ := filepath.Rel(p.from, path)
			want := testkit.Get(embedded.ReadFile(path)).Must(t)
			testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(root, p.Path, below))).Must(t)), string(want),
				"%s", path)
			return nil
		}))
	}
	testkit.Equal(t, Find("nothing"), nil)

	left := testkit.Get(filepath.Glob(filepath.Join(root, ".deepwork", ".*"))).Must(t)
	testkit.Equal(t, len(left), 0, "left: %v", left)
}
