package presence

import (
	"context"
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

// whoIs stands in a server's lock file, for people.
type whoIs struct {
	PID       int    `json:"pid"`
	Host      string `json:"host"`
	StartedAt string `json:"started_at"` // RFC 3339, UTC
}

// makeLock makes this server's lock file and locks it; with an error there is
// none. It tries until ctx ends, since one who asks, or sweeps, may have the lock
// for an instant, or have removed the file before it was locked.
func (s *Server) makeLock(ctx context.Context) (lock *flock.Flock, err error) {
	path := s.Path(s.id)
	defer func() {
		if err != nil {
			os.Remove(path) // the error tells more
		}
	}()
	var pause backoff
	for written := false; ; {
		if !written {
			if err := s.write(path); err != nil {
				return nil, fmt.Errorf("making this server's lock file: %w", err)
			}
			written = true
		}
		lock := flock.New(path, flock.SetFlag(os.O_RDWR))
		ok, err := lock.TryLock()
		switch {
		case ok && durable.Stands(lock, path):
			return lock, nil
		case ok:
			lock.Close()
			written = false
		case errors.Is(err, fs.ErrNotExist):
			written = false
		case err != nil:
			return nil, fmt.Errorf("locking %s: %w; the file system must support file locks", path, err)
		}
		if err := pause.wait(ctx); err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
	}
}

// write makes the lock file afresh.
func (s *Server) write(path string) (err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for people only
	}
	text, err := json.Marshal(whoIs{os.Getpid(), host, time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	// Left behind by a removal and restore.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// The blank is the byte that is locked on Windows, where nobody else can read it.
	_, err = f.Write(append(append([]byte{' '}, text...), '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if s.Written != nil {
		return s.Written()
	}
	return nil
}

// Describe tells people which process a server is, as "pid 123 on host since
// 2026-01-31T12:00:00Z", or "" where its lock file is gone or says nothing.
func (s *Server) Describe(server string) string {
	if !IsID(server) {
		return ""
	}
	path := s.Path(server)
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
