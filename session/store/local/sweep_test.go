package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGitignore(t *testing.T) {
	dir := newDir(t)
	path := filepath.Join(filepath.Dir(dir), ".gitignore")
	must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	must(t, os.WriteFile(path, []byte("# mine\n*.log"), 0o644))
	for n := range 2 {
		must(t, open(t, dir, Options{}).Write(ctx, fmt.Sprintf("%08x", n), numbered(1)))
	}
	if got, err := os.ReadFile(path); string(got) != "# mine\n*.log\ntmp/\n" || err != nil {
		t.Errorf("it became %q, %v", got, err)
	}
}

// A folder that hides itself, as in the workspace of an attempt, leaves the file
// above it alone, which may be the project's own.
func TestGitignoreOfAHiddenFolder(t *testing.T) {
	dir := newDir(t)
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o644))
	must(t, open(t, dir, Options{}).Write(ctx, "0123abcd", numbered(1)))
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), ".gitignore")); !os.IsNotExist(err) {
		t.Errorf("it was made all the same: %v", err)
	}
}

func TestSweepSparesTheLiving(t *testing.T) {
	dir := newDir(t)
	a := open(t, dir, Options{})
	must(t, a.Write(ctx, "0123abcd", numbered(1)))
	dead := strings.Repeat("d", 16)
	locks := folder(dir).Servers()
	at := func(names ...string) (paths []string) {
		for _, name := range names {
			parent := dir
			if strings.HasPrefix(name, "server_") {
				parent = locks
			}
			paths = append(paths, filepath.Join(parent, name))
		}
		return paths
	}
	keep := at("write_"+a.server+"_7.tmp", "write_"+dead+"_x.tmp", "write_short_1.tmp",
		"server_short.lock", "server_"+dead+".lock.bak", "notes.tmp")
	gone := at("write_"+dead+"_1.tmp", "write_"+dead+"_22.tmp", "server_"+dead+".lock")
	for _, path := range append(keep, gone...) {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	must(t, open(t, dir, Options{}).Write(ctx, "00000001", numbered(1)))
	for _, path := range append(keep, a.member.Path(a.server)) {
		if !exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
	for _, path := range gone {
		if exists(path) {
			t.Errorf("%s is still there", path)
		}
	}
}
