package load

import (
	"fmt"
	"strings"
	"time"
)

// The bounds of a run's figures.
const (
	leastThroughput = 0.6 // of what the SDK and the disk leave
	mostSpread      = 10  // p99 by p50
)

// A report is what came of a run.
type report struct {
	took      time.Duration
	latencies []*latencies
	memory    []*memory
	yard      yardstick
	checked   int // session files
}

// print writes the report. With Strict, figures that miss their bounds are added
// to what is wrong.
func (rep *report) print(r *run) {
	out := r.Out
	transitions, sessions := r.ledger.acknowledged()
	perSecond := float64(transitions) / rep.took.Seconds()
	fmt.Fprintf(out, "%d connections, stacks %d deep, groups of %d, %d servers, seed %d: %.1f s\n",
		r.Connections, r.Depth, r.Group, len(r.servers), r.Seed, rep.took.Seconds())
	fmt.Fprintf(out, "%d transitions acknowledged in %d sessions: %.0f a second\n", transitions, sessions, perSecond)
	fmt.Fprintf(out, "%d saves of job files, %d replies lost, %d crashes of clients, %d moves between servers\n\n",
		r.book.total(), r.lost.Load(), r.crashes.Load(), r.moves.Load())
	if n := r.heldUp.Load(); n > 0 {
		fmt.Fprintf(out, "%d calls are not judged: the machine stood still, so that a job file was away for more than %v in the middle of a save, or a connection idle for more than %v\n\n", n, awayFor, idleTimeout)
	}

	byTool, all := merged(rep.latencies)
	fmt.Fprintf(out, "%-16s %9s %9s %9s %9s\n", "tool", "calls", "p50", "p99", "max")
	for _, q := range append(byTool, all) {
		fmt.Fprintf(out, "%-16s %9d %9s %9s %9s\n", q.Tool, q.Calls, short(q.P50), short(q.P99), short(q.Max))
	}
	fmt.Fprintln(out)

	var missed []string
	miss := func(format string, args ...any) { missed = append(missed, fmt.Sprintf(format, args...)) }
	for i, m := range rep.memory {
		then, end, settled := m.figures()
		at := "half of the time"
		if settled {
			at = settledAfter.String()
		}
		fmt.Fprintf(out, "memory of server %d: %s after %s, %s at the end\n", i+1, megabytes(then), at, megabytes(end))
		if settled && end > then*(1+mostGrowth) {
			miss("the memory of server %d grew from %s to %s; within %.0f %% is wanted", i+1, megabytes(then), megabytes(end), 100*mostGrowth)
		}
	}
	if all.P50 > 0 {
		spread := float64(all.P99) / float64(all.P50)
		fmt.Fprintf(out, "p99 is %.1f times p50 (at most %d is wanted)\n", spread, mostSpread)
		if spread > mostSpread {
			miss("p99 is %.1f times p50, at most %d is wanted", spread, mostSpread)
		}
	}
	if r.Bench {
		part := perSecond / rep.yard.ceiling()
		fmt.Fprintf(out, "e: %.0f echoes a second of the bare SDK; w: %.0f synced writes a second; 1/(1/e + 1/w): %.0f\n", rep.yard.echoes, rep.yard.writes, rep.yard.ceiling())
		fmt.Fprintf(out, "throughput is %.2f of that (at least %.1f is wanted)\n", part, leastThroughput)
		if part < leastThroughput {
			miss("throughput is %.2f of what the SDK and the disk leave, at least %.1f is wanted", part, leastThroughput)
		}
	}
	if r.Strict {
		for _, m := range missed {
			r.add("a figure that misses its bound", m)
		}
	}
	fmt.Fprintf(out, "%d session files checked at the end, and %d on the way\n\n", rep.checked, r.spots.Load())

	wrong := r.bag.all()
	if len(wrong) == 0 {
		fmt.Fprintln(out, "all is well: no call failed, and every file tells what was acknowledged")
		return
	}
	for _, w := range wrong {
		fmt.Fprintf(out, "WRONG: %s, %d times; for example:\n  %s\n", w.Kind, w.Count, strings.ReplaceAll(clip(w.Example, 2000), "\n", "\n  "))
	}
}

func short(d time.Duration) string { return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000) }

func megabytes(b float64) string { return fmt.Sprintf("%.1f MB", b/(1<<20)) }

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
