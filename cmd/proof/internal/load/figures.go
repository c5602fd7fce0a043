package load

import (
	"regexp"
	"strconv"
)

// reported are the numbers of a report, by what they are.
var reported = map[string]*regexp.Regexp{
	"transitions/s": regexp.MustCompile(`(?m)^\d+ transitions acknowledged in \d+ sessions: (\d+) a second$`),
	"transitions":   regexp.MustCompile(`(?m)^(\d+) transitions acknowledged in \d+ sessions:`),
	"saves":         regexp.MustCompile(`(?m)^(\d+) saves of job files,`),
	"moves":         regexp.MustCompile(`(?m), (\d+) moves between servers$`),
	"p99/p50":       regexp.MustCompile(`(?m)^p99 is ([0-9.]+) times p50 `),
	"echoes/s":      regexp.MustCompile(`(?m)^e: (\d+) echoes a second`),
	"writes/s":      regexp.MustCompile(`(?m); w: (\d+) synced writes a second;`),
	"ceiling/s":     regexp.MustCompile(`(?m); 1/\(1/e \+ 1/w\): (\d+)$`),
	"of-ceiling":    regexp.MustCompile(`(?m)^throughput is ([0-9.]+) of that `),
	"settled-MB":    regexp.MustCompile(`(?m)^memory of server 1: ([0-9.]+) MB after 20s, `),
	"end-MB":        regexp.MustCompile(`(?m)^memory of server 1: [0-9.]+ MB after [^,]+, ([0-9.]+) MB at the end$`),
	"checked":       regexp.MustCompile(`(?m)^(\d+) session files checked at the end,`),
	"idle-KB":       regexp.MustCompile(`(?m)^\d+ idle connections: ([0-9.]+) KB each with deepwork,`),
	"bare-KB":       regexp.MustCompile(`(?m), ([0-9.]+) KB with the bare SDK,`),
	"more-KB":       regexp.MustCompile(`(?m), (-?[0-9.]+) KB more \(`),
	"wrong":         regexp.MustCompile(`(?m)^WRONG: .*, (\d+) times;`),
}

// wellLine ends a report of a run in which nothing was wrong.
var wellLine = regexp.MustCompile(`(?m)^all is well: `)

// Figures reads the numbers of a report that Run has printed, by what they are:
// "of-ceiling", "p99/p50", "more-KB" and so on; "wrong" is 0 where the report says
// that all is well. What a report does not tell is left out.
func Figures(report string) map[string]float64 {
	found := map[string]float64{}
	for name, pattern := range reported {
		if m := pattern.FindStringSubmatch(report); m != nil {
			if x, err := strconv.ParseFloat(m[1], 64); err == nil {
				found[name] = x
			}
		}
	}
	if _, wrong := found["wrong"]; !wrong && wellLine.MatchString(report) {
		found["wrong"] = 0
	}
	return found
}
