package figures

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
)

// A row is a figure and what came of it.
type row struct {
	figure
	measured string
	against  string
	ok       bool
	err      error
}

// judge makes the row of a figure from the output of its command, or from why there
// is none.
func judge(f figure, v values, err error) row {
	r := row{figure: f, err: err}
	if err != nil {
		return r
	}
	get := v.getter(&r.err)
	x, against := f.value(get), fill(f.against, get)
	if r.err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
		r.err = errors.New("it is measured by a value of 0")
	}
	if r.err == nil {
		r.measured, r.against, r.ok = withUnit(x, f.unit), against, f.holds(x)
	}
	return r
}

func withUnit(x float64, unit string) string {
	if unit == "" {
		return short(x)
	}
	return short(x) + " " + unit
}

// bound is what is wanted of a figure, in words.
func (f *figure) bound() string {
	words := map[string]string{"<": "under ", "<=": "at most ", ">=": "at least "}
	if f.op == "" {
		return "passes"
	}
	return words[f.op] + withUnit(f.limit, f.unit)
}

// thisMachine says when and on what the figures were measured; no name of it.
func thisMachine(began time.Time, took time.Duration) string {
	return fmt.Sprintf("%s, in %s; %s, %s/%s, %d CPUs", began.UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// table prints the rows in Markdown, with a count of what holds.
func table(rows []row, machine string) string {
	var b strings.Builder
	held, missed, failed := 0, 0, 0
	for _, r := range rows {
		switch {
		case r.err != nil:
			failed++
		case r.ok:
			held++
		default:
			missed++
		}
	}
	fmt.Fprintf(&b, "%s. Of %d figures %d hold, %d miss their bound, %d could not be measured.\n\n", machine, len(rows), held, missed, failed)
	b.WriteString("| of | figure | bound | measured | compared with | holds | by itself |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		measured, holds := r.measured, "yes"
		switch {
		case r.err != nil:
			measured, holds = "FAILED: "+clip(r.err.Error(), 300), "no"
		case !r.ok:
			holds = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | `%s` |\n", r.part, cell(r.what), cell(r.bound()), cell(measured), cell(r.against), holds, cell(r.run.String()))
	}
	return b.String()
}

// cell is a text in a table of Markdown.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`).Replace(s)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// preamble is the text above the table in the document.
const preamble = `# Figures

All figures that the project promises, from one run, each beside what it was compared
with in that run. This file is made by

` + "```sh" + `
go run ./cmd/proof figures -write
` + "```" + `

which takes about ten minutes and wants a machine that does nothing else; without
` + "`-write`" + ` it prints the table alone, with ` + "`-only REGEXP`" + ` a part of it. The last column is
the command that measures one figure by itself. Times that a bound compares are
measured in turns, so that whatever else the machine does weighs on both.

`
