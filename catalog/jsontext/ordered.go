package jsontext

import (
	"encoding/json"
	"fmt"
)

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
