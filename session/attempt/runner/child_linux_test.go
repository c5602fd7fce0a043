package runner

import (
	"bytes"
	"fmt"
	"os"
)

// processesOf lists the processes that were started with a text in their command
// line or environment, but for this one.
func processesOf(text string) []int {
	var found []int
	eachProc(func(p proc) {
		for _, file := range []string{"cmdline", "environ"} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, file))
			if err == nil && bytes.Contains(data, []byte(text)) && p.pid != os.Getpid() {
				found = append(found, p.pid)
				return
			}
		}
	})
	return found
}
