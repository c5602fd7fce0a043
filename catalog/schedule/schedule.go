// Package schedule says when a schedule is due: a cron expression of five fields, in a time zone.
//
// A minute that the clock jumps over is due at the first moment after the jump, and one that comes twice is due the
// first time. With the hour "*", a minute is due whenever the clock shows it: never in a jump, and twice in an hour
// that comes twice.
package schedule

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Times are the due times of an expression. A Times never changes.
type Times struct {
	walls *cron.SpecSchedule // what a clock on the wall shows, as if it was UTC
	zone  *time.Location
}

// everyHour is the bit that the parser sets for the hour "*".
const everyHour = 1 << 63

// Parse reads an expression of five fields, or @hourly, @daily, @weekly, @monthly or @yearly, in an IANA time zone.
// Days of the week are 0 to 7 (0 and 7 are Sunday), or names.
func Parse(expression, zone string) (*Times, error) {
	in, err := load(zone)
	if err != nil {
		return nil, err
	}

	fields := strings.Fields(expression)
	switch {
	case strings.Contains(expression, "="):
		return nil, fmt.Errorf("the schedule %q names a time zone: give it apart from the expression", expression)
	case len(fields) == 1 && strings.HasPrefix(fields[0], "@") && fields[0] != "@every" && fields[0] != "@reboot":
	case len(fields) != 5:
		return nil, fmt.Errorf("the schedule %q is not five fields (minute, hour, day of the month, month, day of the "+
			"week), such as \"0 9 * * mon-fri\", and none of @hourly, @daily, @weekly, @monthly and @yearly",
			expression)
	default:
		if fields[4], err = withoutSeven(fields[4]); err != nil {
			return nil, fmt.Errorf("the schedule %q: %v", expression, err)
		}
	}

	parsed, err := cron.ParseStandard(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("the schedule %q: %v", expression, err)
	}
	t := &Times{zone: in}
	if t.walls, _ = parsed.(*cron.SpecSchedule); t.walls == nil {
		return nil, fmt.Errorf("the schedule %q is not five fields", expression)
	}
	t.walls.Location = time.UTC
	// every date of the calendar comes within 5 years of one of these, but for leap days around 2100
	if t.walls.Next(time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("the schedule %q is never due: no month has such a day", expression)
	}
	return t, nil
}

func load(zone string) (*time.Location, error) {
	if zone == "" || zone == "Local" {
		return nil, errors.New("a schedule needs the name of a time zone, such as Europe/Berlin or UTC")
	}
	in, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("the time zone %q is unknown: use a name such as Europe/Berlin or UTC", zone)
	}
	return in, nil
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

var rangeToSeven = regexp.MustCompile(`^([0-6]|[a-z]{3})-(7|sun)(?:/([1-9]))?$`)

// withoutSeven rewrites the field of weekdays for a parser whose weeks begin with Sunday and that knows no day 7.
func withoutSeven(field string) (string, error) {
	parts := strings.Split(strings.ToLower(field), ",")
	for i, part := range parts {
		if part == "7" {
			parts[i] = "0"
			continue
		}
		m := rangeToSeven.FindStringSubmatch(part)
		if m == nil {
			continue
		}
		first, err := strconv.Atoi(m[1])
		if err != nil {
			first = slices.Index(days, m[1])
		}
		if first < 0 {
			return "", fmt.Errorf("%q is no day of the week: use 0 to 7 or sun, mon, tue, wed, thu, fri and sat", m[1])
		}
		if first == 0 && m[2] == "sun" {
			parts[i] = "0"
			continue
		}
		step, _ := strconv.Atoi(m[3])
		var named []string
		for day := first; day <= 7; day += max(step, 1) {
			named = append(named, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(named, ",")
	}
	return strings.Join(parts, ","), nil
}

// Next returns the first due time after a moment, in the schedule's time zone.
func (t *Times) Next(after time.Time) time.Time {
	from := after.In(t.zone)
	strictly := true // from itself is not meant
	for {
		_, offset := from.Zone()
		begin, end := from.ZoneBounds() // of the time in which the offset holds
		search := wall(from, offset)
		if !strictly {
			search = search.Add(-time.Nanosecond)
		}
		if !begin.IsZero() && t.walls.Hour&everyHour == 0 {
			_, earlier := begin.Add(-time.Nanosecond).Zone()
			shown := wall(begin, earlier) // everything before it
			if !strictly && earlier < offset && t.walls.Next(shown.Add(-time.Nanosecond)).Before(wall(begin, offset)) {
				return begin
			}
			if earlier > offset && search.Before(shown) {
				search = shown.Add(-time.Nanosecond)
			}
		}

		next := t.walls.Next(search)
		if next.IsZero() {
			return time.Time{}
		}
		if due := next.Add(-time.Duration(offset) * time.Second); end.IsZero() || due.Before(end) {
			return due.In(t.zone)
		}
		from, strictly = end, false
	}
}

// wall is what a clock with an offset shows, as if it was UTC.
func wall(t time.Time, offset int) time.Time {
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// Zone returns the name of this machine's time zone, or "" if it cannot be told.
func Zone() string {
	name := strings.TrimPrefix(os.Getenv("TZ"), ":")
	if name == "" {
		target, _ := filepath.EvalSymlinks("/etc/localtime")
		_, name, _ = strings.Cut(filepath.ToSlash(target), "zoneinfo/")
	}
	if _, err := load(name); err != nil {
		return ""
	}
	return name
}
