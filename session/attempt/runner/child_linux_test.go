package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// processesOf lists the processes that were started with a text in their command
// line or environment, but for this one.
func processesOf(text string) []int {
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		for _, file := range []string{"cmdline", "environ"} { // both are empty for zombies
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil && bytes.Contains(data, []byte(text)) && pid != os.Getpid() {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}
