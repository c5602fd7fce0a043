// Package jsontext reads and writes JSON as text. It does not decode JSON into maps and floats, which lose
// the order of keys and the digits of large numbers. It also clips texts for messages.
package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Kind returns the JSON Schema type of a valid JSON value, judged by its first
// byte: object, array, string, number, boolean or null. It returns "" if raw is
// blank. Every number is a "number".
func Kind(raw []byte) string {
	switch First(raw) {
	case 0:
		return ""
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}

	return "number"
}

// First returns the first byte of raw that is not white space, or 0.
func First(raw []byte) byte {
	for _, b := range raw {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b
		}
	}
	return 0
}

// IsNull reports whether a value is missing or null.
func IsNull(raw []byte) bool {
	b := First(raw)
	return b == 0 || b == 'n'
}

// WithArticle returns a JSON Schema type for a sentence: "an object", "a string", "null"; "missing" for "".
func WithArticle(kind string) string {
	switch kind {
	case "":
		return "missing"
	case "null":
		return kind
	case "object", "array", "integer":
		return "an " + kind
	}
	return "a " + kind
}

// Depth returns how deep a JSON value is nested: 0 for "x", 1 for []. It is exact for valid JSON and safe for
// any text.
func Depth(raw []byte) (deepest int) {
	var depth int
	var inString, escaped bool
	for _, b := range raw {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = b == '\\', b != '"'
		case b == '"':
			inString = true
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// A Member is one name and value of an object. Value is a copy.
type Member struct {
	Name  string
	Value json.RawMessage
}

// ErrNotObject is returned by Members for a value of another kind.
var ErrNotObject = errors.New("not an object")

// Members yields the members of an object in order, including repeated names. It yields at most one error, as the last
// pair: ErrNotObject, or the error in the JSON. Text after the object is not read.
func Members(raw []byte) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		d := json.NewDecoder(bytes.NewReader(raw))
		t, err := d.Token()
		if err == nil && t != json.Delim('{') {
			err = ErrNotObject
		}
		for err == nil && d.More() {
			var m Member
			if t, err = d.Token(); err != nil {
				break
			}
			m.Name = t.(string) // the decoder accepts nothing else as a name
			err = d.Decode(&m.Value)
			if err == nil && !yield(m, nil) {
				return
			}
		}
		if err == nil {
			_, err = d.Token()
		}
		if err != nil {
			yield(Member{}, err)
		}
	}
}

// Unquote returns the object or array that a JSON string contains as text, since some models send JSON as
// text. It returns any other value unchanged.
func Unquote(raw json.RawMessage) json.RawMessage {
	var text string
	if First(raw) != '"' || json.Unmarshal(raw, &text) != nil {
		return raw
	}
	if kind := Kind([]byte(text)); kind != "object" && kind != "array" || !json.Valid([]byte(text)) {
		return raw
	}
	return json.RawMessage(text)
}

// Encode is json.Marshal without the HTML escapes, which agents would see.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Quote returns a text as a JSON string, without HTML escapes.
func Quote(s string) []byte {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return []byte(`"` + s + `"`)
	}

	text, err := Encode(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return text
}

// Clip shortens a text to n characters, the last of which is then an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}

	cut, count := 0, 0 // cut is where character n-1 begins
	for i := range s {
		if count == n-1 {
			cut = i
		}
		count++
		if count > n {
			return s[:cut] + "…"
		}
	}

	return s
}

// Nearest returns the candidate that name was probably meant to be, or "".
func Nearest(name string, candidates []string) string {
	// Guessing makes sense only for names that a person would type, and must not become slow for a hostile
	// file.
	if len(name) > 64 || len(candidates) > 1000 {
		return ""
	}

	best, bestDistance := "", 3
	if len(name) < 4 {
		bestDistance = 2
	}
	folded := fold(name)
	for _, c := range candidates {
		if len(c) > 64 || c == "" {
			continue
		}

		if fold(c) == folded {
			return c
		}

		if d := distance(name, c, bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// fold removes differences that people introduce by accident.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the insertions, deletions, substitutions and swaps of neighbors
// between a and b, in bytes. It returns limit if there are that many or more.
func distance(a, b string, limit int) int {
	if diff := len(a) - len(b); diff >= limit || -diff >= limit {
		return limit
	}

	before := make([]int, len(b)+1)
	previous := make([]int, len(b)+1)
	current := make([]int, len(b)+1)
	for k := range previous {
		previous[k] = k
	}

	for i := 1; i <= len(a); i++ {
		current[0] = i
		for k := 1; k <= len(b); k++ {
			cost := 1
			if a[i-1] == b[k-1] {
				cost = 0
			}
			current[k] = min(previous[k]+1, current[k-1]+1, previous[k-1]+cost)
			if i > 1 && k > 1 && a[i-1] == b[k-2] && a[i-2] == b[k-1] {
				current[k] = min(current[k], before[k-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return min(previous[len(b)], limit)
}

// An OrderedMap is a JSON object with ordered keys.
type OrderedMap[V any] []Pair[V]

// A Pair is one member of an OrderedMap.
type Pair[V any] struct {
	Key   string
	Value V
}

// Get returns the value of a key.
func (m OrderedMap[V]) Get(key string) (v V, ok bool) {
	if i := m.find(key); i >= 0 {
		return m[i].Value, true
	}
	return v, false
}

// find searches from the end, where the current steps are.
func (m OrderedMap[V]) find(key string) int {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].Key == key {
			return i
		}
	}
	return -1
}

// Set replaces the value of a key in its place, or appends it, and returns the map.
func (m OrderedMap[V]) Set(key string, v V) OrderedMap[V] {
	if i := m.find(key); i >= 0 {
		m[i].Value = v
		return m
	}
	return append(m, Pair[V]{key, v})
}

// MarshalJSON writes the members in their order; a nil map is {}.
func (m OrderedMap[V]) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range m {
		if i > 0 {
			b = append(b, ',')
		}

		v, err := Encode(p.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, Quote(p.Key)...), ':'), v...)
	}

	return append(b, '}'), nil
}

// UnmarshalJSON reads an object and keeps its order; a duplicate key is an error.
func (m *OrderedMap[V]) UnmarshalJSON(data []byte) error {
	if IsNull(data) {
		*m = nil
		return nil
	}

	out, seen := OrderedMap[V]{}, map[string]bool{}
	for p, err := range Members(data) {
		if err != nil {
			return err
		}

		if seen[p.Name] {
			return fmt.Errorf("key %q appears twice", p.Name)
		}
		seen[p.Name] = true

		var v V
		if err := json.Unmarshal(p.Value, &v); err != nil {
			return err
		}
		out = append(out, Pair[V]{p.Name, v})
	}
	*m = out
	return nil
}
