package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// asides reads what was set aside, by name prefix.
func asides(t testing.TB, s *Store, prefix string) []string {
	t.Helper()
	paths, err := s.Damaged(ctx)
	must(t, err)
	var out []string
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			t.Errorf("%s is not absolute", p)
		}
		if strings.HasPrefix(filepath.Base(p), prefix) {
			out = append(out, p)
		}
	}
	return out
}

func TestDamagedRecordsAreSetAside(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	for n, content := range []string{"", "[]", "garbage", strings.Repeat("\x00", 5000)} {
		must(t, s.Write(ctx, "0123abcd", numbered(1)))
		must(t, os.WriteFile(s.RecordPath("0123abcd"), []byte(content), 0o600))
		_, err := s.Read(ctx, "0123abcd")
		bad, ok := errors.AsType[*store.DamagedError](err)
		if !ok {
			t.Fatalf("%q was read: %v", content, err)
		}
		if bad.ID != "0123abcd" || bad.Reason == "" || !strings.HasPrefix(filepath.Base(bad.Path), "damaged_session_0123abcd_") {
			t.Errorf("%+v", bad)
		}
		kept, err := os.ReadFile(bad.Path)
		must(t, err)
		if string(kept) != content {
			t.Errorf("kept %q of %q", kept, content)
		}
		if got := asides(t, s, "damaged_session_0123abcd_"); len(got) != n+1 {
			t.Errorf("%d were set aside, %v", n+1, got)
		}
		if _, err := s.Read(ctx, "0123abcd"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the second read: %v", err)
		}
	}
	for range s.List(ctx) {
		t.Error("what was set aside is listed as a record")
	}
}

// What is written over is kept first, whatever it is; what this store wrote
// itself, even if it was copied or touched, is not.
func TestWriteKeepsWhatIsNotItsOwn(t *testing.T) {
	var good []byte
	foreign := []byte("{\n  \"n\": 77\n}")
	type state struct {
		name, prefix string
		make         func(t *testing.T, s *Store, path string)
	}
	states := []state{
		{"nothing", "", func(t *testing.T, s *Store, path string) { must(t, os.Remove(path)) }},
		{"its own copied", "", func(t *testing.T, s *Store, path string) {
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.Remove(path))
			must(t, os.WriteFile(path, data, 0o600))
		}},
		{"a good record", "replaced_session_0123abcd_", func(t *testing.T, s *Store, path string) {
			must(t, os.WriteFile(path, good, 0o600))
		}},
		{"a record of nobody's", "replaced_session_0123abcd_", func(t *testing.T, s *Store, path string) {
			must(t, os.WriteFile(path, foreign, 0o600))
		}},
		{"a bad record", "damaged_session_0123abcd_", func(t *testing.T, s *Store, path string) {
			must(t, os.WriteFile(path, foreign[1:], 0o600))
		}},
		{"a folder", "damaged_session_0123abcd_", func(t *testing.T, s *Store, path string) {
			must(t, os.Remove(path))
			must(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
		}},
		{"a link", "damaged_session_0123abcd_", func(t *testing.T, s *Store, path string) {
			target := filepath.Join(filepath.Dir(filepath.Dir(s.dir)), "precious")
			must(t, os.WriteFile(target, foreign, 0o600))
			must(t, os.Remove(path))
			if err := os.Symlink(target, path); err != nil {
				t.Skip(err)
			}
		}},
	}
	for _, c := range states {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			s := open(t, dir, Options{})
			must(t, s.Write(ctx, "0123abcd", numbered(1)))
			path := s.RecordPath("0123abcd")
			var err error
			good, _, err = s.seal("0123abcd", numbered(77))
			must(t, err)
			c.make(t, s, path)
			must(t, s.Write(ctx, "0123abcd", numbered(2)))
			mustRead(t, s, "0123abcd", numbered(2))
			all, err := s.Damaged(ctx)
			must(t, err)
			if c.prefix == "" {
				if len(all) != 0 {
					t.Errorf("%v was set aside", all)
				}
			} else if got := asides(t, s, c.prefix); len(got) != 1 || len(all) != 1 {
				t.Errorf("%v was set aside", all)
			}
			if c.name == "a link" {
				data, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(s.dir)), "precious"))
				if err != nil || string(data) != string(foreign) {
					t.Errorf("the link was followed: %q, %v", data, err)
				}
			}
			noTemps(t, dir)
		})
	}
}

func TestReadFollowsNothing(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "00000001", numbered(1)))
	if err := os.Symlink(s.RecordPath("00000001"), s.RecordPath("0123abcd")); err != nil {
		t.Skip(err)
	}
	must(t, os.Mkdir(s.RecordPath("0123abce"), 0o700))
	for id, kind := range map[string]string{"0123abcd": "a symbolic link", "0123abce": "a folder"} {
		_, err := s.Read(ctx, id)
		bad, ok := errors.AsType[*store.DamagedError](err)
		if !ok || !strings.Contains(bad.Reason, kind) || !exists(bad.Path) || exists(s.RecordPath(id)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	must(t, os.Mkdir(s.RecordPath("0123abcf"), 0o700))
	if err := s.Remove(ctx, "0123abcf"); err == nil || !exists(s.RecordPath("0123abcf")) {
		t.Errorf("a folder was removed: %v", err)
	}
	mustRead(t, s, "00000001", numbered(1))
}

// A reader that finds damage while the owner fixes it must not move the good
// record away.
func TestDamageFoundWhileTheOwnerWrites(t *testing.T) {
	dir := newDir(t)
	owner, reader := open(t, dir, Options{NoSync: true}), open(t, dir, Options{NoSync: true})
	path := owner.RecordPath("0123abcd")
	for n := range 300 {
		must(t, owner.Write(ctx, "0123abcd", numbered(n)))
		// In place, so that a reader may hold the file in any state.
		must(t, os.WriteFile(path, fmt.Appendf(nil, "garbage %d", n), 0o600))
		var wg sync.WaitGroup
		wg.Go(func() {
			body, err := reader.Read(ctx, "0123abcd")
			if _, damaged := errors.AsType[*store.DamagedError](err); err != nil && !damaged && !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			} else if err == nil && string(body) != string(numbered(n+1000)) {
				t.Errorf("read %q", body)
			}
		})
		wg.Go(func() {
			if err := owner.Write(ctx, "0123abcd", numbered(n+1000)); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		mustRead(t, reader, "0123abcd", numbered(n+1000))
	}
	noTemps(t, dir)
}

// A reader has found damage and waits for the claim lock; what it says depends
// on what became of the file meanwhile.
func TestDamageThatIsGone(t *testing.T) {
	for _, c := range []string{"set aside by another", "mended by its owner", "removed"} {
		t.Run(c, func(t *testing.T) {
			dir := newDir(t)
			a, b := open(t, dir, Options{}), open(t, dir, Options{})
			must(t, a.Write(ctx, "0123abcd", numbered(1)))
			path := a.RecordPath("0123abcd")
			must(t, os.WriteFile(path, []byte("garbage"), 0o600))
			var (
				wg   sync.WaitGroup
				body []byte
				err  error
				left string
			)
			wants := make(chan struct{}) // closed when the reader wants the claim lock
			b.makeFolder = sync.OnceValue(func() error { close(wants); return nil })
			must(t, a.claimed(ctx, false, func() (err2 error) {
				wg.Go(func() { body, err = b.Read(ctx, "0123abcd") })
				<-wants
				switch c {
				case "set aside by another":
					left, err2 = a.setAside(path, "damaged", "session", "0123abcd")
				case "mended by its owner":
					err2 = a.write(ctx, "0123abcd", numbered(2), false)
				default:
					left, err2 = path, os.Remove(path)
				}
				return err2
			}))
			wg.Wait()
			if left == "" {
				if err != nil || string(body) != string(numbered(2)) {
					t.Errorf("read %q, %v", body, err)
				}
				return
			}
			if bad, ok := errors.AsType[*store.DamagedError](err); !ok || bad.Path != left {
				t.Errorf("read %q, %v; want it to be at %s", body, err, left)
			}
		})
	}
}

// The owner writes between a reader's last look and its move: the good record
// goes back to its place.
func TestGoodRecordGoesBack(t *testing.T) {
	dir := newDir(t)
	owner, reader := open(t, dir, Options{}), open(t, dir, Options{})
	must(t, owner.Write(ctx, "0123abcd", numbered(1)))
	path := owner.RecordPath("0123abcd")
	must(t, os.WriteFile(path, []byte("garbage"), 0o600))
	reader.disk.Carry = func(op durable.Op, do func() error) error {
		if op.Do == durable.OpMove && op.Path == path {
			must(t, owner.Write(ctx, "0123abcd", numbered(2)))
		}
		return do()
	}
	mustRead(t, reader, "0123abcd", numbered(2))
	if got := asides(t, owner, ""); len(got) != 1 {
		t.Errorf("set aside %v", got) // the garbage, by the owner
	}
	must(t, owner.Write(ctx, "0123abcd", numbered(3)))
	if got := asides(t, owner, ""); len(got) != 1 {
		t.Errorf("set aside %v", got)
	}
}

// Two servers find the same damage: both say so, it is set aside once.
func TestDamageFoundTwice(t *testing.T) {
	dir := newDir(t)
	a, b := open(t, dir, Options{}), open(t, dir, Options{})
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(a.RecordPath("0123abcd"), []byte("garbage"), 0o600))
	var wg sync.WaitGroup
	for _, s := range []*Store{a, b, a, b} {
		wg.Go(func() {
			_, err := s.Read(ctx, "0123abcd")
			bad, ok := errors.AsType[*store.DamagedError](err)
			if !ok && !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
			if ok && !exists(bad.Path) {
				t.Errorf("%s does not exist", bad.Path)
			}
		})
	}
	wg.Wait()
	if got := asides(t, a, ""); len(got) != 1 {
		t.Errorf("set aside %v", got)
	}
}

func TestOversizedFileIsDamage(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "00000001", numbered(1)))
	must(t, os.WriteFile(s.RecordPath("0123abcd"), nil, 0o600))
	if err := os.Truncate(s.RecordPath("0123abcd"), maxRecord+1); err != nil {
		t.Skip(err)
	}
	_, err := s.Read(ctx, "0123abcd")
	if bad, ok := errors.AsType[*store.DamagedError](err); !ok || !strings.Contains(bad.Reason, "over the limit") {
		t.Error(err)
	}
}

// When a write fails at any point before its rename, everything is as it was,
// also what would have been set aside.
func TestFailedWriteMovesNothing(t *testing.T) {
	for _, point := range []string{durable.OpCreate, durable.OpWrite, durable.OpSync} {
		t.Run(point, func(t *testing.T) {
			dir := newDir(t)
			s := open(t, dir, Options{})
			must(t, s.Write(ctx, "0123abcd", numbered(1)))
			must(t, s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return nil, nil })) // which makes the claim lock
			must(t, os.WriteFile(s.RecordPath("00000bad"), []byte("garbage"), 0o600))
			before := tree(t, dir)
			boom := &fs.PathError{Op: "write", Path: "there", Err: noSpace}
			s.disk.Carry = failing(point, boom)
			for what, err := range map[string]error{
				"Write":  s.Write(ctx, "0123abcd", numbered(2)),
				"damage": s.Write(ctx, "00000bad", numbered(2)),
				"Create": s.Create(ctx, "00000001", numbered(2)),
				"Update": s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return numbered(2), nil }),
				"define": s.PutDefinition(ctx, strings.Repeat("a", 64), nil),
			} {
				if !errors.Is(err, boom) || !strings.Contains(err.Error(), "free space on the disk that holds "+map[bool]string{false: dir, true: folder(dir).Definitions()}[what == "define"]) {
					t.Errorf("%s: %v", what, err)
				}
			}
			// The folder's own time moves with every temporary file.
			if after := tree(t, dir); afterFirstLine(after) != afterFirstLine(before) {
				t.Errorf("the folder changed\nfrom %s\nto   %s", before, after)
			}
			s.disk.Carry = nil
			must(t, s.Write(ctx, "0123abcd", numbered(3)))
			mustRead(t, s, "0123abcd", numbered(3))
		})
	}
}

func afterFirstLine(text string) string {
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

// A record that took its place while the sync of its folder failed is this
// store's own: the next write does not take it for somebody else's.
func TestFailedFolderSync(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	boom := errors.New("boom")
	s.disk.Carry = failing(durable.OpSyncDir, boom)
	if err := s.Write(ctx, "0123abcd", numbered(2)); !errors.Is(err, boom) {
		t.Error(err)
	}
	s.disk.Carry = nil
	mustRead(t, s, "0123abcd", numbered(2))
	must(t, s.Write(ctx, "0123abcd", numbered(3)))
	if got := asides(t, s, ""); len(got) != 0 {
		t.Errorf("set aside %v", got)
	}
}
