package load

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"deepwork/session/workflow"
)

// What a call does to a session.
const (
	didFinish = "finished_step"
	didGoTo   = "go_to_step"
	didAbort  = "abort_workflow"
)

// An event is one transition that was asked for.
type event struct {
	did     string
	step    string           // finished, or gone back to
	outputs workflow.Outputs // finished
	notes   string           // finished; the reason of an abort
	server  int              // who acknowledged it
	sent    time.Time        // when it was asked for first
	acked   time.Time        // zero: it never was; it may have been made or not
}

// An account is one session as its client was told of it. Only that client
// writes it; its lock is for the members of a group, which are parallel.
type account struct {
	goal   string // unlike any other's
	job    int
	parent string // session id, or ""

	mu     sync.Mutex
	id     string // "" until the start is acknowledged
	events []*event
	served int // the newest save of job.yml that a transition's reply was made of
}

// ask notes that a transition is about to be asked for.
func (a *account) ask(e event) *event {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.sent = time.Now()
	a.events = append(a.events, &e)
	return &e
}

// ack notes that it was acknowledged.
func (a *account) ack(e *event, server int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.acked, e.server = time.Now(), server
}

// never takes back a transition that was refused.
func (a *account) never(e *event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = slices.DeleteFunc(a.events, func(o *event) bool { return o == e })
}

// began notes which save of job.yml a step began with.
func (a *account) began(save int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.served = max(a.served, save)
}

// A ledger has the account of every session that was asked for, and what was
// seen of their owners.
type ledger struct {
	group int

	mu        sync.Mutex
	accounts  []*account
	sightings []sighting
}

// A sighting is who owned a session, by its file, while the client that holds it
// was served by a server.
type sighting struct {
	session string
	server  int
	owner   string
}

func newLedger(group int) *ledger { return &ledger{group: group} }

// open makes an account for a session that is about to be started.
func (l *ledger) open(job int, goal, parent string) *account {
	a := &account{goal: goal, job: job, parent: parent}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accounts = append(l.accounts, a)
	return a
}

func (l *ledger) saw(session string, server int, owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sightings = append(l.sightings, sighting{session, server, owner})
}

// acknowledged is how many transitions were, starts included, and of how many sessions.
func (l *ledger) acknowledged() (transitions, sessions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		a.mu.Lock()
		if a.id != "" {
			sessions++
			transitions++
		}
		for _, e := range a.events {
			if !e.acked.IsZero() {
				transitions++
			}
		}
		a.mu.Unlock()
	}
	return transitions, sessions
}

// owners checks that each server wrote one owner into the files, and each its own.
func (l *ledger) owners(w wrong) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[int]string{}
	for _, s := range l.sightings {
		switch {
		case s.owner == "":
			w.add("no owner", fmt.Sprintf("session %s was in use on server %d, and its file named no owner", s.session, s.server+1))
		case of[s.server] == "":
			of[s.server] = s.owner
		case of[s.server] != s.owner:
			w.add(wrongOwners, fmt.Sprintf("session %s was in use on server %d (%s), and its file named %s as its owner", s.session, s.server+1, of[s.server], s.owner))
		}
	}
	if names := slices.Sorted(maps.Values(of)); len(slices.Compact(names)) < len(of) {
		w.add(wrongOwners, fmt.Sprintf("two servers wrote the same owner into session files: %v", names))
	}
}
