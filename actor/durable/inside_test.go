package durable

import (
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
)

func TestInside(t *testing.T) {
	top := testkit.Dir(t)
	root, other := filepath.Join(top, "root"), filepath.Join(top, "other")
	testkit.Write(t, filepath.Join(root, "in", "f"), "")
	testkit.Write(t, filepath.Join(other, "f"), "")
	for name, to := range map[string]string{"out": other, "up": "../other", "nowhere": "missing", "within": "in", "absolute": filepath.Join(root, "in")} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Skip(err)
		}
	}
	for path, want := range map[string]bool{"in/f": true, "in/new/x": true, "new": true, "within/f": true, "absolute/f": true,
		"out": false, "out/f": false, "out/new": false, "up/f": false, "nowhere": false, "nowhere/f": false} {
		if err := Inside(root, filepath.Join(root, filepath.FromSlash(path))); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
