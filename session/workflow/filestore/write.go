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
	exclusive bool // fs.ErrExist if something stands at the path
	held      bool // the caller holds the claim lock
	// before is called when the new file is synced, before it takes its place; it
	// returns the stamp of what stands there and may go.
	before func() (*stamp, error)
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
	temp, st, err := s.writeTemp(data, o)
	var old *stamp
	if err == nil && o.before != nil {
		old, err = o.before()
	}
	exchanged := false
	if err == nil {
		exchanged, err = s.moveIn(temp, path, o)
	}
	if err != nil {
		os.Remove(temp) // the write's own error tells more
		return nil, err
	}
	if err := s.at("renamed"); err != nil {
		return &st, fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	if !s.o.NoSync {
		if err := carryOut(Op{Do: OpSyncDir, Path: s.dir}, p.folder.sync); err != nil {
			// What is at temp may be the record after a crash: it is left alone.
			return &st, fmt.Errorf("%w: syncing the folder %s: %w", ErrUnsynced, s.dir, err)
		}
	}
	if exchanged {
		s.giveBack(temp, path, old)
	}
	return &st, s.at("dirsynced")
}

// writeTemp makes a file that is on disk, whole, when it returns: a spare one,
// or a new one.
func (s *Store) writeTemp(data []byte, o putOptions) (temp string, st stamp, err error) {
	var f *os.File
	var length int64 // of a spare
	if !o.exclusive {
		if sp, ok := s.takeSpare(); ok {
			if f, length, ok = openSpare(sp); ok {
				temp = sp.path
			} else {
				os.Remove(sp.path) // it has another name by now
			}
		}
	}
	if f == nil {
		temp = filepath.Join(s.dir, fmt.Sprintf("write_%s_%d.tmp", s.server, s.temps.Add(1)))
		err = carryOut(Op{Do: OpCreate, Path: temp}, func() (err error) {
			f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			return err
		})
		if err != nil {
			return temp, st, err
		}
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if err := s.at("opened"); err != nil {
		return temp, st, err
	}
	err = carryOut(Op{Do: OpWrite, Path: temp, File: f, Data: data}, func() error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return temp, st, err
	}
	if n := int64(len(data)); n < length {
		if err := carryOut(Op{Do: OpTruncate, Path: temp, File: f}, func() error { return f.Truncate(n) }); err != nil {
			return temp, st, err
		}
	}
	if err := s.at("written"); err != nil {
		return temp, st, err
	}
	if !s.o.NoSync {
		if err := carryOut(Op{Do: OpSync, Path: temp, File: f}, func() error { return syncData(f) }); err != nil {
			return temp, st, err
		}
	}
	fi, err := f.Stat()
	if err != nil {
		return temp, st, err
	}
	return temp, stampOf(fi), s.at("synced")
}

// moveIn gives the temporary file its name. exchanged tells that what had the
// name stands at temp now.
func (s *Store) moveIn(temp, path string, o putOptions) (exchanged bool, err error) {
	if !o.exclusive {
		replace := func() error {
			return carryOut(Op{Do: OpMove, Path: temp, To: path}, func() error { return replace(temp, path) })
		}
		if s.noExchange.Load() {
			return false, replace()
		}
		err := carryOut(Op{Do: OpExchange, Path: temp, To: path}, func() error { return exchange(temp, path) })
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, errNoExchange):
			s.noExchange.Store(true)
			return false, replace()
		case errors.Is(err, fs.ErrNotExist):
			return false, replace() // there was nothing to exchange with
		}
		return false, err
	}
	err = s.moveExclusive(temp, path)
	if !errors.Is(err, errNoExclusive) {
		return false, err
	}
	// This file system has no exclusive rename and no hard links. Every server
	// finds that out the same way, and so they meet under the claim lock.
	return false, s.claimed(o.held, func() error {
		return s.moveNew(temp, path)
	})
}

// moveNew moves whatever stands at from to a name that must be free. Where the
// file system cannot tell by itself it looks first, and the caller holds the
// claim lock, or the name is one that nobody else would take.
func (s *Store) moveNew(from, to string) error {
	err := s.moveExclusive(from, to)
	if !errors.Is(err, errNoExclusive) {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return carryOut(Op{Do: OpMove, Path: from, To: to}, func() error { return os.Rename(from, to) })
}

// moveExclusive moves a file to a name that must be free, or errNoExclusive.
func (s *Store) moveExclusive(from, to string) error {
	return carryOut(Op{Do: OpMove, Path: from, To: to}, func() error { return s.exclusive(from, to) })
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
	err = carryOut(Op{Do: OpRemove, Path: path}, func() error { return os.Remove(path) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	if err := carryOut(Op{Do: OpSyncDir, Path: s.dir}, sync); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain(fmt.Errorf("syncing the folder %s: %w", s.dir, err), s.dir)
	}
	return nil
}

// A badFileError says why a file that stands there cannot be a record.
type badFileError struct{ reason string }

func (e *badFileError) Error() string { return e.reason }

// readTries is how often a file is read that is replaced while it is.
const readTries = 50

// readFile reads a regular file; it follows no link and opens no device. What it
// returns stood at the path, whole, when it was read: a file that is replaced
// meanwhile, and may then be written to as a spare, is read again.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	for try := 1; ; try++ {
		data, fi, err := readOnce(path)
		now, lerr := os.Lstat(path)
		switch {
		case fi != nil && lerr == nil && os.SameFile(fi, now) && stampOf(fi).sameFile(stampOf(now)):
			return data, fi, err
		case fi == nil:
			return nil, nil, err
		case lerr != nil:
			return nil, nil, lerr
		case try == readTries:
			return nil, nil, fmt.Errorf("%s is being replaced all the time; try again", path)
		}
	}
}

// readOnce reads what stands at a path; its FileInfo is from before the reading,
// and nil where nothing could be opened.
func readOnce(path string) ([]byte, fs.FileInfo, error) {
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
		return nil, fi, &badFileError{fmt.Sprintf("it has %d bytes, over the limit of %d", fi.Size(), maxRecord)}
	}
	data := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fi, &badFileError{"it shrank while it was read"}
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
