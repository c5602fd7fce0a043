package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

func (s *Store) putOnce(path string, data []byte, move func(d durable.Disk, temp string) error) (_ *stamp, err error) {
	dir, disk := filepath.Dir(path), s.disk
	if dir == s.dir {
		disk.Root, err = s.state.OpenTmp()
	} else {
		disk.Root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return nil, err
	}
	defer disk.Root.Close()
	temp := filepath.Join(dir, fmt.Sprintf("write_%s_%d.tmp", s.server, s.temps.Add(1)))
	if err := disk.Fill(temp, data, 0); err != nil {
		return nil, err
	}
	fi, err := disk.Root.Lstat(filepath.Base(temp))
	if err == nil {
		err = move(disk, temp)
	}
	if err != nil {
		_ = disk.Root.Remove(filepath.Base(temp)) // the move's own error says more
		return nil, err
	}
	st := stampOf(fi)
	if err := disk.SyncFolder(dir); err != nil {
		return &st, fmt.Errorf("%w: %w", store.ErrUnsynced, err)
	}
	return &st, nil
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
