package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
)

// A record is replaced by exchanging its name with that of the new file, if the system supports
// that. What was the record is then a spare file, into which a later record is written: no file is
// created or deleted, which costs more than writing one.
//
// A spare is not written to while it may be a record after a loss of power (it becomes a spare when
// the exchange is durable), while it has a second name, or while somebody who opened it as a record
// may read it: it rests, and readRecord reads again if the file is no longer the record.

const (
	maxSpares = 64                    // more are removed
	spareRest = 20 * time.Millisecond // longer than the resolution of the times of files
	spareSize = 1 << 20               // bytes; larger files are removed
)

// A spare is a file that was a record.
type spare struct {
	path  string
	inode uint64
	since time.Time
}

// replace gives the file temp the name path, whose file gets the name temp if it exists.
func (s *Store) replace(disk durable.Disk, temp, path string) error {
	if !s.noExchange.Load() {
		err := disk.Exchange(temp, path)
		if errors.Is(err, errors.ErrUnsupported) {
			s.noExchange.Store(true)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return disk.Move(temp, path)
}

// keepSpare makes the file at temp a spare, if it is the record that this store wrote or read
// last; otherwise it removes it.
func (s *Store) keepSpare(disk durable.Disk, temp, path string) {
	fi, err := disk.Dir.Lstat(filepath.Base(temp))
	if err != nil {
		return // path had no file, or they were not exchanged
	}
	id, _ := recordID(filepath.Base(path))
	if known, ok := s.recall(id); ok && known.sameFile(stampOf(fi)) && durable.Links(fi) == 1 && fi.Mode() == 0o600 && fi.Size() <= spareSize {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.spares) < maxSpares && !s.closed {
			s.spares = append(s.spares, spare{temp, durable.Inode(fi), time.Now()})
			return
		}
	}
	_ = disk.Remove(temp) // else the next server removes it
}

// takeSpare opens the spare that has rested longest, to overwrite it, and returns its name and size.
// f is nil if there is none.
func (s *Store) takeSpare(disk durable.Disk) (f *os.File, path string, size int64) {
	s.mu.Lock()
	if len(s.spares) == 0 || time.Since(s.spares[0].since) < s.rest {
		s.mu.Unlock()
		return nil, "", 0
	}
	sp := s.spares[0]
	s.spares = append(s.spares[:0], s.spares[1:]...)
	s.mu.Unlock()
	f, fi, err := disk.Dir.OpenRegular(filepath.Base(sp.path), os.O_WRONLY)
	if err != nil {
		return nil, "", 0
	}
	if durable.Inode(fi) != sp.inode || durable.Links(fi) != 1 {
		f.Close()
		_ = disk.Remove(sp.path) // another name keeps the content
		return nil, "", 0
	}
	return f, sp.path, fi.Size()
}

// dropSpares removes the spares.
func (s *Store) dropSpares() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.spares {
		if err := os.Remove(sp.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("cannot remove a spare file", "path", sp.path, "error", err)
		}
	}
	s.spares = nil
}

// readTries is how often a record is read that is replaced meanwhile.
const readTries = 50

// readFile reads the file of a record. A file that is replaced meanwhile, and may have been
// overwritten as a spare, is read again.
func readFile(path string) (data []byte, fi fs.FileInfo, err error) {
	for range readTries {
		data, fi, err = durable.Read(path, maxRecord)
		if fi == nil {
			return nil, nil, err
		}
		now, lerr := os.Lstat(path)
		if lerr != nil {
			return nil, nil, lerr
		}
		if os.SameFile(fi, now) && stampOf(fi).sameFile(stampOf(now)) {
			return data, fi, err
		}
	}
	return nil, nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is being replaced all the time; try again")}
}
