//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

func unprivileged() *syscall.SysProcAttr { return nil }

func chown(string, *syscall.SysProcAttr) error { return nil }

func (d *daemon) alive() bool { return false }

func lock(string, bool) error { return errors.ErrUnsupported }

func unlock(string) {}
