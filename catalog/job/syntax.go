package job

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

const emptyFile = "is empty: write name, version, summary, common_job_info_provided_to_all_steps_at_runtime, steps and workflows"

// readTree reads the one YAML document of a file, and sees to it that walking
// the tree ends soon whatever its aliases are.
func (d *decoder) readTree(body []byte) (*yaml.Node, bool) {
	lines := &lineReader{rest: body}
	dec := yaml.NewDecoder(lines)
	var doc yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		d.add(place{1, 1}, "", emptyFile)
		return nil, false
	} else if err != nil {
		d.addSyntax(body, lines.count, err)
		return nil, false
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		d.add(placeOf(&second), "", "a second document begins here: a job is one document, remove the --- and what follows it, or move that to a job of its own")
	case err != io.EOF:
		d.addSyntax(body, lines.count, err)
		return nil, false
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		d.add(placeOf(root), "", emptyFile)
		return nil, false
	}
	if bytes.IndexByte(body, '*') >= 0 && !d.checkAliases(root) {
		return nil, false
	}
	return root, true
}

// A lineReader hands out one line at a time, so that its count tells which
// line the YAML parser was at when it failed: its own messages often name the
// beginning of the surrounding block, or nothing.
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

// remedies says what to do about what the YAML parser complains of.
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

func (d *decoder) addSyntax(body []byte, reached int, err error) {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	told := 0
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, text, ok := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); ok && err == nil {
			told, problem = n, text
		}
	}
	remedy := "put the value in quotes, or mend the indentation"
	for _, r := range remedies {
		if strings.Contains(problem, r.problem) {
			remedy = r.remedy
			break
		}
	}
	d.add(syntaxPlace(body, problem, told, reached), "", "%s: %s", clip(problem), remedy)
}

// exactUpTo is the largest file that is parsed again to find where a syntax
// error began; it bounds what a hostile file costs.
const exactUpTo = 64 << 10

// maxBack is how many lines the parser reads ahead at most, by experience less.
const maxBack = 8

// syntaxPlace finds where a syntax error is. Faults of single tokens carry
// their line; faults of structure do not, but the parser has read no further
// than to the token it could not place, or a little ahead.
func syntaxPlace(body []byte, problem string, told, reached int) place {
	line := max(told, 1)
	switch {
	case strings.Contains(problem, "unexpected end of stream"),
		strings.Contains(problem, "',' or"):
		line = opening(body, problem, max(reached, 1))
	case strings.HasPrefix(problem, "did not find expected") && !strings.Contains(problem, "alphabetic"),
		strings.HasPrefix(problem, "unknown anchor"), strings.HasPrefix(problem, "found undefined tag"),
		strings.HasPrefix(problem, "found a tab"):
		line = max(reached, 1)
		for range maxBack {
			before := previousLine(body, line)
			if before == 0 || len(body) > exactUpTo || problemOf(firstLines(body, before)) != problem {
				break
			}
			line = before
		}
	}
	return place{line, columnOf(body, line, problem)}
}

// opening finds the line after which the rest of the file is inside of quotes
// or brackets.
func opening(body []byte, problem string, last int) int {
	if len(body) > exactUpTo {
		return last
	}
	good, bad := 0, last
	for bad-good > 1 {
		mid := (good + bad) / 2
		if strings.Contains(problemOf(firstLines(body, mid)), problem) {
			bad = mid
		} else {
			good = mid
		}
	}
	return bad
}

func problemOf(body []byte) string {
	var doc yaml.Node
	err := yaml.NewDecoder(bytes.NewReader(body)).Decode(&doc)
	if err == nil || err == io.EOF {
		return ""
	}
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(problem, "line ") {
		_, problem, _ = strings.Cut(problem, ": ")
	}
	return problem
}

func firstLines(body []byte, n int) []byte {
	end := 0
	for range n {
		i := bytes.IndexByte(body[end:], '\n')
		if i < 0 {
			return body
		}
		end += i + 1
	}
	return body[:end]
}

// previousLine returns the last line before this one that says something, or 0.
func previousLine(body []byte, line int) int {
	for n := line - 1; n > 0 && n > line-100; n-- {
		text := bytes.TrimSpace(lineAt(body, n))
		if len(text) > 0 && text[0] != '#' {
			return n
		}
	}
	return 0
}

func lineAt(body []byte, line int) []byte {
	rest := body[len(firstLines(body, line-1)):]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

// columnOf points at the colon that should be in quotes, else at the first
// thing in the line.
func columnOf(body []byte, line int, problem string) int {
	text := lineAt(body, line)
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
