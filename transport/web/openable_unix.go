//go:build unix

package web

import (
	"math"
	"syscall"
)

// filesKept is how many open files are reserved for other things than connections, at
// least: session files above all, without which no call can be carried out.
const filesKept = 64

// openable is how many connections the process may have open, of the files that
// it may have open: at most three quarters.
func openable() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil || files.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return connectionsOf(int(files.Cur))
}

func connectionsOf(files int) int { return max(1, files-max(filesKept, files/4)) }
