package schedule

import (
	"os"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// A reading is an expression, and what it says in Go.
type reading struct {
	expression string
	everyHour  bool
	matches    func(month time.Month, day int, weekday time.Weekday, hour, minute int) bool
}

var readings = []reading{
	{"30 2 * * *", false, func(_ time.Month, _ int, _ time.Weekday, h, m int) bool { return h == 2 && m == 30 }},
	{"@daily", false, func(_ time.Month, _ int, _ time.Weekday, h, m int) bool { return h == 0 && m == 0 }},
	{"@hourly", true, func(_ time.Month, _ int, _ time.Weekday, h, m int) bool { return m == 0 }},
	{"*/20 * * * *", true, func(_ time.Month, _ int, _ time.Weekday, h, m int) bool { return m%20 == 0 }},
	{"5 */2 * * *", false, func(_ time.Month, _ int, _ time.Weekday, h, m int) bool { return m == 5 && h%2 == 0 }},
	{"10-50/20 0-3 * * fri-7", false, func(_ time.Month, _ int, w time.Weekday, h, m int) bool {
		return (m == 10 || m == 30 || m == 50) && h <= 3 && (w == 0 || w >= 5)
	}},
	{"0 9 * * MON-FRI", false, func(_ time.Month, _ int, w time.Weekday, h, m int) bool {
		return h == 9 && m == 0 && w >= 1 && w <= 5
	}},
	{"0 0 1 jan,jul *", false, func(mon time.Month, d int, _ time.Weekday, h, m int) bool {
		return d == 1 && h == 0 && m == 0 && (mon == 1 || mon == 7)
	}},
	{"15 1 13 * 5", false, func(_ time.Month, d int, w time.Weekday, h, m int) bool {
		return h == 1 && m == 15 && (d == 13 || w == 5)
	}},
	{"59 23 29 2 *", false, func(mon time.Month, d int, _ time.Weekday, h, m int) bool {
		return mon == 2 && d == 29 && h == 23 && m == 59
	}},
}

// zones have the jumps that other programs get wrong: by 30 minutes and 2 hours, at midnight, over a whole day, twice a
// year around a fast, without a rule.
var zones = []string{
	"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Asia/Tehran",
	"Africa/Casablanca", "Antarctica/Troll", "America/Caracas", "Asia/Pyongyang",
}

// TestDueTimes compares Next with a clock that is looked at every minute, in 10 zones. DEEPWORK_FIGURES=1 goes through
// 30 years.
func TestDueTimes(t *testing.T) {
	begin, end := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2012, 4, 1, 0, 0, 0, 0, time.UTC)
	if os.Getenv("DEEPWORK_FIGURES") != "" {
		begin, end = time.Date(1996, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := testkit.Get(time.LoadLocation(name)).Must(t)
			next := make([]time.Time, len(readings))
			times := make([]*Times, len(readings))
			for i, r := range readings {
				times[i] = testkit.Get(Parse(r.expression, name)).Must(t)
				next[i] = times[i].Next(begin)
			}

			due, wrong := 0, 0
			shown := wallAt(begin, zone) // the latest minute that the clock has shown
			for now := begin.Add(time.Minute); now.Before(end); now = now.Add(time.Minute) {
				clock := wallAt(now, zone)
				for i, r := range readings {
					is := r.at(clock) && (r.everyHour || clock.After(shown))
					for skipped := shown.Add(time.Minute); !r.everyHour && skipped.Before(clock); {
						is = is || r.at(skipped)
						skipped = skipped.Add(time.Minute)
					}
					if is != next[i].Equal(now) {
						if wrong++; wrong < 10 {
							t.Errorf("%s at %v: due is %v, Next says %v", r.expression, now.In(zone), is, next[i])
						}
					}
					if is {
						due++
						next[i] = times[i].Next(now)
					}
				}
				if clock.After(shown) {
					shown = clock
				}
			}
			t.Logf("%d due times", due)
		})
	}
}

func (r *reading) at(clock time.Time) bool {
	return r.matches(clock.Month(), clock.Day(), clock.Weekday(), clock.Hour(), clock.Minute())
}

func wallAt(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// TestRefusedSchedules has what libraries take wrongly, or panic on.
func TestRefusedSchedules(t *testing.T) {
	for expression, want := range map[string]string{
		"CRON_TZ=UTC":           "names a time zone",
		"TZ=UTC 0 9 * * *":      "names a time zone",
		"CRON_TZ=UTC 0 9 * * *": "names a time zone",
		"0 0 30 2 *":            "never due",
		"0 0 31 apr,jun *":      "never due",
		"":                      "not five fields",
		"0 9 * *":               "not five fields",
		"0 0 9 * * *":           "not five fields",
		"@every 5m":             "not five fields",
		"@every":                "not five fields",
		"@reboot":               "not five fields",
		"@often":                "unrecognized",
		"60 9 * * *":            "above maximum",
		"0 9 * * 8":             "above maximum",
		"0 9 * * xyz-7":         "no day of the week",
		"0 9 * * fri-mon":       "beyond end of range",
	} {
		_, err := Parse(expression, "UTC")
		testkit.Fails(t, err, want, expression)
	}
	for _, zone := range []string{"", "Local", "Mars/Base", "../../etc/passwd", "CET-1"} {
		_, err := Parse("@daily", zone)
		testkit.Fails(t, err, "time zone", zone)
	}
}

func TestSevenIsSunday(t *testing.T) {
	for field, want := range map[string][]int{
		"7": {0}, "0": {0}, "5-7": {0, 5, 6}, "1-7/2": {0, 1, 3, 5}, "sat-sun": {0, 6}, "6,7": {0, 6},
		"0-7":     {0, 1, 2, 3, 4, 5, 6},
		"MON-FRI": {1, 2, 3, 4, 5}, "*": {0, 1, 2, 3, 4, 5, 6}, "sun-sun": {0},
	} {
		times := testkit.Get(Parse("0 12 * * "+field, "UTC")).Must(t)
		var got []int
		at := time.Date(2024, 5, 5, 0, 0, 0, 0, time.UTC) // a Sunday
		for at = times.Next(at); at.Before(time.Date(2024, 5, 12, 0, 0, 0, 0, time.UTC)); at = times.Next(at) {
			got = append(got, int(at.Weekday()))
		}
		slices.Sort(got)
		testkit.Same(t, got, want, field)
	}
}

// FuzzParse checks that what is taken is due, later and later, and that nothing panics or hangs.
func FuzzParse(f *testing.F) {
	for _, r := range readings {
		f.Add(r.expression, "Europe/Berlin", int64(1700000000))
	}
	f.Add("CRON_TZ=UTC", "UTC", int64(0))
	f.Add("0 0 29 2 *", "Pacific/Apia", int64(4107542400))
	f.Fuzz(func(t *testing.T, expression, zone string, at int64) {
		times, err := Parse(expression, zone)
		if err != nil {
			return
		}
		after := time.Unix(at%1e11, 0)
		for range 5 {
			next := times.Next(after)
			if next.IsZero() { // leap days around 2100
				return
			}
			if !next.After(after) || next.Second() != 0 && next.Year() > 1980 {
				t.Fatalf("%q in %q: %v is followed by %v", expression, zone, after, next)
			}
			after = next
		}
	})
}
