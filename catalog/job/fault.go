package job

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// A place is where something stands in a file; lines and columns count from 1,
// columns in characters.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// faults gathers the diagnostics of one file. Past MaxDiagnostics it only
// counts, so that a hostile file costs neither time nor memory.
type faults struct {
	file         string
	found        []Diagnostic
	more         int
	warnings     []Diagnostic
	moreWarnings int
}

func (f *faults) any() bool  { return len(f.found) > 0 }
func (f *faults) full() bool { return len(f.found) >= MaxDiagnostics }

func (f *faults) add(at place, path, format string, args ...any) {
	if f.full() {
		f.more++
		return
	}
	f.found = append(f.found, f.make(at, path, false, format, args))
}

func (f *faults) warn(at place, path, format string, args ...any) {
	if len(f.warnings) >= MaxDiagnostics {
		f.moreWarnings++
		return
	}
	f.warnings = append(f.warnings, f.make(at, path, true, format, args))
}

func (f *faults) make(at place, path string, warning bool, format string, args []any) Diagnostic {
	return Diagnostic{
		File: f.file, Line: at.line, Column: at.column, Path: path,
		Message: fmt.Sprintf(format, args...), Warning: warning,
	}
}

func (f *faults) sorted() Diagnostics {
	return f.arrange(f.found, f.more, "%d more faults were found: mend the ones above first")
}

func (f *faults) sortedWarnings() []Diagnostic {
	return f.arrange(f.warnings, f.moreWarnings, "%d more warnings were found: see to the ones above first")
}

func (f *faults) arrange(ds []Diagnostic, more int, rest string) []Diagnostic {
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more > 0 {
		ds = append(ds, Diagnostic{File: f.file, Message: fmt.Sprintf(rest, more), Warning: ds[0].Warning})
	}
	return ds
}

// A segment is one part of a path: a key, or an index where key is "" and
// isIndex is set.
type segment struct {
	key     string
	index   int
	isIndex bool
}

// appendKey appends a key to a path: `.type`, or `["report.md"]` where the
// plain form would be read as something else.
func appendKey(b *strings.Builder, key string) {
	if plainKey(key) {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(key)
		return
	}
	b.WriteByte('[')
	b.WriteString(quote(key))
	b.WriteByte(']')
}

func plainKey(s string) bool {
	if s == "" || len(s) > maxQuoted {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// maxQuoted is how many bytes of a file's text a message repeats at most.
const maxQuoted = 80

// clip shortens a text for a message.
func clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

func quote(s string) string { return strconv.QuoteToGraphic(clip(s)) }

// listing joins names for a message, at most ten of them; what is no plain name is
// quoted, since a message is one line.
func listing(names []string) string {
	const most = 10
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if plainKey(n) {
			b.WriteString(n)
		} else {
			b.WriteString(quote(n))
		}
	}
	return b.String()
}
