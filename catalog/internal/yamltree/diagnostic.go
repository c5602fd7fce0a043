// Package yamltree decodes YAML files into structs. It reports every fault with its position, its
// path, the value, and how to correct it: see Decoder.Decode.
package yamltree

import (
	"cmp"
	"fmt"
	"slices"
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

// MaxDiagnostics is the number of faults of one file that are reported in full; one more Diagnostic
// gives the number of the others.
const MaxDiagnostics = 100

// A list stores up to MaxDiagnostics, and counts the others.
type list struct {
	Diagnostics
	dropped int
}

func (l *list) full() bool {
	if len(l.Diagnostics) < MaxDiagnostics {
		return false
	}
	l.dropped++
	return true
}

func (l *list) add(d Diagnostic) {
	if !l.full() {
		l.Diagnostics = append(l.Diagnostics, d)
	}
}

func (l *list) sorted(file, what string) Diagnostics {
	ds := l.Diagnostics
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if l.dropped > 0 {
		ds = append(ds, Diagnostic{File: file, Warning: ds[0].Warning,
			Message: fmt.Sprintf("%d more %s were found: fix the ones above first", l.dropped, what)})
	}
	return ds
}

// Fault adds a fault of the value being decoded.
func (d *Decoder) Fault(at Position, format string, args ...any) {
	if !d.Full() {
		d.FaultIn(at, pathText(d.path), format, args...)
	}
}

// FaultAt adds a fault of the value at a path, of keys and indices, of the document.
func (d *Decoder) FaultAt(path []any, format string, args ...any) {
	if !d.Full() {
		d.FaultIn(d.Find(path...).At(), pathText(path), format, args...)
	}
}

// FaultIn adds a fault with this position and path. Its message names a character in the line that nobody sees.
func (d *Decoder) FaultIn(at Position, path, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if at.Line > 0 && at.Line <= len(d.lines) {
		message += invisibleIn(d.lines[at.Line-1])
	}
	d.faults.add(Diagnostic{File: d.File, Line: at.Line, Column: at.Column, Path: path, Message: message})
}

// WarnAt adds a warning about the value at a path of the document; no path means the whole file.
func (d *Decoder) WarnAt(path []any, format string, args ...any) {
	if d.warnings.full() {
		return
	}
	g := d.At(fmt.Sprintf(format, args...), path...)
	g.Warning = true
	d.warnings.add(g)
}

// At returns a Diagnostic of the value at a path of the document; no path means the whole file.
func (d *Decoder) At(message string, path ...any) Diagnostic {
	g := Diagnostic{File: d.File, Path: pathText(path), Message: message}
	if len(path) > 0 {
		at := d.Find(path...).At()
		g.Line, g.Column = at.Line, at.Column
	}
	return g
}

// Faults returns the number of faults so far.
func (d *Decoder) Faults() int { return len(d.faults.Diagnostics) + d.faults.dropped }

// Full reports whether further faults are only counted. If so, it counts the one that the caller is
// about to report, so that the caller need not format its message.
func (d *Decoder) Full() bool { return d.faults.full() }

// Diagnostics returns the faults, ordered by position; nil means none.
func (d *Decoder) Diagnostics() Diagnostics { return d.faults.sorted(d.File, "faults") }

// Warnings returns the warnings, ordered by position; nil means none.
func (d *Decoder) Warnings() Diagnostics { return d.warnings.sorted(d.File, "warnings") }

// All returns the faults and the warnings together, ordered by position.
func (d *Decoder) All() Diagnostics {
	all := list{append(d.faults.Diagnostics, d.warnings.Diagnostics...), d.faults.dropped}
	return all.sorted(d.File, "faults")
}
