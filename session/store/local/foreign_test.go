package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/state"
	"deepwork/session/store"
)

// What was not sealed here is never read, never set aside and never written over.
func TestForeignRecordsAreLeftAlone(t *testing.T) {
	sealed := func(t *testing.T, s *Store, id string) string {
		data, _, err := s.seal(id, numbered(1))
		must(t, err)
		return string(data)
	}
	plain := func(body string) string {
		return fmt.Sprintf("%s,\n  \"checksum\": \"sha256:%x\"\n}", body, sha256.Sum256([]byte(body)))
	}
	for _, c := range []struct {
		name, reason string
		make         func(t *testing.T, s *Store) string
	}{
		{"of an earlier version", "earlier version", func(*testing.T, *Store) string { return plain("{\n  \"n\": 1") }},
		{"without a seal", "no seal", func(*testing.T, *Store) string { return "{\n  \"n\": 1\n}" }},
		{"edited", "altered", func(t *testing.T, s *Store) string { return strings.Replace(sealed(t, s, "0123abcd"), "1", "2", 1) }},
		{"edited, with a checksum that is right", "earlier version", func(t *testing.T, s *Store) string {
			body, _, _ := strings.Cut(sealed(t, s, "0123abcd"), ",\n  \"checksum\"")
			return plain(body)
		}},
		{"another session's", "another project or file", func(t *testing.T, s *Store) string { return sealed(t, s, "0123abce") }},
		{"another project's", "another project", func(t *testing.T, s *Store) string {
			return sealed(t, open(t, newDir(t), Options{}), "0123abcd")
		}},
		{"another installation's", "another installation", func(t *testing.T, s *Store) string {
			here := os.Getenv(state.Env)
			t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
			defer os.Setenv(state.Env, here)
			return sealed(t, open(t, s.dir, Options{}), "0123abcd")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			s := open(t, dir, Options{})
			must(t, s.Write(ctx, "00000001", numbered(1)))
			path := s.RecordPath("0123abcd")
			content := c.make(t, s)
			must(t, os.WriteFile(path, []byte(content), 0o600))
			_, read := s.Read(ctx, "0123abcd")
			_, peek := s.Peek(ctx, "0123abcd")
			for what, err := range map[string]error{
				"Read": read, "Peek": peek, "Write": s.Write(ctx, "0123abcd", numbered(3)),
				"Update": s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { t.Error("it was shown"); return nil, nil }),
			} {
				foreign, ok := errors.AsType[*store.ForeignError](err)
				if !ok || foreign.ID != "0123abcd" || foreign.Path != path || !strings.Contains(foreign.Reason, c.reason) {
					t.Errorf("%s: %v, want %q", what, err, c.reason)
				}
			}
			if err := s.Create(ctx, "0123abcd", numbered(3)); !errors.Is(err, store.ErrExists) {
				t.Errorf("Create: %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != content || len(asides(t, s, "")) != 0 {
				t.Errorf("it was touched: %q, %v", now, err)
			}

			file, reason, err := s.Foreign(ctx, "0123abcd")
			if err != nil || string(file) != content || !strings.Contains(reason, c.reason) {
				t.Errorf("it is shown as %q, %q, %v", file, reason, err)
			}
			if err := s.Adopt(ctx, "0123abcd", []byte("what was shown before"), numbered(4)); err == nil {
				t.Error("another file than was shown is adopted")
			}
			must(t, s.Adopt(ctx, "0123abcd", file, numbered(4)))
			mustRead(t, open(t, dir, Options{}), "0123abcd", numbered(4))
			if _, reason, err := s.Foreign(ctx, "0123abcd"); err != nil || reason != "" || len(asides(t, s, "")) != 0 {
				t.Errorf("once it was adopted: %q, %v", reason, err)
			}
		})
	}
}

// A store that only reads makes no key, and takes no file for its own.
func TestReadingMakesNoKey(t *testing.T) {
	base := filepath.Join(t.TempDir(), "state")
	t.Setenv(state.Env, base)
	dir := newDir(t)
	r := open(t, dir, Options{ReadOnly: true})
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(r.RecordPath("0123abcd"), []byte("{\n  \"n\": 1\n}"), 0o600))
	if _, err := r.Read(ctx, "0123abcd"); !errors.As(err, new(*store.ForeignError)) {
		t.Error(err)
	}
	if exists(base) {
		t.Error("it made a key")
	}
}

// Servers that begin together have one key.
func TestFirstWritersHaveOneKey(t *testing.T) {
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
	dir := newDir(t)
	var stores [8]*Store
	for n := range stores {
		stores[n] = open(t, dir, Options{NoSync: true})
	}
	var wg sync.WaitGroup
	for n, s := range stores {
		wg.Go(func() {
			if err := s.Create(ctx, fmt.Sprintf("%08x", n), numbered(n)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for n := range stores {
		mustRead(t, stores[len(stores)-1-n], fmt.Sprintf("%08x", n), numbered(n))
	}
}

// A definition that was sealed elsewhere is not used; the same one is put in its place.
func TestForeignDefinitions(t *testing.T) {
	s := open(t, newDir(t), Options{})
	hash := hashOf("text")
	must(t, s.PutDefinition(ctx, hash, []byte("text")))
	path := s.definitionPath(hash)
	good, err := os.ReadFile(path)
	must(t, err)
	earlier := []byte("sha256:" + hash + "\ntext")
	must(t, os.WriteFile(path, earlier, 0o600))
	_, err = s.Definition(ctx, hash)
	if foreign, ok := errors.AsType[*store.ForeignError](err); !ok || foreign.ID != hash {
		t.Errorf("a definition of an earlier version: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, earlier) {
		t.Errorf("it was touched: %q, %v", now, err)
	}
	must(t, s.PutDefinition(ctx, hash, []byte("text")))
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) || len(asides(t, s, "")) != 0 {
		t.Errorf("it was not sealed: %q, %v", now, err)
	}
	must(t, os.Remove(path))
	must(t, os.WriteFile(filepath.Join(s.dir, filepath.Base(path)), earlier, 0o600))
	if got := s.ForeignDefinition(hash); string(got) != "text" {
		t.Errorf("where earlier versions kept it there is %q", got)
	}
	for _, hash := range []string{"../x", hashOf("other")} {
		if got := s.ForeignDefinition(hash); got != nil {
			t.Errorf("the definition %s: %q", hash, got)
		}
	}
}

// A link that takes the place of the folder during a write leads nothing out of the project.
func TestWritesStayInTheFolder(t *testing.T) {
	dir, outside := newDir(t), t.TempDir()
	s := open(t, dir, Options{})
	s.rest = time.Hour // so that each write creates a file
	must(t, s.Write(ctx, "0123abcd", numbered(1)))
	for _, at := range []string{durable.OpCreate, durable.OpMove} {
		s.disk.Carry = func(op durable.Op, do func() error) error {
			if isOp(op, at) && filepath.Dir(op.Path) == dir {
				if err := os.Rename(dir, dir+".away"); err != nil {
					t.Skip(err) // it is open
				}
				must(t, os.Symlink(outside, dir))
			}
			return do()
		}
		for id, write := range map[string]func(context.Context, string, []byte) error{"0123abcd": s.Write, "0000000" + strconv.Itoa(len(at)): s.Create} {
			err := write(ctx, id, numbered(2))
			must(t, os.Remove(dir))
			must(t, os.Rename(dir+".away", dir))
			if left, _ := os.ReadDir(outside); len(left) != 0 {
				t.Fatalf("at %s, %v is outside", at, left)
			}
			if err == nil {
				mustRead(t, s, id, numbered(2))
			}
		}
	}
}
