//go:build !unix

package pgtest

import "syscall"

func unprivileged() *syscall.SysProcAttr { return nil }

func chown(string, *syscall.SysProcAttr) error { return nil }

func (d *daemon) alive() bool { return false }
