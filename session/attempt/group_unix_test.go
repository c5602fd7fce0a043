//go:build unix

package attempt

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// groupAlive reports whether anything of a process group runs. A zombie does not: if nothing reaps orphans they stay.
func groupAlive(pid int) bool {
	if syscall.Kill(-pid, 0) != nil {
		return false
	}

	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(stats) == 0 {
		return true // no way to tell zombies
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ") // after the name: state, parent, group
		if f := strings.Fields(rest); len(f) > 2 && f[2] == strconv.Itoa(pid) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}

	return false
}
