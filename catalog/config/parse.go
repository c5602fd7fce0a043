package config

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/job"
)

// FileName is the name of the config file inside .deepwork.
const FileName = "config.yml"

// MaxBytes is the maximum size of a config.yml: 1 MiB.
const MaxBytes = 1 << 20

// maxDirectives bounds the %TAG lines of a file: the YAML parser compares each with all before it.
const maxDirectives = 16

// Parse reads the bytes of a config.yml. file is its name in diagnostics. An empty file gives the
// defaults. With a nil Config it returns all faults of the file, ordered by position. It never
// touches the disk.
func Parse(file string, source []byte) (*Config, job.Diagnostics) {
	p := &parser{Decoder: yamltree.Decoder{Dialect: &dialect, File: file}}
	c := Default()
	if doc := p.document(source); doc != nil && p.Faults() == 0 {
		p.config(yamltree.Self(doc), c)
	}
	if p.Faults() > 0 {
		return nil, p.Diagnostics()
	}
	return c, nil
}

// dialect is the wording of the faults of a config.yml.
var dialect = yamltree.Dialect{
	WrongKind: "is %s; expected %s",
	WrongKey:  "a key is %s; expected a name",
	Repeated:  "the key is here a second time; the first is in line %d",
	More:      "and %d faults more",
	Describe: func(_ string, keys []string) string {
		slices.Sort(keys)
		return "a mapping with the keys " + strings.Join(keys, ", ")
	},
	UnknownKey: func(_ string, keys []string, hint string) string {
		if hint == "" {
			return "unknown key; the keys here are " + strings.Join(slices.Sorted(slices.Values(keys)), ", ")
		}
		return "unknown key" + didYouMean(hint)
	},
	Kind:    kindName,
	Lenient: true,
}

// didYouMean ends a message about a name that was probably misspelled.
func didYouMean(hint string) string {
	if hint == "" {
		return ""
	}
	return "; did you mean " + hint + "?"
}

// A parser collects the faults of one file.
type parser struct {
	yamltree.Decoder
	user *User // of the user's own file; nil if the file is a project's
}

type value = yamltree.Value

// document returns the root of the file's one document, or nil if the file is empty
// or has a fault.
func (p *parser) document(source []byte) *yaml.Node {
	if len(source) > MaxBytes {
		p.FaultIn(yamltree.Position{}, "", "the file is larger than %d bytes, the most that is read", MaxBytes)
		return nil
	}
	if at, found := yamltree.NotUTF8(source); found {
		p.FaultIn(yamltree.PositionAt(source, at), "", "not UTF-8 text: save the file as UTF-8")
		return nil
	}
	if bytes.Count(source, []byte("%TAG")) > maxDirectives {
		p.FaultIn(yamltree.Position{}, "", "there are more than %d %%TAG directives: remove them, a config needs none", maxDirectives)
		return nil
	}
	doc, second, err := yamltree.Documents(bytes.NewReader(source))
	switch {
	case err != nil:
		p.syntax(err)
	case second != nil:
		p.FaultIn(yamltree.At(second), "", "a second document: a file must have only one; remove the line ---")
	case doc != nil && len(doc.Content) > 0 && p.CheckAliases(doc.Content[0]):
		return doc.Content[0]
	}
	return nil
}

// lineOf finds the line number in an error of the YAML parser, which does not report it in any
// other way.
var lineOf = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax reports an error of the YAML parser.
func (p *parser) syntax(err error) {
	text, at := err.Error(), yamltree.Position{}
	if m := lineOf.FindStringSubmatch(text); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		at.Column = 1
		text = text[len(m[0]):]
	}
	p.FaultIn(at, "", "not valid YAML: %s", strings.TrimPrefix(text, "yaml: "))
}
