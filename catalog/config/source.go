package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"deepwork/catalog/internal/stamp"
	"deepwork/catalog/job"
)

const (
	settleBound = 200 * time.Millisecond // for how long one that never settles is waited for
	tornFor     = 500 * time.Millisecond // for how long what looks like half a save is not believed
)

// A Source serves the config of one project and follows its edits. Its methods
// may be called from any goroutine.
type Source struct {
	// Logger is where bad edits are logged, each once; nil: slog.Default. It is
	// set before the first call of Current.
	Logger *slog.Logger

	file stamp.Path
	read atomic.Pointer[reading]
	turn chan struct{} // capacity 1, never closed: full while somebody reads the file anew
}

// A reading is what is known of the file. It is immutable.
type reading struct {
	stamp  stamp.Stamp // of the content that was judged
	sum    [sha256.Size]byte
	racy   bool      // another write may have left the same stamp
	due    time.Time // when to look again though the stamp is the same; zero: never
	good   *Config   // the last good one; nil: none since start
	source []byte    // of good
	bad    error     // what is wrong with the file as it stands
	newest stamp.Stamp
	seen   time.Time // since when newest has been seen
}

// Open returns the source of a project, root being absolute. It does not touch
// the disk: a bad file is not an error of Open but of Current.
func Open(root string) *Source {
	s := &Source{file: stamp.At(filepath.Join(root, ".deepwork", FileName)), turn: make(chan struct{}, 1)}
	s.read.Store(&reading{})
	return s
}

// Path returns the file's absolute path.
func (s *Source) Path() string { return s.file.Name() }

// Current returns the config as the file now stands, a write that ended before
// the call included (DESIGN "Configuration"). While nothing changed it costs one
// look at the file and does not lock; else the file is read, and waited for while
// it is being written: about 10 ms, 200 ms at most, or until ctx ends. A bad edit
// is logged, once, and the last good config returned; so it is for 500 ms while
// the file is missing, empty, or the beginning of the last good one, as a save in
// progress is. A file that was never good since start is an error that holds the
// job.Diagnostics with line and reason. A missing file is the defaults.
func (s *Source) Current(ctx context.Context) (*Config, error) {
	if r := s.read.Load(); !s.stale(r) {
		return r.result()
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s to be read: %w", s.file.Name(), ctx.Err())
	}
	for began := time.Now(); ; {
		r := s.read.Load()
		if !s.stale(r) {
			return r.result()
		}
		next, wait := s.look(r, time.Since(began) >= settleBound)
		if wait == 0 {
			s.log(r, next)
			s.read.Store(next)
			return next.result()
		}
		s.read.Store(next)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("waiting for %s, which is being written: %w", s.file.Name(), ctx.Err())
		}
	}
}

func (r *reading) result() (*Config, error) {
	if r.good == nil {
		return nil, r.bad
	}
	return r.good, nil
}

// Refused returns what is wrong with the file as Current last read it, with line and
// reason, while an earlier content stays in use; nil: the file itself is in use, or
// none is. It does not touch the disk, and never blocks.
func (s *Source) Refused() error {
	r := s.read.Load()
	if r.good == nil || r.bad == nil {
		return nil
	}
	return faultsOf(r.bad)
}

// stale tells whether a look would find something new.
func (s *Source) stale(r *reading) bool {
	if s.file.Stat() != r.stamp {
		return true
	}
	if !r.due.IsZero() && !time.Now().Before(r.due) {
		return true
	}
	return r.racy && r.stamp.Kind == stamp.Regular && !s.file.Same(r.stamp, r.sum)
}

// look reads the file anew. wait is how long to wait before the next look, as it
// is being written; forced does not wait: what was good stays in use, and where
// nothing was, that is an error.
func (s *Source) look(r *reading, forced bool) (next *reading, wait time.Duration) {
	st := s.file.Stat()
	now := time.Now()
	n := *r
	n.due, n.racy = time.Time{}, false
	if st != n.newest {
		n.newest, n.seen = st, now
	}
	switch {
	case st.Kind == stamp.Absent:
		if n.source != nil && now.Sub(n.seen) < tornFor {
			n.stamp, n.due = st, n.seen.Add(tornFor)
			return &n, 0
		}
		n.stamp, n.good, n.source, n.bad = st, Default(), nil, nil
		return &n, 0
	case st.Kind != stamp.Regular:
		n.stamp, n.bad = st, s.wrap(errors.New("it is not a file that can be read"))
		return &n, 0
	case st.Size > MaxBytes:
		n.stamp, n.bad = st, s.wrap(fmt.Errorf("it has %d bytes, more than the %d that are read", st.Size, MaxBytes))
		return &n, 0
	}
	data, got, err := s.file.Read(MaxBytes)
	switch {
	case errors.Is(err, stamp.ErrMoving) && !forced:
		return &n, stamp.Settle
	case errors.Is(err, stamp.ErrMoving):
		if n.good == nil {
			n.bad = s.wrap(errBeingWritten)
		}
		return &n, 0
	case err != nil:
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err // the path is in the message already
		}
		n.stamp, n.bad = got, s.wrap(err)
		return &n, 0
	case got != n.newest:
		n.newest, n.seen = got, now
	}
	return s.judge(&n, data, now, forced)
}

// judge is look where the file was read, whole, and stood still meanwhile.
func (s *Source) judge(n *reading, data []byte, now time.Time, forced bool) (*reading, time.Duration) {
	age := max(n.newest.Age(now), now.Sub(n.seen))
	sum := sha256.Sum256(data)
	known := n.stamp.Kind == stamp.Regular && sum == n.sum
	if age < stamp.Settle && !known {
		if !forced {
			return n, stamp.Settle - age
		}
		if n.good == nil {
			n.bad = s.wrap(errBeingWritten)
		}
		return n, 0 // with the old stamp: the next call looks again
	}
	n.stamp, n.sum = n.newest, sum
	if n.racy = age < stamp.Racy; n.racy {
		n.due = now.Add(stamp.Racy - age)
	}
	if len(data) < len(n.source) && bytes.HasPrefix(n.source, data) && age < tornFor {
		if n.due.IsZero() {
			n.due = now.Add(tornFor - age)
		}
		return n, 0
	}
	if n.source != nil && bytes.Equal(n.source, data) {
		n.bad = nil
		return n, 0
	}
	good, faults := Parse(FileName, data)
	if good == nil {
		n.bad = s.wrap(faults)
		return n, 0
	}
	n.good, n.source, n.bad = good, data, nil
	if n.source == nil {
		n.source = []byte{}
	}
	return n, 0
}

var errBeingWritten = errors.New("it is being written all the time; call again when that is over")

func (s *Source) wrap(err error) error {
	return fmt.Errorf("the configuration %s is not valid; correct it and call again: %w", s.file.Name(), err)
}

// log tells of a bad edit, and of its end, once.
func (s *Source) log(old, now *reading) {
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	switch {
	case now.bad != nil && (old.bad == nil || old.bad.Error() != now.bad.Error()):
		what := "configuration refused; the last good one stays in use"
		if now.good == nil {
			what = "configuration refused; calls are, too, until it is corrected"
		}
		logger.Error(what, "file", s.file.Name(), "error", faultsOf(now.bad))
	case now.bad == nil && old.bad != nil:
		logger.Info("configuration is good again", "file", s.file.Name())
	}
}

// faultsOf leaves out what an error says to those who call.
func faultsOf(err error) error {
	if faults, ok := errors.AsType[job.Diagnostics](err); ok {
		return faults
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
