package job

import (
	"bytes"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"deepwork/catalog/internal/yamltree"
)

// remedies are the remedies of errors of the YAML parser.
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
	{"block sequence entries are not allowed", "begin the list on a separate line, below its key"},
	{"did not find expected alphabetic or numeric character", "a value that begins with * or & must be put in quotes"},
	{"unknown anchor", "a value that begins with * must be put in quotes; an alias can name only an anchor that comes before it"},
	{"exceeded max depth", "a job needs at most eight levels: take the nested brackets or dashes out"},
	{"did not find expected <document start>", "a job is one document: remove what comes before this line, or the directive"},
	{"unknown escape character", `double the backslash, or use single quotes`},
	{"undefined tag handle", "remove the tag (the word that begins with !), or put the value in quotes"},
	{"block scalar", "after | or > nothing but + or - may follow; begin the text on the next line, indented"},
}

// exactUpTo is the size of the largest file that is parsed again to find where a syntax error
// began; it bounds the cost of a hostile file.
const exactUpTo = 64 << 10

// syntaxFault reports an error of the YAML parser.
func (d *decoder) syntaxFault(body []byte, err error) {
	problem, line := problemOf(err)
	remedy := "put the value in quotes, or correct the indentation"
	for _, r := range remedies {
		if strings.Contains(problem, r.problem) {
			remedy = r.remedy
			break
		}
	}
	lines := bytes.SplitAfter(body, []byte("\n"))
	// Only errors of single tokens name their line; for others it is the first line up to which the
	// file has this error.
	structure := strings.HasPrefix(problem, "did not find expected") && !strings.Contains(problem, "alphabetic") ||
		strings.HasPrefix(problem, "unknown anchor") || strings.HasPrefix(problem, "found undefined tag") ||
		strings.HasPrefix(problem, "found a tab") || strings.Contains(problem, "unexpected end of stream")
	if structure && len(body) <= exactUpTo {
		line = 1 + sort.Search(len(lines)-1, func(n int) bool {
			_, _, err := yamltree.Documents(bytes.NewReader(bytes.Join(lines[:n+1], nil)))
			return err != nil && strings.Contains(err.Error(), problem)
		})
	}
	line = min(max(line, 1), len(lines))
	d.FaultIn(yamltree.Position{Line: line, Column: column(lines[line-1], problem)}, "", "%s: %s", yamltree.Clip(problem), remedy)
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

// column returns the column of the colon that should be in quotes, else of the first character that
// is not blank.
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
