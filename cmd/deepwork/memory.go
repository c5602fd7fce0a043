package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The server's heap is small and its calls make much garbage, so that with Go's
// default a collection is always under way; with these the process stays well
// below 64 MB with 100 jobs. A heap that has grown large, by thousands of
// connections, is not to be held three times.
const (
	gcPercentLoading = 400 // while the jobs are loaded: most of what that makes is garbage
	gcPercentServing = 200
	gcPercentLarge   = 100

	largeHeap = 48 << 20        // bytes that are alive
	heapEvery = 2 * time.Second // how often is looked whether it is
)

// tuneGC sets how much garbage may pile up, unless the user has said so (GOGC).
func tuneGC(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// gcPercent is how much may pile up on a heap of which so much is alive, where
// it is now percent. What lies between does not go back and forth.
func gcPercent(percent int, live uint64) int {
	switch {
	case live > largeHeap:
		return gcPercentLarge
	case live < largeHeap/4*3:
		return gcPercentServing
	}
	return percent
}

// followHeap tunes as the heap grows and shrinks, until ctx ends.
func followHeap(ctx context.Context) {
	percent := gcPercentServing
	tuneGC(percent)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(heapEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(live)
		if now := gcPercent(percent, live[0].Value.Uint64()); now != percent {
			percent = now
			tuneGC(percent)
		}
	}
}
