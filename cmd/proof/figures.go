package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A figure is one row of the table: a measurable promise.
type figure struct {
	part, what     string
	op             string  // "under", "at most" or "at least"; "" means that passing suffices
	bound, unit    string  // the printed bound, and the unit of the value
	limit          float64 // the bound as a number
	value, against string  // in terms of numbers
	command        string
	runs           int // number of runs of the command for the medians
}

//go:embed figures.txt
var figureText string

// figures are all promised figures. figures.txt explains its format.
var figures = parseFigures(figureText)

var figureRow = regexp.MustCompile(
	`^(.+?) \| (.+?) \| ((?:(under|at most|at least) (\S+)|passes)(?: (\S+))?) \| (.+?) \| ?(.*)$`)

func parseFigures(text string) (all []figure) {
	command, runs := "", 1
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if m := figureRow.FindStringSubmatch(line); m != nil {
			f := figure{
				part:    m[1],
				what:    m[2],
				bound:   m[3],
				op:      m[4],
				unit:    m[6],
				value:   m[7],
				against: m[8],
				command: command,
				runs:    runs,
			}
			if f.op == "" {
				f.bound = "passes"
			}
			f.limit, _ = strconv.ParseFloat(m[5], 64)
			all = append(all, f)
			continue
		}
		command, runs = line, 1
		if times, rest, ok := strings.Cut(line, " x "); ok {
			command = rest
			runs, _ = strconv.Atoi(times)
		}
	}
	return all
}

// figuresFile is the file with the table of the last run, in the checkout.
const figuresFile = "transport/BENCHMARKS.md"

// runFigures is the subcommand figures. It runs the commands of the figures one after the other in the
// working directory, which is the checkout, and prints the table. A missed bound is not an error, since a
// busy machine misses some; a command that fails, or finds a fault, is.
func runFigures(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	only := flags.String("only", "", "measure only the figures whose row matches this `regexp`")
	write := flags.Bool("write", false, "keep the table in "+figuresFile)

	var wanted []figure
	err := parse(flags, args, stderr, func() error {
		pattern, err := regexp.Compile(*only)
		if err != nil {
			return fmt.Errorf("-only: %w", err)
		}
		for _, f := range figures {
			if pattern.MatchString(fmt.Sprintf("%s: %s: %s", f.part, f.what, f.command)) {
				wanted = append(wanted, f)
			}
		}
		if len(wanted) == 0 {
			return fmt.Errorf("no figure matches -only %s", *only)
		}
		if *write && *only != "" {
			return errors.New("-write keeps a whole run: leave out -only")
		}

		return nil
	})
	if err != nil {
		return err
	}

	began := time.Now()
	var rows []row
	var n numbers
	for i, f := range wanted {
		if i == 0 || f.command != wanted[i-1].command {
			n, err = f.measure(ctx, stderr)
		}
		rows = append(rows, judgeFigure(f, n, err))
	}

	if ctx.Err() != nil {
		return fmt.Errorf("the run was cut short: %w", context.Cause(ctx))
	}
	text, err := figureTable(rows, began, time.Since(began))
	fmt.Fprint(stdout, text)
	if *write {
		err = errors.Join(err, keepTable(figuresFile, text))
	}
	return err
}

// keepTable replaces the table of a file, from the line that begins with a date.
func keepTable(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if at := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d `).FindIndex(text); at != nil {
		text = text[:at[0]]
	}
	return os.WriteFile(path, append(text, table...), 0o644)
}

// measure runs the command of a figure, copies its output to progress, and returns the numbers that
// it printed.
func (f *figure) measure(ctx context.Context, progress io.Writer) (numbers, error) {
	fmt.Fprintf(progress, "\n%s %s\n", time.Now().Format(time.TimeOnly), f.command)
	words, env := strings.Fields(strings.ReplaceAll(f.command, "'", "")), os.Environ()
	if strings.Contains(words[0], "=") {
		words, env = words[1:], append(env, words[0])
	}
	if words[1] == "run" { // go run ./cmd/proof: this program, since go run does not forward signals
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		words = append([]string{self}, words[3:]...)
	}

	n := numbers{}
	for range f.runs {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		// On an interrupt it ends its children before it exits.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		cmd.Env, cmd.Stdout = env, io.MultiWriter(&out, progress)
		cmd.Stderr = cmd.Stdout
		err := cmd.Run()
		n.read(out.String())

		// The number of faults that a load finds is a separate figure.
		if wrong := n["wrong"]; err != nil && (ctx.Err() != nil || len(wrong) == 0 || wrong[len(wrong)-1] == 0) {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
	}

	return n, nil
}

// numbers are the results of the runs of a command, by the name of the sub-benchmark and a blank,
// if there is one, and the unit.
type numbers map[string][]float64

var (
	benchmarkLine = regexp.MustCompile(`^Benchmark\w+/?(\S*?)(?:-\d+)?\s+\d+\s`)
	passLine      = regexp.MustCompile(`^--- PASS: \S+ \(([0-9.]+)s\)`)
	logPrefix     = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
)

// read reads the results of benchmarks, durations of tests, and lines of a number and a unit, which
// loads print and tests log.
func (n numbers) read(output string) {
	for line := range strings.Lines(output) {
		name := ""
		if m := benchmarkLine.FindStringSubmatch(line); m != nil {
			line = line[len(m[0]):]
			if m[1] != "" {
				name = m[1] + " "
			}
		} else if m := passLine.FindStringSubmatch(line); m != nil {
			line = m[1] + " s"
		}
		for fields := strings.Fields(logPrefix.ReplaceAllString(line, "")); len(fields) > 1; fields = fields[2:] {
			x, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				break
			}
			n[name+fields[1]] = append(n[name+fields[1]], x)
		}
	}
}

var braces = regexp.MustCompile(`\{(.+?)( /1000)?\}`)

// fill replaces expressions in braces by the medians, formatted by format.
func (n numbers) fill(text string, format func(float64) string) (filled string, err error) {
	filled = braces.ReplaceAllStringFunc(text, func(s string) string {
		m := braces.FindStringSubmatch(s)
		all := slices.Sorted(slices.Values(n[m[1]]))
		if len(all) == 0 {
			err = cmp.Or(err, fmt.Errorf("the output has no %s", m[1]))
			return ""
		}
		x := all[len(all)/2]
		if m[2] != "" {
			x /= 1000
		}
		return format(x)
	})
	return filled, err
}

// A row is a figure and its result.
type row struct {
	figure
	measured, compared string
	ok                 bool
	err                error
}

// judgeFigure makes the row of a figure from the numbers of its command, or from why there are
// none.
func judgeFigure(f figure, n numbers, err error) row {
	r := row{figure: f, err: err}
	if err != nil {
		return r
	}

	expression, err := n.fill(f.value, func(x float64) string {
		return "(" + strconv.FormatFloat(x, 'e', -1, 64) + ")"
	})

	var result types.TypeAndValue
	if err == nil {
		r.compared, err = n.fill(f.against, short)
	}
	if err == nil {
		result, err = types.Eval(token.NewFileSet(), nil, token.NoPos, expression)
	}
	if err != nil {
		r.err = fmt.Errorf("%s: %w", f.value, err)
		return r
	}
	x, _ := constant.Float64Val(result.Value)
	r.measured, r.ok = strings.TrimSpace(short(x)+" "+f.unit), f.holds(x)
	return r
}

// holds reports whether a measured value meets the bound.
func (f *figure) holds(x float64) bool {
	switch f.op {
	case "under":
		return x < f.limit
	case "at most":
		return x <= f.limit
	case "at least":
		return x >= f.limit
	}
	return true
}

// figureTable prints the rows in Markdown, under a line with the date and the machine. The error
// says that something could not be measured, or that faults were found.
func figureTable(rows []row, began time.Time, took time.Duration) (table string, err error) {
	var b strings.Builder
	held, missed, failed := 0, 0, 0
	for _, r := range rows {
		holds := "yes"
		switch {
		case r.err != nil:
			failed++
			r.measured = fmt.Sprintf("FAILED: %.300s",
				strings.NewReplacer("\n", " ", "|", `\|`).Replace(r.err.Error()))
			r.compared = ""
			holds = "not measured"
			err = fmt.Errorf("%s: %w", r.what, r.err)
		case r.ok:
			held++
		default:
			missed++
			holds = "**no**"
			if r.limit == 0 {
				err = fmt.Errorf("%s: %s", r.what, r.measured)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | `%s` |\n", r.part, r.what, r.bound, r.measured, r.compared,
			holds, r.command)
	}

	return fmt.Sprintf("%s, in %s; %s, %s/%s, %d CPUs. Of %d figures %d hold, %d miss their bound, %d could not be "+
		"measured.\n\n| of | figure | bound | measured | compared with | holds | command "+
		"|\n|---|---|---|---|---|---|---|\n%s",
		began.UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second), runtime.Version(), runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU(),
		len(rows), held, missed, failed, &b), err
}

// short formats a number with three significant digits, or an integer in full.
func short(x float64) string {
	if math.Abs(x) >= 100 || x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
