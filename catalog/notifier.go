package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// A notifier is the system's way to tell of events in directories. Add may
// block until somebody receives from events, so nobody may do both.
type notifier interface {
	Add(dir string) error
	Remove(dir string) error
	Close() error
	events() <-chan fsnotify.Event
	errors() <-chan error
}

// fsNotifier is the notifier that fsnotify makes of the system's.
type fsNotifier struct{ *fsnotify.Watcher }

func (n fsNotifier) events() <-chan fsnotify.Event { return n.Events }
func (n fsNotifier) errors() <-chan error          { return n.Errors }

func openNotifier() (notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return fsNotifier{w}, nil
}

// usedUp tells whether an error of Add means that there are no more watches, and
// not that this directory has none.
func usedUp(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// planted says what came of Add: nil, also where the directory cannot be watched
// by itself, or the error that makes the whole watch useless.
func planted(dir string, err error) (ok bool, fatal error) {
	switch {
	case err == nil:
		return true, nil
	case usedUp(err):
		return false, fmt.Errorf("watching %s: %w", dir, err)
	case errors.Is(err, fsnotify.ErrClosed):
		return false, err
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // it went meanwhile; its parent tells
	}
	return false, nil
}
