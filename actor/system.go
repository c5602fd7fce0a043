package actor

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"deepwork/actor/wait"
)

// A System is a group of actors that is stopped together.
type System struct {
	logger *slog.Logger
	ctx    context.Context // parent of every Behavior's context
	cancel context.CancelFunc

	mu      sync.Mutex // a leaf: no other lock is taken while it is held
	stopped bool
	members map[member]struct{} // spawned ones until they stop, those of registries while awake
}

// A member is an actor as its System sees it, regardless of the type of its messages.
type member interface {
	close()                // accept no more messages; does not wait
	done() <-chan struct{} // closed when it has stopped
	name() string
	backlog() (waiting, blocked int) // messages in the mailbox, and blocked senders
}

// NewSystem returns an empty System. logger is the default of its actors; nil discards logs. It
// starts no goroutine; Stop releases what its actors hold.
func NewSystem(logger *slog.Logger) *System {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	return &System{logger: logger, ctx: ctx, cancel: cancel, members: make(map[member]struct{})}
}

// Stop ends all actors in order and waits for them until ctx ends: mailboxes close, so that senders
// get [ErrStopped]; accepted messages are still handled; then Stop of each Behavior runs. It
// returns nil if all have ended. Otherwise it cancels the context of those that have not and
// returns their names, sorted, without waiting any longer. It may be called again to wait for the
// rest.
//
// All mailboxes close at once: an actor that is still handling messages can no longer ask others of
// the same System. Actors that must outlive others belong in a System of their own, stopped later.
func (s *System) Stop(ctx context.Context) []string {
	s.mu.Lock()
	s.stopped = true
	members := slices.Collect(maps.Keys(s.members))
	s.mu.Unlock()

	for _, m := range members {
		m.close()
	}
	var stuck []string
	for _, m := range members {
		if wait.Done(ctx, m.done()) != nil {
			stuck = append(stuck, m.name())
		}
	}
	s.cancel()
	slices.Sort(stuck)
	return stuck
}

// join adds a member. It returns false if the System is stopped.
func (s *System) join(m member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.members[m] = struct{}{}
	return true
}

// leave removes a member that no longer accepts messages.
func (s *System) leave(m member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.members, m); len(s.members) == 0 {
		s.members = make(map[member]struct{}) // the old map would keep its largest size
	}
}

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
