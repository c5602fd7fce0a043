package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The bounds of a load's figures.
const (
	leastThroughput = 0.55 // of what the SDK and the disk leave
	mostSpread      = 10   // p99 by p50
	mostGrowth      = 0.10 // of a server's memory, once it has settled
)

// A report is what came of a load.
type report struct {
	took    time.Duration
	memory  []*memory
	yard    yardstick
	checked int // session files
}

// report writes the report. With -strict, figures that miss their bounds are faults.
func (l *load) report(rep *report) {
	h := l.history
	print := func(format string, args ...any) { fmt.Fprintf(l.out, format, args...) }
	transitions := h.transitions()
	perSecond := float64(transitions) / rep.took.Seconds()
	l.figures["transitions"], l.figures["transitions/s"], l.figures["checked"] = float64(transitions), perSecond, float64(rep.checked)
	l.figures["saves"], l.figures["moves"] = float64(l.saves.total()), float64(l.moves.Load())
	print("%d connections, stacks %d deep, groups of %d, %d servers, seed %d: %.1f s\n", l.Connections, l.Depth, l.group, len(l.servers), l.seed, rep.took.Seconds())
	print("%d transitions acknowledged in %d sessions: %.0f a second\n", transitions, len(h.sessions), perSecond)
	print("%d saves of job files, %d replies lost, %d crashes of clients, %d moves between servers\n\n", l.saves.total(), h.lost, l.crashes.Load(), l.moves.Load())
	if n := l.heldUp.Load(); n > 0 {
		print("%d calls are not judged: the machine stood still, so that a job file was away for more than %v in the middle of a save, or a connection idle for more than %v\n\n", n, awayFor, idleTimeout)
	}

	all := maps.Clone(h.took)
	all["~all"] = slices.Concat(slices.Collect(maps.Values(h.took))...) // behind the others
	print("%-16s %9s %9s %9s %9s\n", "tool", "calls", "p50", "p99", "max")
	spread := 0.0
	for _, tool := range slices.Sorted(maps.Keys(all)) {
		took := slices.Sorted(slices.Values(all[tool]))
		n := len(took)
		if n == 0 {
			continue
		}
		p50, p99 := took[n/2], took[n*99/100]
		spread = float64(p99) / float64(p50)
		ms := func(d time.Duration) string { return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000) }
		print("%-16s %9d %9s %9s %9s\n", strings.TrimPrefix(tool, "~"), n, ms(p50), ms(p99), ms(took[n-1]))
	}
	print("\n")

	miss := func(is bool, format string, args ...any) {
		if is && l.Strict {
			h.fault("a figure that misses its bound", format, args...)
		}
	}
	for i, m := range rep.memory {
		then, end, settled := m.figures()
		at := "half of the time"
		if settled {
			at = settledAfter.String()
		}
		if i == 0 && settled {
			l.figures["settled-MB"], l.figures["end-MB"] = then/(1<<20), end/(1<<20)
		}
		print("memory of server %d: %.1f MB after %s, %.1f MB at the end\n", i+1, then/(1<<20), at, end/(1<<20))
		miss(settled && end > then*(1+mostGrowth), "the memory of server %d grew from %.1f MB to %.1f MB; within %.0f %% is wanted", i+1, then/(1<<20), end/(1<<20), 100*mostGrowth)
	}
	if spread > 0 {
		l.figures["p99/p50"] = spread
		print("p99 is %.1f times p50 (at most %d is wanted)\n", spread, mostSpread)
		miss(spread > mostSpread, "p99 is %.1f times p50, at most %d is wanted", spread, mostSpread)
	}
	if l.Bench {
		part := perSecond / rep.yard.ceiling()
		l.figures["echoes/s"], l.figures["writes/s"], l.figures["of-ceiling"] = rep.yard.echoes, rep.yard.writes, part
		print("e: %.0f echoes a second of the bare SDK; w: %.0f synced writes a second; 1/(1/e + 1/w): %.0f\n", rep.yard.echoes, rep.yard.writes, rep.yard.ceiling())
		print("throughput is %.2f of that (at least %.2f is wanted)\n", part, leastThroughput)
		miss(part < leastThroughput, "throughput is %.2f of what the SDK and the disk leave, at least %.2f is wanted", part, leastThroughput)
	}
	print("%d session files checked at the end, and %d on the way\n\n", rep.checked, l.spots.Load())

	l.figures["wrong"] = 0
	for _, f := range h.found() {
		l.figures["wrong"] += float64(f.count)
		print("WRONG: %s, %d times; for example:\n  %s\n", f.kind, f.count, strings.ReplaceAll(fmt.Sprintf("%.4000s", f.examples[0]), "\n", "\n  "))
	}
	if l.figures["wrong"] == 0 {
		print("all is well: no call failed, and every file tells what was acknowledged\n")
	}
}

// transitions is how many transitions were acknowledged, starts included.
func (h *history) transitions() (n int) {
	for _, s := range h.sessions {
		for _, o := range s.ops {
			if tool := o.Input.(input).Tool; tool != "get_step" && tool != "file" && o.Output != lostReply {
				n++
			}
		}
	}
	return n
}
