package source

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepwork/catalog/jsontext"
)

const (
	maxLevels    = 10   // nesting of values in a listed schema
	maxFormsText = 1000 // characters about the forms of the arguments
)

// An Adaptation says how the listed input schema of a workflow differs from the source's own, which model
// APIs would refuse. Arguments are checked against the source's own schema.
type Adaptation struct {
	// Changes describes each change once.
	Changes []string `json:"changes"`
	// Renamed has the original names of properties, by their listed names.
	Renamed map[string]string `json:"renamed"`
	own     node              // the source's own schema
}

// node is a decoded JSON object that keeps its order. Its values are nodes, []any, or json.RawMessage.
type node = jsontext.OrderedMap[any]

// portable makes schemas that model APIs accept. cmd/deepwork/docs/howto/sources.md has their rules.
type portable struct {
	Adaptation
	names   map[string]string // listed names, by original names
	taken   map[string]bool   // every key of the schema, and every listed name
	written int               // bytes of the targets of references so far
}

// adapt returns a schema that model APIs accept and that describes the same objects as the given one, and
// what was changed. If nothing was, a is nil and the listed schema is the given one.
func adapt(object json.RawMessage) (listed json.RawMessage, a *Adaptation) {
	p := &portable{
		Adaptation: Adaptation{Renamed: map[string]string{}},
		names:      map[string]string{},
		taken:      map[string]bool{},
	}
	p.own, _ = p.decode(object).(node)
	s, _ := p.schema(p.own, nil, 0).(node)
	if _, has := s.Get("properties"); !has {
		p.changed("the top has properties")
	}
	if stringOf(get[any](s, "type")) != "object" {
		p.changed("the type at the top is object alone")
		s = s.Set("type", json.RawMessage(`"object"`))
	}

	s = p.flattened(s)
	if len(p.Changes) == 0 {
		return object, nil
	}

	listed, _ = jsontext.Encode(s) // every part of it was JSON
	return listed, &p.Adaptation
}

// decode decodes valid JSON.
func (p *portable) decode(raw json.RawMessage) any {
	switch jsontext.Kind(raw) {
	case "object":
		o := node{}
		for m := range jsontext.Members(raw) {
			p.taken[m.Name] = true
			o = o.Set(m.Name, p.decode(m.Value))
		}
		return o
	case "array":
		var items []json.RawMessage
		_ = json.Unmarshal(raw, &items) // valid JSON
		list := make([]any, len(items))
		for i, item := range items {
			list[i] = p.decode(item)
		}
		return list
	}
	return raw
}

func (p *portable) changed(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.Changes, text) {
		p.Changes = append(p.Changes, text)
	}
}

// stringOf returns a string value, or "" for other types.
func stringOf(v any) (s string) {
	raw, _ := v.(json.RawMessage)
	_ = json.Unmarshal(raw, &s) // another type is ""
	return s
}

// isLiteral reports whether a value is a literal such as true.
func isLiteral(v any, literal string) bool {
	raw, ok := v.(json.RawMessage)
	return ok && string(raw) == literal
}

// get returns a member as a T, or the zero value if it is missing or of another type.
func get[T any](s node, key string) T {
	v, _ := s.Get(key)
	t, _ := v.(T)
	return t
}

func withoutKeys(s node, keys ...string) node {
	return slices.DeleteFunc(slices.Clone(s), func(m jsontext.Pair[any]) bool { return slices.Contains(keys, m.Key) })
}

// schema adapts a schema and its subschemas. open are the references that led here, and level is the number
// of enclosing values.
func (p *portable) schema(v any, open []string, level int) any {
	s, ok := v.(node)
	switch {
	case isLiteral(v, "true"):
		p.changed("the schema true is an empty one")
		return node{}
	case isLiteral(v, "false"):
		p.changed("the schema false is an empty one with not")
		return node{{Key: "not", Value: node{}}}
	case !ok:
		return v
	}
	if level > maxLevels {
		p.changed("what is nested more than %d deep is left out", maxLevels)
		return withoutSubschemas(s)
	}
	if ref := stringOf(get[any](s, "$ref")); ref != "" {
		p.changed("references are written out")
		target := find(p.own, ref)
		if p.written > maxSchema {
			p.changed("references to more than %d bytes are left out", maxSchema)
			target = nil
		}
		text, _ := jsontext.Encode(target) // it was JSON
		p.written += len(text)
		both := intersection(merged(withoutKeys(s, "$ref"), target), target)
		if target == nil || slices.Contains(open, ref) {
			return withoutSubschemas(both)
		}
		return p.schema(both, append(slices.Clone(open), ref), level)
	}

	out := node{}
	for _, m := range s {
		if v, keep := p.keyword(s, m.Key, m.Value, open, level); keep {
			out = append(out, jsontext.Pair[any]{Key: m.Key, Value: v})
		}
	}
	return p.arrays(s, out, open, level)
}

// keyword adapts a keyword of a schema, and reports whether the listed schema has it.
func (p *portable) keyword(s node, key string, v any, open []string, level int) (any, bool) {
	switch key {
	case "$schema":
		if strings.Contains(stringOf(v), "/draft/2020-12/") {
			return v, true
		}
		fallthrough
	case "id", "$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef",
		"additionalItems":
		p.changed("it is written in draft 2020-12")
		return nil, false
	case "$defs", "definitions", "components": // the last one is OpenAPI's
		p.changed("references are written out")
		return nil, false
	case "minimum", "maximum":
		return v, !isLiteral(get[any](s, "exclusive"+strings.ToUpper(key[:1])+key[1:]), "true")
	case "exclusiveMinimum", "exclusiveMaximum":
		if isLiteral(v, "true") || isLiteral(v, "false") {
			p.changed("it is written in draft 2020-12")
			limit, given := s.Get(strings.ToLower(strings.TrimPrefix(key, "exclusive")))
			return limit, given && isLiteral(v, "true")
		}
	case "properties", "patternProperties", "dependentSchemas", "dependentRequired", "dependencies":
		members, _ := v.(node)
		out := slices.Clone(members)
		for i, m := range out {
			out[i].Value = p.schema(m.Value, open, level+1)
			if key != "patternProperties" {
				out[i].Key = p.name(m.Key)
			}
			if names, ok := m.Value.([]any); ok {
				out[i].Value = p.renamed(names)
			}
		}

		return out, true
	case "required":
		names, _ := v.([]any)
		return p.renamed(names), true
	case "anyOf", "oneOf", "allOf":
		return p.all(v, open, level), true
	case "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
		"additionalProperties", "contentSchema":
		if _, ok := v.(node); ok {
			return p.schema(v, open, level+1), true
		}
	}
	return v, true
}

// all adapts a list of schemas.
func (p *portable) all(v any, open []string, level int) []any {
	out := []any{}
	list, _ := v.([]any)
	for _, s := range list {
		out = append(out, p.schema(s, open, level))
	}
	return out
}

// arrays adapts the keywords of arrays. Model APIs require items to be an object.
func (p *portable) arrays(s, out node, open []string, level int) node {
	items, given := s.Get("items")
	first, tuple := items.([]any)
	if tuple {
		p.changed("it is written in draft 2020-12")
		out = withoutKeys(out, "items").Set("prefixItems", p.all(first, open, level+1))
		items, given = s.Get("additionalItems")
	} else if prefix, ok := s.Get("prefixItems"); ok {
		first, _ = prefix.([]any)
		out = out.Set("prefixItems", p.all(first, open, level+1))
	}
	if o, ok := items.(node); ok {
		return out.Set("items", p.schema(o, open, level+1))
	}
	if given || len(first) > 0 || hasType(s, "array") {
		p.changed("each array has items")
		out = out.Set("items", node{})
	}
	return out
}

// hasType reports whether a schema names a type, alone or among others.
func hasType(s node, name string) bool {
	v, _ := s.Get("type")
	list, _ := v.([]any)
	return stringOf(v) == name || slices.ContainsFunc(list, func(v any) bool { return stringOf(v) == name })
}

// withoutSubschemas returns a schema without its subschemas.
func withoutSubschemas(s node) node {
	out := node{}
	for _, m := range s {
		if slices.Contains([]string{"type", "title", "description", "enum", "const", "format"}, m.Key) {
			out = append(out, m)
		}
	}
	if hasType(out, "array") {
		out = out.Set("items", node{})
	}
	return out
}

// find returns the target of a reference within a schema, or nil.
func find(root node, ref string) node {
	pointer, local := strings.CutPrefix(ref, "#")
	pointer, err := url.PathUnescape(pointer)
	if !local || err != nil || pointer != "" && pointer[0] != '/' {
		return nil
	}

	var at any = root
	for _, token := range strings.Split(pointer, "/")[1:] {
		object, _ := at.(node)
		list, _ := at.([]any)
		at, _ = object.Get(unescape.Replace(token))
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(list) {
			at = list[i]
		}
	}
	target, _ := at.(node)
	return target
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// merged returns the members of a, plus those of b that a does not have.
func merged(a, b node) node {
	out := slices.Clone(a)
	for _, m := range b {
		if _, has := a.Get(m.Key); !has {
			out = append(out, m)
		}
	}
	return out
}

var (
	acceptedName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)
	strictName   = regexp.MustCompile(`^[a-zA-Z_]`)
)

// name returns the listed name of a property.
func (p *portable) name(name string) string {
	if len(name) <= maxToolName && acceptedName.MatchString(name) {
		return name
	}
	if listed := p.names[name]; listed != "" {
		return listed
	}
	listed := strings.ReplaceAll(legal(name), "-", "_")
	if !strictName.MatchString(listed) { // required by some APIs
		listed = "p_" + listed
	}
	if listed = shorten(listed, name, maxToolName); p.taken[listed] {
		listed = shorten(listed+"_"+digest(name, 8), name, maxToolName)
	}
	p.changed("properties whose names model APIs refuse are renamed")
	p.names[name] = listed
	p.taken[listed] = true
	p.Renamed[listed] = name
	return listed
}

// renamed returns the listed names for a list of names.
func (p *portable) renamed(names []any) []any {
	out := []any{}
	for _, v := range names {
		out = append(out, json.RawMessage(jsontext.Quote(p.name(stringOf(v)))))
	}
	return out
}
