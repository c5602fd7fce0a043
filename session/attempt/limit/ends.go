package limit

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for systems without time zones
)

// A form is one way to say when a limit ends: what precedes the time, and how to read the text after that.
type form struct {
	lead func() *regexp.Regexp
	read func(rest string, now time.Time) (time.Time, bool)
}

// forms are tried in this order; of several matches of one form the last counts.
var forms = []form{
	{compiled(`(?i)\||\bresets?[_ -]?at[\\"']*[:=\s]+[\\"']*|ratelimit-reset[\\"']*[:=\s]+[\\"']*`), epoch},
	{compiled(`(?i)\bretry[-_ ]?(?:after|delay|in)[-_ ]?ms[\\"']*\s*[:=]\s*[\\"']*`),
		func(rest string, now time.Time) (time.Time, bool) {
			return duration(digits().FindString(rest)+"ms", now)
		}},
	{compiled(`(?i)\b(?:retry[-_ ]?(?:after|delay)|resets?[-_](?:in|after))(?:[-_]seconds)?[\\"']*\s*[:=]\s*[\\"']*`),
		func(rest string, now time.Time) (time.Time, bool) {
			if at, ok := duration(rest, now); ok {
				return at, true
			}
			return duration(digits().FindString(rest)+"s", now)
		}},
	{compiled(`(?i)\b(?:again|retry(?:ing)?|resets?|renews?|available|wait(?:ing)?|over|back)\b(?:[^\n.\d]{0,` +
		`20}\b(?:in|after|for|within))?\s+(?:about |around |~)?`), duration},
	{compiled(`(?i)\b(?:again|retry|resets?|renews?|available|until|ends|over|retry-after)\b` +
		`[\\"']*(?:\s+(?:at|on|after|by))?[:\s]+[\\"']*`), moment},
}

// Ends returns when a limit ends according to its message, which arrived now, in now's time zone. It reports
// false if the message gives no time, or one that is past or more than Max away.
func Ends(message string, now time.Time) (time.Time, bool) {
	for _, f := range forms {
		for _, m := range slices.Backward(f.lead().FindAllStringIndex(message, -1)) {
			if at, ok := f.read(message[m[1]:], now); ok && at.After(now) && !at.After(now.Add(Max)) {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

var (
	digits   = compiled(`^\d+(?:\.\d+)?`)
	quantity = compiled(`^(?:[\s,]|and\b)*(\d+(?:\.\d+)?|an?\b|one\b)\s*([a-z]*)`)
)

// epoch reads seconds or milliseconds since 1970.
func epoch(rest string, _ time.Time) (time.Time, bool) {
	n := digits().FindString(rest)
	v, err := strconv.ParseInt(n, 10, 64)
	if len(n) == len("1767265200000") {
		return time.UnixMilli(v), err == nil
	}
	return time.Unix(v, 0), err == nil && len(n) == len("1767265200")
}

var units = map[string]time.Duration{
	"ms":          time.Millisecond,
	"msec":        time.Millisecond,
	"millisecond": time.Millisecond,
	"s":           time.Second,
	"sec":         time.Second,
	"second":      time.Second,
	"m":           time.Minute,
	"min":         time.Minute,
	"minute":      time.Minute,
	"h":           time.Hour,
	"hr":          time.Hour,
	"hour":        time.Hour,
	"d":           24 * time.Hour,
	"day":         24 * time.Hour,
	"w":           7 * 24 * time.Hour,
	"week":        7 * 24 * time.Hour,
}

// duration reads quantities such as 8h44m7s, "2 days, 3 hours and 12 minutes" or "an hour".
func duration(rest string, now time.Time) (time.Time, bool) {
	rest = strings.ToLower(rest[:min(len(rest), 100)])
	sum := 0.0
	for read := false; ; read = true {
		m := quantity().FindStringSubmatch(rest)
		if m == nil {
			return now.Add(time.Duration(sum)), read
		}
		unit := units[m[2]]
		if unit == 0 {
			unit = units[strings.TrimSuffix(m[2], "s")]
		}
		if unit == 0 {
			return now.Add(time.Duration(sum)), read
		}

		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			n = 1
		}
		if sum += n * float64(unit); sum > float64(2*Max) {
			return now, false
		}
		rest = rest[len(m[0]):]
	}
}

const month = `(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?`

var (
	dates = []func() *regexp.Regexp{ // each with the year, and the month and the day by name
		compiled(`^(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)t?`),
		compiled(`^` + month + ` (?P<day>\d{1,2})(?:st|nd|rd|th)?\b(?:,? (?P<year>\d{4})\b)?`),
		compiled(`^(?:[a-z]{3,9}, )?(?P<day>\d{1,2})(?:st|nd|rd|th)? ` + month + `(?:,? (?P<year>\d{4})\b)?`),
		compiled(`^(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})`),
	}
	clock  = compiled(`^(\d{1,2})(?::(\d\d))?(?::(\d\d)(?:\.\d+)?)?[\s\x{202f}\x{a0}]?(?:([ap])m\b)?`)
	offset = compiled(`^(?:z\b|(?:utc|gmt)\b)?(?:([+-])(\d{1,2}):?(\d\d)?)?`)
	zone   = compiled(`^[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+`)
	filler = compiled(`^(?:[\s,(·]|(?:at|on)\b)*`)
	months = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
)

// moment reads a date, a time of day, or both in either order, with or without a zone.
func moment(rest string, now time.Time) (time.Time, bool) {
	rest = rest[:min(len(rest), 100)]
	var date, at []string
	var year, mon, day int
	for {
		rest = rest[len(filler().FindString(rest)):]
		lower := strings.ToLower(rest)
		if date == nil {
			for _, of := range dates {
				d := of()
				if m := d.FindStringSubmatch(lower); m != nil {
					date = m
					year, _ = strconv.Atoi(m[d.SubexpIndex("year")])
					name := m[d.SubexpIndex("month")]
					mon, _ = strconv.Atoi(name)
					mon = cmp.Or(mon, slices.Index(months, name)+1)
					day, _ = strconv.Atoi(m[d.SubexpIndex("day")])
					rest = rest[len(m[0]):]
					break
				}
			}
			if date != nil {
				continue
			}
		}
		if m := clock().FindStringSubmatch(lower); at == nil && m != nil && (m[2] != "" || m[4] != "") {
			at, rest = m, rest[len(m[0]):]
			continue
		}
		break
	}
	loc, known := location(rest, now.Location())
	hour, minute, second, valid := timeOfDay(at)
	if date == nil && at == nil || !known || !valid {
		return now, false
	}
	now = now.In(loc)
	if date == nil {
		t := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, second, 0, loc)
		if t.Before(now.Add(-time.Hour)) { // otherwise the limit ended while its message was on the way
			t = time.Date(now.Year(), now.Month(), now.Day()+1, hour, minute, second, 0, loc)
		}
		return t, true
	}
	t := time.Date(cmp.Or(year, now.Year()), time.Month(mon), day, hour, minute, second, 0, loc)
	if t.Day() != day || int(t.Month()) != mon {
		return now, false
	}
	if year == 0 && t.Before(now.AddDate(0, -6, 0)) {
		t = t.AddDate(1, 0, 0)
	}
	return t, true
}

// timeOfDay returns the time that clock has matched, midnight for nil. It reports false for a time that no
// clock shows.
func timeOfDay(m []string) (hour, minute, second int, valid bool) {
	if m == nil {
		return 0, 0, 0, true
	}

	hour, _ = strconv.Atoi(m[1])
	minute, _ = strconv.Atoi(m[2])
	second, _ = strconv.Atoi(m[3])
	valid = hour <= 23 && minute <= 59 && second <= 59
	if m[4] != "" {
		valid = valid && hour >= 1 && hour <= 12
		hour %= 12
	}
	if m[4] == "p" {
		hour += 12
	}
	return hour, minute, second, valid
}

// location reads a zone: UTC, an offset or an IANA name; without one it is local. Abbreviations such as PST
// are those of the agent's program, which runs here. It reports false for an unknown name.
func location(rest string, local *time.Location) (*time.Location, bool) {
	if name := zone().FindString(rest); name != "" {
		loc, err := time.LoadLocation(name)
		return loc, err == nil
	}

	m := offset().FindStringSubmatch(strings.ToLower(rest))
	if m[0] == "" {
		return local, true
	}
	hours, _ := strconv.Atoi(m[2])
	minutes, _ := strconv.Atoi(m[3])
	seconds := hours*3600 + minutes*60
	if m[1] == "-" {
		seconds = -seconds
	}
	return time.FixedZone("", seconds), true
}
