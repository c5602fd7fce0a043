package workflow

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// spares are files in the folder of exports that are written again and then exchanged with an export, whose
// file becomes the spare. A file that is made anew and renamed over another one costs ten times as much: some
// file systems write such a file to disk at once (auto_da_alloc of ext4). Each spare is used again only after
// the others, so that what opened an export before has read it.
type spares struct {
	mu    sync.Mutex
	free  []string // names, the one that was used last at the end
	made  int
	swept bool
}

const (
	mostSpares  = 8
	sparePrefix = ".session_"
	// spareLife is the age of spares that servers which were killed have left behind.
	spareLife = time.Hour
)

// replace replaces a file atomically. regular reports whether there is a regular file of that name.
func (s *spares) replace(dir *os.Root, name string, regular bool, body []byte) error {
	spare := s.take(dir)
	f, err := dir.OpenFile(spare, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		s.drop()
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Truncate(int64(len(body)))
	}
	if err = errors.Join(err, f.Close()); err == nil && regular {
		if err = exchange(dir, spare, name); err == nil {
			s.give(spare)
			return nil
		}
	}
	if err == nil || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		err = dir.Rename(spare, name)
	}
	s.drop()
	if err != nil {
		err = errors.Join(err, dir.Remove(spare))
	}
	return err
}

// take returns the name of a spare that nobody else uses, which may have to be made.
func (s *spares) take(dir *os.Root) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.swept {
		s.swept = true
		sweep(dir)
	}
	if s.made >= mostSpares && len(s.free) > 0 {
		name := s.free[0]
		s.free = s.free[1:]
		return name
	}
	s.made++
	return sparePrefix + randomID(8)
}

func (s *spares) give(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, name)
}

// drop forgets a spare that is gone.
func (s *spares) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made--
}

// remove removes the spares.
func (s *spares) remove(dir *os.Root) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.free {
		_ = dir.Remove(name) // one that stays is removed by a later server
	}
	s.free = nil
}

// sweep removes the spares of servers that were killed.
func sweep(dir *os.Root) {
	names, err := fs.Glob(dir.FS(), sparePrefix+"*")
	if err != nil {
		return
	}
	for _, name := range names {
		if fi, err := dir.Lstat(name); err == nil && fi.Mode().IsRegular() && time.Since(fi.ModTime()) > spareLife {
			_ = dir.Remove(name) // it is tried again by the next server
		}
	}
}
