package actor

import (
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
	ctx    context.Context // every Behavior's, or its parent
	cancel context.CancelFunc

	mu      sync.Mutex // a leaf: nothing else is locked under it
	stopped bool
	members map[member]struct{} // those of Spawn until they are stopped, those of registries while awake
}

// A member is an actor as its System sees it, whatever the type of its messages.
type member interface {
	close()                // accept nothing more; does not wait
	done() <-chan struct{} // closed when it has stopped
	name() string
	backlog() (waiting, blocked int) // messages in the mailbox, and senders that wait for room
}

// NewSystem makes an empty System. logger is the default of its actors; nil
// discards. It starts no goroutine; Stop releases what its actors hold.
func NewSystem(logger *slog.Logger) *System {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &System{logger: logger, ctx: ctx, cancel: cancel, members: make(map[member]struct{})}
}

// Stop ends all actors in order and waits for them until ctx ends: mailboxes
// close, so that senders get [ErrStopped]; what is in them is still handled;
// then Stop of each Behavior runs. It returns the names, sorted, of those that
// had not ended when ctx did, and cancels their context; it does not wait for
// them any longer. nil: all have ended. It may be called again, and then waits
// for the rest.
//
// All mailboxes close at once: an actor that is still handling messages cannot
// ask others of the same System any more. What must outlive others belongs in a
// System of its own, stopped later.
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

// join adds a member; false: the System is stopped.
func (s *System) join(m member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.members[m] = struct{}{}
	return true
}

// leave removes a member that accepts nothing more.
func (s *System) leave(m member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.members, m); len(s.members) == 0 {
		s.members = make(map[member]struct{}) // the old one would keep the memory of its largest size
	}
}
