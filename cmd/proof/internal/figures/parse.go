package figures

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	benchmarkLine = regexp.MustCompile(`^(Benchmark\S*?)(?:-\d+)?\s+(\d+)\s+(\S.*)$`)
	testLine      = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (Test\S+) \(([0-9.]+)s\)$`)
	goneLine      = regexp.MustCompile(`all was gone after ([0-9.a-zµ]+)`)
)

// parseGoTest reads the output of go test: of each benchmark its values by their
// units, of each test the seconds it took; of several runs, the medians. A test that
// failed, or was skipped, is an error, and so is output with neither.
func parseGoTest(output string) (values, error) {
	all := values{}
	var inside string // the test whose log is read
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if name, ok := strings.CutPrefix(line, "=== RUN   "); ok {
			inside = strings.TrimSpace(name)
		}
		if m := testLine.FindStringSubmatch(line); m != nil {
			if m[1] != "PASS" {
				return nil, errors.New(m[2] + " did not pass: " + m[1])
			}
			seconds, _ := strconv.ParseFloat(m[3], 64) // as testLine wants them
			all.add(m[2], "s", seconds)
			continue
		}
		if m := goneLine.FindStringSubmatch(line); m != nil {
			if d, err := time.ParseDuration(m[1]); err == nil {
				all.add(inside, "gone-s", d.Seconds())
			}
			continue
		}
		m := benchmarkLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		fields := strings.Fields(m[3])
		for i := 0; i+1 < len(fields); i += 2 {
			x, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break // it is the log of a benchmark, not its result
			}
			all.add(m[1], fields[i+1], x)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no benchmark and no test of that name was run: " + lastLines(output, 3))
	}
	return all, nil
}
