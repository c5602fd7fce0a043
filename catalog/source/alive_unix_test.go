//go:build unix

package source_test

import (
	"strconv"
	"strings"
	"syscall"
)

// alive reports whether there is a process of this id.
func alive(pid string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	return err == nil && syscall.Kill(n, 0) == nil
}
