package job

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// A shape is a mapping with fixed keys.
type shape struct {
	what      string // "a step"
	described string // "a step, a mapping of id, name, …"
	keys      []keyShape
}

func newShape(what string, keys ...keyShape) *shape {
	s := &shape{what: what, keys: keys}
	s.described = what + ", a mapping of " + strings.Join(s.names(), ", ")
	return s
}

type keyShape struct {
	name    string
	missing string // how to add it; empty where it is optional
}

func (s *shape) names() []string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	return names
}

func (s *shape) index(name string) int {
	for i := range s.keys {
		if s.keys[i].name == name {
			return i
		}
	}
	return -1
}

// object reads a mapping with fixed keys into fields, which is parallel to the
// shape's keys. It reports unknown, repeated and missing keys.
func (d *decoder) object(f field, s *shape, fields []field) bool {
	n, ok := d.node(f, yaml.MappingNode, s.described)
	if !ok {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := d.keyOf(n.Content[i])
		if !ok {
			continue
		}
		at := s.index(key.Value)
		if at < 0 {
			if d.full() {
				d.more++
				continue
			}
			d.into(key.Value)
			if hint := suggest(key.Value, s.names()); hint != "" {
				d.fault(placeOf(key), "unknown key: did you mean %s?", hint)
			} else {
				d.fault(placeOf(key), "unknown key: %s has %s", s.what, strings.Join(s.names(), ", "))
			}
			d.out()
			continue
		}
		if fields[at].value != nil {
			d.twice(key, fields[at].key)
			continue
		}
		fields[at] = field{key, n.Content[i+1]}
	}
	for i, k := range s.keys {
		if k.missing != "" && fields[i].value == nil {
			d.fault(placeOf(n), "%s is missing: add %s", k.name, k.missing)
		}
	}
	return true
}

// entries reads a mapping whose keys the author chooses, in the author's order.
func (d *decoder) entries(f field, what string) ([]field, bool) {
	n, ok := d.node(f, yaml.MappingNode, what)
	if !ok {
		return nil, false
	}
	fields := make([]field, 0, len(n.Content)/2)
	var seen map[string]*yaml.Node
	if len(n.Content) > 2 {
		seen = make(map[string]*yaml.Node, len(n.Content)/2)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := d.keyOf(n.Content[i])
		if !ok {
			continue
		}
		if first, ok := seen[key.Value]; ok {
			d.twice(key, first)
			continue
		}
		if seen != nil {
			seen[key.Value] = key
		}
		fields = append(fields, field{key, n.Content[i+1]})
	}
	return fields, true
}

func (d *decoder) twice(key, first *yaml.Node) {
	d.into(key.Value)
	d.fault(placeOf(key), "this key stands twice, the first time in line %d: keep one of them", first.Line)
	d.out()
}

// keyOf checks that a key is text and no merge key.
func (d *decoder) keyOf(n *yaml.Node) (*yaml.Node, bool) {
	at := placeOf(n)
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fault(at, "a key is %s, but must be text", kindOf(n))
	case n.Tag == "!!merge":
		d.fault(at, "merge keys (<<) are not supported: write the keys out, or give a whole value an anchor (key: &name …) and repeat it (key: *name)")
	case n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str":
		d.fault(at, "the tag %s is not supported: remove it", quote(n.Tag))
	case n.Tag == "!!null":
		d.fault(at, "a key is empty, but must be text")
	case n.Tag != "!!str":
		d.fault(at, "the key %s is %s, but must be text: put it in quotes, as in %q", clip(n.Value), kindOf(n), clip(n.Value))
	default:
		return n, true
	}
	return nil, false
}
