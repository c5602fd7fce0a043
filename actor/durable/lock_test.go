package durable_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
)

func TestLockExcludesUntilItIsUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	if locked, err := durable.Locked(path); locked || err != nil {
		t.Fatalf("Locked of a missing file = %v, %v", locked, err)
	}
	first := testkit.Get(durable.Lock(t.Context(), path)).Must(t)
	second, err := durable.TryLock(path)
	testkit.Need(t, second == nil && err == nil, "TryLock of a locked file = %v, %v", second, err)
	if locked, err := durable.Locked(path); !locked || err != nil {
		t.Fatalf("Locked of a locked file = %v, %v", locked, err)
	}
	reason := errors.New("enough waited")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, reason)
	defer cancel()
	if _, err := durable.Lock(ctx, path); !errors.Is(err, reason) {
		t.Fatalf("Lock of a locked file = %v, want %v", err, reason)
	}
	got := make(chan error, 1)
	go func() {
		l, err := durable.Lock(t.Context(), path)
		if err == nil {
			err = l.Remove()
		}
		got <- err
	}()
	testkit.Must(t, first.Unlock())
	testkit.Must(t, <-got)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the file after Remove: %v", err)
	}
}

func TestLockNoticesThatItsFileWasReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	l := testkit.Get(durable.Lock(t.Context(), path)).Must(t)
	defer l.Unlock()
	testkit.True(t, l.InPlace(), "a lock just taken is not in place")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Skip("an open file cannot be renamed here:", err)
	}
	testkit.True(t, !l.InPlace(), "a lock whose file has gone is in place")
}

func TestLockRefusesWhatIsNoFile(t *testing.T) {
	testkit.Fails(t, testkit.Get(durable.Lock(t.Context(), t.TempDir())).Err(), "", "a folder was locked")
	testkit.FailsWith(t, testkit.Get(durable.Lock(t.Context(), filepath.Join(t.TempDir(), "missing", "a.lock"))).Err(), os.ErrNotExist, "Lock in a missing folder")
}
