package main

import (
	"os"
	"runtime/debug"
)

// The server's heap is small and its calls make much garbage, so that with Go's
// default a collection is always under way; with these the process stays well
// below 64 MB with 100 jobs.
const (
	gcPercentLoading = 400 // while the jobs are loaded: most of what that makes is garbage
	gcPercentServing = 200
)

// tuneGC sets how much garbage may pile up, unless the user has said so (GOGC).
func tuneGC(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
