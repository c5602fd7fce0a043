// Package yamltree decodes a YAML file node by node. It reports every fault with its position, its
// path and, for a misspelled name, the name that was probably meant. The caller determines the
// wording: see Dialect.
package yamltree

import (
	"fmt"
	"strings"
)

// A Diagnostic is one fault, or one warning, of a file. Line and Column count from
// 1; both are 0 if the fault concerns the whole file.
type Diagnostic struct {
	File    string // as the caller named it; "job.yml" inside a load error
	Line    int
	Column  int    // in characters
	Path    string // steps[2].outputs.report.type; empty for the document
	Message string
	Warning bool
}

// String returns text like `job.yml:14:9: steps[2].outputs.report.type: "fil" is not one of a, b`.
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

// Diagnostics are all faults of one file, ordered by position. As an error they print one per line.
type Diagnostics []Diagnostic

// Err returns the diagnostics as an error, or nil if there are none.
func (ds Diagnostics) Err() error {
	if len(ds) == 0 {
		return nil
	}
	return ds
}

func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}
