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
	testkit.Equal(t, testkit.Get(durable.Locked(path)).Must(t), false, "a missing file is locked")
	first := testkit.Get(durable.Lock(t.Context(), path)).Must(t)
	testkit.True(t, testkit.Get(durable.TryLock(path)).Must(t) == nil, "TryLock of a locked file")
	testkit.Equal(t, testkit.Get(durable.Locked(path)).Must(t), true, "a locked file is locked")
	reason := errors.New("enough waited")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, reason)
	defer cancel()
	testkit.FailsWith(t, testkit.Get(durable.Lock(ctx, path)).Err(), reason, "Lock of a locked file")
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
	testkit.FailsWith(t, testkit.Get(os.Lstat(path)).Err(), os.ErrNotExist, "the file after Remove")
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
