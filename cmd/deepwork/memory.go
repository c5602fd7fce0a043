package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercentLoading is how much garbage may pile up while the jobs are loaded:
// most of what that makes is garbage.
const gcPercentLoading = 400

// heapEvery is how often is looked how large the heap is.
const heapEvery = 2 * time.Second

// A gcRoom is how much garbage may pile up: so many bytes, but no less than there
// are alive, and no more than so many percent of that.
type gcRoom struct {
	bytes   uint64
	percent int
}

// The server's heap is small and its calls make much garbage, so that with Go's
// default a collection is always under way. A heap that has grown large, by
// thousands of connections, is not to be held three times.
var (
	// gcStdio is for a server of one agent: the process stays well below 64 MB
	// with 100 jobs.
	gcStdio = gcRoom{96 << 20, 200}
	// gcNetwork is for a server of many, whose calls come hundreds a second: with
	// half of the collections a tenth less of the processor goes into one.
	gcNetwork = gcRoom{64 << 20, 400}
)

// percentOf is what the room is of a heap of which so much is alive, in percent.
func (r gcRoom) percentOf(live uint64) int {
	return max(100, int(min(uint64(r.percent), r.bytes*100/max(1, live))))
}

// tuneGC sets how much garbage may pile up, unless the user has said so (GOGC).
func tuneGC(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// followHeap tunes as the heap grows and shrinks, until ctx ends.
func followHeap(ctx context.Context, room gcRoom) {
	percent := room.percent
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
		// Tuning stops the world for a moment: not for a little more or less.
		if now := room.percentOf(live[0].Value.Uint64()); now > percent+percent/10 || now < percent-percent/10 {
			percent = now
			tuneGC(percent)
		}
	}
}
