package local

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
		t.Cleanup(func() { s.Close(ctx) })
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
	must(t, first.Create(ctx, "0000000a", numbered(1)))
	before := mark(first)
	for n := range 5 {
		must(t, first.Write(ctx, "0000000a", numbered(n)))
	}
	if now := mark(first); now != before {
		t.Errorf("writing changed the mark from %d to %d", before, now)
	}
	alone(first, true)
	seen := map[int64]bool{before: true}
	for i, s := range []*Store{second, third} { // at once, however coarse the clock is
		must(t, s.Create(ctx, []string{"0000000b", "0000000c"}[i], numbered(1)))
		if m := mark(first); seen[m] {
			t.Errorf("server %d has entered, and the mark is an old one", i+2)
		} else {
			seen[m] = true
		}
	}
	alone(first, false)
	must(t, second.Close(ctx))
	alone(first, false)
	must(t, third.Close(ctx))
	alone(first, true)
	alone(open(), false)
	must(t, os.RemoveAll(dir))
	if _, err := first.Entered(); err == nil {
		t.Error("the folder is gone, and a mark was told")
	}
}
