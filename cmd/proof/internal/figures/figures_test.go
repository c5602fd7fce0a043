package figures

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const module = "../../../.."

const output = `goos: linux
goarch: amd64
pkg: deepwork/cmd/deepwork
BenchmarkFinishedStepStdio/callers=1-2         	      10	         0 ns/op	       366.2 echo-µs	         0.9500 of-allowed(<=1)	        42.10 server-MB(<64)	      1227 step-µs	       461.0 write-µs
    bench_test.go:7: BenchmarkX is a word in a log
BenchmarkFinishedStepStdio/callers=16          	      10	         0 ns/op	        51.00 server-MB(<64)	         0.5500 of-ideal(>=0.6)
--- BENCH: BenchmarkFinishedStepStdio/callers=16
=== RUN   TestFigure_CancellingAHundredHangingReviews
    figures_test.go:47: the last verdict came after 1.1s
    figures_test.go:54: all was gone after 1.3s
--- PASS: TestFigure_CancellingAHundredHangingReviews (1.71s)
PASS
ok  	deepwork/cmd/deepwork	3.210s
`

func TestParseGoTest(t *testing.T) {
	v, err := parseGoTest(output)
	if err != nil {
		t.Fatal(err)
	}
	get := v.getter(&err)
	for _, c := range []struct {
		name, unit string
		want       float64
	}{
		{oneCaller, "of-allowed(<=1)", 0.95}, {oneCaller, "step-µs", 1227}, {oneCaller, "ns/op", 0},
		{sixteenCallers, "of-ideal(>=0.6)", 0.55},
		{"TestFigure_CancellingAHundredHangingReviews", "s", 1.71}, {"TestFigure_CancellingAHundredHangingReviews", "gone-s", 1.3},
	} {
		if got := get(c.name, c.unit); err != nil || got != c.want {
			t.Errorf("%s %s is %v, %v; want %v", c.name, c.unit, got, err, c.want)
		}
	}
	if len(v) != 11 {
		t.Errorf("%d values were read: %v", len(v), v)
	}
	if get(oneCaller, "of-idael"); err == nil {
		t.Error("a unit that is not there is found")
	}
	for _, text := range []string{"", "ok  deepwork/gate 0.1s [no tests to run]\n", "--- FAIL: TestX (0.10s)\n", "--- SKIP: TestX (0.00s)\n"} {
		if v, err := parseGoTest(text); err == nil {
			t.Errorf("%q gives %v", text, v)
		}
	}
}

// The table tells what holds, what misses and what failed, with what it was compared
// with and the command for it alone.
func TestTable(t *testing.T) {
	v, err := parseGoTest(output)
	if err != nil {
		t.Fatal(err)
	}
	rows := []row{
		judge(figures[0], v, nil), judge(figures[1], values{sixteenCallers + " of-ideal(>=0.6)": {0.55}, sixteenCallers + " step-µs": {90}, sixteenCallers + " echo-µs": {20.04}, sixteenCallers + " write-µs": {0.1234}}, nil),
		judge(figures[2], v, nil), judge(figures[3], nil, errors.New("exit status 1: a | b\nc")), judge(figures[4], v, nil),
	}
	got := table(rows, "then, there")
	want := "then, there. Of 5 figures 2 hold, 1 miss their bound, 2 could not be measured.\n\n" +
		"| of | figure | bound | measured | compared with | holds | by itself |\n|---|---|---|---|---|---|---|\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("the table is\n%s", got)
	}
	for _, part := range []string{
		"| at most 1 | 0.95 | step 1227 µs; echo of the bare SDK 366 µs, synced write of 4 KB 461 µs | yes | `go test -count=5 -timeout=10m '-run=^$' '-bench=^BenchmarkFinishedStepStdio$' -benchtime=10x ./cmd/deepwork` |\n",
		"| at least 0.60 | 0.55 | step 90 µs; echo 20.0 µs, write 0.12 µs, each by 16 at once | **no** |",
		"| under 64 MB | 51 MB |  | yes |",
		`| FAILED: exit status 1: a \| b c |  | no |`,
		"| FAILED: the output has no ns/op of " + fewSessions + " |",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("the table has no %q:\n%s", part, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 2+2+len(rows) {
		t.Errorf("it has %d lines:\n%s", n, got)
	}
	machine := thisMachine(time.Date(2026, 11, 20, 23, 59, 0, 0, time.FixedZone("", 3600)), 500*time.Second)
	if !regexp.MustCompile(`^2026-11-20 22:59 UTC, in 8m20s; go1\.\S+, \w+/\w+, \d+ CPUs$`).MatchString(machine) {
		t.Errorf("the machine is %q", machine)
	}
}

// A bound that is missed is told, and no failure; what is wrong, or cannot be
// measured, is one.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		row   row
		fails bool
	}{
		{row{ok: true}, false}, {row{}, false}, {row{figure: figure{must: true}, ok: true}, false},
		{row{figure: figure{must: true}}, true}, {row{err: errors.New("it failed")}, true},
	} {
		if err := verdict([]row{{ok: true}, c.row}); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.row, err)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		op    string
		x     float64
		holds bool
	}{{"<", 1, false}, {"<", 0.99, true}, {"<=", 1, true}, {"<=", 1.01, false}, {">=", 1, true}, {">=", 0.99, false}, {"", 7, true}} {
		if f := (figure{op: c.op, limit: 1}); f.holds(c.x) != c.holds {
			t.Errorf("%v %s 1 holds: %v", c.x, c.op, !c.holds)
		}
	}
	for x, want := range map[float64]string{0: "0", 7: "7", 1227.4: "1227", 12.34: "12.3", 0.9501: "0.95", 0.0012: "0.0012", -3.5: "-3.50"} {
		if got := short(x); got != want {
			t.Errorf("%v is printed %s, want %s", x, got, want)
		}
	}
}

var pattern = regexp.MustCompile(`-(?:bench|run)=\^(\w+)\$`)

// Every command names a benchmark or a test that there is, in a package that there
// is; and there are some of every part of the program.
func TestFiguresNameWhatThereIs(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range figures {
		seen[f.part] = true
		if f.run.isLoad() {
			continue
		}
		words := strings.Fields(f.run.args)
		dir := filepath.Join(module, filepath.FromSlash(words[len(words)-1]))
		var code bytes.Buffer
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no tests in %s", f.run, dir)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(data)
		}
		names := pattern.FindAllStringSubmatch(f.run.args, -1)
		if len(names) == 0 {
			t.Errorf("%s names neither test nor benchmark", f.run)
		}
		for _, m := range names {
			if !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
				t.Errorf("%s: there is no %s", f.run, m[1])
			}
		}
		// What is read must be a unit that the benchmark reports, or Go does.
		for _, p := range placeholder.FindAllStringSubmatch(f.against, -1) {
			if unit := p[2]; !strings.Contains(code.String(), `"`+unit+`"`) && !strings.HasSuffix(unit, "/op") {
				t.Errorf("%s: nothing reports %s", f.run, unit)
			}
		}
	}
	for _, part := range parts {
		if !seen[part] {
			t.Errorf("no figure is of the part %q", part)
		}
	}
}

// A document that was kept has a row for every figure, as it is now, and no other.
func TestDocumentIsOfTheseFigures(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(module, document))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no run was kept yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	if !strings.HasPrefix(text, preamble) {
		t.Errorf("%s does not begin as it is written now: run the command with -write", document)
	}
	rest := text
	for _, f := range figures {
		_, after, ok := strings.Cut(rest, "\n| "+f.part+" | "+cell(f.what)+" | "+cell(f.bound())+" | ")
		if !ok {
			t.Fatalf("%s has no row, or not in its place, for %q: run the command with -write", document, f.what)
		}
		rest = after
	}
	if n := strings.Count(text, "\n| "); n != len(figures)+1 {
		t.Errorf("%s has %d rows, and there are %d figures", document, n-1, len(figures))
	}
}

// Wrong uses are told before anything is built.
func TestUse(t *testing.T) {
	for want, args := range map[string][]string{
		"no figure matches":     {"-only", "no such figure"},
		"leave out -only":       {"-write", "-only", "x"},
		"missing closing":       {"-only", "("},
		"takes no arguments":    {"all"},
		"flag provided but not": {"-bench"},
	} {
		var out, progress bytes.Buffer
		if err := Run(t.Context(), args, nil, &out, &progress); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 || strings.Contains(progress.String(), " s\n") {
			t.Errorf("%q: %v, %s", args, err, progress.String())
		}
	}
}
