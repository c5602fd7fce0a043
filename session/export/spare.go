package export

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"deepwork/actor/durable"
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

// A version is the content of an export, and the revision that it has.
type version struct {
	body     []byte
	revision int64
	newest   func() int64 // the revision that the session has now
}

// replace puts an export in the place of a file, atomically. Of two processes that do so at the same time the
// higher revision stays: one that finds that it has replaced a newer export puts that back. Without keep, what
// was replaced is no spare.
func (s *spares) replace(dir *folder, name string, v version, keep bool) error {
	spare, err := s.fill(dir, v.body, keep)
	if err == nil {
		err = exchange(dir.self, spare, name)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist):
		if err = dir.Rename(spare, name); err == nil {
			s.drop()
			return nil
		}
	case err == nil:
		at := v.revision // of what is in place
		revision, usable := revisionOf(dir.Root, spare)
		for err == nil && revision > at && revision <= v.newest() {
			at = revision
			if err = exchange(dir.self, spare, name); err == nil {
				revision, usable = revisionOf(dir.Root, spare)
			}
		}
		if err == nil && usable && keep {
			s.mu.Lock()
			s.free = append(s.free, spare)
			s.mu.Unlock()
			return nil
		}
	}
	s.drop()
	if spare != "" {
		err = errors.Join(err, dir.RemoveAll(spare))
	}
	return err
}

// fill writes a body to a spare that nobody else uses, and returns its name; "" with an error. Only with
// reuse it may be an old one.
func (s *spares) fill(dir *folder, body []byte, reuse bool) (name string, err error) {
	var f *os.File
	var size int64
	if name = s.take(dir, reuse); name != "" {
		var fi fs.FileInfo
		if f, fi, err = durable.OpenRegularIn(dir.Root, name, os.O_WRONLY); err == nil {
			size = fi.Size()
			if durable.Links(fi) != 1 || fi.Mode().Perm() != 0o600 && f.Chmod(0o600) != nil {
				f.Close()
				f = nil
			}
		}
	}
	if f == nil { // there is no spare, or somebody has put a link in its place, or gave its file another name
		if name != "" {
			_ = dir.RemoveAll(name) // if it stays, a later server removes it
		}
		name = sparePrefix + strings.ToLower(rand.Text())
		if f, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return "", err
		}
	}
	_, err = f.Write(body)
	if err == nil && size > int64(len(body)) {
		err = f.Truncate(int64(len(body)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, dir.Remove(name))
	}
	return name, nil
}

// take returns the name of a spare that nobody else uses, or "" if one has to be made.
func (s *spares) take(dir *folder, reuse bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.swept {
		s.swept = true
		sweep(dir)
	}
	if reuse && s.made >= mostSpares && len(s.free) > 0 {
		name := s.free[0]
		s.free = s.free[1:]
		return name
	}
	s.made++
	return ""
}

// drop forgets a spare that is gone.
func (s *spares) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made--
}

// remove removes the spares.
func (s *spares) remove(dir *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.free {
		_ = dir.Remove(name) // one that stays is removed by a later server
	}
	s.free = nil
}

// sweep removes the spares of servers that were killed.
func sweep(dir *folder) {
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
