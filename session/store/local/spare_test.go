package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// identified is a record that contains its id, with a length that depends on n.
func identified(id string, n int) []byte {
	return fmt.Appendf(nil, "{\n  \"session_id\": %q,\n  \"n\": %d,\n  \"pad\": %q\n}", id, n, bytes.Repeat([]byte{'x'}, n*37%5000))
}

// A reader that opens a record just before it becomes a spare, and is overwritten with another
// session's record, never returns anything but a record of its own session.
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
				body, err := r.Peek(ctx, id)
				if err != nil {
					t.Errorf("reading %s: %v", id, err)
					return
				}
				if want := fmt.Appendf(nil, "{\n  \"session_id\": %q,", id); !bytes.HasPrefix(body, want) {
					t.Errorf("reading %s returned %.60s", id, body)
					return
				}
			}
		})
	}
	for n := range 2000 {
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

// A second name that somebody gave a record keeps its content.
func TestAFileWithTwoNamesIsNoSpare(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Create(ctx, "0123abcd", numbered(1)))
	must(t, s.Write(ctx, "0123abcd", numbered(2)))
	for i, link := range []func(string) error{
		func(to string) error { return os.Link(s.RecordPath("0123abcd"), to) },
		func(to string) error { // after it has become a spare
			if len(s.spares) == 0 {
				t.Skip("this file system cannot exchange names")
			}
			return os.Link(s.spares[0].path, to)
		},
	} {
		backup := filepath.Join(t.TempDir(), "backup")
		must(t, link(backup))
		before, err := os.ReadFile(backup)
		must(t, err)
		for n := range 10 {
			must(t, s.Write(ctx, "0123abcd", numbered(n)))
		}
		after, err := os.ReadFile(backup)
		must(t, err)
		if !bytes.Equal(before, after) {
			t.Errorf("backup %d was overwritten", i)
		}
	}
	noTemps(t, dir)
}

// A file is overwritten only if no loss of power can make it a record again: the folder was synced
// after the exchange.
func TestASpareIsNoRecordOnDisk(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{})
	must(t, s.Create(ctx, "0123abcd", numbered(1)))
	boom := errors.New("boom")
	s.disk.Carry = failing(durable.OpSyncDir, boom)
	if err := s.Write(ctx, "0123abcd", numbered(2)); !errors.Is(err, store.ErrUnsynced) {
		t.Fatal(err)
	}
	var ops []string
	s.disk.Carry = func(op durable.Op, do func() error) error {
		if strings.HasPrefix(op.Path, dir) {
			ops = append(ops, op.Do)
		}
		return do()
	}
	for n := range 3 {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	mustRead(t, s, "0123abcd", numbered(2))
	if s.noExchange.Load() {
		t.Skip("this file system cannot exchange names")
	}
	first := []string{durable.OpCreate, durable.OpWrite, durable.OpSync, durable.OpExchange, durable.OpSyncDir}
	if want := append(first, append(first[1:], first[1:]...)...); fmt.Sprint(ops) != fmt.Sprint(want) {
		t.Errorf("the writes did %v, want %v", ops, want)
	}
}

func TestSparesAreUsedAndBounded(t *testing.T) {
	dir := newDir(t)
	s := open(t, dir, Options{NoSync: true})
	must(t, s.Create(ctx, "0123abcd", numbered(0)))
	for n := range 100 {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	if s.noExchange.Load() {
		t.Skip("this file system cannot exchange names")
	}
	if made := s.temps.Load(); made > 2 {
		t.Errorf("%d files were made for one record", made)
	}
	s.rest = time.Hour // no spare rests long enough
	for n := range 3 * maxSpares {
		must(t, s.Write(ctx, "0123abcd", numbered(n)))
	}
	if n := len(s.spares); n != maxSpares {
		t.Errorf("%d spares are kept", n)
	}
	noTemps(t, dir)
	mustRead(t, s, "0123abcd", numbered(3*maxSpares-1))
	must(t, s.Close(ctx))
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("a closed store has left %v", left)
	}
}
