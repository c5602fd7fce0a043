//go:build unix

package load

import (
	"fmt"
	"syscall"
)

// raiseFiles raises the limit of open files as far as want, or as far as it may
// be raised, and returns what it is then.
func raiseFiles(want uint64) (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %w", err)
	}
	now, most := uint64(limit.Cur), uint64(limit.Max)
	if now >= want {
		return now, nil
	}
	limit.Cur = limit.Max
	if most > want {
		set(&limit.Cur, want)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return now, nil // what there is may be enough
	}
	return uint64(limit.Cur), nil
}

// set is for systems where a limit is a signed number.
func set[T int64 | uint64](to *T, value uint64) { *to = T(value) }
