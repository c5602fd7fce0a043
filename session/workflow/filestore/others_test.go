package filestore

import (
	"os"
	"testing"
)

// The mark of who has entered changes with every server that does, and with
// nothing else; and a server knows whether it is alone.
func TestWhoElseIsInTheFolder(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(dir, Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	mark := func(s *Store) int64 {
		m, err := s.Entered()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	alone := func(s *Store, want bool) {
		t.Helper()
		if is, err := s.Alone(); err != nil || is != want {
			t.Errorf("alone: %v, %v", is, err)
		}
	}
	first, second, third := open(), open(), open()
	if _, err := first.Entered(); err == nil {
		t.Error("nobody has entered, and that was told")
	}
	must(t, first.Create("0000000a", numbered(1)))
	before := mark(first)
	for n := range 5 {
		must(t, first.Write("0000000a", numbered(n)))
	}
	if now := mark(first); now != before {
		t.Errorf("writing changed the mark from %d to %d", before, now)
	}
	alone(first, true)
	seen := map[int64]bool{before: true}
	for i, s := range []*Store{second, third} { // at once, however coarse the clock is
		must(t, s.Create([]string{"0000000b", "0000000c"}[i], numbered(1)))
		if m := mark(first); seen[m] {
			t.Errorf("server %d has entered, and the mark is an old one", i+2)
		} else {
			seen[m] = true
		}
	}
	alone(first, false)
	must(t, second.Close())
	alone(first, false)
	must(t, third.Close())
	alone(first, true)
	alone(open(), false)
	must(t, os.RemoveAll(dir))
	if _, err := first.Entered(); err == nil {
		t.Error("the folder is gone, and a mark was told")
	}
}

// A server that looked dead for a while may have been overlooked by one that found
// itself alone: it writes nothing before it has left a mark again.
func TestAMarkThatCannotBeLeftIsTriedAgain(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("open files cannot be removed here")
	}
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Write("0123abcd", numbered(1)))
	before, err := s.Entered()
	must(t, err)
	must(t, os.Remove(s.presence.Path(s.Server())))
	path := s.claim.Path
	s.hook = func(point string) error {
		if point == "lock file" {
			s.claim.Path = "\x00"
		}
		return nil
	}
	if err := s.Write("0123abcd", numbered(2)); err == nil {
		t.Error("it wrote without a mark")
	}
	s.hook, s.claim.Path = nil, path
	must(t, s.Write("0123abcd", numbered(2)))
	if now, err := s.Entered(); err != nil || now == before {
		t.Errorf("the mark is the old one, %v", err)
	}
}
