package local

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"deepwork/actor/durable"
)

// identified is a record that tells which one it is, of a length of its own.
func identified(id string, n int) []byte {
	return fmt.Appendf(nil, "{\n  \"session_id\": %q,\n  \"n\": %d,\n  \"pad\": %q\n}", id, n, bytes.Repeat([]byte{'x'}, n*37%5000))
}

// Readers that open a record just before it becomes a spare, and is written to
// for another session, never get anything but what stood at its path.
func TestReadersNeverGetASpare(t *testing.T) {
	dir := newDir(t)
	w := open(t, dir, Options{NoSync: true})
	ids := []string{"0000000a", "0000000b", "0000000c"}
	for _, id := range ids {
		must(t, w.Create(ctx, id, identified(id, 0)))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 6 {
		id := ids[i%len(ids)]
		r := open(t, dir, Options{ReadOnly: i%2 == 0})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				body, err := r.Read(ctx, id)
				if err != nil {
					t.Errorf("reading %s: %v", id, err)
					return
				}
				if want := fmt.Appendf(nil, "{\n  \"session_id\": %q,", id); !bytes.HasPrefix(body, want) {
					t.Errorf("reading %s gave %.60s", id, body)
					return
				}
			}
		})
	}
	for n := range 3000 {
		id := ids[n%len(ids)]
		must(t, w.Write(ctx, id, identified(id, n)))
	}
	close(stop)
	wg.Wait()
	if aside, err := w.Damaged(ctx); err != nil || len(aside) != 0 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	noTemps(t, dir)
}

// A second name that somebody gave a record keeps what it had.
func TestAFileWithTwoNamesIsNoSpare(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Create(ctx, "0123abcd", numbered(1)))
	backup := filepath.Join(t.TempDir(), "backup")
	must(t, os.Link(s.recordPath("0123abcd"), backup))
	before, err := os.ReadFile(backup)
	must(t, err)
	for n := range 10 {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	after, err := os.ReadFile(backup)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the backup was written to")
	}
	noTemps(t, dir)
}

func TestSparesAreUsedAndBounded(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{NoSync: true})
	if err := exchangeWorks(t); err != nil {
		t.Skip("this file system cannot exchange names: ", err)
	}
	must(t, s.Create(ctx, "0123abcd", numbered(0)))
	for n := range 100 {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	if made := s.temps.Load(); made > 2 {
		t.Errorf("%d files were made for one record", made)
	}
	s.rest = spareRest * 1000 // none rests long enough
	for n := range 3 * keptSpares {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	if n := len(s.spares); n != keptSpares {
		t.Errorf("%d spares are kept", n)
	}
	noTemps(t, dir)
	mustRead(t, s, "0123abcd", numbered(3*keptSpares-1))
}

func exchangeWorks(t *testing.T) error {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	must(t, os.WriteFile(a, nil, 0o600))
	must(t, os.WriteFile(b, nil, 0o600))
	return durable.Disk{}.Exchange(a, b)
}
