// Package yamltree decodes YAML files into structs. It reports every error with its position, its
// path, the value, and how to correct it: see Decoder.Decode.
package yamltree

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepwork/actor/xslices"
)

// A Diagnostic is one error, or one warning, of a file. Line and Column count from
// 1; both are 0 if the error concerns the whole file.
type Diagnostic struct {
	File    string // the caller's name for it; "job.yml" inside a load error
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

// Diagnostics are all errors in one file, ordered by position. As an error they print one per line.
type Diagnostics []Diagnostic

// Err returns the diagnostics as an error, or nil if there are none.
func (ds Diagnostics) Err() error {
	if len(ds) == 0 {
		return nil
	}
	return ds
}

func (ds Diagnostics) Error() string {
	return strings.Join(xslices.Map(ds, func(d Diagnostic) string { return d.String() }), "\n")
}

// MaxDiagnostics is how many errors in one file are reported in full; one more Diagnostic gives the number of
// the others.
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

// Fault adds an error about the value being decoded.
func (d *Decoder) Fault(at Position, format string, args ...any) {
	if !d.Full() {
		d.FaultIn(at, pathText(d.path), format, args...)
	}
}

// FaultAt adds an error about the value at a path, of keys and indices, in the document.
func (d *Decoder) FaultAt(path []any, format string, args ...any) {
	if !d.Full() {
		d.FaultIn(d.Find(path...).At(), pathText(path), format, args...)
	}
}

// FaultIn adds an error with this position and path. The message names any invisible character in the line.
func (d *Decoder) FaultIn(at Position, path, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if at.Line > 0 && at.Line <= len(d.lines) {
		message += invisibleIn(d.lines[at.Line-1])
	}
	d.faults.add(Diagnostic{File: d.File, Line: at.Line, Column: at.Column, Path: path, Message: message})
}

// WarnAt adds a warning about the value at a path in the document; without a path it is about the whole file.
func (d *Decoder) WarnAt(path []any, format string, args ...any) {
	if d.warnings.full() {
		return
	}
	g := d.At(fmt.Sprintf(format, args...), path...)
	g.Warning = true
	d.warnings.add(g)
}

// At returns a Diagnostic about the value at a path in the document; without a path it is about the whole
// file.
func (d *Decoder) At(message string, path ...any) Diagnostic {
	g := Diagnostic{File: d.File, Path: pathText(path), Message: message}
	if len(path) > 0 {
		at := d.Find(path...).At()
		g.Line, g.Column = at.Line, at.Column
	}
	return g
}

// Faults returns the number of errors so far.
func (d *Decoder) Faults() int { return len(d.faults.Diagnostics) + d.faults.dropped }

// Full reports whether further errors are only counted. If so, it counts the one that the caller is about to
// report, which need not format a message then.
func (d *Decoder) Full() bool { return d.faults.full() }

// Diagnostics returns the errors, ordered by position; nil means none.
func (d *Decoder) Diagnostics() Diagnostics { return d.faults.sorted(d.File, "errors") }

// Warnings returns the warnings, ordered by position; nil means none.
func (d *Decoder) Warnings() Diagnostics { return d.warnings.sorted(d.File, "warnings") }

// All returns the errors and the warnings together, ordered by position.
func (d *Decoder) All() Diagnostics {
	all := list{append(d.faults.Diagnostics, d.warnings.Diagnostics...), d.faults.dropped}
	return all.sorted(d.File, "errors")
}

// PositionAt returns the position of an offset in a file.
func PositionAt(file []byte, offset int) Position {
	before := file[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return Position{bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[start:]) + 1}
}

// NotUTF8 returns the offset of the first byte that is not UTF-8, if any.
func NotUTF8(file []byte) (offset int, found bool) {
	for offset < len(file) {
		r, size := utf8.DecodeRune(file[offset:])
		if r == utf8.RuneError && size == 1 {
			return offset, true
		}
		offset += size
	}
	return 0, false
}

// maxQuoted limits how much of a file's text a message repeats, in bytes.
const maxQuoted = 80

// Clip shortens a text for a message.
func Clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}

	end := maxQuoted
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Quote quotes a text for a message, shortened.
func Quote(s string) string { return strconv.QuoteToGraphic(Clip(s)) }

// plain reports whether a name needs no quotes in a path or list.
func plain(s string) bool {
	return s != "" && len(s) <= maxQuoted && strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	}) < 0
}

// Join joins at most ten names for a message. A message is one line, so it quotes names that are not plain.
func Join(names []string) string {
	const most = 10
	shown := make([]string, min(len(names), most))
	for i := range shown {
		shown[i] = names[i]
		if !plain(names[i]) {
			shown[i] = Quote(names[i])
		}
	}

	text := strings.Join(shown, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// pathText returns a path of keys and indices, such as steps[2].outputs.report.type.
func pathText(path []any) string {
	var b strings.Builder
	for _, step := range path {
		key, isKey := step.(string)
		switch {
		case !isKey:
			fmt.Fprintf(&b, "[%d]", step)
		case !plain(key):
			b.WriteString("[" + Quote(key) + "]")
		case b.Len() > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}

	return b.String()
}
