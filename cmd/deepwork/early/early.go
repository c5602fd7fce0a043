// Package early avoids garbage collections while the program starts. It imports next to nothing, and so is initialized
// before the libraries whose tables alone would cause one, a quarter of a command's time. A start with 100 jobs takes
// one collection. After the start the heap is collected as GOGC says, and memory is given back that Go would keep for
// minutes. Nothing changes where the user has set GOGC.
package early

import (
	"os"
	"runtime/debug"
	"time"
)

const (
	percent  = 400 // growth of the heap before it is collected, of the live heap
	starting = 300 * time.Millisecond
)

func init() {
	if os.Getenv("GOGC") != "" {
		return
	}

	running := debug.SetGCPercent(percent)
	time.AfterFunc(starting, func() {
		debug.SetGCPercent(running)
		debug.FreeOSMemory()
	})
}
