package workflow

import (
	"sync"
	"sync/atomic"
)

// A memo remembers what was read from the database and can be read again: when it is full, it forgets
// everything. Its methods may be called concurrently.
type memo[K comparable, V any] struct {
	most int64 // values

	values sync.Map     // K -> V
	count  atomic.Int64 // of values
}

func (m *memo[K, V]) get(key K) (value V, ok bool) {
	v, ok := m.values.Load(key)
	if ok {
		value = v.(V)
	}
	return value, ok
}

func (m *memo[K, V]) put(key K, value V) {
	if _, known := m.values.Swap(key, value); known {
		return
	}
	if m.count.Add(1) > m.most {
		m.values.Clear()
		m.values.Store(key, value)
		m.count.Store(1)
	}
}
