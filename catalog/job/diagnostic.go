package job

import (
	"fmt"
	"strings"
)

// A Diagnostic is one fault, or one warning, of a file, where it stands.
// Line and Column count from 1; both are 0 where the fault is the whole file.
type Diagnostic struct {
	File    string // as the caller named it; "job.yml" inside a load error
	Line    int
	Column  int
	Path    string // steps[2].outputs.report.type; empty for the document
	Message string
	Warning bool
}

// String gives `job.yml:14:9: steps[2].outputs.report.type: "fil" is not one of file, files`.
func (d Diagnostic) String() string {
	var b strings.Builder
	b.WriteString(d.File)
	if d.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
	}
	b.WriteString(": ")
	if d.Warning {
		b.WriteString("warning: ")
	}
	if d.Path != "" {
		b.WriteString(d.Path)
		b.WriteString(": ")
	}
	b.WriteString(d.Message)
	return b.String()
}

// Diagnostics is every fault of one file, in the order of their positions.
// As an error it prints one a line.
type Diagnostics []Diagnostic

func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}
