package yamltree

import (
	"cmp"
	"iter"
	"slices"

	"gopkg.in/yaml.v3"
)

// A Position is a line and a column, both counted from 1.
type Position struct{ Line, Column int }

// At returns the position of a node.
func At(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// A Value is a value of the tree with its key. A list item, or the document, is its own key.
type Value struct{ Key, Node *yaml.Node }

// Self returns the value of a node that has no key.
func Self(n *yaml.Node) Value { return Value{n, n} }

// Target returns the node, or the target of an alias.
func (v Value) Target() *yaml.Node { return Target(v.Node) }

// Target returns n, or the target if it is an alias.
func Target(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode && n.Alias != nil {

		return n.Alias
	}
	return n
}

// At returns the position for an error in the value. An empty value has no position, so it returns that of
// its key.
func (v Value) At() Position {
	if IsNull(v.Target()) {
		return At(v.Key)
	}
	return At(v.Node)
}

// IsNull reports whether a node is an empty value.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Find returns the value at a path, of keys and indices, in the document, or the last existing one on the
// way. It takes the first of several equal keys.
func (d *Decoder) Find(path ...any) Value {
	v, _ := d.find(path)
	return v
}

func (d *Decoder) find(path []any) (v Value, depth int) {
	v = Self(cmp.Or(d.root, new(yaml.Node)))
	for depth, step := range path {
		n, found := v.Target(), false
		switch step := step.(type) {
		case int:
			if found = n.Kind == yaml.SequenceNode && step < len(n.Content); found {
				v = Self(n.Content[step])
			}
		case string:
			for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content) && !found; i += 2 {
				if found = Target(n.Content[i]).Value == step; found {
					v = Value{n.Content[i], n.Content[i+1]}
				}
			}
		}
		if !found {
			return v, depth
		}
	}
	return v, len(path)
}

// within calls read while a key or index is the last element of the path.
func (d *Decoder) within(step any, read func()) {
	d.path = append(d.path, step)
	read()
	d.path = d.path[:len(d.path)-1]
}

// Is returns the node of a value if it has the expected kind, and otherwise reports an error. what describes
// the expected kind.
func (d *Decoder) Is(v Value, kind yaml.Kind, what string) (*yaml.Node, bool) {
	n := v.Target()
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.Tag {
		case "!!str", "!!map", "!!seq", "!!bool", "!!int", "!!float", "!!null":
		default:
			d.Fault(At(n), "the tag %s is not supported: remove it", Quote(n.Tag))
			return nil, false
		}
	}
	if n.Kind != kind {
		d.Wrong(v, what)
		return nil, false
	}
	return n, true
}

// Wrong reports that a value is not what was expected.
func (d *Decoder) Wrong(v Value, expected string) {
	n := v.Target()
	if IsNull(n) {
		d.Fault(Value{v.Key, n}.At(), "is empty; expected %s: fill it in", expected)
		return
	}
	d.Fault(At(n), "is %s; expected %s", Kind(n), expected)
}

// Kind describes the kind of a value, and shows a scalar.
func Kind(n *yaml.Node) string {
	n = Target(n)
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}

	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number (" + Clip(n.Value) + ")"
	case "!!bool":
		return "a boolean (" + Clip(n.Value) + ")"
	case "!!timestamp":
		return "a date (" + Clip(n.Value) + ")"
	case "!!null":
		return "empty"
	}

	return "a text (" + Quote(n.Value) + ")"
}

// List calls item with each item of a list, and returns their number. It returns false if the value
// is not a list.
func (d *Decoder) List(v Value, what string, item func(i int, v Value)) (count int, ok bool) {
	n, ok := d.Is(v, yaml.SequenceNode, what)
	if !ok {
		return 0, false
	}
	for i, c := range n.Content {
		d.within(i, func() { item(i, Self(c)) })
	}
	return len(n.Content), true
}

// Mapping calls entry with each entry of a mapping, in the author's order. It returns false if the
// value is not a mapping.
func (d *Decoder) Mapping(v Value, what string, entry func(v Value)) bool {
	n, ok := d.Is(v, yaml.MappingNode, what)
	if !ok {
		return false
	}
	first := make(map[string]int, len(n.Content)/2)
	for key, value := range d.pairs(n) {
		if line, twice := first[key.Value]; twice {
			d.repeated(key, line)
			continue
		}
		first[key.Value] = key.Line
		d.within(key.Value, func() { entry(Value{key, value}) })
	}

	return true
}

func (d *Decoder) repeated(key *yaml.Node, line int) {
	d.within(key.Value, func() {
		d.Fault(At(key), "this key appears twice, the first time in line %d: keep one of them", line)
	})
}

// pairs returns the text keys of a mapping, and their values.
func (d *Decoder) pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key, ok := d.key(n.Content[i]); ok && !yield(key, n.Content[i+1]) {
				return
			}
		}
	}
}

// key checks that a key is text and not a merge key.
func (d *Decoder) key(n *yaml.Node) (*yaml.Node, bool) {
	at := At(n)
	n = Target(n)
	switch {
	case n.Kind != yaml.ScalarNode, n.Tag == "!!null":
		d.Fault(at, "a key is %s; expected a text", Kind(n))
	case n.Tag == "!!merge":
		d.Fault(at, "merge keys (<<) are not supported: write the keys out, or give a whole value an anchor (key: "+
			"&name …) and repeat it (key: *name)")
	case n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str":
		d.Fault(at, "the tag %s is not supported: remove it", Quote(n.Tag))
	case n.Tag != "!!str":
		d.Fault(at, "the key is %s; expected a text: put it in quotes, as in %q", Kind(n), Clip(n.Value))
	default:
		return n, true
	}

	return nil, false
}

// Has reports whether the document has a value at a path, of keys and indices.
func (d *Decoder) Has(path []any, more ...any) bool {
	path = slices.Concat(path, more)
	_, depth := d.find(path)
	return depth == len(path)
}
