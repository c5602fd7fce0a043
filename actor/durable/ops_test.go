package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMoveNewReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	must(t, os.WriteFile(from, []byte("1"), 0o600))
	must(t, os.WriteFile(to, []byte("2"), 0o600))
	for name, move := range moves {
		if err := move(from, to); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s over a file: %v", name, err)
		}
		if err := move(from+"x", to+"x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of nothing: %v", name, err)
		}
		holds(t, dir, "from=1", "to=2")
		must(t, move(from, from+"2"))
		holds(t, dir, "from2=1", "to=2")
		must(t, move(from+"2", from))
	}
	must(t, Disk{}.Move(from, to))
	holds(t, dir, "to=1")
}

func TestCreateIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := Disk{}.Create(path)
	must(t, err)
	defer f.Close()
	if _, err := (Disk{}).Create(path); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("again: %v", err)
	}
	// One that was made, and is said to have failed, is not left open.
	f2, err := Disk{Carry: func(_ Op, do func() error) error { return errors.Join(do(), errBroken) }}.Create(path + "2")
	if f2 != nil || !errors.Is(err, errBroken) {
		t.Errorf("%v, %v", f2, err)
	}
}

// Write and Sync do what they say; a file that is closed cannot be
// synced, and nothing else is in its place.
func TestWriteSync(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	var seen []Op
	d := Disk{Carry: func(op Op, do func() error) error {
		op.Data = slices.Clone(op.Data)
		seen = append(seen, op)
		return do()
	}}
	f, err := d.Create(path)
	must(t, err)
	n, err := d.Write(f, []byte("abcdef"))
	if n != 6 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	must(t, d.Sync(f))
	must(t, f.Close())
	holds(t, dir, "a=abcdef")
	if err := d.Sync(f); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("syncing a closed file: %v", err)
	}
	for i, want := range []Op{
		{Do: OpCreate, Path: path}, {Do: OpWrite, Path: path, File: f, Data: []byte("abcdef")},
		{Do: OpSync, Path: path, File: f},
	} {
		if got := seen[i]; got.Do != want.Do || got.Path != want.Path || got.File != want.File || string(got.Data) != string(want.Data) {
			t.Errorf("Op %d is %+v, want %+v", i, got, want)
		}
	}
}

func TestDrop(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	must(t, os.WriteFile(path, nil, 0o600))
	r := &recorder{}
	d := Disk{Carry: r.carry}
	must(t, d.Drop(path))
	holds(t, dir)
	// That it is gone already may not be on disk yet.
	must(t, d.Drop(path))
	if want := []string{OpRemove, OpSyncDir, OpRemove, OpSyncDir}; !slices.Equal(r.ops, want) {
		t.Errorf("it did %q, want %q", r.ops, want)
	}
	must(t, d.Drop(filepath.Join(dir, "missing", "a")))
	for _, op := range []string{OpRemove, OpSyncDir} {
		if err := (Disk{Carry: (&recorder{fail: op}).carry}).Drop(path); !errors.Is(err, errBroken) {
			t.Errorf("where %s fails: %v", op, err)
		}
	}
}
