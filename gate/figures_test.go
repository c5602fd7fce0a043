package gate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
)

// "Cancelling 100 hanging reviews leaves no process and no goroutine behind
// after 2 s." Each of these ignores SIGTERM, and so does its child, which holds
// the pipes. That nothing is left is checked; how soon is logged, since it says
// more of what else the machine does than of the gate.
func TestFigure_CancellingAHundredHangingReviews(t *testing.T) {
	const n = 100
	before := runtime.NumGoroutine()
	p := newProject(t)
	h := testkit.NewHub(t)
	g := Open(Options{Root: p.root, Settings: always(Settings{Command: command("stubborn", h.Addr().String()), MaxConcurrent: n})})
	ctx, cancel := context.WithCancel(t.Context())
	verdicts := make(chan Verdict, n)
	for i := range n {
		s := p.submission("step")
		testkit.Must(t, g.Run(ctx, fmt.Sprint(i), s, p.plan(s), func(v Verdict) { verdicts <- v }))
	}
	var all []*testkit.Visitor
	for range 2 * n {
		all = append(all, h.Next())
	}
	began := time.Now()
	cancel()
	deadline := began.Add(patience)
	for n := range n {
		select {
		case v := <-verdicts:
			fault(t, v, Cancelled)
		case <-time.After(time.Until(deadline)):
			t.Fatalf("%d verdicts came: %+v", n, g.Stats())
		}
	}
	t.Logf("the last verdict came after %v", time.Since(began))
	for _, v := range all {
		v.Gone()
	}
	for runtime.NumGoroutine() > before+1 && time.Now().Before(deadline) { // the gate's dispatcher
		time.Sleep(time.Millisecond)
	}
	t.Logf("%.2f gone-s", time.Since(began).Seconds())
	if n := runtime.NumGoroutine(); n > before+1 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// alone measures what the reviewer takes when it runs alone: the median.
func alone(b testing.TB, p *project, cmd []string, n int) time.Duration {
	var times []time.Duration
	for range n {
		began := time.Now()
		testkit.Must(b, testkit.Get(process.Run(b.Context(), process.Spec{Command: cmd, Dir: p.root, Stdin: []byte("task")})).Err())
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[n/2]
}

// "200 sessions asking for a review at once with 4 workers and a 50 ms reviewer:
// all done in no more than 1.3 times the ideal 200/4 × the reviewer's own measured
// time, with never more than 4 running."
func BenchmarkPool(b *testing.B) {
	const sessions, workers = 200, 4
	p := &project{b, b.TempDir()}
	p.write("report.md", "# Tides\n")
	h := testkit.NewHub(b)
	most := count(b, h, 1)
	cmd := command("work", h.Addr().String(), "50ms")
	g := Open(Options{Root: p.root, Settings: always(Settings{Command: cmd, MaxConcurrent: workers, MaxInlineFiles: 5})})
	defer g.Close(context.Background())
	s := p.submission("step").submit("report", "report.md")
	tasks := p.plan(s)
	var total, own time.Duration
	for b.Loop() {
		own += alone(b, p, cmd, 15)
		verdicts := make(chan Verdict, sessions)
		began := time.Now()
		for i := range sessions {
			testkit.Must(b, g.Run(b.Context(), fmt.Sprint(i), s, tasks, func(v Verdict) { verdicts <- v }))
		}
		for range sessions {
			if v := <-verdicts; v.Err != nil {
				b.Fatal(v.Err)
			}
		}
		total += time.Since(began)
	}
	if n := most(); n > workers {
		b.Errorf("%d reviewers ran at once", n)
	}
	own /= time.Duration(b.N)
	total /= time.Duration(b.N)
	b.ReportMetric(float64(own.Microseconds())/1000, "ms-alone")
	b.ReportMetric(float64(total)/float64(own*sessions/workers), "x-ideal")
	b.ReportMetric(float64(most()), "at-once")
}

// "Building a review of 5 files of 1 MB takes no more than 3 times reading them."
// Read is os.ReadFile of the five, build the whole prompt with them in it. The
// check of its content against the submitted hashes comes before a review too,
// and is told apart.
func BenchmarkBuild(b *testing.B) {
	p := &project{b, b.TempDir()}
	var paths []string
	for i := range 5 {
		paths = append(paths, fmt.Sprintf("%d.md", i))
		p.write(paths[i], strings.Repeat("A line of text, as there are many in reports.\n", 1_000_000/46))
	}
	s := p.submission("step").submit("docs", paths...)
	task := &p.plan(s)[0]
	read := func() {
		for _, f := range paths {
			testkit.Must(b, testkit.Get(os.ReadFile(filepath.Join(p.root, f))).Err())
		}
	}
	build := func() *builder {
		w := &builder{sub: &s, task: task, root: p.root, inline: 5, nonce: testNonce}
		testkit.Must(b, testkit.Get(w.build(b.Context(), true)).Err())
		return w
	}
	var reading, building, checking time.Duration
	for b.Loop() {
		began := time.Now()
		read()
		middle := time.Now()
		w := build()
		end := time.Now()
		testkit.Must(b, w.check(b.Context()))
		reading += middle.Sub(began)
		building += end.Sub(middle)
		checking += time.Since(end)
	}
	b.SetBytes(5_000_000)
	b.ReportMetric(float64(reading.Microseconds())/1000/float64(b.N), "ms-read")
	b.ReportMetric(float64(building.Microseconds())/1000/float64(b.N), "ms-build")
	b.ReportMetric(float64(checking.Microseconds())/1000/float64(b.N), "ms-check")
	b.ReportMetric(float64(building)/float64(reading), "x-read")
}
