package job

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// A lineReader returns one line at a time. Its count is the line that the YAML
// parser was at when it failed: the parser's own messages often name the beginning
// of the surrounding block, or nothing.
type lineReader struct {
	rest  []byte
	count int
}

func (r *lineReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	line := r.rest
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i+1]
	}
	n := copy(p, line)
	if n == len(line) {
		r.count++
	}
	r.rest = r.rest[n:]
	return n, nil
}

// remedies say what to do about the errors of the YAML parser.
var remedies = []struct{ problem, remedy string }{
	{"mapping values are not allowed", `a value that contains ": " must be put in quotes; else the indentation is wrong here`},
	{"found character that cannot start any token", "a value that begins with @, ` or % must be put in quotes; indentation must be spaces, never tabs"},
	{"found a tab character", "indentation must be spaces, never tabs"},
	{"could not find expected ':'", "write this line as key: value, or indent it as part of the text above"},
	{"found unexpected end of stream", "a quote is opened here and never closed: close it"},
	{"did not find expected key", "indent this line like the keys it belongs to; a value that contains quotes, or begins with one, must be put in quotes whole"},
	{"did not find expected '-' indicator", "indent this line like the list it belongs to, and begin an item with a dash"},
	{"did not find expected ',' or ']'", "a [ is not closed: close it with ], and put commas between items"},
	{"did not find expected ',' or '}'", "a { is not closed: close it with }, and put commas between items"},
	{"did not find expected node content", "a value is missing or misplaced here: a value that begins with one of [ ] { } , & * ! | > % @ must be put in quotes"},
	{"block sequence entries are not allowed", "begin the list on a line of its own, below its key"},
	{"did not find expected alphabetic or numeric character", "a value that begins with * or & must be put in quotes"},
	{"unknown anchor", "a value that begins with * must be put in quotes; an alias can name only an anchor that stands before it"},
	{"exceeded max depth", "a job needs at most eight levels: take the nested brackets or dashes out"},
	{"did not find expected <document start>", "a job is one document: remove what stands before this line, or the directive"},
	{"unknown escape character", `double the backslash, or use single quotes`},
	{"undefined tag handle", "remove the tag (the word that begins with !), or put the value in quotes"},
	{"block scalar", "after | or > nothing but + or - may follow; begin the text on the next line, indented"},
}

// exactUpTo is the largest file that is parsed again to find where a syntax error
// began; it bounds the cost of a hostile file.
const exactUpTo = 64 << 10

// maxReadAhead is how many lines the parser reads ahead at most, by experience less.
const maxReadAhead = 8

// syntaxFault reports an error of the YAML parser, which had read up to the line
// reached.
func (d *decoder) syntaxFault(body []byte, reached int, err error) {
	problem, named := problemOf(err)
	remedy := "put the value in quotes, or mend the indentation"
	for _, r := range remedies {
		if strings.Contains(problem, r.problem) {
			remedy = r.remedy
			break
		}
	}
	f := fileLines{body: body, lines: bytes.SplitAfter(body, []byte("\n"))}
	line := max(reached, 1)
	switch {
	case strings.Contains(problem, "unexpected end of stream"), strings.Contains(problem, "',' or"):
		line = f.opening(problem, line)
	case strings.HasPrefix(problem, "did not find expected") && !strings.Contains(problem, "alphabetic"),
		strings.HasPrefix(problem, "unknown anchor"), strings.HasPrefix(problem, "found undefined tag"),
		strings.HasPrefix(problem, "found a tab"):
		line = f.first(problem, line)
	default: // errors of single tokens name their line
		line = max(named, 1)
	}
	d.FaultIn(yamltree.Position{Line: line, Column: f.column(line, problem)}, "", "%s: %s", yamltree.Clip(problem), remedy)
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

// fileLines are the lines of a file that does not parse.
type fileLines struct {
	body  []byte
	lines [][]byte // with their line breaks
}

// problem returns the error of a file that ends after n lines, or "".
func (f fileLines) problem(n int) string {
	size := 0
	for _, l := range f.lines[:min(n, len(f.lines))] {
		size += len(l)
	}
	if err := yaml.Unmarshal(f.body[:size], new(yaml.Node)); err != nil {
		problem, _ := problemOf(err)
		return problem
	}
	return ""
}

func (f fileLines) line(n int) []byte {
	if n > len(f.lines) {
		return nil
	}
	return bytes.TrimSuffix(f.lines[n-1], []byte("\n"))
}

// opening returns the line after which the rest of the file is inside quotes or
// brackets that are never closed.
func (f fileLines) opening(problem string, last int) int {
	if len(f.body) > exactUpTo {
		return last
	}
	good, bad := 0, last
	for bad-good > 1 {
		mid := (good + bad) / 2
		if strings.Contains(f.problem(mid), problem) {
			bad = mid
		} else {
			good = mid
		}
	}
	return bad
}

// first returns the line of a problem of structure: the parser has read up to the
// token that it could not place, or a little further.
func (f fileLines) first(problem string, line int) int {
	for range maxReadAhead {
		before := f.previous(line)
		if before == 0 || len(f.body) > exactUpTo || f.problem(before) != problem {
			break
		}
		line = before
	}
	return line
}

// previous returns the last line before this one that is not blank or a comment,
// or 0.
func (f fileLines) previous(line int) int {
	for n := line - 1; n > 0 && n > line-100; n-- {
		text := bytes.TrimSpace(f.line(n))
		if len(text) > 0 && text[0] != '#' {
			return n
		}
	}
	return 0
}

// column returns that of the colon that should be in quotes, else of the first
// character that is not blank.
func (f fileLines) column(line int, problem string) int {
	text := f.line(line)
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
