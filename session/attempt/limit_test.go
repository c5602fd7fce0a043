package attempt

import (
	"testing"
	"time"

	"deepwork/catalog/task"
)

// A limit is waited for until the time that was named, or, if none was or that did not help, for longer each
// time.
func TestLimitsAreWaitedForEverLonger(t *testing.T) {
	ended := time.Now()
	limit := func(until time.Duration) task.Execution {
		return task.Execution{State: task.Failed, EndedAt: &ended, LimitedUntil: new(ended.Add(until))}
	}
	unnamed, failed := limit(0), task.Execution{State: task.Failed, EndedAt: &ended}
	many := make([]task.Execution, 50)
	for i := range many {
		many[i] = unnamed
	}
	for name, c := range map[string]struct {
		before []task.Execution // the newest first
		want   time.Duration    // after the end of the newest
	}{
		"named":                     {[]task.Execution{limit(time.Second)}, time.Second},
		"not named":                 {[]task.Execution{unnamed}, time.Minute},
		"named again, too early":    {[]task.Execution{limit(time.Second), limit(time.Second)}, 2 * time.Minute},
		"named again":               {[]task.Execution{limit(time.Hour), unnamed}, time.Hour},
		"three times":               {[]task.Execution{unnamed, unnamed, unnamed, failed, unnamed}, 4 * time.Minute},
		"all the time":              {many, 30 * time.Minute},
		"named after another error": {[]task.Execution{limit(time.Second), failed, unnamed}, time.Second},
	} {
		if got := LimitOver(c.before); !got.Equal(ended.Add(c.want)) {
			t.Errorf("%s: waits for %v, want %v", name, got.Sub(ended), c.want)
		}
	}
	for name, before := range map[string][]task.Execution{"first": nil, "error": {failed, unnamed}} {
		if got := LimitOver(before); !got.IsZero() {
			t.Errorf("%s: waits until %v", name, got)
		}
	}
}

// What agents say about limits of their providers, and until when they are to be waited for.
func TestLimitsAreRead(t *testing.T) {
	now := time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC)
	for said, want := range map[string]time.Duration{ // negative: it is no limit
		"Claude AI usage limit reached|1767265200":                                                   30 * time.Minute,
		"You've hit your session limit · resets 3pm":                                                 4*time.Hour + 30*time.Minute,
		"You've hit your weekly limit, it resets at 9:15 AM":                                         22*time.Hour + 45*time.Minute,
		"You've hit your usage limit. Try again in 2 days 3 hours 12 minutes.":                       51*time.Hour + 12*time.Minute,
		"You've hit your usage limit. Upgrade to Pro, or try again in 5 days, 1 hour and 3 minutes.": 121*time.Hour + 3*time.Minute,
		"429 Too Many Requests, retry-after: 20":                                                     20 * time.Second,
		"rate limit reached, please try again in 1.5s":                                               1500 * time.Millisecond,
		"rate limit: try again at 2026-01-01T12:30:00+01:00":                                         time.Hour,
		`{"type":"error","error":{"type":"rate_limit_error"}}`:                                       0,
		"usage limit reached|9999999999":                                                             0, // nobody waits for centuries
		"RESOURCE_EXHAUSTED":                                                                         0,
		"I give up, try again in 2 hours":                                                            -1,
		"":                                                                                           -1,
	} {
		until := limitOf(now, said)
		switch {
		case want < 0 && until != nil, want >= 0 && until == nil:
			t.Errorf("%q: %v", said, until)
		case want >= 0 && !until.Equal(now.Add(want)):
			t.Errorf("%q: until %v, want %v", said, until, now.Add(want))
		}
	}
}
