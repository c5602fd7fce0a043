//go:build unix

package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// A shelf is what the clients of the task board know of it, all of them together.
// Its methods may be called by many goroutines.
type shelf struct {
	mu       sync.Mutex // guards what follows
	tasks    map[string]*shelved
	requests map[string]*request // by request_id
	orders   map[string]*ordered // by token
	stops    map[string]bool     // attempts that were to be stopped
}

// A shelved is a task that a call has made.
type shelved struct {
	request  string // that made it
	attempts []string
	closed   bool // nobody works on it any more
	removing bool // its deletion was asked for
}

// A request is a call with a request_id: what it was to make, and what it made.
type request struct {
	tool, id string // id "": it was never answered
	args     map[string]any
	task     string // start_task_attempt: of which
	refused  bool   // it made nothing
}

// An ordered is an order that was given to an agent, and what was said of it.
type ordered struct {
	order
	attempt string // "": of one that was never acknowledged
	said    string // started or queued; "": nothing
	refused bool   // it never was given
	dropped bool   // what drops a queued follow-up was asked for since
}

func newShelf() *shelf {
	return &shelf{tasks: map[string]*shelved{}, requests: map[string]*request{}, orders: map[string]*ordered{}, stops: map[string]bool{}}
}

// with runs f while nobody else looks.
func (s *shelf) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// openTasks is how many tasks are worked on at once.
const openTasks = 5

// open are the tasks that are worked on, sorted.
func (s *shelf) open() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.tasks)), func(id string) bool { return s.tasks[id].closed })
}

// attempt picks an attempt of a task; "": it has none.
func (s *shelf) attempt(task string, r *rand.Rand) (id string, of int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.tasks[task].attempts
	if len(all) == 0 {
		return "", 0
	}
	return all[r.IntN(len(all))], len(all)
}

// drop notes that what is queued at an attempt may be gone, but for one order.
func (s *shelf) drop(attempt, but string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, o := range s.orders {
		if o.attempt == attempt && token != but {
			o.dropped = true
		}
	}
}

// answered picks a request that made something; nil: there is none.
func (s *shelf) answered(r *rand.Rand) (name string, q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for n, q := range s.requests {
		if q.id != "" {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Sort(names)
	name = names[r.IntN(len(names))]
	return name, s.requests[name]
}
