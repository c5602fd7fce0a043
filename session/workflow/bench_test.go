package workflow

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// The figures of transitions and lists, each beside a reference of the same run. Run them with
//
//	go test -run xxx -bench . ./session/workflow

// long writes a job of n steps without outputs.
func (p *project) long(n int) {
	var steps []testStep
	var ids []string
	for i := range n {
		ids = append(ids, "s"+strconv.Itoa(i))
		steps = append(steps, testStep{id: ids[i]})
	}
	p.job("alpha", steps, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
}

// BenchmarkTransition is a finished_step of one caller beside a synced write of 4 KB. Wanted: at most 1.2 writes.
func BenchmarkTransition(b *testing.B) {
	p := newProject(b)
	p.long(25)
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	f, err := os.Create(filepath.Join(b.TempDir(), "reference"))
	testkit.Must(b, err)
	defer f.Close()
	page := make([]byte, 4096)
	var wrote time.Duration
	n := 0
	for b.Loop() {
		if n++; n%24 == 0 { // the last step is never finished: another session
			b.StopTimer()
			testkit.Must(b, errOf(c.Abort(ctx, AbortArgs{Explanation: "again"})))
			p.start(c, "alpha", "main")
			b.StartTimer()
		}
		testkit.Must(b, errOf(c.Finish(ctx, FinishArgs{Outputs: []byte("{}")})))
		b.StopTimer()
		began := time.Now()
		_, err := f.WriteAt(page, 0)
		testkit.Must(b, err)
		testkit.Must(b, f.Sync())
		wrote += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(wrote), "writes/op")
}

// BenchmarkLateStep is a step after 300 others by one after 10. Wanted: at most 2.
func BenchmarkLateStep(b *testing.B) {
	p := newProject(b)
	p.long(400)
	var took [2]time.Duration
	for b.Loop() {
		for i, before := range []int{10, 300} {
			c := p.open().Connect("local")
			p.start(c, "alpha", "main")
			for range before {
				testkit.Must(b, errOf(c.Finish(ctx, FinishArgs{Outputs: []byte("{}")})))
			}
			began := time.Now()
			for range 50 {
				testkit.Must(b, errOf(c.Finish(ctx, FinishArgs{Outputs: []byte("{}")})))
			}
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "late/early")
}

// BenchmarkResumable is get_workflows in a project with 20,000 sessions, active ones, and ended ones that are
// newer than the active ones. Wanted: under 10 ms.
func BenchmarkResumable(b *testing.B) {
	for _, ended := range []bool{false, true} {
		b.Run(fmt.Sprintf("ended=%v", ended), func(b *testing.B) {
			p := newProject(b)
			p.simple("alpha")
			srv := p.open()
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			c.Close()
			s := p.record(id)
			for n := range 20_000 {
				next := *s
				next.SessionID = fmt.Sprintf("%08x", n)
				if ended && n >= keptListed {
					next.Status, next.CompletedAt = machine.Completed, &s.StartedAt
				}
				if _, err := srv.records.Write(ctx, nil, store.Session{Root: p.root}, &next, &store.SessionWrite{}); err != nil {
					b.Fatal(err)
				}
			}
			c = srv.Connect("local")
			for b.Loop() {
				if r, err := c.GetWorkflows(ctx); err != nil || len(r.Resumable) != keptListed {
					b.Fatalf("%s, %v", toJSON(b, r), err)
				}
			}
		})
	}
}

// BenchmarkTransitions is finished_step of 16 callers at once, each on a connection of its own.
func BenchmarkTransitions(b *testing.B) {
	p := newProject(b)
	p.long(400)
	srv := p.open()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		for n := 1; pb.Next(); n++ {
			if n%399 == 0 {
				c = srv.Connect("local")
				p.start(c, "alpha", "main")
			}
			testkit.Must(b, errOf(c.Finish(ctx, FinishArgs{Outputs: []byte("{}")})))
		}
	})
}
