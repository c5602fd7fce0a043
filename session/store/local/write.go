package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/store"
)

// A stamp detects, by one stat, whether a file is still the one last written or read; sum, a part
// of its checksum, decides if the stat differs.
type stamp struct {
	size, mtime int64
	inode       uint64 // 0 if a stat does not have it
	sum         uint64
}

func stampOf(fi fs.FileInfo) stamp {
	return stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano(), inode: durable.Inode(fi)}
}

func (a stamp) sameFile(b stamp) bool {
	return a.size == b.size && a.mtime == b.mtime && a.inode == b.inode
}

// putTries is how often a write is tried if the folder vanishes.
const putTries = 3

// put makes data the content of path, durably; move renames the new file after its sync. With an
// error it returns a stamp if the file is nevertheless in place.
func (s *Store) put(ctx context.Context, path string, data []byte, move func(d durable.Disk, temp string) error) (st *stamp, err error) {
	for range putTries {
		if err = s.enter(ctx); err == nil {
			st, err = s.putOnce(path, data, move)
		}
		switch {
		case st == nil && errors.Is(err, fs.ErrNotExist):
			// The folder does not exist yet, or it or the temporary file was removed meanwhile.
			if filepath.Dir(path) == s.dir {
				err = session.MakeSessions(s.state, s.log)
			} else {
				err = session.MakeFolder(filepath.Dir(path))
			}
			if err == nil {
				continue
			}
		case err != nil && !errors.Is(err, fs.ErrExist):
			err = durable.Explain(err, path)
		}
		return st, err
	}
	return nil, fmt.Errorf("the folder %s vanishes again and again; stop what removes it and call again", filepath.Dir(path))
}

func (s *Store) putOnce(path string, data []byte, move func(d durable.Disk, temp string) error) (*stamp, error) {
	disk, done, err := s.diskOf(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer done()
	temp, st, err := s.fill(disk, filepath.Dir(path), data)
	if err == nil {
		err = move(disk, temp)
	}
	if err != nil {
		if temp != "" {
			_ = disk.Remove(temp) // the first error says more
		}
		return nil, err
	}
	if err := disk.SyncFolder(filepath.Dir(path)); err != nil {
		return &st, fmt.Errorf("%w: %w", store.ErrUnsynced, err)
	}
	s.keepSpare(disk, temp, path)
	return &st, nil
}

// diskOf returns a Disk whose Dir is an opened folder; the caller calls done after using it. The
// folder of the records stays open while its path leads to it without a link.
func (s *Store) diskOf(dir string) (disk durable.Disk, done func(), err error) {
	disk = s.disk
	if dir != s.dir {
		if disk.Dir, err = durable.OpenDir(os.OpenRoot(dir)); err != nil {
			return disk, nil, err
		}
		return disk, func() { disk.Dir.Close() }, nil
	}
	done = func() {}
	if disk.Dir = s.folder.Load(); disk.Dir != nil && s.state.IsTmp(disk.Dir) {
		return disk, done, nil
	}
	if disk.Dir, err = durable.OpenDir(s.state.OpenTmp()); err != nil {
		return disk, nil, err
	}
	if runtime.GOOS == "windows" { // an open folder cannot be removed there
		return disk, func() { disk.Dir.Close() }, nil
	}
	s.folder.Store(disk.Dir) // the garbage collector closes an earlier one, after its last use
	return disk, done, nil
}

// fill writes data to a spare file or a new one, and syncs it. With an error, temp is the name of
// the file to remove, if there is one.
func (s *Store) fill(disk durable.Disk, dir string, data []byte) (temp string, st stamp, err error) {
	var f *os.File
	var size int64 // of the spare
	if dir == s.dir {
		f, temp, size = s.takeSpare(disk)
	}
	if f == nil {
		path := filepath.Join(dir, fmt.Sprintf("write_%s_%d.tmp", s.server, s.temps.Add(1)))
		if f, err = disk.Create(path); err != nil {
			return "", st, err
		}
		temp = path
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := disk.Write(f, data); err != nil {
		return temp, st, err
	}
	if int64(len(data)) < size {
		if err := f.Truncate(int64(len(data))); err != nil {
			return temp, st, err
		}
	}
	if err := disk.Sync(f); err != nil {
		return temp, st, err
	}
	fi, err := f.Stat()
	if err != nil {
		return temp, st, err
	}
	return temp, stampOf(fi), nil
}

// remove deletes a file, durably and without joining the servers: a removed file has no owner.
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
