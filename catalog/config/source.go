package config

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
)

// A Source serves the config of one project and follows the edits of its files: the
// project's own, and the user's, which wins. Its methods may be called from any goroutine.
type Source struct {
	// Logger is where bad edits are logged, each once; nil means slog.Default. It is
	// set before the first call of Current.
	Logger *slog.Logger
	// Approve says what of the project's config is in force. It is asked at each call,
	// and returns the same pointer while nothing changes. nil approves everything. It is
	// set before the first call of Current.
	Approve func(project *Config, user *User) *Approval

	project  file[Config]
	user     file[User]
	composed atomic.Pointer[composed]
}

// composed is a config, and what it was made of.
type composed struct {
	project  *Config
	user     *User
	approval *Approval
	result   *Config
}

// Open returns the source of a project, root being absolute. It does not touch
// the disk: a bad file is not an error of Open but of Current.
func Open(root string) *Source {
	s := &Source{}
	s.project.open(filepath.Join(root, ".deepwork", FileName), Default(), func(data []byte) (*Config, error) {
		c, faults := Parse(FileName, data)
		return c, faultsOf(faults)
	})
	s.user.open(UserFile(), &User{}, func(data []byte) (*User, error) {
		u, faults := ParseUser(FileName, data)
		return u, faultsOf(faults)
	})
	return s
}

// Path returns the absolute path of the project's file.
func (s *Source) Path() string { return s.project.path }

// Current returns the config as the files are now, a write that ended before the call
// included (DESIGN "Configuration"). While nothing changed it costs one look at each
// file and does not lock; else the file is read, and waited for while it is being
// written: about 10 ms, 50 ms if it looks like half of a save, 200 ms at most, or
// until ctx ends. A bad edit is logged, once, and the last good config returned; so
// it is for 500 ms while the file is missing, empty, or the beginning of the last
// good one, as a save in progress is. A file that was never good since start is an
// error that holds the job.Diagnostics with line and reason. A missing file is the
// defaults.
func (s *Source) Current(ctx context.Context) (*Config, error) {
	logger := cmp.Or(s.Logger, slog.Default())
	project, err := s.project.current(ctx, logger)
	if err != nil {
		return nil, err
	}
	user, err := s.user.current(ctx, logger)
	if err != nil {
		return nil, err
	}
	approval := unasked
	if s.Approve != nil {
		approval = s.Approve(project, user)
	}
	if c := s.composed.Load(); c != nil && c.project == project && c.user == user && c.approval == approval {
		return c.result, nil
	}
	c := &composed{project, user, approval, user.over(approval.apply(project))}
	s.composed.Store(c)
	return c.result, nil
}

// User returns the user's own config as Current last read it. It does not touch the disk.
func (s *Source) User() *User {
	if c := s.composed.Load(); c != nil {
		return c.user
	}
	return &User{}
}

// Refused returns what is wrong with the files as Current last read them, with line and
// reason, while an earlier content stays in use; nil means that the files themselves are
// in use, or none is. It does not touch the disk, and never blocks.
func (s *Source) Refused() error {
	return errors.Join(s.project.refused(), s.user.refused())
}
