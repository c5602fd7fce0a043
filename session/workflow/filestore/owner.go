package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/durable"
)

// A place is this server's standing among the servers of the folder: its lock
// file, locked for as long as the place is held, and the folder kept open.
type place struct {
	lock     *flock.Flock
	lockInfo fs.FileInfo
	folder   *durable.Folder
	refs     int // guarded by Store.mu; one is the store's own
}

// whoIs stands in a server's lock file, for people.
type whoIs struct {
	PID       int    `json:"pid"`
	Host      string `json:"host"`
	StartedAt string `json:"started_at"` // RFC 3339, UTC
}

// enter returns the place, claimed at the first call, and claimed again when
// somebody removed the lock file or the whole folder: a server that believes to
// own records must not look dead. leave ends its use.
func (s *Store) enter(held bool) (*place, error) {
	for range putTries {
		if p := s.current(); p != nil {
			if s.stands(p) {
				return p, nil
			}
			s.leave(p)
		}
		if err := s.claimed(held, s.claim); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the session folder %s vanishes again and again; stop what removes it and call again", s.dir)
}

func (s *Store) current() *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place != nil {
		s.place.refs++
	}
	return s.place
}

// leave gives a use of the place back; the last one closes it.
func (s *Store) leave(p *place) {
	s.mu.Lock()
	p.refs--
	last := p.refs == 0
	s.mu.Unlock()
	if last {
		p.lock.Close()
		p.folder.Close()
	}
}

// stands tells whether the place is still what others see at its path.
func (s *Store) stands(p *place) bool {
	fi, err := os.Lstat(s.lockPath(s.server))
	if err != nil || !os.SameFile(fi, p.lockInfo) {
		return false
	}
	return p.folder.Stands()
}

// claim makes the place. The caller holds the claim lock, so nobody who decides
// something by it sees the lock file before it is locked.
func (s *Store) claim() error {
	if p := s.current(); p != nil {
		defer s.leave(p)
		if s.stands(p) {
			return nil // another call of this store was faster
		}
		s.log.Warn("this server's lock file was removed by somebody; making it again",
			"path", s.lockPath(s.server), "server", s.server)
	}
	s.ignore()
	s.sweep()
	lock, err := s.lockOwn()
	if err != nil {
		return err
	}
	info, err := lock.Stat()
	if err != nil {
		lock.Close()
		return err
	}
	if err := s.entered(); err != nil {
		lock.Close()
		return err
	}
	dir, err := s.disk.OpenFolder(s.dir)
	if err != nil {
		lock.Close()
		return durable.Explain(err, s.dir)
	}
	s.mu.Lock()
	old := s.place
	s.place = &place{lock: lock, lockInfo: info, folder: dir, refs: 1}
	s.mu.Unlock()
	if old != nil {
		s.leave(old)
	}
	return nil
}

// lockOwn writes this server's lock file and locks it.
func (s *Store) lockOwn() (*flock.Flock, error) {
	path := s.lockPath(s.server)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for people only
	}
	text, err := json.Marshal(whoIs{os.Getpid(), host, time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return nil, err
	}
	// Left behind by a removal and restore, or by a claim that failed here.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, durable.Explain(fmt.Errorf("claiming a place in the session folder: %w", err), path)
	}
	// The blank is the byte that is locked on Windows, where nobody else can
	// read it.
	err = writeNew(path, append(append([]byte{' '}, text...), '\n'))
	if err == nil {
		err = s.at("lock file")
	}
	if err != nil {
		os.Remove(path)
		return nil, durable.Explain(fmt.Errorf("claiming a place in the session folder: %w", err), path)
	}
	lock := flock.New(path, flock.SetFlag(os.O_RDWR))
	// One who asks Alive at this very moment holds a shared lock for an instant.
	for wait := newBackoff(s.claimWait); ; {
		ok, err := lock.TryLock()
		if ok {
			return lock, nil
		}
		if err == nil && !wait.next() {
			err = errors.New("another process holds a lock on it")
		}
		if err != nil {
			os.Remove(path)
			return nil, durable.Explain(fmt.Errorf("locking %s: %w; the file system must support file locks", path, err), path)
		}
	}
}

func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	_, err = f.Write(data)
	return err
}

// Alive tells whether the server with this id runs, here or in another process.
// What cannot be told (a lock file of another user, say) counts as alive, since
// a record must never be taken from a server that lives. It does not block, and
// remembers nothing: each call asks the system.
func (s *Store) Alive(server string) bool {
	if server == s.server {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.closed
	}
	if !isHex(server, 16) {
		return false
	}
	path := s.lockPath(server)
	// Opening a named pipe would block.
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return false
	}
	probe := flock.New(path, flock.SetFlag(os.O_RDONLY))
	free, err := probe.TryRLock()
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		s.log.Warn("cannot tell whether a server lives; taking it for alive", "server", server, "path", path, "error", err)
		return true
	}
	if free {
		probe.Close()
	}
	return !free
}

// Describe tells people which process a server is, as "pid 123 on host since
// 2026-01-31T12:00:00Z", or "" where its lock file is gone or says nothing.
func (s *Store) Describe(server string) string {
	if !isHex(server, 16) {
		return ""
	}
	path := s.lockPath(server)
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	f, _, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 1, 4096))
	if err != nil {
		return ""
	}
	var w whoIs
	if json.Unmarshal(text, &w) != nil || w.PID == 0 {
		return ""
	}
	return fmt.Sprintf("pid %d on %s since %s", w.PID, w.Host, w.StartedAt)
}
