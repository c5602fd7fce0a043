package durable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/wait"
)

// A FileLock is an advisory lock on a file, shared by all processes of the machine. The system
// releases it when the process ends, however it ends.
//
// Never replace a locked file by a rename: a lock on a file that others do not see guards nothing.
// Lock notices a file that was removed or replaced before it was locked, and InPlace reports whether
// that happened later.
type FileLock struct {
	path string
	lock *flock.Flock
	info fs.FileInfo // of the locked file
}

// Lock locks the file at path exclusively, and creates it with mode 0600 if necessary. It blocks until it has
// the lock or ctx ends, and then returns context.Cause(ctx). It returns fs.ErrNotExist if the folder is
// missing, and an error if path is not a regular file. Two Locks in one process exclude each other, too.
func Lock(ctx context.Context, path string) (*FileLock, error) {
	for pause := (wait.Backoff{Min: 500 * time.Microsecond, Max: 15 * time.Millisecond}); ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		l, err := TryLock(path)
		if l != nil || err != nil {
			return l, err
		}

		if err := pause.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// TryLock is Lock without waiting: it returns nil and no error if another process, or another lock
// of this one, holds the lock.
func TryLock(path string) (*FileLock, error) {
	for {
		if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is %s, not a file; move it out of the way and call again", path, Kind(fi.Mode()))
		}

		lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|openNonBlock), flock.SetPermissions(0o600))
		ok, err := lock.TryLock()
		switch {
		case err != nil:
			return nil, Explain(fmt.Errorf("locking %s: %w", path, err), path)
		case !ok:
			return nil, nil
		}

		info, err := lock.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), lock.Close())
		}
		if l := (&FileLock{path, lock, info}); l.InPlace() {
			return l, nil
		}
		lock.Close() // the file was removed or replaced before it was locked
	}
}

// Locked reports whether the file at path is locked, without creating or changing it. A file that is missing
// or not regular is not locked. It holds a shared lock for a moment, so that concurrent calls do not mistake
// each other for the owner.
func Locked(path string) (bool, error) {
	// Opening a named pipe would block.
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return false, nil
	}

	probe := flock.New(path, flock.SetFlag(os.O_RDONLY))
	free, err := probe.TryRLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case free:
		probe.Close()
	}

	return !free, nil
}

// InPlace reports whether the locked file is still the one at its path. It costs one stat.
func (l *FileLock) InPlace() bool {
	fi, err := os.Lstat(l.path)
	return err == nil && os.SameFile(fi, l.info)
}

// Unlock releases the lock and closes the file, which stays.
func (l *FileLock) Unlock() error { return l.lock.Close() }

// Remove removes the file, unless another file has its path, and releases the lock. If the system
// allows it, the file is removed while locked, so that no other process loses a lock that it has
// just acquired.
func (l *FileLock) Remove() error {
	if !l.InPlace() {
		return l.lock.Close()
	}

	err := os.Remove(l.path)
	cerr := l.lock.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(l.path) // Windows does not remove an open file
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, cerr)
}
