package load

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"
)

// What a report prints is what Figures reads: every number that is looked for, of a
// run and of idle connections.
func TestFiguresAreReadFromTheReport(t *testing.T) {
	var out bytes.Buffer
	m := &memory{}
	for s := range 61 {
		m.samples = append(m.samples, sample{time.Duration(s) * time.Second, float64(40+s/10) * (1 << 20)})
	}
	r := &run{Options: Options{Bench: true, Out: &out, Connections: 64, Depth: 8, Group: 4}, wrong: wrong{newWrongs()}, book: newBook(4, 1), ledger: newLedger(4), servers: []*server{{}}}
	r.moves.Store(7)
	l := &latencies{}
	for i := range 200 {
		l.add("finished_step", time.Duration(1+i/100*9)*time.Millisecond)
	}
	rep := &report{took: 60 * time.Second, latencies: []*latencies{l}, memory: []*memory{m}, yard: yardstick{echoes: 3000, writes: 1500}, checked: 41}
	rep.print(r)
	printIdle(&out, 5000, 70<<10, 40<<10)
	got := Figures(out.String())
	for name := range reported {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is not read from\n%s", name, out.String())
		}
	}
	for name, want := range map[string]float64{"moves": 7, "ceiling/s": 1000, "checked": 41, "wrong": 0, "echoes/s": 3000, "writes/s": 1500, "more-KB": 30, "idle-KB": 70, "bare-KB": 40, "settled-MB": 41.6} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v, in\n%s", name, got[name], want, out.String())
		}
	}

	// What is wrong is told, too.
	r.add("a call that failed", "for example this")
	r.add("a call that failed", "and this")
	out.Reset()
	rep.print(r)
	if got := Figures(out.String()); got["wrong"] != 2 {
		t.Errorf("%v of\n%s", got, out.String())
	}
	if got := Figures("a text of something else"); len(got) != 0 {
		t.Errorf("%v", slices.Collect(maps.Keys(got)))
	}
}
