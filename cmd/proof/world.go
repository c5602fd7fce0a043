package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/cmd/proof/fault"
)

// A world is one project with its servers and clients.
type world struct {
	root    string // the project
	dir     string // the folder for logs and other files
	program string // deepwork
	seed    uint64
	history *history
	saves   *saves
	servers []*server
	guarded *server      // its callers need a token; nil means none
	calls   sync.RWMutex // held for reading by each call

	env     []string // of servers
	version string   // of the protocol that clients speak; "" is the newest, which has no sessions
	lose    float64  // the part of the replies that are lost
	strict  bool     // only what is lost on purpose may fail; else servers are killed, and clients roam
}

func newWorld(root, dir string, seed uint64) *world {
	return &world{root: root, dir: dir, seed: seed, version: withSessions, history: newHistory(), saves: &saves{hashes: map[string]int{}}}
}

// agent makes the client with a number; its own server is chosen in turn.
func (w *world) agent(number int) *agent {
	return &agent{world: w, number: number, random: rand.New(rand.NewPCG(w.seed, uint64(number)+1)),
		home: w.servers[number%len(w.servers)], lose: w.lose, conns: map[*process]*conn{}}
}

// A server runs server processes, one after the other.
type server struct {
	number int
	http   bool
	token  string   // that callers need, or ""
	args   []string // more arguments
	root   string   // its own clone of the project; "" means the world's
	env    []string // its own

	mu      sync.Mutex
	process *process // the last one started, or nil
}

// current returns the running process, or nil.
func (s *server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.alive() {
		return s.process
	}
	return nil
}

// wait waits for a running process and returns it.
func (s *server) wait(ctx context.Context) (*process, error) {
	for {
		p := s.current()
		if p != nil {
			return p, nil
		}
		if err := wait.For(ctx, 2*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// all returns the servers.
func (w *world) all() []*server {
	if w.guarded == nil {
		return w.servers
	}
	return append(slices.Clone(w.servers), w.guarded)
}

// running returns the running processes.
func (w *world) running() (all []*process) {
	for _, s := range w.all() {
		if p := s.current(); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// killRunning ends the running processes.
func (w *world) killRunning() (err error) {
	for _, p := range w.running() {
		err = errors.Join(err, p.kill())
	}
	return err
}

// run serves the project with a new deepwork process at a server. It is not an error if the process
// ends before it can be called.
func (w *world) run(ctx context.Context, s *server, plan fault.Plan, args ...string) error {
	args = append([]string{w.program, "serve", "--path", cmp.Or(s.root, w.root)}, args...)
	if s.http {
		args = append(append(args, "--transport", "http", "--port", "0"), s.args...)
	}
	p, err := w.start(ctx, !s.http, slices.Concat([]string{plan.Env(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS="}, w.env, s.env), args...)
	if err != nil {
		return err
	}
	p.where, p.full = s, plan.FullAt > 0 || plan.Pages > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}
