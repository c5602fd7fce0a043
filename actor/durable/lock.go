package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A BadFileError says why a file at a path is not usable.
type BadFileError struct {
	Path   string
	Reason string // refers to the file as "it"
}

// Error names the file and says what is wrong with it.
func (e *BadFileError) Error() string { return e.Path + " cannot be read: " + e.Reason }

// Read returns the content of a regular file of at most limit bytes, and its FileInfo from before
// it was read. It follows no link, opens no device and does not block on a pipe. Data appended
// meanwhile is left out. It returns a *BadFileError for anything else at path, with the FileInfo if
// it could be opened, or the system's error.
func Read(path string, limit int64) ([]byte, fs.FileInfo, error) {
	// Check before opening it, since opening a device can have effects, and afterwards, since another file
	// may have the name by then.
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, &BadFileError{path, "it is " + Kind(fi.Mode()) + ", not a file"}
	}
	f, fi, err := OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if fi.Size() > limit {
		return nil, fi, &BadFileError{path, fmt.Sprintf("it has %d bytes, over the limit of %d", fi.Size(), limit)}
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fi, &BadFileError{path, "it shrank while it was read"}
	} else if err != nil {
		return nil, nil, err
	}

	return data, fi, nil
}

// OpenRegular opens an existing regular file with os.O_RDONLY, os.O_WRONLY or os.O_RDWR, and
// returns its FileInfo. A link that has replaced it, or a pipe, is an error.
func OpenRegular(path string, flag int) (*os.File, fs.FileInfo, error) {
	return regular(os.OpenFile(path, flag|openNoFollow, 0))
}

// OpenRegularIn is OpenRegular for a file in an opened folder.
func OpenRegularIn(dir *os.Root, name string, flag int) (*os.File, fs.FileInfo, error) {
	return regular(dir.OpenFile(name, flag|openNoFollow, 0))
}

func regular(f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}

	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &BadFileError{f.Name(), "it is " + Kind(fi.Mode()) + ", not a file"}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// Kind returns the name of a file type for people: "a folder", "a named pipe".
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}

	return "something special"
}
