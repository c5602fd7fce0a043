package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/cmd/proof/fault"
	folder "deepwork/session/state"
	"deepwork/session/state/statetest"
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
	guarded *server // its callers need a token; nil means none

	board   func() (driver, source string) // the database
	env     []string                       // of servers
	version string                         // of the protocol that clients speak; "" is the newest, which has no sessions
	lose    float64                        // the part of the replies that are lost
	strict  bool                           // only what is lost on purpose may fail; else servers are killed, and clients roam
}

func newWorld(root, dir string, seed uint64) *world {
	w := &world{root: root, dir: dir, seed: seed, version: withSessions, history: newHistory(), saves: &saves{hashes: map[string]int{}}}
	w.board = w.inFile
	return w
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

// machine defines a server on a machine of its own: it has its own clone of the project, its own home
// and its own state, and shares a store with others. state is the folder with its state.
func (w *world) machine(number int, env ...string) (s *server, state string, err error) {
	home := filepath.Join(w.dir, fmt.Sprint("machine", number))
	own, err := statetest.Write(home, home)
	if err != nil {
		return nil, "", err
	}
	s = &server{number: number, http: true, root: filepath.Join(home, "project"), env: env}
	for name, value := range own {
		s.env = append(s.env, name+"="+value)
	}
	s.env = append(s.env, "HOME="+home)
	return s, own[folder.Env], os.CopyFS(s.root, os.DirFS(w.root))
}

// storeEnv is the environment of a process that keeps the project in a database.
func storeEnv(store, project string) []string {
	return []string{config.StoreEnv + "=" + store, config.ProjectEnv + "=" + project}
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

// deepwork is a command of the program about the project, at the place of a server.
func (w *world) deepwork(ctx context.Context, s *server, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.program, append(args, "--path", w.rootOf(s))...)
	cmd.Env = slices.Concat(os.Environ(), w.env, s.env)
	return cmd
}

// all returns the servers.
func (w *world) all() []*server {
	if w.guarded == nil {
		return w.servers
	}
	return append(slices.Clone(w.servers), w.guarded)
}

// rootOf returns the project's root at a server.
func (w *world) rootOf(s *server) string { return cmp.Or(s.root, w.root) }

// places returns one server for each clone of the project.
func (w *world) places() []*server {
	return slices.CompactFunc(slices.Clone(w.servers), func(a, b *server) bool { return a.root == b.root })
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
	args = append([]string{w.program, "serve", "--path", w.rootOf(s)}, args...)
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
