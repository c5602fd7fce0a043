package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// A stamp tells, by one stat, whether a file is still the one that was written
// or read last; sum, a part of its checksum, settles it when the stat differs.
type stamp struct {
	size, mtime int64
	inode       uint64 // 0 where a stat does not tell
	sum         uint64
}

func stampOf(fi fs.FileInfo) stamp {
	return stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano(), inode: durable.Inode(fi)}
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
func (s *Store) put(ctx context.Context, path string, data []byte, o putOptions) (*stamp, error) {
	for range putTries {
		folder, err := s.enter(ctx)
		var st *stamp
		if err == nil {
			st, err = s.putOnce(ctx, folder, path, data, o)
		}
		switch {
		case st == nil && errors.Is(err, fs.ErrNotExist):
			continue // somebody removed the folder, or the temporary file, in between
		case err != nil && !errors.Is(err, fs.ErrExist):
			err = durable.Explain(err, path)
		}
		return st, err
	}
	return nil, fmt.Errorf("the session folder %s vanishes again and again; stop what removes it and call again", s.dir)
}

func (s *Store) putOnce(ctx context.Context, folder *durable.Folder, path string, data []byte, o putOptions) (*stamp, error) {
	temp, st, err := s.writeTemp(data, o)
	var old *stamp
	if err == nil && o.before != nil {
		old, err = o.before()
	}
	exchanged := false
	if err == nil {
		exchanged, err = s.moveIn(ctx, temp, path, o)
	}
	if err != nil {
		os.Remove(temp) // the write's own error tells more
		return nil, err
	}
	if err := s.at("renamed"); err != nil {
		return &st, fmt.Errorf("%w: %w", store.ErrUnsynced, err)
	}
	if err := folder.Sync(); err != nil {
		// What is at temp may be the record after a crash: it is left alone.
		return &st, fmt.Errorf("%w: %w", store.ErrUnsynced, err)
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
		if f, err = s.disk.Create(temp); err != nil {
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
	if _, err := s.disk.Write(f, data); err != nil {
		return temp, st, err
	}
	if n := int64(len(data)); n < length {
		if err := s.disk.Truncate(f, n); err != nil {
			return temp, st, err
		}
	}
	if err := s.at("written"); err != nil {
		return temp, st, err
	}
	if err := s.disk.Sync(f); err != nil {
		return temp, st, err
	}
	fi, err := f.Stat()
	if err != nil {
		return temp, st, err
	}
	return temp, stampOf(fi), s.at("synced")
}

// moveIn gives the temporary file its name. exchanged tells that what had the
// name stands at temp now.
func (s *Store) moveIn(ctx context.Context, temp, path string, o putOptions) (exchanged bool, err error) {
	if !o.exclusive {
		if s.noExchange.Load() {
			return false, s.disk.Move(temp, path)
		}
		err := s.disk.Exchange(temp, path)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, durable.ErrNoExchange):
			s.noExchange.Store(true)
			return false, s.disk.Move(temp, path)
		case errors.Is(err, fs.ErrNotExist):
			return false, s.disk.Move(temp, path) // there was nothing to exchange with
		}
		return false, err
	}
	err = s.exclusive(temp, path)
	if !errors.Is(err, durable.ErrNoExclusive) {
		return false, err
	}
	// This file system has no exclusive rename and no hard links. Every server
	// finds that out the same way, and so they meet under the claim lock.
	return false, s.claimed(ctx, o.held, func() error {
		return s.moveNew(temp, path)
	})
}

// moveNew moves whatever stands at from to a name that must be free. Where the
// file system cannot tell by itself it looks first, and the caller holds the
// claim lock, or the name is one that nobody else would take.
func (s *Store) moveNew(from, to string) error {
	err := s.exclusive(from, to)
	if !errors.Is(err, durable.ErrNoExclusive) {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.disk.Move(from, to)
}

// remove deletes a file, durably, and without claiming a place: there is
// nothing to own in what is gone.
func (s *Store) remove(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return durable.Explain(err, path)
	}
	if fi.IsDir() {
		return fmt.Errorf("%s is a folder; look what is in it and remove it by hand", path)
	}
	return durable.Explain(s.disk.Drop(path), path)
}

// readTries is how often a file is read that is replaced while it is.
const readTries = 50

// readFile reads a regular file; it follows no link and opens no device. What it
// returns stood at the path, whole, when it was read: a file that is replaced
// meanwhile, and may then be written to as a spare, is read again.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	for try := 1; ; try++ {
		data, fi, err := durable.Read(path, maxRecord)
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
