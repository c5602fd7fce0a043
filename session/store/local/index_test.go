package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"deepwork/session/store"
)

// keyNumber is the key of call n.
func keyNumber(n int) store.Key { return store.Key{1, byte(n >> 16), byte(n >> 8), byte(n)} }

// withKeys makes each record, as numbered makes them, one with the reply to the call of
// its number.
func withKeys(o Options) Options {
	o.Keys = func(_ string, body []byte) []store.Key {
		n := 0
		if i := bytes.Index(body, []byte(`"n": `)); i >= 0 {
			fmt.Sscan(string(body[i+5:]), &n)
		}
		return []store.Key{keyNumber(n)}
	}
	return o
}

func wantSessions(t testing.TB, s *Store, n int, want ...string) {
	t.Helper()
	if got, err := s.FindRequest(ctx, keyNumber(n)); err != nil || !slices.Equal(got, want) {
		t.Errorf("call %d was noted for %v, %v; want %v", n, got, err, want)
	}
}

func id(n int) string { return fmt.Sprintf("%08x", n) }

// What one server notes others find, also one that comes later, and whatever happens to
// the file.
func TestRequestsAreFound(t *testing.T) {
	dir := newDir(t)
	a, b := open(t, dir, withKeys(Options{})), open(t, dir, withKeys(Options{}))
	wantSessions(t, a, 1)
	if exists(dir) {
		t.Error("a lookup made the folder")
	}
	for n := 1; n <= 5; n++ {
		must(t, a.Create(ctx, id(n), numbered(n)))
	}
	path := filepath.Join(folder(dir).Servers(), indexName)
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"from the start", func() error { return nil }},
		{"missing", func() error { return os.Remove(path) }},
		{"empty", func() error { return os.Truncate(path, 0) }},
		{"cut off", func() error { return os.Truncate(path, indexLineSize*2-3) }},
		{"damaged", func() error {
			data, err := os.ReadFile(path)
			data[indexLineSize+3] ^= 1
			return errors.Join(err, os.WriteFile(path, data, 0o600))
		}},
		{"of something else", func() error { return os.WriteFile(path, []byte("x\n"), 0o600) }},
		{"without a beginning", func() error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, data[indexLineSize:2*indexLineSize], 0o600))
		}},
	} {
		must(t, c.do())
		late := open(t, dir, withKeys(Options{}))
		for _, s := range []*Store{late, a, b} {
			for n := 1; n <= 5; n++ {
				wantSessions(t, s, n, id(n))
			}
		}
		if t.Failed() {
			t.Fatal(c.what)
		}
	}
	must(t, b.NoteRequest(ctx, keyNumber(3), id(30))) // again, in another session
	must(t, b.NoteRequest(ctx, keyNumber(3), id(30)))
	wantSessions(t, a, 3, id(30), id(3))
	// By a caller that has the claim lock, too.
	must(t, a.Update(ctx, id(1), func([]byte) ([]byte, error) {
		return nil, errors.Join(os.Remove(path), a.NoteRequest(ctx, keyNumber(9), id(1)))
	}))
	wantSessions(t, b, 9, id(1))
	if err := a.NoteRequest(ctx, keyNumber(3), "x"); err == nil {
		t.Error("no session id was noted")
	}
}

// The lines that a crash of the machine has lost are found in the records.
func TestRequestsThatTheMachineLost(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, withKeys(Options{}))
	for n := range 3 {
		must(t, s.Create(ctx, id(n), numbered(n)))
		must(t, s.NoteRequest(ctx, keyNumber(n), id(n)))
	}
	path := filepath.Join(folder(dir).Servers(), indexName)
	data, err := os.ReadFile(path)
	must(t, err)
	boot := indexLine(bootKey, bootNumber())
	if !bytes.Contains(data, boot) {
		t.Fatalf("%s", data)
	}
	data = bytes.Replace(data, boot, indexLine(bootKey, bootNumber()+1), 1)
	must(t, os.WriteFile(path, data[:len(data)-indexLineSize], 0o600))
	late := open(t, dir, withKeys(Options{}))
	for n := range 3 {
		wantSessions(t, late, n, id(n))
	}
	if bootNumber() == 0 {
		t.Skip("the start of the machine is not known")
	}
	made, err := os.Stat(path)
	must(t, err)
	wantSessions(t, open(t, dir, withKeys(Options{})), 2, id(2))
	if now, err := os.Stat(path); err != nil || !os.SameFile(made, now) {
		t.Error("it was made again without need")
	}
}

// Servers that note at the same time, while the file is made again and again, lose nothing.
func TestRequestsOfManyServers(t *testing.T) {
	dir := newDir(t)
	var wg sync.WaitGroup
	const each = 100
	for w := range 4 {
		s := open(t, dir, withKeys(Options{NoSync: true}))
		wg.Go(func() {
			for i := range each {
				n := 1 + w*each + i
				if err := s.NoteRequest(ctx, keyNumber(n), id(n)); err != nil {
					t.Error(err)
				}
				if i%25 == 24 {
					s.requests.mu.Lock()
					err := s.rebuildIndex(ctx, &s.requests, false)
					s.requests.mu.Unlock()
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	s := open(t, dir, withKeys(Options{}))
	for n := 1; n <= 4*each; n++ {
		wantSessions(t, s, n, id(n))
	}
}

// The index of active sessions stays small, and is made from the records where it is lost: the one
// written last is the newest.
func TestTheIndexOfActiveSessionsIsMadeAgain(t *testing.T) {
	dir, caller := newDir(t), store.Key{9}
	o := Options{NoSync: true, Head: func(body []byte) store.Head {
		return store.Head{Caller: caller, Active: !bytes.Contains(body, []byte(`"n": 2`))}
	}}
	s := open(t, dir, o)
	for n := range 4 {
		must(t, s.Create(ctx, id(n), numbered(n)))
		at := time.Now().Add(-time.Duration(n) * time.Hour)
		must(t, os.Chtimes(s.RecordPath(id(n)), at, at))
	}
	list := func(s *Store) (got []string) {
		t.Helper()
		for id, err := range s.Active(ctx, caller) {
			must(t, err)
			got = append(got, id)
		}
		return got
	}
	for _, damage := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.Truncate(path, indexLineSize-3) },
		func(path string) error { return os.WriteFile(path, []byte("x\n"), 0o600) },
	} {
		if got := list(open(t, dir, o)); !slices.Equal(got, []string{id(0), id(1), id(3)}) {
			t.Errorf("made from the records: %v", got)
		}
		must(t, damage(s.active.log.path))
	}
	for n := range 3 * activeGrowth {
		must(t, s.NoteActive(ctx, caller, id(n%5), n%5 == 4))
	}
	want := []string{id(3), id(2), id(1), id(0)}
	for _, s := range []*Store{s, open(t, dir, o)} {
		if got := list(s); !slices.Equal(got, want) {
			t.Errorf("of many lines: %v, want %v", got, want)
		}
	}
	if fi, err := os.Stat(s.active.log.path); err != nil || fi.Size() > 2*activeGrowth*indexLineSize {
		t.Errorf("the file has %d bytes, %v", fi.Size(), err)
	}
}

// BenchmarkFindRequest is the first lookup of a server in a project with 20,000
// sessions, and those that follow.
func BenchmarkFindRequest(b *testing.B) {
	dir := newDir(b)
	s, err := Open(folder(dir), withKeys(Options{NoSync: true}))
	must(b, err)
	defer s.Close(ctx)
	for n := range 20_000 {
		must(b, s.NoteRequest(ctx, keyNumber(n), id(n)))
		must(b, s.Create(ctx, id(n), numbered(n)))
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			s, err := Open(folder(dir), withKeys(Options{NoSync: true}))
			must(b, err)
			wantSessions(b, s, 7, id(7))
			must(b, s.Close(ctx))
		}
	})
	wantSessions(b, s, 7, id(7))
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			wantSessions(b, s, 7, id(7))
		}
	})
}
