package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
)

var must = testkit.Must

// holds fails the test unless the folder has these files and no others; each is
// given as "name=content".
func holds(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		got = append(got, e.Name()+"="+string(data))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
}

// A recorder is a Carry that writes the Ops down, and fails one of them.
type recorder struct {
	mu   sync.Mutex
	ops  []string
	fail string // the Op that fails, undone
	torn bool   // half of a write is made before it fails
}

var errBroken = errors.New("the disk is broken")

func (r *recorder) carry(op Op, do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op.Do)
	if op.Do != r.fail {
		return do()
	}
	if r.torn {
		if _, err := op.File.Write(op.Data[:len(op.Data)/2]); err != nil {
			return err
		}
	}
	return errBroken
}

// The content is synced before the file has its name, and the name before Put
// says that the file is kept.
func TestPutSyncsInOrder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	r := &recorder{}
	must(t, Disk{Carry: r.carry}.Put(path, []byte("one"), PutOptions{}))
	if want := []string{OpCreate, OpWrite, OpSync, OpMove, OpSyncDir}; !slices.Equal(r.ops, want) {
		t.Errorf("it did %q, want %q", r.ops, want)
	}
	holds(t, dir, "a=one")
}

// Whatever fails, the old file is there, whole, and nothing else; but for the sync
// of the folder, where the new one is and the error says what that means.
func TestPutFails(t *testing.T) {
	for _, temp := range []string{"", "own_*.tmp", "a.new"} {
		for _, op := range []string{OpCreate, OpWrite, OpSync, OpMove, OpSyncDir} {
			for _, torn := range []bool{false, true} {
				if torn && op != OpWrite {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%t", temp, op, torn), func(t *testing.T) {
					dir := t.TempDir()
					path := filepath.Join(dir, "a")
					must(t, os.WriteFile(path, []byte("old"), 0o600))
					d := Disk{Carry: (&recorder{fail: op, torn: torn}).carry}
					err := d.Put(path, []byte("the new one"), PutOptions{Temp: temp})
					if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), dir) {
						t.Errorf("the error is %v", err)
					}
					if unsynced := op == OpSyncDir; errors.Is(err, ErrUnsynced) != unsynced {
						t.Errorf("the error is %v", err)
					} else if unsynced {
						holds(t, dir, "a=the new one")
					} else {
						holds(t, dir, "a=old")
					}
				})
			}
		}
	}
}

// A process that ends in the midst leaves the old file or the new one.
func TestPutIsCutShort(t *testing.T) {
	for _, op := range []string{OpCreate, OpWrite, OpSync, OpMove, OpSyncDir} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+op, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "a")
				must(t, os.WriteFile(path, []byte("old"), 0o600))
				if err := dieAt(t, when+" "+op, path); err == nil {
					t.Fatal("it went through")
				}
				got, err := os.ReadFile(path)
				must(t, err)
				moved := op == OpSyncDir || op == OpMove && when == "after"
				if moved != (string(got) == newContent) || !moved && string(got) != "old" {
					t.Errorf("it left %q", got)
				}
				// The next one removes what is at the caller's own name.
				must(t, Disk{}.Put(path, []byte("next"), PutOptions{Temp: "a.new"}))
				holds(t, dir, "a=next")
			})
		}
	}
}

// What is at the name of the temporary file is removed, not written to.
func TestPutDoesNotFollowItsTemp(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(precious, []byte("precious"), 0o600))
	if err := os.Symlink(precious, filepath.Join(dir, "a.new")); err != nil {
		t.Skip("no links here: ", err)
	}
	must(t, Disk{}.Put(filepath.Join(dir, "a"), []byte("one"), PutOptions{Temp: "a.new"}))
	holds(t, dir, "a=one")
	holds(t, filepath.Dir(precious), "precious=precious")

	// A link at the path itself is replaced, and what it leads to is not touched.
	must(t, os.Symlink(precious, filepath.Join(dir, "b")))
	must(t, Disk{}.Put(filepath.Join(dir, "b"), []byte("two"), PutOptions{}))
	holds(t, dir, "a=one", "b=two")
	holds(t, filepath.Dir(precious), "precious=precious")
}

func TestPutRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "folder", "in"), 0o755))
	for path, want := range map[string]error{
		filepath.Join(dir, "folder"):       nil, // what the system says differs
		filepath.Join(dir, "missing", "a"): fs.ErrNotExist,
	} {
		err := Disk{}.Put(path, []byte("x"), PutOptions{})
		if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

func TestPutMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such modes here")
	}
	dir := t.TempDir()
	for name, want := range map[string]fs.FileMode{"own": 0, "all": 0o666} {
		path := filepath.Join(dir, name)
		must(t, Disk{}.Put(path, nil, PutOptions{Mode: want}))
		fi, err := os.Stat(path)
		must(t, err)
		if want == 0 {
			want = 0o600
		}
		if fi.Mode() != want {
			t.Errorf("%s has the mode %v, want %v", name, fi.Mode(), want)
		}
	}
}

// Of writers of one path each is whole, and readers never see less.
func TestPutsOfOnePath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	content := func(n byte) []byte { return bytes.Repeat([]byte{'a' + n}, 10_000) }
	d := Disk{Carry: func(op Op, do func() error) error {
		if op.Do == OpSync || op.Do == OpSyncDir {
			return nil // only makes the test slower
		}
		return do()
	}}
	must(t, d.Put(path, content(0), PutOptions{}))
	var writers, reader sync.WaitGroup
	done := make(chan struct{})
	reader.Go(func() {
		for {
			got, _, err := Read(path, 1<<20)
			if err != nil || len(got) != 10_000 || !bytes.Equal(got, content(got[0]-'a')) {
				t.Errorf("a reader saw %d bytes, %v", len(got), err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for n := range byte(8) {
		writers.Go(func() {
			for range 20 {
				if err := d.Put(path, content(n), PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	reader.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
