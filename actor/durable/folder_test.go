package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestSyncFolder(t *testing.T) {
	dir := t.TempDir()
	must(t, Disk{}.SyncFolder(dir))
	missing := filepath.Join(dir, "missing")
	if err := (Disk{}).SyncFolder(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := (Disk{Carry: (&recorder{fail: OpSyncDir}).carry}).SyncFolder(dir); !errors.Is(err, errBroken) {
		t.Errorf("a sync that fails: %v", err)
	}
}

// Each folder is durable before one is made in it, and only the last one is for
// its owner alone.
func TestMakeFolder(t *testing.T) {
	root := t.TempDir()
	a, b, c := filepath.Join(root, "a"), filepath.Join(root, "a", "b"), filepath.Join(root, "a", "b", "c")
	var synced []string
	d := Disk{Carry: func(op Op, do func() error) error {
		if op.Do != OpSyncDir {
			t.Errorf("it did %q", op.Do)
		}
		if entries, err := os.ReadDir(op.Path); err != nil || len(entries) != 1 {
			t.Errorf("%s is synced with %v, %v", op.Path, entries, err)
		}
		synced = append(synced, op.Path)
		return do()
	}}
	must(t, d.MakeFolder(c, 0o700))
	if want := []string{root, a, b}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	must(t, d.MakeFolder(c, 0o755))
	if len(synced) != 3 {
		t.Error("what is there was made again")
	}
	if runtime.GOOS != "windows" {
		for path, want := range map[string]fs.FileMode{a: 0o755, b: 0o755, c: 0o700} {
			fi, err := os.Stat(path)
			must(t, err)
			if fi.Mode().Perm()&^0o055 != want&^0o055 || fi.Mode().Perm()&^want != 0 { // the umask may narrow it
				t.Errorf("%s has the mode %v, want %v", path, fi.Mode(), want)
			}
		}
	}
	if err := (Disk{Carry: (&recorder{fail: OpSyncDir}).carry}).MakeFolder(filepath.Join(c, "d"), 0o700); !errors.Is(err, errBroken) {
		t.Errorf("a sync that fails: %v", err)
	}
}

func TestMakeFolderRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if err := (Disk{}).MakeFolder(file, 0o700); err == nil || !strings.Contains(err.Error(), file+" is not a folder; move it") {
		t.Errorf("a file: %v", err)
	}
	if err := (Disk{}).MakeFolder(filepath.Join(file, "in"), 0o700); err == nil {
		t.Error("a folder was made in a file")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), link); err != nil {
		t.Skip("no links here: ", err)
	}
	if err := (Disk{}).MakeFolder(link, 0o700); err == nil || !strings.Contains(err.Error(), "a link that leads nowhere") {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "nowhere"), 0o700))
	must(t, Disk{}.MakeFolder(link, 0o700))
}
