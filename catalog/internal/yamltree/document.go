package yamltree

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// MaxBytes is the maximum size of a file: 1 MiB.
const MaxBytes = 1 << 20

// maxDirectives limits the %TAG lines of a file: the YAML parser compares each with all earlier ones.
const maxDirectives = 16

// BOM is the byte order mark with which some editors begin a file.
var BOM = []byte("\xef\xbb\xbf")

// Documents reads the first document of a file, and the second if there is one; nil means none. The error is
// the YAML parser's.
func Documents(source []byte) (first, second *yaml.Node, err error) {
	// The YAML parser panics on some hostile input.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: cannot be read (%s)", Clip(fmt.Sprint(r)))
		}
	}()

	dec := yaml.NewDecoder(bytes.NewReader(sameVersion(source)))
	for _, doc := range []**yaml.Node{&first, &second} {
		var n yaml.Node
		if err := dec.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return first, nil, err
		}
		*doc = &n
	}

	return first, second, nil
}

// Open reads the only document of a file, for Find, FaultAt and Decode, and returns its root. It returns nil
// if the file has an error that hides others, or if it is empty, which is not an error. Whatever its aliases
// are, the time to walk the tree is limited.
func (d *Decoder) Open(source []byte) *yaml.Node {
	body, ok := d.checkBytes(source)
	if !ok {
		return nil
	}
	d.lines = bytes.SplitAfter(body, []byte("\n"))
	doc, second, err := Documents(body)
	if err != nil {
		d.syntaxFault(body, err)
		return nil
	}
	if second != nil { // also report the errors of the first
		d.FaultIn(At(second), "", "a second document begins here, but a file is one: remove the --- and what follows "+
			"it, or move that to a separate file")
	}
	if doc == nil || IsNull(doc.Content[0]) || !d.checkAliases(doc.Content[0]) {
		return nil
	}
	d.root = doc.Content[0]
	return d.root
}

// checkBytes refuses a file that is not text, or that YAML does not allow, and returns the text without its
// byte order mark.
func (d *Decoder) checkBytes(source []byte) ([]byte, bool) {
	fault := func(at Position, format string, args ...any) ([]byte, bool) {
		d.FaultIn(at, "", format, args...)
		return nil, false
	}
	switch {
	case len(source) > MaxBytes:
		return fault(Position{}, "is larger than %d bytes (1 MiB), the most that is read: shorten it", MaxBytes)
	case bytes.HasPrefix(source, []byte("\xff\xfe")), bytes.HasPrefix(source, []byte("\xfe\xff")):
		return fault(Position{1, 1}, "is UTF-16: save the file as UTF-8")
	}

	body := bytes.TrimPrefix(source, BOM)
	if at, ok := firstBad(body); ok {
		where, offset := PositionAt(body, at), at+len(source)-len(body)
		r, size := utf8.DecodeRune(body[at:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return fault(where, "the byte 0x%02x at offset %d is not UTF-8: save the file as UTF-8", body[at], offset)
		case r == 0:
			return fault(where, "the byte at offset %d is NUL: this is not a text file, or it was cut off while it "+
				"was written; write it again", offset)
		case endsLine(r):
			return fault(where, "the character %s at offset %d would end the line, which editors do not show: remove "+
				"it, or write it as an escape in double quotes", name(r), offset)
		}

		return fault(where, "the character %s at offset %d is not allowed in YAML: remove it, or write it as an "+
			"escape in double quotes", name(r), offset)
	}
	if m := conflicted(body); m != nil {
		return fault(PositionAt(body, m[0]),
			"a conflict of a git merge begins or ends here: choose between the two versions, and remove the lines "+
				"with <<<<<<<, ======= and >>>>>>>")
	}

	// The YAML parser also ends a line at a lone carriage return, so a directive may be anywhere.
	if texts := bytes.Split(body, []byte("%TAG")); len(texts)-1 > maxDirectives {
		at := len(bytes.Join(texts[:maxDirectives+1], []byte("%TAG")))
		return fault(PositionAt(body, at), "there are more than %d %%TAG directives: remove them, none is needed",
			maxDirectives)
	}
	return body, true
}

// conflict matches the lines that git writes around a conflict.
var conflict = regexp.MustCompile(`(?m)^(?:(?:<{7}|>{7}|\|{7}) |={7}\r?$)`)

// conflicted returns the first match of conflict, or nil. Nearly all files have none, which a plain search
// finds out much faster.
func conflicted(body []byte) []int {
	for _, mark := range []string{"<<<<<<<", ">>>>>>>", "|||||||", "======="} {
		if bytes.Contains(body, []byte(mark)) {
			return conflict.FindIndex(body)
		}
	}
	return nil
}

// directive matches the YAML version before a document.
var directive = regexp.MustCompile(`\A(?:(?:#.*|%[^Y\n].*|[ \t\r]*)\n)*%YAML[ \t]+1\.\d\b`)

// sameVersion returns the text with the only YAML version that the parser accepts, which treats all of 1.x
// alike.
func sameVersion(body []byte) []byte {
	if !bytes.Contains(body, []byte("%YAML")) {
		return body
	}

	m := directive.FindIndex(body)
	if m == nil {
		return body
	}
	body = bytes.Clone(body)
	body[m[1]-1] = '1'
	return body
}

// endsLine reports whether a character ends a line for the YAML parser, but not in YAML 1.2 or for editors.
// Positions after it would be wrong, and a text that contains it would end there.
func endsLine(r rune) bool { return r == 0x85 || r == 0x2028 || r == 0x2029 }

// firstBad finds the first byte that does not begin a character allowed in YAML, or that begins one that
// endsLine.
func firstBad(b []byte) (int, bool) {
	for i := 0; i < len(b); {
		c := b[i]
		if c >= 0x20 && c < 0x7f || c == '\n' || c == '\r' || c == '\t' {
			i++
			continue
		}

		r, size := utf8.DecodeRune(b[i:])
		if c < utf8.RuneSelf || r == utf8.RuneError && size <= 1 || r < 0xa0 || endsLine(r) || r == 0xfeff ||
			r == 0xfffe || r == 0xffff {
			return i, true
		}
		i += size
	}

	return 0, false
}

// remedies are the remedies for errors of the YAML parser.
var remedies = []struct{ problem, remedy string }{
	{"mapping values are not allowed",
		`a value that contains ": " must be put in quotes; else the indentation is wrong here`},
	{"found character that cannot start any token",
		"a value that begins with @, ` or % must be put in quotes; indentation must be spaces, never tabs"},
	{"found a tab character", "indentation must be spaces, never tabs"},
	{"could not find expected ':'", "write this line as key: value, or indent it as part of the text above"},
	{"found unexpected end of stream", "a quote is opened here and never closed: close it"},
	{"did not find expected key",
		"indent this line like the keys it belongs to; a value that contains quotes, or begins with one, must be put " +
			"in quotes whole"},
	{"did not find expected '-' indicator",
		"indent this line like the list it belongs to, and begin an item with a dash"},
	{"did not find expected ',' or ']'", "a [ is not closed: close it with ], and put commas between items"},
	{"did not find expected ',' or '}'", "a { is not closed: close it with }, and put commas between items"},
	{"did not find expected node content",
		"a value is missing or misplaced here: a value that begins with one of [ ] { } , & * ! | > % @ must be put " +
			"in quotes"},
	{"block sequence entries are not allowed", "begin the list on a separate line, below its key"},
	{"did not find expected alphabetic or numeric character", "a value that begins with * or & must be put in quotes"},
	{"unknown anchor", "a value that begins with * must be put in quotes; an alias can name only an anchor that " +
		"comes before it"},
	{"exceeded max depth", "eight levels are enough: take the nested brackets or dashes out"},
	{"did not find expected <document start>",
		"the file must be one document: remove what comes before this line, or the directive"},
	{"unknown escape character", `double the backslash, or use single quotes`},
	{"undefined tag handle", "remove the tag (the word that begins with !), or put the value in quotes"},
	{"block scalar", "after | or > nothing but + or - may follow; begin the text on the next line, indented"},
	{"incompatible YAML document", "remove the %YAML line, or write %YAML 1.2"},
	{"cannot be read", "take out what was added last, or write it in a simpler form"},
}

// exactUpTo is the maximum size of a file that is parsed again to find where a syntax error began. It limits
// the cost of a hostile file.
const exactUpTo = 64 << 10

// syntaxFault reports an error of the YAML parser.
func (d *Decoder) syntaxFault(body []byte, err error) {
	problem, line := problemOf(err)
	remedy := "put the value in quotes, or correct the indentation"
	for _, r := range remedies {
		if strings.Contains(problem, r.problem) {
			remedy = r.remedy
			break
		}
	}

	lines := d.lines
	// Only errors about single tokens have a line. For others, find the first line up to which the file has
	// this error.
	structure := strings.HasPrefix(problem, "did not find expected") && !strings.Contains(problem, "alphabetic") ||
		strings.HasPrefix(problem, "unknown anchor") || strings.HasPrefix(problem, "found undefined tag") ||
		strings.HasPrefix(problem, "found a tab") || strings.Contains(problem, "unexpected end of stream")
	if structure && len(body) <= exactUpTo {
		line = 1 + sort.Search(len(lines)-1, func(n int) bool {
			_, _, err := Documents(bytes.Join(lines[:n+1], nil))
			return err != nil && strings.Contains(err.Error(), problem)
		})
	}
	line = min(max(line, 1), len(lines))
	if opened := unclosedQuote(lines[:line]); opened > 0 {
		d.FaultIn(Position{opened, column(lines[opened-1], "")}, "",
			"a quote is opened in this line and not closed before line %d, where it ends in the middle of a value: "+
				"close it here", line)
		return
	}
	d.FaultIn(Position{line, column(lines[line-1], problem)}, "", "%s: %s", Clip(problem), remedy)
}

// problemOf returns an error of the YAML parser without its line, and the line.
func problemOf(err error) (problem string, line int) {
	problem = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, text, ok := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); ok && err == nil {
			return text, n
		}
	}
	return problem, 0
}

// column returns the column of the colon that should be in quotes, or else of the first nonblank character.
func column(text []byte, problem string) int {
	text = bytes.TrimSuffix(text, []byte("\n"))
	at := len(text) - len(bytes.TrimLeft(text, " "))
	if strings.HasPrefix(problem, "mapping values") {
		if first := bytes.Index(text, []byte(": ")); first >= 0 {
			if second := bytes.Index(text[first+1:], []byte(": ")); second >= 0 {
				at = first + 1 + second
			}
		}
	}
	return utf8.RuneCount(text[:at]) + 1
}

// The limits of what aliases may add to a file: nodes that are visited again, and bytes of text that are
// repeated.
const (
	maxAliasNodes = 100_000
	maxAliasBytes = 1 << 20
)

// checkAliases walks the tree at most as far as its reader would. It reports an error if an alias contains
// itself, or if all aliases together expand too much.
func (d *Decoder) checkAliases(root *yaml.Node) bool {
	w := aliasWalk{open: map[*yaml.Node]bool{}}
	w.walk(root, nil)
	switch {
	case w.circle != nil:
		d.FaultIn(At(w.circle), "", "the alias *%s is inside the value it names, so it would never end: write the "+
			"value out", Clip(w.circle.Value))
	case w.excess != nil:
		d.FaultIn(At(w.excess), "", "the aliases of this file expand to more than %d values or %d bytes (here at "+
			"*%s): write less with aliases", maxAliasNodes, maxAliasBytes, Clip(w.excess.Value))
	default:
		return true
	}

	return false
}

type aliasWalk struct {
	open           map[*yaml.Node]bool // anchored nodes that are being walked
	nodes, bytes   int
	circle, excess *yaml.Node
}

// walk visits n; via is the outermost alias that led here, or nil.
func (w *aliasWalk) walk(n, via *yaml.Node) {
	if w.circle != nil || w.excess != nil {
		return
	}

	if via != nil {
		w.nodes++
		w.bytes += len(n.Value)
		if w.nodes > maxAliasNodes || w.bytes > maxAliasBytes {
			w.excess = via
			return
		}
	}
	if n.Kind == yaml.AliasNode {
		if w.open[n.Alias] {
			w.circle = n
			return
		}
		via = cmp.Or(via, n)
		w.walk(n.Alias, via)
		return
	}
	if n.Anchor != "" {
		w.open[n] = true
		defer delete(w.open, n)
	}
	for _, c := range n.Content {
		w.walk(c, via)
	}
}
