package actor

import "maps"

// A table is a map that gives its memory back: a Go map keeps the room it once
// needed, and a hundred thousand keys that are passivated are to cost nothing.
type table[K comparable, V any] struct {
	entries map[K]V
	peak    int // the most entries since entries was made
}

// tableMin is the size below which giving back is not worth a copy.
const tableMin = 1024

func (t *table[K, V]) get(k K) V { return t.entries[k] }

func (t *table[K, V]) put(k K, v V) {
	if t.entries == nil {
		t.entries = make(map[K]V)
	}
	t.entries[k] = v
	t.peak = max(t.peak, len(t.entries))
}

// remove copies what is left when that is an eighth of the peak: each copy is
// paid for by seven times as many removals.
func (t *table[K, V]) remove(k K) {
	delete(t.entries, k)
	if t.peak < tableMin || len(t.entries) > t.peak/8 {
		return
	}
	entries := make(map[K]V, len(t.entries))
	maps.Copy(entries, t.entries)
	t.entries, t.peak = entries, len(entries)
}

func (t *table[K, V]) len() int { return len(t.entries) }
