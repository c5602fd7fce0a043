package schedule

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	times "deepwork/catalog/schedule"
	"deepwork/session/store"
)

// TestDecide goes through overlap, catch-up and how long nothing was looked at.
func TestDecide(t *testing.T) {
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, overlap, catchUp string
		late                   time.Duration // of now, after the first due time; hourly
		open, queued           bool
		outcomes               []string // in order
		counts                 []int
	}{
		{"in time", OverlapSkip, CatchUpLatest, 0, false, false, []string{"started"}, []int{1}},
		{"not yet", OverlapSkip, CatchUpLatest, -time.Second, false, false, nil, nil},
		{"in time, open, skip", OverlapSkip, CatchUpLatest, 0, true, false, []string{"skipped"}, []int{1}},
		{"in time, open, queue", OverlapQueue, CatchUpLatest, 0, true, false, []string{"queued"}, []int{1}},
		{"in time, open, queued", OverlapQueue, CatchUpLatest, 0, true, true, []string{"skipped"}, []int{1}},
		{"in time, open, allow", OverlapAllow, CatchUpLatest, 0, true, false, []string{"started"}, []int{1}},
		{"over, queued", OverlapQueue, CatchUpLatest, -time.Second, false, true, []string{"started"}, []int{1}},
		{"60 s", OverlapSkip, CatchUpSkip, time.Minute, false, false, []string{"started"}, []int{1}},
		{"61 s, skip", OverlapSkip, CatchUpSkip, 61 * time.Second, false, false, []string{"skipped"}, []int{1}},
		{"61 s, latest", OverlapSkip, CatchUpLatest, 61 * time.Second, false, false, []string{"started"}, []int{1}},
		{"a laptop slept for two days, latest", OverlapAllow, CatchUpLatest, 48*time.Hour + 5*time.Minute, false, false,
			[]string{"skipped", "started"}, []int{48, 1}},
		{"two days, on the hour, latest", OverlapAllow, CatchUpLatest, 48 * time.Hour, false, false,
			[]string{"skipped", "started"}, []int{48, 1}},
		{"two days, skip", OverlapAllow, CatchUpSkip, 48*time.Hour + 5*time.Minute, false, false,
			[]string{"skipped"}, []int{49}},
		{"an hour is skipped by the clock, all", OverlapAllow, CatchUpAll, time.Hour, false, false,
			[]string{"started", "started"}, []int{1, 1}},
		{"12 hours, all", OverlapAllow, CatchUpAll, 11*time.Hour + 5*time.Minute, false, false,
			[]string{"skipped", "started", "started", "started", "started", "started", "started", "started", "started",
				"started", "started"}, []int{2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			hourly := testkit.Get(times.Parse("@hourly", "UTC")).Must(t)
			s := store.ScheduleState{Schedule: store.Schedule{Next: begin, Overlap: c.overlap, CatchUp: c.catchUp,
				CatchUpWithin: 7 * 24 * time.Hour}, Now: begin.Add(c.late)}
			if c.open {
				s.OpenRun = "0a1b2c3d"
			}
			if c.queued {
				s.Queued = new(begin.Add(-time.Hour))
			}
			var outcomes []string
			var counts []int
			for range 20 {
				d := Decide(&s, hourly)
				if d.DueAt.IsZero() {
					break
				}
				testkit.Equal(t, (d.Reason != ""), d.Outcome == store.DueSkipped)
				outcomes, counts = append(outcomes, d.Outcome), append(counts, d.Count)
				s.Next = d.Next
				if d.Outcome == store.DueStarted {
					s.Queued = nil
				}
			}
			testkit.True(t, slices.Equal(outcomes, c.outcomes), "outcomes: %v, want %v", outcomes, c.outcomes)
			testkit.True(t, slices.Equal(counts, c.counts), "counts: %v, want %v", counts, c.counts)
		})
	}
}

// TestDecideOutsideTheWindow: what is older than the window is one skip, also of a schedule that catches up all.
func TestDecideOutsideTheWindow(t *testing.T) {
	daily := testkit.Get(times.Parse("@daily", "UTC")).Must(t)
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s := store.ScheduleState{Schedule: store.Schedule{Next: begin, Overlap: OverlapAllow, CatchUp: CatchUpLatest,
		CatchUpWithin: time.Hour}, Now: begin.Add(50 * time.Hour)}
	d := Decide(&s, daily)
	testkit.Equal(t, d.Count, 3)
	testkit.Equal(t, d.Outcome, store.DueSkipped)
	testkit.Equal(t, d.Next, begin.Add(72*time.Hour))
	testkit.Equal(t, *d.Until, begin.Add(48*time.Hour))
}

// TestPassed: what was due while a schedule was paused is one skip, and the next time is after now.
func TestPassed(t *testing.T) {
	hourly := testkit.Get(times.Parse("@hourly", "UTC")).Must(t)
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s := store.ScheduleState{Schedule: store.Schedule{Next: begin, Paused: true}, Now: begin.Add(150 * time.Minute)}
	testkit.Equal(t, Decide(&s, hourly).DueAt, time.Time{})
	d := Passed(&s, hourly)
	testkit.Equal(t, d.Count, 3)
	testkit.Equal(t, d.Next, begin.Add(3*time.Hour))
}

// TestDecideOfARefusedTime: a due time that no machine could start yet is not missed, and stays the first one while
// later ones are missed.
func TestDecideOfARefusedTime(t *testing.T) {
	hourly := testkit.Get(times.Parse("@hourly", "UTC")).Must(t)
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	refusals := testkit.Get(json.Marshal(store.Refusals{DueAt: begin})).Must(t)
	s := store.ScheduleState{Schedule: store.Schedule{Next: begin, CatchUp: CatchUpSkip, Refusals: refusals},
		Now: begin.Add(150 * time.Minute)}
	d := Decide(&s, hourly)
	testkit.Equal(t, d.Outcome, store.DueStarted)
	testkit.True(t, d.DueAt.Equal(begin), "%v is decided", d.DueAt)
	testkit.True(t, d.Next.Equal(begin.Add(time.Hour)), "%v is next", d.Next)
}
