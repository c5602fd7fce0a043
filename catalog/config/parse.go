package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/job"
)

// FileName is the name of the config file inside .deepwork.
const FileName = "config.yml"

// MaxBytes is the largest config.yml that is read: 1 MiB.
const MaxBytes = 1 << 20

// Parse reads the bytes of a config.yml. file is the name diagnostics carry. An
// empty file gives the defaults. A nil Config comes with every fault of the file,
// in the order of their positions. It never touches the disk.
func Parse(file string, source []byte) (*Config, job.Diagnostics) {
	p := &parser{file: file}
	doc := p.document(source)
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	c := Default()
	if doc != nil {
		p.config(doc, c)
	}
	if len(p.faults) > 0 {
		slices.SortStableFunc(p.faults, func(a, b job.Diagnostic) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		if more := len(p.faults) - maxFaults; more > 0 {
			p.faults = p.faults[:maxFaults]
			p.fault(0, 0, "", "and %d faults more", more)
		}
		return nil, p.faults
	}
	return c, nil
}

// maxFaults is how many faults of one file are told: nobody reads more.
const maxFaults = 100

// A parser gathers the faults of one file.
type parser struct {
	file   string
	faults job.Diagnostics
}

func (p *parser) fault(line, column int, path, format string, args ...any) {
	p.faults = append(p.faults, job.Diagnostic{
		File: p.file, Line: line, Column: column, Path: path,
		Message: fmt.Sprintf(format, args...),
	})
}

// at reports a fault of a node.
func (p *parser) at(n *yaml.Node, path, format string, args ...any) {
	p.fault(n.Line, n.Column, path, format, args...)
}

// document returns the top of the file's one document, or nil where there is
// nothing in it.
func (p *parser) document(source []byte) *yaml.Node {
	if len(source) > MaxBytes {
		p.fault(0, 0, "", "the file is larger than %d bytes, the most that is read", MaxBytes)
		return nil
	}
	if !utf8.Valid(source) {
		line, column := invalidAt(source)
		p.fault(line, column, "", "not UTF-8 text: save the file as UTF-8")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(source))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			p.syntax(err)
		}
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		p.at(&second, "", "a second document: the file is to have one, remove the line ---")
	case !errors.Is(err, io.EOF):
		p.syntax(err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// lineOf finds the line in an error of the YAML parser, which has no other way
// to tell it.
var lineOf = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax reports an error of the YAML parser.
func (p *parser) syntax(err error) {
	text, line, column := err.Error(), 0, 0
	if m := lineOf.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		column = 1
		text = text[len(m[0]):]
	}
	p.fault(line, column, "", "not valid YAML: %s", strings.TrimPrefix(text, "yaml: "))
}

// invalidAt finds the first byte that is not UTF-8.
func invalidAt(source []byte) (line, column int) {
	line, column = 1, 1
	for len(source) > 0 {
		r, n := utf8.DecodeRune(source)
		switch {
		case r == utf8.RuneError && n == 1:
			return line, column
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		source = source[n:]
	}
	return line, column
}
