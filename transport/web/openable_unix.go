//go:build unix

package web

import (
	"math"
	"syscall"
)

// filesKept is the minimum number of open files reserved for other uses, mainly the database,
// without which no call can be executed.
const filesKept = 64

// openable returns how many connections the process may have open: at most three quarters of its
// limit of open files.
func openable() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil || files.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return max(1, int(files.Cur)-max(filesKept, int(files.Cur)/4))
}
