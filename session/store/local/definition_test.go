package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/session/store"
)

func TestDefinitions(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	hash := hashOf("3")
	if _, err := s.Definition(ctx, hash); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	for _, data := range []string{"", "name: x\n", "\x00\xff", "3"} {
		hash := hashOf(data)
		must(t, s.PutDefinition(ctx, hash, []byte(data)))
		must(t, s.PutDefinition(ctx, hash, []byte("something else")))
		got, err := s.Definition(ctx, hash)
		must(t, err)
		if string(got) != data {
			t.Errorf("got %q, want %q", got, data)
		}
	}
	path := s.definitionPath(hash)
	whole, err := os.ReadFile(path)
	must(t, err)
	for bit := range len(whole) * 8 {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := s.openDefinition(hash, bad); err == nil {
			t.Fatalf("bit %d flipped is not noticed", bit)
		}
	}
	must(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	_, err = s.Definition(ctx, hash)
	bad, ok := errors.AsType[*store.DamagedError](err)
	if !ok || bad.ID != hash || !strings.HasPrefix(filepath.Base(bad.Path), "damaged_definition_"+hash+"_") || !exists(bad.Path) {
		t.Fatalf("a damaged definition: %v", err)
	}
	must(t, os.Mkdir(path, 0o700)) // put aside as well, not trusted for being there
	must(t, s.PutDefinition(ctx, hash, []byte("3")))
	got, err := s.Definition(ctx, hash)
	must(t, err)
	if string(got) != "3" {
		t.Errorf("got %q", got)
	}
}

func TestPruneDefinitionsSparesTheNeededAndThoseOfLate(t *testing.T) {
	s := open(t, newDir(t), Options{})
	needed, late, old := hashOf("needed"), hashOf("late"), hashOf("old")
	long := time.Now().Add(-1000 * time.Hour)
	for _, text := range []string{"needed", "late", "old"} {
		hash := hashOf(text)
		must(t, s.PutDefinition(ctx, hash, []byte(text)))
		must(t, os.Chtimes(s.definitionPath(hash), long, long))
	}
	must(t, s.PutDefinition(ctx, late, []byte("late"))) // put again, for a record that is not written yet
	n, err := s.PruneDefinitions(ctx, time.Now(), func(hash string) bool { return hash == needed })
	must(t, err)
	if n != 1 || exists(s.definitionPath(old)) || !exists(s.definitionPath(needed)) || !exists(s.definitionPath(late)) {
		t.Errorf("%d removed", n)
	}
}
