// Package schedule starts runs of workflows at the due times of schedules: each due time is one run, or one recorded
// skip with its reason, whatever ends in between.
//
// The concepts to know:
//
//   - a store.Schedule; its due times (package catalog/schedule), which are missed if they are over a minute late
//   - Decide, pure: what becomes of the first due times, given the schedule, the time, and whether a run is open
//   - firing: one transaction that swaps the next due time, writes the record and creates the run
//     (store.Schedules.Fire). So any number of processes may fire at once, and none needs a claim
//   - Engine, which prepares runs and fires; Serve, which makes the schedules of a store wake it, as a kind of work
//   - a refusal: this machine cannot start the run, but another one may
package schedule

import (
	"encoding/json"
	"fmt"
	"time"

	times "deepwork/catalog/schedule"
	"deepwork/session/board"
	"deepwork/session/store"
)

// What happens at a due time while a run of the schedule has not ended.
const (
	OverlapSkip  = "skip"
	OverlapQueue = "queue_one" // the run starts when the other one has ended; one waits at most
	OverlapAllow = "allow"
)

// What happens to due times that were missed.
const (
	CatchUpLatest = "latest" // the newest one starts, unless another one is due now
	CatchUpSkip   = "skip"
	CatchUpAll    = "all" // the newest maxCatchUp start, oldest first
)

const (
	missedAfter = time.Minute
	maxCatchUp  = 10
)

// Decide says what becomes of the first due times of a schedule. A process calls it again until nothing is due.
func Decide(s *store.ScheduleState, t *times.Times) store.Decision {
	d := store.Decision{Next: s.Next}
	if s.Paused || s.Failing {
		return d
	}
	if s.Queued != nil && s.OpenRun == "" {
		d.DueTime = store.DueTime{DueAt: *s.Queued, Count: 1, Outcome: store.DueStarted}
		return d
	}

	refused := refusalsOf(s)
	due := dues(s, t, refused.DueAt)
	if due.first.IsZero() {
		return d
	}
	// a refused one is over before those after it are missed
	if skip := due.missed - due.kept; skip > 0 && !due.first.Equal(refused.DueAt) {
		d.DueTime = store.DueTime{DueAt: due.first, Count: skip, Outcome: store.DueSkipped, Reason: missed(s, skip)}
		if skip > 1 {
			d.Until = &due.lastSkipped
		}
		d.Next = t.Next(due.lastSkipped)
		return d
	}

	d.DueTime = store.DueTime{DueAt: due.first, Count: 1, Outcome: store.DueStarted}
	d.Next = t.Next(due.first)
	if s.OpenRun != "" && s.Overlap != OverlapAllow {
		run := board.Short(s.OpenRun)
		switch {
		case s.Overlap == OverlapQueue && s.Queued == nil:
			d.Outcome = store.DueQueued
		case s.Overlap == OverlapQueue:
			d.Outcome, d.Reason = store.DueSkipped, "The run "+run+" had not ended, and another one waited for that."
		default:
			d.Outcome, d.Reason = store.DueSkipped, "The run "+run+" had not ended."
		}
	}
	return d
}

// refusalsOf returns why machines could not start a due time lately; those that cannot be read count as none.
func refusalsOf(s *store.ScheduleState) *store.Refusals {
	all := &store.Refusals{}
	_ = json.Unmarshal(s.Refusals, all)
	return all
}

// backlog has the due times up to now.
type backlog struct {
	first        time.Time // zero if nothing is due
	missed, kept int       // how many were missed, and how many of these start nevertheless
	lastSkipped  time.Time // of those that were missed and are not kept
}

// dues goes through the due times up to now. The one that machines have refused lately is not missed.
func dues(s *store.ScheduleState, t *times.Times, refused time.Time) (b backlog) {
	var newest []time.Time // that were missed
	onTime := 0
	for at := s.Next; !at.IsZero() && !at.After(s.Now); at = t.Next(at) {
		if b.first.IsZero() {
			b.first = at
		}
		if s.Now.Sub(at) <= missedAfter || at.Equal(refused) {
			onTime++
			continue
		}
		b.missed++
		if newest = append(newest, at); len(newest) > maxCatchUp+1 {
			newest = newest[1:]
		}
	}

	keep := 0
	switch {
	case s.CatchUp == CatchUpAll:
		keep = maxCatchUp
	case s.CatchUp == CatchUpLatest && onTime == 0:
		keep = 1
	}
	for b.kept < min(keep, len(newest)) && s.Now.Sub(newest[len(newest)-1-b.kept]) <= s.CatchUpWithin {
		b.kept++
	}
	if b.kept < b.missed {
		b.lastSkipped = newest[len(newest)-1-b.kept]
	}
	return b
}

func missed(s *store.ScheduleState, n int) string {
	late := "Nothing could start it within a minute"
	if n > 1 {
		late = "Nothing could start them within a minute"
	}
	switch {
	case s.CatchUp == CatchUpSkip:
		return late + ", and the schedule skips what is missed."
	case s.CatchUp == CatchUpAll:
		return fmt.Sprintf("%s, and only the newest %d of the last %v are caught up.", late, maxCatchUp,
			hours(s.CatchUpWithin))
	}
	return fmt.Sprintf("%s, and only the latest one of the last %v is caught up.", late, hours(s.CatchUpWithin))
}

func hours(d time.Duration) string { return fmt.Sprintf("%gh", d.Hours()) }

// Passed says what becomes of the due times while a schedule was paused: they are one skip.
func Passed(s *store.ScheduleState, t *times.Times) store.Decision {
	d := store.Decision{Next: s.Next}
	for at := s.Next; !at.IsZero() && !at.After(s.Now); at = d.Next {
		d.Until = new(at)
		d.Count++
		d.Next = t.Next(at)
	}
	if d.Count == 0 {
		return d
	}
	d.Schedule, d.DueAt, d.Outcome, d.Reason = s.ID, s.Next, store.DueSkipped, "The schedule was paused."
	if d.Count == 1 {
		d.Until = nil
	}
	return d
}
