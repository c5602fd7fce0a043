package execution

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
)

// A view is a run as its actor last published it. It is immutable.
type view struct {
	Execution
	version uint64 // grows with each change
	over    bool   // nothing more will be learned of it
	stored  bool   // its result is on disk
	long    bool   // in a file of its own
	code    string // of the error that whoever waits for the end gets; "": by the state
	unsure  bool   // it may have been carried out, or go on: whoever calls again is to look first
}

// An entry is what the engine knows of a run.
type entry struct {
	id       string
	identity string
	view     atomic.Pointer[view] // written by the actor; by kept, under its lock, once it is over

	// Of a run that this process drives; nil otherwise.
	ref    *actor.Ref[message]
	cancel func(cause error) // ends what the driver does
	done   chan struct{}     // closed when the driver has ended
}

// kept is every run that can be asked about: those that run here, and those
// that are over, the newest of them.
type kept struct {
	mu      sync.Mutex // guards what follows
	closed  bool
	entries map[string]*entry
	over    []*entry // in the order of their ends
	heavy   []*entry // those of over whose results are in memory, in that order
	bytes   int64    // of these results
}

func newKept() *kept { return &kept{entries: make(map[string]*entry)} }

// add makes a run known; false: the engine is closed, or knows it.
func (k *kept) add(n *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.entries[n.id] != nil {
		return false
	}
	k.entries[n.id] = n
	return true
}

// ended puts a run that is known among those that are over, and lets go of the
// memory of older results.
func (k *kept) ended(n *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entries[n.id] != n {
		return
	}
	k.over = append(k.over, n)
	if size := int64(len(n.view.Load().Result)); size > 0 {
		k.heavy = append(k.heavy, n)
		k.bytes += size
	}
	for k.bytes > keepMemory {
		k.lighten(k.heavy[0])
		k.heavy = k.heavy[1:]
	}
}

// lighten takes the result of a run out of memory. The lock is held.
func (k *kept) lighten(n *entry) {
	v := *n.view.Load()
	k.bytes -= int64(len(v.Result))
	if !v.stored && v.Error == nil {
		v.Error = new(resultDropped(len(v.Result)))
	}
	v.Result = nil
	n.view.Store(&v)
}

// sweep forgets what is old, or too much, and returns the ids of those that have
// a file of their own.
func (k *kept) sweep(now time.Time) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var gone []string
	for len(k.over) > 0 {
		n := k.over[0]
		v := n.view.Load()
		if len(k.over) <= keepEnded && now.Sub(v.lastSeen()) < keepFor {
			break
		}
		if v.long {
			gone = append(gone, n.id)
		}
		delete(k.entries, n.id)
		k.over = k.over[1:]
		if len(k.heavy) > 0 && k.heavy[0] == n { // both are in the order of the ends
			k.heavy = k.heavy[1:]
			k.bytes -= int64(len(v.Result))
		}
	}
	return gone
}

// get returns a run of this identity, or nil.
func (k *kept) get(identity, id string) *entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.entries[id]; n != nil && n.identity == identity {
		return n
	}
	return nil
}

// has tells whether a run is known, whosever it is.
func (k *kept) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entries[id] != nil
}

// find returns the runs of this identity for which match is true, the one
// started last first.
func (k *kept) find(identity string, match func(*view) bool) []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []*entry
	for _, n := range k.entries {
		if n.identity == identity && match(n.view.Load()) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int {
		return b.view.Load().StartedAt.Compare(a.view.Load().StartedAt)
	})
	return found
}

// close refuses further runs and returns those that a driver drives.
func (k *kept) close() []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	var live []*entry
	for _, n := range k.entries {
		if n.done != nil {
			live = append(live, n)
		}
	}
	return live
}

func (k *kept) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.entries)
}
