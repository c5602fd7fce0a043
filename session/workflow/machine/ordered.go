package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// An OrderedMap is a JSON object whose keys keep their order.
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

// find looks from the end, where the steps are that a session is at.
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
		k, err := Marshal(p.Key)
		if err != nil {
			return nil, err
		}
		v, err := Marshal(p.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, k...), ':'), v...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads an object and keeps its order; a key that stands twice is an error.
func (m *OrderedMap[V]) UnmarshalJSON(data []byte) error {
	if string(data) == "{}" {
		*m = OrderedMap[V]{}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t == nil {
		*m = nil
		return nil
	}
	if t != json.Delim('{') {
		return fmt.Errorf("expected an object, found %v", t)
	}
	out := OrderedMap[V]{}
	seen := map[string]bool{}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return err
		}
		key := k.(string)
		if seen[key] {
			return fmt.Errorf("key %q stands twice", key)
		}
		seen[key] = true
		var v V
		if err := d.Decode(&v); err != nil {
			return err
		}
		out = append(out, Pair[V]{key, v})
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	*m = out
	return nil
}
