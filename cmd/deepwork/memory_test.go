package main

import "testing"

// A large heap is not held three times, and one in between stays as it was.
func TestGCPercentFollowsTheHeap(t *testing.T) {
	percent := gcPercentServing
	for _, c := range []struct {
		live uint64
		want int
	}{
		{10 << 20, gcPercentServing}, {largeHeap - 1, gcPercentServing}, {largeHeap + 1, gcPercentLarge},
		{largeHeap - 1, gcPercentLarge}, {largeHeap / 2, gcPercentServing},
	} {
		if percent = gcPercent(percent, c.live); percent != c.want {
			t.Errorf("with %d bytes alive it is %d, not %d", c.live, percent, c.want)
		}
	}
}
