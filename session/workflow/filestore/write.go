package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A stamp tells, by one stat, whether a file is still the one that was written
// or read last; sum, a part of its checksum, settles it when the stat differs.
type stamp struct {
	size, mtime int64
	inode       uint64 // 0 where a stat does not tell
	sum         uint64
}

func stampOf(fi fs.FileInfo) stamp {
	return stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano(), inode: inode(fi)}
}

func (a stamp) sameFile(b stamp) bool {
	return a.size == b.size && a.mtime == b.mtime && a.inode == b.inode
}

// putTries is how often a write is tried when the folder vanishes under it.
const putTries = 3

type putOptions struct {
	exclusive bool         // fs.ErrExist if something stands at the path
	held      bool         // the caller holds the claim lock
	before    func() error // called when the new file is synced, before it takes its place
}

// put makes data the content of path, durably. With an error it returns a stamp
// if the file took its place nevertheless.
func (s *Store) put(path string, data []byte, o putOptions) (*stamp, error) {
	for try := 1; ; try++ {
		p, err := s.enter(o.held)
		if err != nil {
			return nil, err
		}
		st, err := s.putOnce(p, path, data, o)
		s.leave(p)
		// Somebody removed the folder, or the temporary file, in between.
		if st == nil && errors.Is(err, fs.ErrNotExist) && try < putTries {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = explain(err, path)
		}
		return st, err
	}
}

func (s *Store) putOnce(p *place, path string, data []byte, o putOptions) (*stamp, error) {
	temp := filepath.Join(s.dir, fmt.Sprintf("write_%s_%d.tmp", s.server, s.temps.Add(1)))
	st, err := s.writeTemp(temp, data)
	if err == nil && o.before != nil {
		err = o.before()
	}
	if err == nil {
		err = s.moveIn(temp, path, o)
	}
	if err != nil {
		os.Remove(temp) // the write's own error tells more
		return nil, err
	}
	if err := s.at("renamed"); err != nil {
		return &st, err
	}
	if !s.o.NoSync {
		if err := p.folder.sync(); err != nil {
			return &st, fmt.Errorf("syncing the folder %s: %w", s.dir, err)
		}
	}
	return &st, s.at("dirsynced")
}

// writeTemp makes a new file that is on disk, whole, when it returns.
func (s *Store) writeTemp(temp string, data []byte) (st stamp, err error) {
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return st, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if err := s.at("opened"); err != nil {
		return st, err
	}
	if _, err := f.Write(data); err != nil {
		return st, err
	}
	if err := s.at("written"); err != nil {
		return st, err
	}
	if !s.o.NoSync {
		if err := f.Sync(); err != nil {
			return st, err
		}
	}
	fi, err := f.Stat()
	if err != nil {
		return st, err
	}
	return stampOf(fi), s.at("synced")
}

// moveIn gives the temporary file its name.
func (s *Store) moveIn(temp, path string, o putOptions) error {
	if !o.exclusive {
		return replace(temp, path)
	}
	err := s.exclusive(temp, path)
	if !errors.Is(err, errNoExclusive) {
		return err
	}
	// This file system has no exclusive rename and no hard links. Every server
	// finds that out the same way, and so they meet under the claim lock.
	return s.claimed(o.held, func() error {
		return s.moveNew(temp, path)
	})
}

// moveNew moves whatever stands at from to a name that must be free. Where the
// file system cannot tell by itself it looks first, and the caller holds the
// claim lock, or the name is one that nobody else would take.
func (s *Store) moveNew(from, to string) error {
	err := s.exclusive(from, to)
	if !errors.Is(err, errNoExclusive) {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}

// remove deletes a file, durably, and without claiming a place: there is
// nothing to own in what is gone.
func (s *Store) remove(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err, path)
	}
	if fi.IsDir() {
		return fmt.Errorf("%s is a folder; look what is in it and remove it by hand", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain(err, path)
	}
	if s.o.NoSync {
		return nil
	}
	sync := func() error { return syncPath(s.dir) }
	if p := s.current(); p != nil {
		defer s.leave(p)
		if s.stands(p) {
			sync = p.folder.sync
		}
	}
	if err := sync(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain(fmt.Errorf("syncing the folder %s: %w", s.dir, err), s.dir)
	}
	return nil
}

// A badFileError says why a file that stands there cannot be a record.
type badFileError struct{ reason string }

func (e *badFileError) Error() string { return e.reason }

// readFile reads a regular file; it follows no link and opens no device.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, &badFileError{"it is " + kindOf(fi.Mode()) + ", not a file"}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openNoFollow, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	// Asked again of what was opened: the name may have passed to another file.
	if fi, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, &badFileError{"it is " + kindOf(fi.Mode()) + ", not a file"}
	}
	if fi.Size() > maxRecord {
		return nil, nil, &badFileError{fmt.Sprintf("it has %d bytes, over the limit of %d", fi.Size(), maxRecord)}
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, &badFileError{"it shrank while it was read"}
	} else if err != nil {
		return nil, nil, err
	}
	return data, fi, nil
}

func kindOf(m fs.FileMode) string {
	switch {
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
