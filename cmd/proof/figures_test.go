package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

const module = "../.."

const goOutput = `goos: linux
goarch: amd64
pkg: deepwork/cmd/deepwork
BenchmarkFinishedStepStdio/callers=1-2         	      10	         0 ns/op	       366.2 echo-µs	         ` +
	`0.9500 of-allowed(<=1)	        42.10 server-MB(<40)	      1227 step-µs	       461.0 write-µs
    bench_test.go:7: BenchmarkX is a word in a log
BenchmarkFinishedStepStdio/callers=16          	      10	         0 ns/op	        51.00 ` +
	`server-MB(<40)	         0.5500 of-ideal(>=1.1)
--- BENCH: BenchmarkFinishedStepStdio/callers=16
BenchmarkLateStep-2   	       3	         1.500 ratio(<=2)
BenchmarkLateStep-2   	       3	         3.500 ratio(<=2)
BenchmarkLateStep-2   	       3	         2.500 ratio(<=2)
=== RUN   TestFigure_CancellingAHundredHangingReviews
    figures_test.go:47: the last verdict came after 1.1s
    figures_test.go:54: 1.3 gone-s
--- PASS: TestFigure_CancellingAHundredHangingReviews (1.71s)
PASS
ok  	deepwork/cmd/deepwork	3.210s
        0.82 of-ceiling     throughput by 1/(1/e + 1/w)
`

func TestNumbers(t *testing.T) {
	n := numbers{}
	n.read(goOutput + "--- SKIP: TestX (9.00s)\n--- FAIL: TestX (9.10s)\n")
	for text, want := range map[string]string{
		"{callers=1 of-allowed(<=1)}":                  "0.95",
		"{callers=1 step-µs /1000}":                    "1.23",
		"{callers=1 ns/op}":                            "0",
		"by 16 {callers=16 of-ideal(>=1.1)}, {gone-s}": "by 16 0.55, 1.3",
		"{s}":          "1.71",
		"{of-ceiling}": "0.82",
		"{ratio(<=2)}": "2.5",
	} {
		testkit.Equal(t, testkit.Get(n.fill(text, short)).Must(t), want, "%s", text)
	}
	testkit.Equal(t, len(n["s"]), 1, "%v tests passed", n["s"])
	testkit.Fails(t, testkit.Get(n.fill("{of-idael}", short)).Err(), "", "a unit that is not there is found")

	for x, want := range map[float64]string{
		0:      "0",
		7:      "7",
		1227.4: "1227",
		12.34:  "12.3",
		0.9501: "0.95",
		0.0012: "0.0012",
		-3.5:   "-3.5",
	} {
		testkit.Equal(t, short(x), want, "%v is printed", x)
	}

	for op, limits := range map[string]struct{ good, bad float64 }{
		"under":    {0.99, 1},
		"at most":  {1, 1.01},
		"at least": {1, 0.99},
	} {
		f := figure{op: op, limit: 1}
		testkit.True(t, f.holds(limits.good) && !f.holds(limits.bad), "%s 1: %v holds, or %v does not", op, limits.bad,
			limits.good)
	}
	testkit.True(t, (&figure{limit: 1}).holds(7), "what has no bound does not hold")
}

// The table reports what holds, what misses and what failed, with what it was compared
// with and the command for it alone. Only what is wrong, or cannot be measured, is a failure.
func TestTable(t *testing.T) {
	n := numbers{
		"callers=16 of-ideal(>=1.1)": {0.55},
		"callers=16 step-µs":         {90},
		"callers=16 echo-µs":         {20.04},
		"callers=16 write-µs":        {0.1234},
	}

	printed := numbers{}
	printed.read(goOutput)
	rows := []row{
		judgeFigure(figures[0], printed, nil), judgeFigure(figures[1], n, nil), judgeFigure(figures[2], printed, nil),
		judgeFigure(figures[3], nil, errors.New("exit status 1: a | b\nc")), judgeFigure(figures[4], printed, nil),
		judgeFigure(figure{value: "{a} / {b}"}, numbers{"a": {1}, "b": {0}}, nil),
	}
	got, _ := figureTable(rows, time.Date(2026, 11, 20, 23, 59, 0, 0, time.FixedZone("", 3600)), 500*time.Second)
	testkit.True(t,
		regexp.MustCompile(`^2026-11-20 22:59 UTC, in 8m20s; go1\.\S+, \w+/\w+, \d+ CPUs\. Of 6 figures 1 hold, 2 `+
			`miss their bound, 3 could not be measured\.\n\n`).MatchString(got), "the table is\n%s", got)
	testkit.ContainsAll(t, got, []string{
		"| at most 1 | 0.95 | step 1227 µs; echo of the bare SDK 366 µs, synced write of 4 KB 461 µs | yes | `go " +
			"test -count=5 -timeout=10m '-run=^$' '-bench=^BenchmarkFinishedStepStdio$' -benchtime=10x " +
			"./cmd/deepwork` |\n",
		"| at least 1.1 | 0.55 | step 90 µs; echo 20 µs, write 0.123 µs, each by 16 at once | **no** |",
		"| under 40 MB | 51 MB |  | **no** |",
		`| FAILED: exit status 1: a \| b c |  | not measured |`,
		"the output has no ended=false ns/op |",
		"division by zero |",
	}, "the table")
	testkit.Equal(t, strings.Count(got, "\n"), 2+2+len(rows), "lines: %s", got)

	for _, fails := range []bool{false, true} {
		for _, r := range map[bool][]row{
			false: {{ok: true}, {figure: figure{limit: 1}}},
			true:  {{}, {err: errors.New("it failed")}},
		}[fails] {
			_, err := figureTable([]row{r, {ok: true}}, time.Now(), 0)
			testkit.Equal(t, err != nil, fails, "%+v: %v", r, err)
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
		words := strings.Fields(f.command)
		dir, inFile := filepath.Join(module, filepath.FromSlash(words[len(words)-1])), "*_test.go"
		if strings.HasPrefix(f.command, "go run ./cmd/proof load ") {
			dir, inFile = ".", "*.go"
		}
		var code bytes.Buffer
		files, err := filepath.Glob(filepath.Join(dir, inFile))
		testkit.Need(t, err == nil && len(files) != 0, "%s: no tests in %s", f.command, dir)
		for _, file := range files {
			code.Write(testkit.Get(os.ReadFile(file)).Must(t))
		}
		names := pattern.FindAllStringSubmatch(f.command, -1)
		testkit.True(t, len(names) != 0 || dir == ".", "%s names neither test nor benchmark", f.command)
		for _, m := range names {
			testkit.Contains(t, code.String(), "\nfunc "+m[1]+"(", "%s: there is no %s", f.command, m[1])
		}

		// What is read must be a unit that something reports, or Go does.
		for _, m := range braces.FindAllStringSubmatch(f.value+f.against, -1) {
			unit := m[1][strings.LastIndexByte(m[1], ' ')+1:]
			testkit.True(t, regexp.MustCompile(`["; ]`+regexp.QuoteMeta(unit)+`"`).MatchString(code.String()) ||
				unit == "s" || strings.HasSuffix(unit, "/op"), "%s: nothing reports %s", f.command, unit)
		}
	}
	for _, part := range []string{"engine", "quality gate", "many agents", "dynamic tools", "task board"} {
		testkit.True(t, seen[part], "no figure is of the part %q", part)
	}
}

// The document has a row for every figure, as it is now, and no other.
func TestDocumentIsOfTheseFigures(t *testing.T) {
	data := testkit.Get(os.ReadFile(filepath.Join(module, figuresFile))).Must(t)
	rest := strings.ReplaceAll(string(data), "\r\n", "\n")
	testkit.Equal(t, strings.Count(rest, "\n| ")-1, len(figures), "the rows of %s", figuresFile)

	for _, f := range figures {
		_, after, ok := strings.Cut(rest, "\n| "+f.part+" | "+f.what+" | "+f.bound+" | ")
		command, _, _ := strings.Cut(after, "\n")
		testkit.Need(t, ok && strings.HasSuffix(command, " | `"+f.command+"` |"),
			"%s has no row, or not in its place, for %q by %s: run the command with -write", figuresFile, f.what,
			f.command)
		rest = after
	}
}

// A table replaces the one of the last run, and nothing above it.
func TestKeepTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.md")
	testkit.Write(t, path, "# Figures\n\n2026-11-20 then\n| old |\n")
	testkit.Must(t, keepTable(path, "2026-12-01 now\n| new |\n"))
	testkit.Equal(t, string(testkit.Get(os.ReadFile(path)).Must(t)), "# Figures\n\n2026-12-01 now\n| new |\n")
}

// Wrong uses are reported before anything is built.
func TestFiguresUse(t *testing.T) {
	for want, args := range map[string][]string{
		"no figure matches":     {"-only", "no such figure"},
		"leave out -only":       {"-write", "-only", "load"},
		"missing closing":       {"-only", "("},
		"takes no arguments":    {"all"},
		"flag provided but not": {"-bench"},
	} {
		var out, progress bytes.Buffer
		testkit.Equal(t, run(t.Context(), append([]string{"figures"}, args...), &out, &progress), 2, "%q", args)
		testkit.Contains(t, progress.String(), want, "%q", args)
		testkit.Lacks(t, progress.String(), []string{" s\n", "|"}, "%q", args)
		testkit.Equal(t, out.Len(), 0, "%q", args)
	}
}

// The sentence above the figures counts what their rows say.
func TestField18_TheSentenceCountsTheRows(t *testing.T) {
	made, _ := figureTable([]row{{ok: true}, {figure: figure{limit: 1}}, {err: errors.New("it failed")}, {ok: true}},
		time.Now(), 0)
	for _, text := range []string{made, string(testkit.Get(os.ReadFile(module + "/transport/BENCHMARKS.md")).Must(t))} {
		yes := strings.Count(text, "| yes |")
		no := strings.Count(text, "| **no** |")
		none := strings.Count(text, "| not measured |")
		testkit.Contains(t, text, fmt.Sprintf("Of %d figures %d hold, %d miss their bound, %d could not be measured.",
			yes+no+none, yes, no, none), "the sentence")
		testkit.Equal(t, strings.Count(text, "` |\n"), yes+no+none, "the rows of the table")
	}
}
