package remote

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/catalog/source"
)

// A view is a run as its actor last published it. It is immutable.
type view struct {
	Run
	version uint64 // grows with each change
	over    bool   // nothing more will become known here
	lost    bool   // over, since another server has taken it up
	code    string // of the error for callers that wait; "" if the state determines it
	unsure  bool   // it may have been carried out, or may continue: check before calling again
}

// An entry is a run that this process drives, or whose end could not be stored.
type entry struct {
	id       string
	identity string
	view     atomic.Pointer[view] // written by the actor

	ref    *actor.Ref[message]
	cancel func(cause error) // ends the driver's work
	kept   *source.Progress  // as it was stored last; for hold
	done   chan struct{}     // closed when the driver has ended
}

// entries are the runs that this process has in memory.
type entries struct {
	added  wait.Signal // for hold
	mu     sync.Mutex  // guards the fields below
	closed bool
	byID   map[string]*entry
}

func newEntries() entries {
	return entries{added: wait.NewSignal(), byID: make(map[string]*entry)}
}

// add adds a run; it reports false if the engine is closed or has it.
func (k *entries) add(n *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.byID[n.id] != nil {
		return false
	}
	k.byID[n.id] = n
	k.added.Wake()
	return true
}

// remove removes a run whose end is in the store, or that another server has taken up.
func (k *entries) remove(n *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byID, n.id)
}

// get returns a run, or nil.
func (k *entries) get(id string) *entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byID[id]
}

// any reports whether there are entries.
func (k *entries) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.byID) > 0
}

// all returns all runs.
func (k *entries) all() []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.byID))
}

// ids returns the ids of all runs.
func (k *entries) ids() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.byID))
}

// ofSource returns the runs of this identity to which their sources gave an id, the one
// started last first.
func (k *entries) ofSource(identity, id string) []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []*entry
	for _, n := range k.byID {
		if v := n.view.Load(); n.identity == identity && v.SourceExecutionID != nil && *v.SourceExecutionID == id {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return b.view.Load().StartedAt.Compare(a.view.Load().StartedAt) })
	return found
}

// close refuses further runs and returns all.
func (k *entries) close() []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return slices.Collect(maps.Values(k.byID))
}
