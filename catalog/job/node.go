package job

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// A decoder turns the tree of one file into a Job, and gathers every fault on
// the way. It goes on after a fault with what it could read.
type decoder struct {
	faults
	where []segment // the path of what is being read

	stepNodes     []stepNodes     // parallel to Job.Steps
	workflowNodes []workflowNodes // parallel to Job.Workflows
}

func (d *decoder) into(key string) { d.where = append(d.where, segment{key: key}) }
func (d *decoder) item(i int)      { d.where = append(d.where, segment{index: i, isIndex: true}) }
func (d *decoder) out()            { d.where = d.where[:len(d.where)-1] }

func (d *decoder) path() string {
	var b strings.Builder
	for _, s := range d.where {
		if s.isIndex {
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(s.index))
			b.WriteByte(']')
			continue
		}
		appendKey(&b, s.key)
	}
	return b.String()
}

// fault adds a fault of what is being read.
func (d *decoder) fault(at place, format string, args ...any) {
	if d.full() {
		d.more++
		return
	}
	d.add(at, d.path(), format, args...)
}

// A field is one key of a mapping and its value; value is nil where the key is
// absent.
type field struct{ key, value *yaml.Node }

// at is where a fault of the field is told: an empty value stands nowhere, so
// its key does for it.
func (f field) at() place {
	if f.value.Kind == yaml.ScalarNode && f.value.Tag == "!!null" {
		return placeOf(f.key)
	}
	return placeOf(f.value)
}

// items reads a list.
func (d *decoder) items(f field, what string) ([]*yaml.Node, bool) {
	n, ok := d.node(f, yaml.SequenceNode, what)
	if !ok {
		return nil, false
	}
	return n.Content, true
}

// node resolves an alias and checks the kind and the tag of a value.
func (d *decoder) node(f field, kind yaml.Kind, what string) (*yaml.Node, bool) {
	n := f.value
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.Tag {
		case "!!str", "!!map", "!!seq", "!!bool", "!!int", "!!float", "!!null":
		default:
			d.fault(placeOf(n), "the tag %s is not supported: remove it", quote(n.Tag))
			return nil, false
		}
	}
	if n.Kind != kind {
		f.value = n
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			d.fault(f.at(), "is empty, but must be %s: fill it in", what)
		} else {
			d.fault(f.at(), "is %s, but must be %s", kindOf(n), what)
		}
		return nil, false
	}
	return n, true
}

// kindOf names what a value is, for people.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return kindOf(n.Alias)
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!timestamp":
		return "a date"
	case "!!null":
		return "empty"
	}
	return "text"
}

// A textRule judges a text; it returns what is wrong with it and what to do,
// or "".
type textRule func(s string) string

// text reads a string under a key, and judges it. A value that YAML takes for
// something else is refused: it would change its look (1.0 becomes 1).
func (d *decoder) text(f field, rules ...textRule) (string, bool) {
	n, ok := d.node(f, yaml.ScalarNode, "text")
	if !ok {
		return "", false
	}
	switch n.Tag {
	case "!!str", "!!merge":
	case "!!null":
		d.fault(field{f.key, n}.at(), "is empty, but must be text: fill it in")
		return "", false
	default:
		remedy := fmt.Sprintf("put it in quotes, as in %q", clip(n.Value))
		for _, rule := range rules {
			if fault := rule(n.Value); fault != "" {
				remedy = "put it in quotes; besides, " + fault
				break
			}
		}
		d.fault(placeOf(n), "%s is %s, but must be text: %s", clip(n.Value), kindOf(n), remedy)
		return "", false
	}
	if strings.IndexByte(n.Value, 0) >= 0 {
		d.fault(placeOf(n), "contains a NUL character: remove it")
		return "", false
	}
	for _, rule := range rules {
		if fault := rule(n.Value); fault != "" {
			d.fault(placeOf(n), "%s", fault)
			return n.Value, false
		}
	}
	return n.Value, true
}

// textIn reads an optional or required text of an object.
func (d *decoder) textIn(name string, f field, rules ...textRule) (string, bool) {
	if f.value == nil {
		return "", false
	}
	d.into(name)
	defer d.out()
	return d.text(f, rules...)
}

// optionalText reads a text that may be absent.
func (d *decoder) optionalText(name string, f field) *string {
	s, ok := d.textIn(name, f)
	if !ok {
		return nil
	}
	return &s
}

// boolean reads true or false; fallback where the key is absent.
func (d *decoder) boolean(name string, f field, fallback bool) bool {
	if f.value == nil {
		return fallback
	}
	d.into(name)
	defer d.out()
	n, ok := d.node(f, yaml.ScalarNode, "true or false")
	if !ok {
		return fallback
	}
	// A tag can claim !!bool for any text, so the text decides as well.
	if n.Tag == "!!bool" {
		switch strings.ToLower(n.Value) {
		case "true":
			return true
		case "false":
			return false
		}
	}
	if n.Tag == "!!null" {
		d.fault(field{f.key, n}.at(), "is empty, but must be true or false: fill it in")
	} else {
		d.fault(placeOf(n), "%s is not true or false, without quotes", quote(n.Value))
	}
	return fallback
}

// tooLong judges the length of a text, in characters.
func tooLong(s string, most int) string {
	if len(s) <= most {
		return ""
	}
	if n := utf8.RuneCountInString(s); n > most {
		return "is " + strconv.Itoa(n) + " characters long, but at most " + strconv.Itoa(most) + " are allowed: shorten it"
	}
	return ""
}
