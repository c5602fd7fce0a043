package yamltree

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// MaxDiagnostics is the number of faults of one file that are reported in full; one more Diagnostic
// gives the number of the others.
const MaxDiagnostics = 100

// A Dialect holds the wording for one kind of file, and other differences.
type Dialect struct {
	WrongKind    string // format of the kind that a value has and the one expected
	WrongKey     string // format of the kind of a key that is not text
	Repeated     string // format of the line of a key's first occurrence
	More         string // format of the number of faults that are not reported
	MoreWarnings string

	// Describe describes a mapping with fixed keys.
	Describe func(what string, keys []string) string
	// UnknownKey returns the fault of a key that such a mapping does not have; hint is the key that
	// was probably meant, or "".
	UnknownKey func(what string, keys []string, hint string) string
	// Kind returns the kind of a value.
	Kind func(n *yaml.Node) string
	// Lenient accepts null as an empty list or mapping, and any scalar as a key,
	// which paths show without quotes.
	Lenient bool
}

// A Position is a line and a column, both counted from 1.
type Position struct{ Line, Column int }

// At returns the position of a node.
func At(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// A Decoder collects the faults of one file while its tree is read. After a fault the caller
// continues with the rest. Past MaxDiagnostics it only counts, so that a hostile file costs neither
// time nor memory.
type Decoder struct {
	*Dialect
	File string

	path             []segment // of the value being read
	faults, warnings list
}

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

func (l *list) sorted(file, more string) Diagnostics {
	ds := l.Diagnostics
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if l.dropped > 0 {
		ds = append(ds, Diagnostic{File: file, Message: fmt.Sprintf(more, l.dropped), Warning: ds[0].Warning})
	}
	return ds
}

// A segment is one element of a path: a key, or an index if isIndex is set.
type segment struct {
	key     string
	index   int
	isIndex bool
}

// In calls read while key is the last element of the path.
func (d *Decoder) In(key string, read func()) { d.within(segment{key: key}, read) }

// Item calls read while an index is the last element of the path.
func (d *Decoder) Item(i int, read func()) { d.within(segment{index: i, isIndex: true}, read) }

func (d *Decoder) within(s segment, read func()) {
	d.path = append(d.path, s)
	read()
	d.path = d.path[:len(d.path)-1]
}

// Path returns the path of the value being read, such as steps[2].outputs.report.type.
func (d *Decoder) Path() string {
	var b strings.Builder
	for _, s := range d.path {
		switch {
		case s.isIndex:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case !d.Lenient && !plain(s.key):
			b.WriteString("[" + Quote(s.key) + "]")
		case b.Len() > 0:
			b.WriteString("." + Clip(s.key))
		default:
			b.WriteString(Clip(s.key))
		}
	}
	return b.String()
}

// Fault adds a fault of the value being read.
func (d *Decoder) Fault(at Position, format string, args ...any) {
	if !d.Full() {
		d.FaultIn(at, d.Path(), format, args...)
	}
}

// FaultIn adds a fault of the value with this path.
func (d *Decoder) FaultIn(at Position, path, format string, args ...any) {
	d.add(&d.faults, Diagnostic{Line: at.Line, Column: at.Column, Path: path}, format, args)
}

// WarnIn adds a warning.
func (d *Decoder) WarnIn(at Position, path, format string, args ...any) {
	d.add(&d.warnings, Diagnostic{Line: at.Line, Column: at.Column, Path: path, Warning: true}, format, args)
}

func (d *Decoder) add(to *list, g Diagnostic, format string, args []any) {
	if !to.full() {
		g.File, g.Message = d.File, fmt.Sprintf(format, args...)
		to.Diagnostics = append(to.Diagnostics, g)
	}
}

// Faults returns the number of faults so far.
func (d *Decoder) Faults() int { return len(d.faults.Diagnostics) + d.faults.dropped }

// Full reports whether further faults are only counted. If so, it counts the one that the caller is
// about to report, so that the caller need not format its message.
func (d *Decoder) Full() bool { return d.faults.full() }

// Diagnostics returns the faults, ordered by position; nil means none.
func (d *Decoder) Diagnostics() Diagnostics { return d.faults.sorted(d.File, d.More) }

// Warnings returns the warnings, ordered by position; nil means none.
func (d *Decoder) Warnings() Diagnostics { return d.warnings.sorted(d.File, d.MoreWarnings) }

// All returns the faults and the warnings together, ordered by position.
func (d *Decoder) All() Diagnostics {
	all := list{append(d.faults.Diagnostics, d.warnings.Diagnostics...), d.faults.dropped}
	return all.sorted(d.File, d.More)
}
