package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/session/store"
)

func TestDefinitions(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	hash, other := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	if _, err := s.Definition(hash); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	for _, data := range []string{"", "name: x\n", "\x00\xff"} {
		must(t, s.remove(s.definitionPath(hash)))
		must(t, s.PutDefinition(hash, []byte(data)))
		must(t, s.PutDefinition(hash, []byte("something else")))
		got, err := s.Definition(hash)
		must(t, err)
		if string(got) != data {
			t.Errorf("got %q, want %q", got, data)
		}
	}
	must(t, s.PutDefinition(other, []byte("2")))
	if got := slices.Sorted(s.Definitions()); !slices.Equal(got, []string{hash, other}) {
		t.Errorf("definitions %v", got)
	}
	path := s.definitionPath(hash)
	whole, err := os.ReadFile(path)
	must(t, err)
	for bit := range len(whole) * 8 {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := openDefinition(bad); err == nil {
			t.Fatalf("bit %d flipped is not noticed", bit)
		}
	}
	must(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	_, err = s.Definition(hash)
	bad, ok := errors.AsType[*store.DamagedError](err)
	if !ok || bad.ID != hash || !strings.HasPrefix(filepath.Base(bad.Path), "damaged_definition_"+hash+"_") || !exists(bad.Path) {
		t.Fatalf("a damaged definition: %v", err)
	}
	must(t, os.Mkdir(path, 0o700)) // put aside as well, not trusted for being there
	must(t, s.PutDefinition(hash, []byte("3")))
	got, err := s.Definition(hash)
	must(t, err)
	if string(got) != "3" {
		t.Errorf("got %q", got)
	}
}

func TestPruneDefinitionsSparesTheNeededAndThoseOfLate(t *testing.T) {
	s := open(t, newDir(t), Options{})
	needed, late, old := strings.Repeat("0a", 32), strings.Repeat("0b", 32), strings.Repeat("0c", 32)
	long := time.Now().Add(-1000 * time.Hour)
	for _, hash := range []string{needed, late, old} {
		must(t, s.PutDefinition(hash, []byte("x")))
		must(t, os.Chtimes(s.definitionPath(hash), long, long))
	}
	must(t, s.PutDefinition(late, []byte("x"))) // put again, for a record that is not written yet
	n, err := s.PruneDefinitions(time.Now(), func(hash string) bool { return hash == needed })
	must(t, err)
	if got := slices.Sorted(s.Definitions()); n != 1 || !slices.Equal(got, []string{needed, late}) {
		t.Errorf("%d removed, left %v", n, got)
	}
}
