package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
)

// A file follows the edits of one config file, whose content is a *T. Its methods may be called
// from any goroutine.
type file[T any] struct {
	path    string
	format  follow.Format[T]
	state   atomic.Pointer[follow.File[T]]
	turn    chan struct{} // capacity 1, never closed: full while a call reads the file
	missing *T            // the content if the file is missing
}

// open returns a file for a path. It does not touch the disk. refuse is that of follow.Format.
func (s *file[T]) open(path string, missing *T, refuse func() error, parse func(data []byte) (*T, error)) {
	s.path, s.missing, s.turn = path, missing, make(chan struct{}, 1)
	s.format = follow.Format[T]{Limit: MaxBytes, Grace: follow.SaveBound, Refuse: refuse, Unreadable: s.unreadable,
		Parse: func(data []byte) (*T, error) {
			c, err := parse(data)
			if err != nil {
				return nil, s.refusal(err)
			}
			return c, nil
		}}
	s.state.Store(&follow.File[T]{Track: follow.Track{Path: follow.Path(path)}})
}

// current returns the current content; see Source.Current.
func (s *file[T]) current(ctx context.Context, logger *slog.Logger) (*T, error) {
	if f := s.state.Load(); !s.stale(f) {
		return s.result(f)
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s to be read: %w", s.path, ctx.Err())
	}
	for left := follow.Bound; ; {
		old := s.state.Load()
		if !s.stale(old) {
			return s.result(old)
		}
		f := old.Look(&s.format)
		s.log(logger, old.Bad, f)
		s.state.Store(f)
		if f.Phase != follow.Moving || left <= 0 {
			return s.result(f)
		}
		pause := min(time.Until(f.Due), left)
		if err := wait.For(ctx, pause); err != nil {
			return nil, fmt.Errorf("waiting for %s, which is being written: %w", s.path, err)
		}
		left -= max(pause, time.Millisecond)
	}
}

func (s *file[T]) stale(f *follow.File[T]) bool { return f.Stale() || f.Awake(time.Now()) }

func (s *file[T]) result(f *follow.File[T]) (*T, error) {
	switch {
	case f.Good != nil:
		return f.Good, nil
	case f.Bad != nil:
		return nil, f.Bad
	case f.Phase == follow.Moving:
		return nil, s.refusal(errBeingWritten)
	}
	return s.missing, nil
}

var errBeingWritten = errors.New("it is being written all the time; call again when that is over")

// refused returns what is wrong with the file as last read, while an earlier content stays in use.
func (s *file[T]) refused() error {
	if f := s.state.Load(); f.Good != nil && f.Bad != nil {
		return errors.Unwrap(f.Bad)
	}
	return nil
}

func (s *file[T]) unreadable(st follow.Stamp, err error) error {
	switch {
	case st.Kind != follow.Regular:
		err = errors.New("it is not a file that can be read")
	case st.Size > MaxBytes:
		err = fmt.Errorf("it has %d bytes, more than the %d that are read", st.Size, MaxBytes)
	default:
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err // the message already has the path
		}
	}
	return s.refusal(err)
}

// refusal is the error of calls while the file is not used. It wraps the reason.
func (s *file[T]) refusal(reason error) error {
	return fmt.Errorf("the configuration %s is not valid; correct it and call again: %w", s.path, reason)
}

// log logs a bad edit, and its end, once.
func (s *file[T]) log(logger *slog.Logger, was error, f *follow.File[T]) {
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
