package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
)

// A record is replaced by exchanging its name with that of the new file, where
// the system can: what was the record is then a spare, and the next record is
// written into it. So no file is made or deleted, which costs more than writing
// one does, and the new content needs no new blocks.
//
// A spare is never written to while it may be a record after a crash (its
// folder is synced before it becomes one), nor while it has a second name, nor
// before readers that had opened it are through. Those who read records look
// whether the file they opened still stands at its path.

// A spare is a file that was a record.
type spare struct {
	path  string
	inode uint64
	since time.Time
}

const (
	keptSpares = 64                    // at most
	spareRest  = 20 * time.Millisecond // how long one is left alone
	spareSize  = 1 << 20               // larger ones are not kept
)

// takeSpare gives the spare that has rested longest, if one has long enough.
func (s *Store) takeSpare() (spare, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spares) == 0 || time.Since(s.spares[0].since) < s.rest {
		return spare{}, false
	}
	sp := s.spares[0]
	s.spares = append(s.spares[:0], s.spares[1:]...)
	return sp, true
}

// openSpare opens a spare to be written, if it is still what it was, and tells
// how long it is.
func openSpare(sp spare) (*os.File, int64, bool) {
	f, fi, err := durable.OpenRegular(sp.path, os.O_WRONLY)
	if err != nil {
		return nil, 0, false
	}
	if durable.Inode(fi) != sp.inode || durable.Links(fi) != 1 {
		f.Close()
		return nil, 0, false
	}
	return f, fi.Size(), true
}

// giveBack keeps what a record was exchanged for, now at temp, as a spare. old
// is the stamp of what stood there shortly before; anything else came from
// outside in the last moment, and is set aside.
func (s *Store) giveBack(temp, path string, old *stamp) {
	fi, err := os.Lstat(temp)
	if err != nil {
		return
	}
	switch ours := old != nil && fi.Mode().IsRegular() && old.sameFile(stampOf(fi)); {
	case !ours && durable.Links(fi) == 1:
		kind, id := "session", sessionOf(path)
		if aside, err := s.setAside(temp, "replaced", kind, id); err != nil {
			s.log.Warn("a record that was changed from outside could not be set aside", "id", id, "path", temp, "error", err)
		} else {
			s.log.Warn("a record that was changed from outside was set aside", "id", id, "path", aside)
		}
		return
	case ours && durable.Links(fi) == 1 && fi.Size() <= spareSize:
		s.mu.Lock()
		kept := len(s.spares) < keptSpares && !s.closed
		if kept {
			s.spares = append(s.spares, spare{temp, durable.Inode(fi), time.Now()})
		}
		s.mu.Unlock()
		if kept {
			return
		}
	}
	os.Remove(temp) // it has another name, or is one too many
}

// dropSpares removes the spares.
func (s *Store) dropSpares() {
	s.mu.Lock()
	spares := s.spares
	s.spares = nil
	s.mu.Unlock()
	for _, sp := range spares {
		if err := os.Remove(sp.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("cannot remove a spare file", "path", sp.path, "error", err)
		}
	}
}

// sessionOf is the id in a record's path.
func sessionOf(path string) string {
	name := filepath.Base(path)
	return name[len("session_") : len(name)-len(".json")]
}
