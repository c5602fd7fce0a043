//go:build unix

package local

import "golang.org/x/sys/unix"

var noSpace error = unix.ENOSPC
