package load

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// wrongs is a bag of what went wrong, by kind. It is shared by all of a run.
type wrongs struct {
	mu sync.Mutex
	m  map[string]*wrongKind
}

type wrongKind struct {
	Kind    string
	Count   int
	Example string // the first
}

// wrong is a part's way to the bag.
type wrong struct{ bag *wrongs }

func newWrongs() *wrongs { return &wrongs{m: map[string]*wrongKind{}} }

// add notes one thing that is wrong.
func (w wrong) add(kind, example string) {
	w.bag.mu.Lock()
	defer w.bag.mu.Unlock()
	k := w.bag.m[kind]
	if k == nil {
		k = &wrongKind{Kind: kind, Example: example}
		w.bag.m[kind] = k
	}
	k.Count++
}

// all are the kinds, the most frequent first.
func (w *wrongs) all() []wrongKind {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []wrongKind
	for k := range maps.Values(w.m) {
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b wrongKind) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Kind, b.Kind)) })
	return out
}
