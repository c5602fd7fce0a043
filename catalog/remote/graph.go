package remote

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// A graph knows what checking against a schema may take. A hostile schema of a
// few lines can refer to itself without end, or double its work with each
// reference; the validator has no bound of its own, and a stack that overflows
// ends the process.
type graph struct {
	root *jsonschema.Schema
	refs map[*jsonschema.Schema]*jsonschema.Schema
	size int // schemas in it
}

// kinds are the types of JSON Schema, and none given. The library takes others
// too, for types that no value has.
var kinds = []string{"", "object", "array", "string", "number", "integer", "boolean", "null"}

var anchorForm = regexp.MustCompile(`^[A-Za-z_][-A-Za-z0-9._]*$`)

// newGraph follows a schema's references. It takes those that stay inside it, by
// pointer or anchor, and refuses all others, and those that come back to where
// they began without going deeper into the value.
func newGraph(root *jsonschema.Schema) (*graph, error) {
	g := &graph{root: root, refs: make(map[*jsonschema.Schema]*jsonschema.Schema)}
	places := make(map[string]*jsonschema.Schema)
	var referring []*jsonschema.Schema
	var walk func(s *jsonschema.Schema, path string) error
	walk = func(s *jsonschema.Schema, path string) error {
		g.size++
		places["#"+path] = s
		if s.Anchor != "" {
			// Where a name led elsewhere for the validator, it would not be bounded.
			if places["#"+s.Anchor] != nil || !anchorForm.MatchString(s.Anchor) {
				return fmt.Errorf("its $anchor %q is not a name, or there twice", clip(s.Anchor, 200))
			}
			places["#"+s.Anchor] = s
		}
		for _, kind := range append([]string{s.Type}, s.Types...) {
			if !slices.Contains(kinds, kind) {
				return fmt.Errorf("it has a type %q, which does not exist", clip(kind, 100))
			}
		}
		switch {
		case s.DynamicRef != "" || s.DynamicAnchor != "":
			return errors.New("it has dynamic references, which are not supported")
		case s == root && strings.Contains(s.ID, "#"):
			return errors.New("its $id has a fragment, which is not supported")
		case s != root && s.ID != "":
			return errors.New("a schema inside it has an $id of its own, which is not supported")
		case s.Ref != "":
			referring = append(referring, s)
		}
		for where, child := range children(s) {
			if child == nil {
				return fmt.Errorf("null stands where a schema is to be, at %s%s", path, where)
			}
			if err := walk(child, path+where); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(root, ""); err != nil {
		return nil, err
	}
	for _, s := range referring {
		ref := s.Ref
		if root.ID != "" && strings.HasPrefix(ref, root.ID) {
			if ref = ref[len(root.ID):]; ref == "" {
				ref = "#"
			}
		}
		var to *jsonschema.Schema
		if plain, err := url.PathUnescape(ref); err == nil && strings.HasPrefix(ref, "#") {
			to = places[plain]
		}
		if to == nil {
			return nil, fmt.Errorf("its $ref %q leads to no schema inside it", clip(s.Ref, 200))
		}
		g.refs[s] = to
	}
	return g, g.acyclic()
}

// children are the schemas inside a schema, each with its JSON pointer.
func children(s *jsonschema.Schema) iter.Seq2[string, *jsonschema.Schema] {
	return func(yield func(string, *jsonschema.Schema) bool) {
		for _, group := range []struct {
			key string
			all map[string]*jsonschema.Schema
		}{
			{"$defs", s.Defs}, {"definitions", s.Definitions}, {"properties", s.Properties},
			{"patternProperties", s.PatternProperties}, {"dependentSchemas", s.DependentSchemas},
			{"dependencies", s.DependencySchemas},
		} {
			for _, name := range slices.Sorted(maps.Keys(group.all)) {
				escaped := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
				if !yield("/"+group.key+"/"+escaped, group.all[name]) {
					return
				}
			}
		}
		for _, group := range []struct {
			key string
			all []*jsonschema.Schema
		}{
			{"allOf", s.AllOf}, {"anyOf", s.AnyOf}, {"oneOf", s.OneOf},
			{"prefixItems", s.PrefixItems}, {"items", s.ItemsArray},
		} {
			for i, child := range group.all {
				if !yield("/"+group.key+"/"+strconv.Itoa(i), child) {
					return
				}
			}
		}
		for _, one := range []struct {
			key   string
			child *jsonschema.Schema
		}{
			{"items", s.Items}, {"additionalItems", s.AdditionalItems}, {"contains", s.Contains},
			{"unevaluatedItems", s.UnevaluatedItems}, {"additionalProperties", s.AdditionalProperties},
			{"propertyNames", s.PropertyNames}, {"unevaluatedProperties", s.UnevaluatedProperties},
			{"not", s.Not}, {"if", s.If}, {"then", s.Then}, {"else", s.Else}, {"contentSchema", s.ContentSchema},
		} {
			if one.child != nil && !yield("/"+one.key, one.child) {
				return
			}
		}
	}
}

// inPlace are the schemas that apply to the same value as s.
func (g *graph) inPlace(s *jsonschema.Schema) iter.Seq[*jsonschema.Schema] {
	return func(yield func(*jsonschema.Schema) bool) {
		if to := g.refs[s]; to != nil && !yield(to) {
			return
		}
		for _, group := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, {s.Not, s.If, s.Then, s.Else}} {
			for _, child := range group {
				if child != nil && !yield(child) {
					return
				}
			}
		}
		for _, group := range []map[string]*jsonschema.Schema{s.DependentSchemas, s.DependencySchemas} {
			for _, child := range group {
				if !yield(child) {
					return
				}
			}
		}
	}
}

// acyclic refuses a schema that applies itself to the same value again.
func (g *graph) acyclic() error {
	if len(g.refs) == 0 {
		return nil
	}
	const open, done = 1, 2
	state := make(map[*jsonschema.Schema]int)
	var visit func(s *jsonschema.Schema) bool
	visit = func(s *jsonschema.Schema) bool {
		switch state[s] {
		case open:
			return false
		case done:
			return true
		}
		state[s] = open
		for next := range g.inPlace(s) {
			if !visit(next) {
				return false
			}
		}
		state[s] = done
		return true
	}
	for s := range g.refs { // a circle goes through a reference
		if !visit(s) {
			return fmt.Errorf("its $ref %q leads back to itself", clip(s.Ref, 200))
		}
	}
	return nil
}

// affordable tells whether checking a value takes no more than maxSteps. It
// counts as the validator goes, or more.
func (g *graph) affordable(value any) bool {
	steps := 0
	var count func(s *jsonschema.Schema, v any) bool
	each := func(children []*jsonschema.Schema, v any) bool {
		for _, child := range children {
			if child != nil && !count(child, v) {
				return false
			}
		}
		return true
	}
	count = func(s *jsonschema.Schema, v any) bool {
		// What is compared one by one with a value is work too, if less.
		if steps += 1 + (len(s.Enum)+len(s.Required))/16; steps > maxSteps {
			return false
		}
		for next := range g.inPlace(s) {
			if !count(next, v) {
				return false
			}
		}
		switch v := v.(type) {
		case map[string]any:
			rest := append(slices.Collect(maps.Values(s.PatternProperties)), s.AdditionalProperties, s.UnevaluatedProperties)
			for key, member := range v {
				if !each([]*jsonschema.Schema{s.Properties[key]}, member) || !each(rest, member) ||
					!each([]*jsonschema.Schema{s.PropertyNames}, key) {
					return false
				}
			}
		case []any:
			rest := []*jsonschema.Schema{s.Items, s.AdditionalItems, s.Contains, s.UnevaluatedItems}
			for i, item := range v {
				if !each(rest, item) || i < len(s.PrefixItems) && !count(s.PrefixItems[i], item) ||
					i < len(s.ItemsArray) && !count(s.ItemsArray[i], item) {
					return false
				}
			}
		}
		return true
	}
	return count(g.root, value)
}
