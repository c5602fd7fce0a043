package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
)

// A Source serves the config of one project and follows its edits. Its methods
// may be called from any goroutine.
type Source struct {
	// Logger is where bad edits are logged, each once; nil means slog.Default. It is
	// set before the first call of Current.
	Logger *slog.Logger

	path     string
	defaults *Config // of a project that has no file
	format   follow.Format[Config]
	file     atomic.Pointer[follow.File[Config]]
	turn     chan struct{} // capacity 1, never closed: full while a call reads the file
}

// Open returns the source of a project, root being absolute. It does not touch
// the disk: a bad file is not an error of Open but of Current.
func Open(root string) *Source {
	s := &Source{path: filepath.Join(root, ".deepwork", FileName), defaults: Default(), turn: make(chan struct{}, 1)}
	s.format = follow.Format[Config]{Limit: MaxBytes, Grace: follow.SaveBound, Parse: s.parse, Unreadable: s.unreadable}
	s.file.Store(&follow.File[Config]{Track: follow.Track{Path: follow.Path(s.path)}})
	return s
}

// Path returns the file's absolute path.
func (s *Source) Path() string { return s.path }

// Current returns the config as the file is now, a write that ended before the call
// included (DESIGN "Configuration"). While nothing changed it costs one look at the
// file and does not lock; else the file is read, and waited for while it is being
// written: about 10 ms, 50 ms if it looks like half of a save, 200 ms at most, or
// until ctx ends. A bad edit is logged, once, and the last good config returned; so
// it is for 500 ms while the file is missing, empty, or the beginning of the last
// good one, as a save in progress is. A file that was never good since start is an
// error that holds the job.Diagnostics with line and reason. A missing file is the
// defaults.
func (s *Source) Current(ctx context.Context) (*Config, error) {
	if f := s.file.Load(); !stale(f) {
		return s.result(f)
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s to be read: %w", s.path, ctx.Err())
	}
	for began := time.Now(); ; {
		old := s.file.Load()
		if !stale(old) {
			return s.result(old)
		}
		f := old.Look(&s.format)
		s.log(old.Bad, f)
		s.file.Store(f)
		if f.Phase != follow.Moving || time.Since(began) >= follow.Bound {
			return s.result(f)
		}
		if err := wait.For(ctx, time.Until(f.Due)); err != nil {
			return nil, fmt.Errorf("waiting for %s, which is being written: %w", s.path, err)
		}
	}
}

func stale(f *follow.File[Config]) bool { return f.Stale() || f.Awake(time.Now()) }

func (s *Source) result(f *follow.File[Config]) (*Config, error) {
	switch {
	case f.Good != nil:
		return f.Good, nil
	case f.Bad != nil:
		return nil, f.Bad
	case f.Phase == follow.Moving:
		return nil, s.refusal(errBeingWritten)
	}
	return s.defaults, nil
}

var errBeingWritten = errors.New("it is being written all the time; call again when that is over")

// Refused returns what is wrong with the file as Current last read it, with line and
// reason, while an earlier content stays in use; nil means that the file itself is in
// use, or none is. It does not touch the disk, and never blocks.
func (s *Source) Refused() error {
	if f := s.file.Load(); f.Good != nil && f.Bad != nil {
		return errors.Unwrap(f.Bad)
	}
	return nil
}

func (s *Source) parse(data []byte) (*Config, error) {
	c, faults := Parse(FileName, data)
	if c == nil {
		return nil, s.refusal(faults)
	}
	return c, nil
}

func (s *Source) unreadable(st follow.Stamp, err error) error {
	switch {
	case st.Kind != follow.Regular:
		err = errors.New("it is not a file that can be read")
	case st.Size > MaxBytes:
		err = fmt.Errorf("it has %d bytes, more than the %d that are read", st.Size, MaxBytes)
	default:
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err // the path is in the message already
		}
	}
	return s.refusal(err)
}

// refusal is the error of calls while the file is not used. It wraps the reason.
func (s *Source) refusal(reason error) error {
	return fmt.Errorf("the configuration %s is not valid; correct it and call again: %w", s.path, reason)
}

// log logs a bad edit, and its end, once.
func (s *Source) log(was error, f *follow.File[Config]) {
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	switch {
	case f.Bad != nil && (was == nil || was.Error() != f.Bad.Error()):
		what := "configuration refused; the last good one stays in use"
		if f.Good == nil {
			what = "configuration refused; calls are, too, until it is corrected"
		}
		logger.Error(what, "file", s.path, "error", errors.Unwrap(f.Bad))
	case f.Bad == nil && was != nil:
		logger.Info("configuration is good again", "file", s.path)
	}
}
