package actor

import (
	"maps"
	"slices"
)

// Stats are figures of a [System], for metrics.
type Stats struct {
	Actors  int // that there are: those of Spawn until they are stopped, those of registries while awake
	Waiting int // messages in all mailboxes that no actor has taken yet
	Deepest int // of those, in the mailbox that has the most
	Blocked int // senders that wait for room in a mailbox
}

// Stats returns the figures as they are now, one mailbox after the other. It
// costs a lock for an instant per actor, and nothing when it is not called.
func (s *System) Stats() Stats {
	s.mu.Lock()
	members := slices.Collect(maps.Keys(s.members))
	s.mu.Unlock()

	out := Stats{Actors: len(members)}
	for _, m := range members {
		waiting, blocked := m.backlog()
		out.Waiting += waiting
		out.Blocked += blocked
		out.Deepest = max(out.Deepest, waiting)
	}
	return out
}

// backlog implements member.
func (c *cell[M]) backlog() (waiting, blocked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.box.queue), len(c.box.waiting)
}
