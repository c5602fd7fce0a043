package load

import (
	"testing"
	"time"
)

// Growth is told from 20 s on, and not of a run that is too short to tell.
func TestMemoryTellsGrowth(t *testing.T) {
	m := &memory{}
	for s := range 61 {
		m.samples = append(m.samples, sample{time.Duration(s) * time.Second, float64(min(s, 20)*10 + s)})
	}
	then, end, settled := m.figures()
	if !settled || then < 210 || then > 220 || end < 250 || end > 260 {
		t.Errorf("after 20 s %v, at the end %v, settled: %v", then, end, settled)
	}
	m.samples = m.samples[:11]
	if _, end, settled := m.figures(); settled || end == 0 {
		t.Errorf("of 10 s: %v at the end, settled: %v", end, settled)
	}
	if then, end, settled := (&memory{}).figures(); then != 0 || end != 0 || settled {
		t.Errorf("of nothing: %v, %v, %v", then, end, settled)
	}
}
