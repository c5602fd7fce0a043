package durable

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

var must = testkit.Must

// holds fails the test unless the folder has these files and no others; each is given as "name=content".
func holds(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries := testkit.Get(os.ReadDir(dir)).Must(t)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name()+"="+string(testkit.Get(os.ReadFile(filepath.Join(dir, e.Name()))).Must(t)))
	}
	testkit.Same(t, got, want, "the folder")
}

// oldFile returns the path of a file "a", alone in its folder.
func oldFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "a")
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	return path
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

// The content is synced before the file has its name, and the name before Put says that the file is kept.
func TestPutSyncsInOrder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	r := &recorder{}
	must(t, Disk{Carry: r.carry}.Put(path, []byte("one"), PutOptions{}))
	testkit.Same(t, r.ops, []string{OpCreate, OpWrite, OpSync, OpMove, OpSyncDir})
	holds(t, dir, "a=one")
}

// Whatever fails, the old file is there, whole, and nothing else; but for the sync
// of the folder, where the new one is and the error says what that means.
func TestPutFails(t *testing.T) {
	for _, temp := range []string{"", "own_*.tmp", "a.new"} {
		for _, fail := range []string{OpCreate, OpWrite, OpWrite + " half", OpSync, OpMove, OpSyncDir} {
			t.Run(temp+"/"+fail, func(t *testing.T) {
				path := oldFile(t)
				op, _, torn := strings.Cut(fail, " ")
				err := Disk{Carry: (&recorder{fail: op, torn: torn}).carry}.Put(path, []byte("the new one"),
					PutOptions{Temp: temp})
				testkit.FailsWith(t, err, errBroken)
				testkit.Fails(t, err, filepath.Dir(path))

				unsynced := fail == OpSyncDir
				testkit.Equal(t, errors.Is(err, ErrUnsynced), unsynced)
				holds(t, filepath.Dir(path), map[bool]string{true: "a=the new one", false: "a=old"}[unsynced])
			})
		}
	}
}

// A process that ends in the midst leaves the old file or the new one.
func TestPutIsCutShort(t *testing.T) {
	for _, op := range []string{OpCreate, OpWrite, OpSync, OpMove, OpSyncDir} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+op, func(t *testing.T) {
				path := oldFile(t)
				child := exec.CommandContext(t.Context(), os.Args[0], path)
				child.Env = append(os.Environ(), childEnv+"="+when+" "+op)
				said, err := child.CombinedOutput()
				testkit.Fails(t, err, "exit status 3", "%s", said)

				got := testkit.Get(os.ReadFile(path)).Must(t)
				moved := op == OpSyncDir || op == OpMove && when == "after"
				testkit.True(t, moved == (string(got) == newContent) && (moved || string(got) == "old"),
					"it left %q", got)

				// The next one removes what is at the caller's own name.
				must(t, Disk{}.Put(path, []byte("next"), PutOptions{Temp: "a.new"}))
				holds(t, filepath.Dir(path), "a=next")
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
	for _, path := range []string{filepath.Join(dir, "folder"), filepath.Join(dir, "missing", "a")} {
		testkit.Fails(t, Disk{}.Put(path, []byte("x"), PutOptions{}), path)
	}
	testkit.Equal(t, len(testkit.Get(os.ReadDir(dir)).Must(t)), 1, "it left")
}

func TestPutMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such modes here")
	}
	for given, want := range map[fs.FileMode]fs.FileMode{0: 0o600, 0o666: 0o666} {
		path := filepath.Join(t.TempDir(), "a")
		must(t, Disk{}.Put(path, nil, PutOptions{Mode: given}))
		testkit.Equal(t, testkit.Get(os.Stat(path)).Must(t).Mode(), want)
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
	var done atomic.Bool
	reader.Go(func() {
		for whole := true; whole && !done.Load(); {
			got, _, err := Read(path, 1<<20)
			whole = err == nil && len(got) == 10_000 && bytes.Equal(got, content(got[0]-'a'))
			testkit.True(t, whole, "a reader saw %d bytes, %v", len(got), err)
		}
	})

	for n := range byte(8) {
		writers.Go(func() {
			for range 20 {
				testkit.Works(t, d.Put(path, content(n), PutOptions{}))
			}
		})
	}
	writers.Wait()
	done.Store(true)
	reader.Wait()
	testkit.Equal(t, len(testkit.Get(os.ReadDir(dir)).Must(t)), 1, "left")
}

func TestSyncFolder(t *testing.T) {
	dir := t.TempDir()
	must(t, Disk{}.SyncFolder(dir))
	testkit.Fails(t, Disk{}.SyncFolder(filepath.Join(dir, "missing")), filepath.Join(dir, "missing"))
	testkit.FailsWith(t, Disk{Carry: (&recorder{fail: OpSyncDir}).carry}.SyncFolder(dir), errBroken,
		"a sync that fails")
}

// Each folder is durable before one is made in it, and only the last one is for its owner alone.
func TestMakeFolder(t *testing.T) {
	root := t.TempDir()
	a := filepath.Join(root, "a")
	b := filepath.Join(root, "a", "b")
	c := filepath.Join(root, "a", "b", "c")
	var synced []string
	d := Disk{Carry: func(op Op, do func() error) error {
		testkit.Equal(t, op.Do, OpSyncDir, "it did")
		testkit.Equal(t, len(testkit.Get(os.ReadDir(op.Path)).Must(t)), 1, "%s is synced with", op.Path)
		synced = append(synced, op.Path)
		return do()
	}}
	must(t, d.MakeFolder(c, 0o700))
	testkit.Same(t, synced, []string{root, a, b})
	must(t, d.MakeFolder(c, 0o755))
	testkit.Equal(t, len(synced), 3, "what is there was made again")

	if runtime.GOOS != "windows" {
		for path, want := range map[string]fs.FileMode{a: 0o755, b: 0o755, c: 0o700} {
			mode := testkit.Get(os.Stat(path)).Must(t).Mode().Perm()
			// the umask may narrow it
			testkit.True(t, mode&^0o055 == want&^0o055 && mode&^want == 0, "%s has the mode %v, want %v", path,
				mode, want)
		}
	}
	testkit.FailsWith(t, (Disk{Carry: (&recorder{fail: OpSyncDir}).carry}).MakeFolder(filepath.Join(c, "d"), 0o700),
		errBroken, "a sync that fails")
}

func TestMakeFolderRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	testkit.Fails(t, (Disk{}).MakeFolder(file, 0o700), file+" is not a folder; move it", "a file")
	testkit.Fails(t, (Disk{}).MakeFolder(filepath.Join(file, "in"), 0o700), "", "a folder was made in a file")

	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), link); err != nil {
		t.Skip("no links here: ", err)
	}
	testkit.Fails(t, (Disk{}).MakeFolder(link, 0o700), "a link that leads nowhere", "a link that leads nowhere")
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "nowhere"), 0o700), Disk{}.MakeFolder(link, 0o700)))
}

func TestInside(t *testing.T) {
	top := testkit.Dir(t)
	root, other := filepath.Join(top, "root"), filepath.Join(top, "other")
	testkit.Write(t, filepath.Join(root, "in", "f"), "")
	testkit.Write(t, filepath.Join(other, "f"), "")
	for name, to := range map[string]string{
		"out":      other,
		"up":       "../other",
		"nowhere":  "missing",
		"within":   "in",
		"absolute": filepath.Join(root, "in"),
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Skip(err)
		}
	}

	for path, want := range map[string]bool{
		"in/f":       true,
		"in/new/x":   true,
		"new":        true,
		"within/f":   true,
		"absolute/f": true,
		"out":        false,
		"out/f":      false,
		"out/new":    false,
		"up/f":       false,
		"nowhere":    false,
		"nowhere/f":  false,
	} {
		testkit.Equal(t, Inside(root, filepath.Join(root, filepath.FromSlash(path))) == nil, want, "%v", path)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	must(t, os.WriteFile(path, []byte("12345"), 0o600))
	data, fi, err := Read(path, 5)
	testkit.Equal(t, string(data), "12345")
	testkit.Need(t, err == nil, "%q, %v, %v", data, fi, err)
	testkit.Equal(t, fi.Size(), 5)

	bad := func(what, path string, limit int64, exists bool, reason string) {
		t.Helper()
		_, fi, err := Read(path, limit)
		bad, ok := errors.AsType[*BadFileError](err)
		testkit.Need(t, ok, "%s: %v, %v", what, fi, err)
		testkit.Equal(t, bad.Path, path)
		testkit.Equal(t, bad.Reason, reason)
		testkit.Equal(t, (fi != nil), exists)
		testkit.Contains(t, err.Error(), path)
	}
	bad("one that is too long", path, 4, true, "has 5 bytes, over the limit of 4")
	bad("a folder", dir, 5, false, "is a folder, not a file")
	_, fi, err = Read(path+"2", 5)
	testkit.True(t, errors.Is(err, fs.ErrNotExist) && fi == nil, "nothing: %v, %v", fi, err)

	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skip("no links here: ", err)
	}
	_, _, err = Read(link, 5)
	testkit.Fails(t, err, "it is a symbolic link")
}

func TestKind(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0o644:                             "a file",
		fs.ModeDir | 0o755:                "a folder",
		fs.ModeSymlink:                    "a symbolic link",
		fs.ModeNamedPipe:                  "a named pipe",
		fs.ModeSocket:                     "a socket",
		fs.ModeDevice | fs.ModeCharDevice: "a device",
		fs.ModeIrregular:                  "something special",
	} {
		testkit.Equal(t, Kind(mode), want, "%v", mode)
	}
}

func TestMoveNewReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	must(t, errors.Join(os.WriteFile(from, []byte("1"), 0o600), os.WriteFile(to, []byte("2"), 0o600)))
	for name, move := range moves {
		testkit.FailsWith(t, move(from, to), fs.ErrExist, "%s over a file", name)
		testkit.FailsWith(t, move(from+"x", to+"x"), fs.ErrNotExist, "%s of nothing", name)
		holds(t, dir, "from=1", "to=2")
		must(t, move(from, from+"2"))
		holds(t, dir, "from2=1", "to=2")
		must(t, move(from+"2", from))
	}
	must(t, Disk{}.Move(from, to))
	holds(t, dir, "to=1")
}

// Create, Write and Sync do what they say; a file that is closed cannot be synced, and nothing else is in its place.
func TestCreateWriteSync(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	var seen []Op
	d := Disk{Carry: func(op Op, do func() error) error {
		op.Data = slices.Clone(op.Data)
		seen = append(seen, op)
		return do()
	}}
	f := testkit.Get(d.Create(path)).Must(t)
	testkit.Equal(t, testkit.Get(d.Write(f, []byte("abcdef"))).Must(t), 6)
	must(t, errors.Join(d.Sync(f), f.Close()))
	holds(t, dir, "a=abcdef")
	testkit.Same(t, seen, []Op{{Do: OpCreate, Path: path}, {Do: OpWrite, Path: path, File: f, Data: []byte("abcdef")},
		{Do: OpSync, Path: path, File: f}})
	err := d.Sync(f)
	testkit.True(t, errors.Is(err, fs.ErrClosed) && strings.Contains(err.Error(), path),
		"syncing a closed file: %v", err)

	_, err = Disk{}.Create(path)
	testkit.True(t, errors.Is(err, fs.ErrExist) && strings.Contains(err.Error(), path), "again: %v", err)

	// One that was made, and is said to have failed, is not left open.
	f, err = Disk{Carry: func(_ Op, do func() error) error { return errors.Join(do(), errBroken) }}.Create(path + "2")
	testkit.True(t, f == nil && errors.Is(err, errBroken), "%v, %v", f, err)
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
	testkit.Same(t, r.ops, []string{OpRemove, OpSyncDir, OpRemove, OpSyncDir})
	must(t, d.Drop(filepath.Join(dir, "missing", "a")))
	for _, op := range []string{OpRemove, OpSyncDir} {
		testkit.FailsWith(t, (Disk{Carry: (&recorder{fail: op}).carry}).Drop(path), errBroken, "where %s fails", op)
	}
}

const (
	childEnv   = "DEEPWORK_TEST_DIE_AT"
	newContent = "the new content"
)

// TestMain makes of this binary the child that TestPutIsCutShort starts.
func TestMain(m *testing.M) {
	if point := os.Getenv(childEnv); point != "" {
		d := Disk{Carry: func(op Op, do func() error) error {
			if point == "before "+op.Do {
				os.Exit(3)
			}
			err := do()
			if point == "after "+op.Do {
				os.Exit(3)
			}
			return err
		}}
		if err := d.Put(os.Args[1], []byte(newContent), PutOptions{Temp: "a.new"}); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLockExcludesUntilItIsUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	testkit.Equal(t, testkit.Get(Locked(path)).Must(t), false, "a missing file is locked")
	first := testkit.Get(Lock(t.Context(), path)).Must(t)
	testkit.True(t, testkit.Get(TryLock(path)).Must(t) == nil, "TryLock of a locked file")
	testkit.Equal(t, testkit.Get(Locked(path)).Must(t), true, "a locked file is locked")

	reason := errors.New("enough waited")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, reason)
	defer cancel()
	testkit.FailsWith(t, testkit.Get(Lock(ctx, path)).Err(), reason, "Lock of a locked file")

	got := make(chan error, 1)
	go func() {
		l, err := Lock(t.Context(), path)
		if err == nil {
			err = l.Remove()
		}
		got <- err
	}()

	testkit.Must(t, first.Unlock())
	testkit.Must(t, <-got)
	testkit.FailsWith(t, testkit.Get(os.Lstat(path)).Err(), os.ErrNotExist, "the file after Remove")
}

func TestLockNoticesThatItsFileWasReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	l := testkit.Get(Lock(t.Context(), path)).Must(t)
	defer l.Unlock()
	testkit.True(t, l.InPlace(), "a lock just taken is not in place")

	if err := os.Rename(path, path+".away"); err != nil {
		t.Skip("an open file cannot be renamed here:", err)
	}
	testkit.True(t, !l.InPlace(), "a lock whose file has gone is in place")
}

func TestLockRefusesWhatIsNoFile(t *testing.T) {
	testkit.Fails(t, testkit.Get(Lock(t.Context(), t.TempDir())).Err(), "", "a folder was locked")
	testkit.FailsWith(t, testkit.Get(Lock(t.Context(), filepath.Join(t.TempDir(), "missing", "a.lock"))).Err(),
		os.ErrNotExist, "Lock in a missing folder")
}
