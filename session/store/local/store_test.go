package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
)

// TestMain lets the tests run this binary again, as another server.
func TestMain(m *testing.M) {
	if role := os.Getenv("STORE_CHILD"); role != "" {
		os.Exit(child(role))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(statetest.Main(m, goleak.Find))
}

// sample is a record of about size bytes.
func sample(size int) []byte {
	return fmt.Appendf(nil, "{\n  \"format_version\": 1,\n  \"goal\": %q\n}", strings.Repeat("x", max(0, size-42)))
}

func numbered(n int) []byte {
	return fmt.Appendf(nil, "{\n  \"n\": %d\n}", n)
}

// newDir is a session folder that does not exist yet, in a project that does.
func newDir(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), ".deepwork", "tmp")
}

// folder is the state folder of the project whose session folder this is.
func folder(dir string) *state.Folder { return state.Of(filepath.Dir(filepath.Dir(dir))) }

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := Open(folder(dir), o)
	testkit.Must(t, err)
	s.rest = 0 // so that each write after the first exchange takes a spare
	stores.Store(s.server, s)
	t.Cleanup(func() {
		stores.Delete(s.server)
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func mustRead(t testing.TB, s *Store, id string, want []byte) {
	t.Helper()
	got, err := s.Read(ctx, id)
	testkit.Must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("read %q, want %q", got, want)
	}
}

var must = testkit.Must

// files lists the folder, lock files left out.
func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func noTemps(t testing.TB, dir string) {
	t.Helper()
	for _, name := range files(t, dir) {
		if strings.HasSuffix(name, ".tmp") && !isSpare(name) {
			t.Errorf("%s was left behind", name)
		}
	}
}

// stores has the open stores of tests, by server.
var stores sync.Map

// isSpare reports whether a file is a spare of an open store.
func isSpare(name string) bool {
	server, _ := writtenBy(name)
	opened, ok := stores.Load(server)
	if !ok {
		return false
	}
	s := opened.(*Store)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.spares, func(sp spare) bool { return filepath.Base(sp.path) == name })
}

// isOp reports whether an Op is of a kind; a file can also be moved by an exchange.
func isOp(o durable.Op, kind string) bool {
	return o.Do == kind || o.Do == durable.OpExchange && kind == durable.OpMove
}

// after is a durable.Disk.Carry that calls f after each op that succeeded.
func after(op string, f func() error) func(durable.Op, func() error) error {
	return func(o durable.Op, do func() error) error {
		err := do()
		if err == nil && isOp(o, op) {
			err = f()
		}
		return err
	}
}

// failing is a durable.Disk.Carry in whose stead op fails.
func failing(op string, err error) func(durable.Op, func() error) error {
	return func(o durable.Op, do func() error) error {
		if isOp(o, op) {
			return err
		}
		return do()
	}
}

func TestRecordsComeBackAsGiven(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	if names := files(t, filepath.Dir(dir)); len(names) != 0 {
		t.Fatalf("Open created %v", names)
	}
	must(t, s.Create(ctx, "0123abcd", numbered(1)))
	mustRead(t, s, "0123abcd", numbered(1))
	for n := range 20 {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
		mustRead(t, s, "0123abcd", numbered(n))
	}
	must(t, s.Write(ctx, "00000001", sample(300_000)))
	mustRead(t, open(t, dir, Options{}), "00000001", sample(300_000))
	must(t, s.Remove(ctx, "0123abcd"))
	noTemps(t, dir)
	must(t, s.Close(ctx))
	if got := files(t, dir); !slices.Contains(got, "session_00000001.json") || slices.ContainsFunc(got, func(n string) bool { return strings.HasSuffix(n, ".tmp") }) {
		t.Errorf("the folder holds %v", got)
	}
	if runtime.GOOS != "windows" {
		for path, want := range map[string]fs.FileMode{dir: 0o700, s.RecordPath("00000001"): 0o600} {
			fi, err := os.Stat(path)
			must(t, err)
			if fi.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v", path, fi.Mode().Perm(), want)
			}
		}
	}
}

func TestIDsThatAreNone(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	for _, id := range []string{"", "0123abc", "0123abcde", "0123ABCD", "../../xx", "0123abc/", "0123abcg", "a\x00bcdefg"} {
		if _, err := s.Read(ctx, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Read(%q): %v", id, err)
		}
		if err := s.Update(ctx, id, nil); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Update(%q): %v", id, err)
		}
		for what, err := range map[string]error{
			"Create": s.Create(ctx, id, numbered(1)), "Write": s.Write(ctx, id, numbered(1)), "Remove": s.Remove(ctx, id),
			"NoteActive": s.NoteActive(ctx, store.Key{1}, id, false), "NoteRequest": s.NoteRequest(ctx, store.Key{1}, id), "NoteNewest": s.NoteNewest(ctx, id, 1),
		} {
			if err == nil || !strings.Contains(err.Error(), "8 lower-case hexadecimal") {
				t.Errorf("%s(%q): %v", what, id, err)
			}
		}
	}
	for _, hash := range []string{"", "../x", strings.Repeat("A", 64), strings.Repeat("a", 63)} {
		if err := s.PutDefinition(ctx, hash, nil); err == nil {
			t.Errorf("PutDefinition(%q) passed", hash)
		}
		if _, err := s.Definition(ctx, hash); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Definition(%q): %v", hash, err)
		}
	}
	if s.member.Alive("../../etc/passwd") || s.member.Alive("") {
		t.Error("a server that cannot be is alive")
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("refused calls made the folder: %v", err)
	}
}

func TestCreateIsWonByOne(t *testing.T) {
	dir := newDir(t)
	stores := []*Store{open(t, dir, Options{NoSync: true}), open(t, dir, Options{NoSync: true})}
	start := make(chan struct{})
	won := make(chan int, 50)
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			<-start
			switch err := stores[n%2].Create(ctx, "0123abcd", numbered(n)); {
			case err == nil:
				won <- n
			case !errors.Is(err, store.ErrExists):
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d callers created the record", len(won))
	}
	mustRead(t, stores[0], "0123abcd", numbered(<-won))
	noTemps(t, dir)
}

func TestReadOnlyTouchesNothing(t *testing.T) {
	dir := newDir(t)
	r := open(t, dir, Options{ReadOnly: true})
	if _, err := r.Read(ctx, "0123abcd"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	w := open(t, dir, Options{})
	must(t, w.Create(ctx, "0123abcd", numbered(1)))
	must(t, os.WriteFile(w.RecordPath("00000bad"), []byte("{"), 0o600))
	before := tree(t, dir)
	mustRead(t, r, "0123abcd", numbered(1))
	_, err := r.Read(ctx, "00000bad")
	bad, ok := errors.AsType[*store.DamagedError](err)
	if !ok || bad.Path != r.RecordPath("00000bad") || !strings.Contains(err.Error(), "it is at") {
		t.Errorf("a damaged record: %v", err)
	}
	if !r.member.Alive(w.server) {
		t.Error("a living server looks dead")
	}
	for what, err := range map[string]error{
		"Create": r.Create(ctx, "11111111", numbered(1)), "Write": r.Write(ctx, "0123abcd", numbered(2)),
		"Remove": r.Remove(ctx, "0123abcd"), "PutDefinition": r.PutDefinition(ctx, strings.Repeat("a", 64), nil),
		"Update": r.Update(ctx, "0123abcd", func(b []byte) ([]byte, error) { return b, nil }),
	} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := tree(t, dir); after != before {
		t.Errorf("the folder changed\nfrom %s\nto   %s", before, after)
	}
}

// tree describes every file of a folder, its content and its times.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d %v\n", path, fi.Mode(), fi.Size(), fi.ModTime())
		return nil
	}))
	return b.String()
}

func TestClose(t *testing.T) {
	dir := newDir(t)
	s, other := open(t, dir, Options{}), open(t, dir, Options{})
	must(t, s.Create(ctx, "0123abcd", numbered(1)))
	if !other.member.Alive(s.server) || !s.member.Alive(s.server) {
		t.Fatal("a living server looks dead")
	}
	// Close waits for the write in progress.
	in, out := make(chan struct{}), make(chan struct{})
	s.disk.Carry = after(durable.OpWrite, func() error {
		close(in)
		<-out
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Write(ctx, "0123abcd", numbered(2)); err != nil {
			t.Error(err)
		}
	})
	<-in
	closed := make(chan error, 1)
	wg.Go(func() { closed <- s.Close(ctx) })
	for begun := false; !begun; runtime.Gosched() {
		s.mu.Lock()
		begun = s.closed
		s.mu.Unlock()
	}
	select {
	case <-closed:
		t.Error("Close did not wait for a write")
	default:
	}
	if !other.member.Alive(s.server) {
		t.Error("the server looks dead before its last write has ended")
	}
	close(out)
	must(t, <-closed)
	wg.Wait()
	if other.member.Alive(s.server) || s.member.Alive(s.server) {
		t.Error("a closed server looks alive")
	}
	if err := s.Write(ctx, "0123abcd", numbered(3)); !errors.Is(err, errClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	mustRead(t, other, "0123abcd", numbered(2))
	must(t, s.Close(ctx))
	if exists(s.member.Path(s.server)) {
		t.Error("the lock file was left behind")
	}
}

func TestListYieldsRecordsAlone(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	for range s.List(ctx) {
		t.Error("a folder that does not exist has records")
	}
	want := map[string]bool{}
	for n := range 1500 { // more than one batch of names
		id := fmt.Sprintf("%08x", n*7919)
		want[id] = true
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.WriteFile(s.RecordPath(id), []byte("12345"), 0o600))
	}
	for _, name := range []string{"session_0123ABCD.json", "session_0123abcd.json.bak", "session_1.json",
		"damaged_session_0123abcd_x.json", "session_0123abcd.jso", "notes.txt", "xsession_0123abcd.json"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	got := map[string]bool{}
	for info, err := range s.List(ctx) {
		must(t, err)
		if got[info.ID] || !want[info.ID] || info.Size != 5 || time.Since(info.ModTime).Abs() > time.Hour {
			t.Fatalf("listed %+v", info)
		}
		got[info.ID] = true
	}
	if len(got) != len(want) {
		t.Errorf("listed %d of %d records", len(got), len(want))
	}
}

func TestWhatIsForgottenIsRememberedWhenItIsRead(t *testing.T) {
	s := open(t, newDir(t), Options{})
	const id = "0000000a"
	testkit.Must(t, s.Create(ctx, id, []byte("{\n  \"a\": 1\n}")))
	s.Forget(id)
	if n := len(s.known); n != 0 {
		t.Errorf("%d records are remembered", n)
	}
	if _, err := s.Read(ctx, id); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, s.Write(ctx, id, []byte("{\n  \"a\": 2\n}")))
	if aside, err := s.Damaged(ctx); err != nil || aside != nil {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}

// A call that the disk does not answer ends with its context; until the disk has
// answered, calls about the same record wait, and others do not.
func TestADiskThatHangs(t *testing.T) {
	s := open(t, newDir(t), Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	answer := make(chan struct{})
	s.disk.Carry = func(op durable.Op, do func() error) error {
		if op.Do == durable.OpSync {
			<-answer
		}
		return do()
	}
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return s.Write(ctx, "0123abcd", numbered(2)) },
		func(ctx context.Context) error { return s.Create(ctx, "00000001", numbered(1)) },
		func(ctx context.Context) error { _, err := s.Read(ctx, "0123abcd"); return err },
		func(ctx context.Context) error { return s.Remove(ctx, "00000001") },
	} {
		err := context.DeadlineExceeded
		for errors.Is(err, context.DeadlineExceeded) { // before the call began
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			err = call(ctx)
			cancel()
		}
		if !errors.Is(err, store.ErrPending) {
			t.Errorf("the disk hangs: %v", err)
		}
	}
	if _, err := s.Peek(ctx, "0123abcd"); err != nil {
		t.Errorf("a read by another caller: %v", err)
	}
	close(answer)
	mustRead(t, s, "0123abcd", numbered(2))
	if _, err := s.Read(ctx, "00000001"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record that nobody waited for is there: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Write(gone, "0123abcd", numbered(3)); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who had gone: %v", err)
	}
}
