//go:build unix

package filestore

import "golang.org/x/sys/unix"

var noSpace error = unix.ENOSPC
