//go:build unix

package worktree

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isNotDir reports whether a path leads through something that is no folder.
func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }
