package actor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"deepwork/actor/wait"
)

// A System is a group of actors that is stopped together.
type System struct {
	logger *slog.Logger
	ctx    context.Context // parent of every Behavior's context
	cancel context.CancelFunc

	mu      sync.Mutex // a leaf: while holding it, take no other lock
	stopped bool
	members map[member]struct{} // spawned actors until they stop, actors of registries while awake
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
	delete(s.members, m)
	if len(s.members) == 0 {
		s.members = make(map[member]struct{}) // since the old map would keep its largest size
	}
}

// Stats holds figures of a [System], for metrics.
type Stats struct {
	Actors  int // spawned actors until they stop, actors of registries while awake
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

// A Registry runs one actor per key. A key uses memory only while its actor is awake, from its
// first message until it is passivated, except for the record of its crashes. The methods may be
// called from any goroutine.
type Registry[K comparable, M any] struct {
	system      *System
	options     Options
	newBehavior func(K) (Behavior[M], error)

	mu      sync.Mutex // may be taken under a cell's lock, never the other way round
	awake   map[K]*cell[M]
	crashed map[K]budget // only keys that are not awake
}

// NewRegistry returns a registry without awake actors. newBehavior is called once per incarnation,
// on the actor's goroutine. If it or Start fails, the waiting messages fail with that error,
// unchanged, and the key sleeps again: this is how "no such key" reaches an asker.
func NewRegistry[K comparable, M any](s *System, o Options, newBehavior func(K) (Behavior[M], error)) *Registry[K, M] {
	return &Registry[K, M]{
		system:      s,
		options:     o.withDefaults(s.logger),
		newBehavior: newBehavior,
		awake:       make(map[K]*cell[M]),
		crashed:     make(map[K]budget),
	}
}

// For returns the address of a key's actor, which is woken by the first message to it. The address
// is a value, may be stored, and costs at most one small allocation.
func (r *Registry[K, M]) For(key K) Address[M] { return keyed[K, M]{r, key} }

// Len returns how many actors are awake. It does not block.
func (r *Registry[K, M]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.awake)
}

// keyed is the address of one key.
type keyed[K comparable, M any] struct {
	registry *Registry[K, M]
	key      K
}

func (k keyed[K, M]) Tell(ctx context.Context, m M) error {
	return k.deliver(ctx, envelope[M]{message: m})
}

func (k keyed[K, M]) name() string { return k.registry.title(k.key) }

// deliver retries while the cell that it found is dying. A dying cell has already left the map, so the next
// search finds another one or none.
func (k keyed[K, M]) deliver(ctx context.Context, e envelope[M]) error {
	if ctx.Err() != nil {
		return overError(ctx, k.name())
	}

	for {
		c, err := k.registry.find(k.key)
		if err != nil {
			return err
		}
		if err := c.deliver(ctx, e); err != errGone {
			return err
		}
	}
}

func (r *Registry[K, M]) title(key K) string {
	return fmt.Sprintf("%s/%v", r.options.Name, key)
}

// find returns the cell of an awake key, or a new one, which its first message wakes.
func (r *Registry[K, M]) find(key K) (*cell[M], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.awake[key]; c != nil {
		return c, nil
	}
	past, crashed := r.crashed[key]
	if crashed && past.over(time.Now(), r.options.Within) {
		past = budget{}
	}
	if past.verdict != nil {
		return nil, past.verdict
	}
	c := newCell(r.system, r.options,
		func() string { return r.title(key) },
		func() (Behavior[M], error) { return r.newBehavior(key) })
	c.budget = past
	c.retire = func(b budget) { r.retire(key, b) }
	if !r.system.join(c) {
		return nil, stoppedError(r.title(key))
	}
	r.awake[key] = c
	delete(r.crashed, key)
	return c, nil
}

// retire removes a dead cell from the map and records its crashes. The cell's lock is held, so a
// caller that finds the cell dead no longer finds it in the map.
func (r *Registry[K, M]) retire(key K, b budget) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.awake, key)
	if len(r.awake) == 0 {
		r.awake = make(map[K]*cell[M]) // since the old map would keep its largest size
	}
	if len(b.crashes) > 0 {
		r.crashed[key] = b
	}
}

// A budget records when an actor crashed. The zero value means that it never did.
type budget struct {
	crashes []time.Time // within the window, oldest first
	verdict error       // set once the budget is used up
}

// spend counts a crash and reports whether a restart is allowed.
func (b *budget) spend(now time.Time, restarts int, within time.Duration) bool {
	b.crashes = append(slices.DeleteFunc(b.crashes, func(t time.Time) bool { return now.Sub(t) >= within }), now)
	return len(b.crashes) <= max(restarts, 0)
}

// over reports whether all crashes have left the window: the actor starts afresh.
func (b *budget) over(now time.Time, within time.Duration) bool {
	return now.Sub(b.crashes[len(b.crashes)-1]) >= within
}
