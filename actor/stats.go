package actor

import (
	"maps"
	"slices"
)

// Stats holds figures of a [System], for metrics.
type Stats struct {
	Actors  int // spawned ones until they stop, those of registries while awake
	Waiting int // messages in all mailboxes
	Deepest int // messages in the longest mailbox
	Blocked int // senders blocked by full mailboxes
}

// Stats returns the current figures, read from one mailbox after the other. It briefly takes a lock
// per actor.
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
