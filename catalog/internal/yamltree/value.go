package yamltree

import (
	"errors"
	"io"
	"iter"
	"slices"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/jsontext"
)

// Documents reads the documents of a file: the first, and a second if there is
// one; nil means none. The error is that of the YAML parser.
func Documents(r io.Reader) (first, second *yaml.Node, err error) {
	dec := yaml.NewDecoder(r)
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

// A Value is a value of the tree and its key. A list item or the document is its own key.
type Value struct{ Key, Node *yaml.Node }

// Self returns the value of a node that has no key.
func Self(n *yaml.Node) Value { return Value{n, n} }

// Target returns the node, or the target of an alias.
func (v Value) Target() *yaml.Node { return Target(v.Node) }

// Target returns n, or the target if it is an alias.
func Target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// At returns the position for a fault of the value: an empty value has none of its own, so its
// key's is used.
func (v Value) At() Position {
	if IsNull(v.Node) {
		return At(v.Key)
	}
	return At(v.Node)
}

// IsNull reports whether a node is an empty value.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Is returns the node of a value if it has the expected kind, and otherwise reports a fault; what
// describes the expected kind.
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
	if n.Kind == kind {
		return n, true
	}
	if !d.Lenient && IsNull(n) {
		d.Empty(v, what)
	} else {
		d.Fault(At(n), d.WrongKind, d.Kind(n), what)
	}
	return nil, false
}

// Empty reports a null where a value is required.
func (d *Decoder) Empty(v Value, what string) {
	d.Fault(Value{v.Key, v.Target()}.At(), d.WrongKind+": fill it in", "empty", what)
}

// List calls item with each item of a list, and returns their number. It returns false if the value
// is absent or not a list.
func (d *Decoder) List(v Value, what string, item func(i int, v Value)) (count int, ok bool) {
	if d.absent(v) {
		return 0, false
	}
	n, ok := d.Is(v, yaml.SequenceNode, what)
	if !ok {
		return 0, false
	}
	for i, c := range n.Content {
		d.Item(i, func() { item(i, Self(c)) })
	}
	return len(n.Content), true
}

func (d *Decoder) absent(v Value) bool { return v.Node == nil || d.Lenient && IsNull(v.Target()) }

// Entries calls entry with each entry of a mapping with free keys, in the author's order, and
// returns their number. It returns false if the value is absent or not a mapping.
func (d *Decoder) Entries(v Value, what string, entry func(v Value)) (count int, ok bool) {
	if d.absent(v) {
		return 0, false
	}
	n, ok := d.Is(v, yaml.MappingNode, what)
	if !ok {
		return 0, false
	}
	first := make(map[string]int, len(n.Content)/2)
	for key, value := range d.pairs(n) {
		if line, twice := first[key.Value]; twice {
			d.repeated(key, line)
			continue
		}
		first[key.Value] = key.Line
		d.In(key.Value, func() { entry(Value{key, value}) })
	}
	return len(first), true
}

// pairs returns the keys of a mapping that are text, and their values.
func (d *Decoder) pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key, ok := d.key(n.Content[i]); ok && !yield(key, n.Content[i+1]) {
				return
			}
		}
	}
}

func (d *Decoder) repeated(key *yaml.Node, line int) {
	d.In(key.Value, func() { d.Fault(At(key), d.Repeated, line) })
}

// key checks that a key is text and not a merge key.
func (d *Decoder) key(n *yaml.Node) (*yaml.Node, bool) {
	at := At(n)
	n = Target(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.Fault(at, d.WrongKey, d.Kind(n))
	case d.Lenient:
		return n, true
	case n.Tag == "!!merge":
		d.Fault(at, "merge keys (<<) are not supported: write the keys out, or give a whole value an anchor (key: &name …) and repeat it (key: *name)")
	case n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str":
		d.Fault(at, "the tag %s is not supported: remove it", Quote(n.Tag))
	case n.Tag == "!!null":
		d.Fault(at, "a key is empty, but must be text")
	case n.Tag != "!!str":
		d.Fault(at, "the key %s is %s, but must be text: put it in quotes, as in %q", Clip(n.Value), d.Kind(n), Clip(n.Value))
	default:
		return n, true
	}
	return nil, false
}

// A Shape is a mapping with fixed keys.
type Shape struct {
	What string // "a step"
	Keys []Key
}

// A Key is a key of a Shape. Read is called with its value, if it is present.
type Key struct {
	Name    string
	Missing string // how to add it; "" means that it is optional
	Read    func(v Value)
}

// Required returns a key that a mapping must have; missing says how to add it.
func Required(name, missing string, read func(v Value)) Key { return Key{name, missing, read} }

// Optional returns a key that a mapping may have.
func Optional(name string, read func(v Value)) Key { return Key{name, "", read} }

// Names returns the names of the keys.
func (s Shape) Names() []string {
	names := make([]string, len(s.Keys))
	for i, k := range s.Keys {
		names[i] = k.Name
	}
	return names
}

// Mapping reads a mapping with fixed keys, and reports unknown, repeated and missing ones. It
// returns false if the value is absent or not a mapping.
func (d *Decoder) Mapping(v Value, s Shape) bool {
	if d.absent(v) {
		return false
	}
	n := v.Target()
	if n.Kind != yaml.MappingNode || n.Style&yaml.TaggedStyle != 0 {
		if _, ok := d.Is(v, yaml.MappingNode, d.Describe(s.What, s.Names())); !ok {
			return false
		}
	}
	lines := make([]int, len(s.Keys)) // of each key; 0 means absent
	for key, value := range d.pairs(n) {
		i := slices.IndexFunc(s.Keys, func(k Key) bool { return k.Name == key.Value })
		switch {
		case i < 0 && !d.Full():
			d.In(key.Value, func() {
				d.Fault(At(key), "%s", d.UnknownKey(s.What, s.Names(), jsontext.Nearest(key.Value, s.Names())))
			})
		case i < 0:
		case lines[i] > 0:
			d.repeated(key, lines[i])
		default:
			lines[i] = key.Line
			d.In(key.Value, func() { s.Keys[i].Read(Value{key, value}) })
		}
	}
	for i, k := range s.Keys {
		if k.Missing != "" && lines[i] == 0 {
			d.Fault(At(n), "%s is missing: add %s", k.Name, k.Missing)
		}
	}
	return true
}
