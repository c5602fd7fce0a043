package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	states "deepwork/session/machine"
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

	board func() (driver, source string) // the database
	env   []string                       // of servers
	// of the protocol that clients speak; "" is the newest, which has no sessions
	version string
	lose    float64 // the part of the replies that are lost
	strict  bool    // only what is lost on purpose may fail; else servers are killed, and clients roam
}

func newWorld(root, dir string, seed uint64) *world {
	w := &world{
		root:    root,
		dir:     dir,
		seed:    seed,
		version: withSessions,
		history: newHistory(),
		saves:   &saves{hashes: map[string]int{}},
	}
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

// machine defines a server on a machine of its own, with its own clone of the project, home and state, and a store
// shared with others. state is its state folder.
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
	p, err := w.start(ctx, !s.http,
		slices.Concat([]string{plan.Env(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS="}, w.env, s.env), args...)
	if err != nil {
		return err
	}
	p.where, p.full = s, plan.FullAt > 0 || plan.Pages > 0

	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}

// A kept is a session as the database has it.
type kept struct {
	id, root string
	goal     string // of its row
	body     []byte // what `deepwork sessions show --json` prints
	record   record
	err      error // why it cannot be read
}

// boardFile is the file of the project's database.
func (w *world) boardFile() string { return stateOf(w.root).Database() }

// inFile is the database of a project that has no store of another machine.
func (w *world) inFile() (driver, source string) {
	return "sqlite", "file:" + w.boardFile() + "?mode=ro&_pragma=busy_timeout(10000)"
}

// query reads the database while servers may use it; it calls each after each row was scanned into into.
func (w *world) query(ctx context.Context, query string, each func(), into ...any) error {
	driver, source := w.board()
	if _, err := os.Stat(w.boardFile()); driver == "sqlite" && errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was stored
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		each()
	}

	return rows.Err()
}

// kept returns all sessions. No server may run.
func (w *world) kept(ctx context.Context) ([]kept, error) {
	if driver, _ := w.board(); driver == "sqlite" {
		if _, err := os.Stat(w.boardFile()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil // nobody has begun one
		}
	}

	parts := map[string][]states.Part{}
	var id, kind, frame string
	var p states.Part
	err := w.query(ctx, "SELECT session_id, kind, key, position, body FROM session_parts WHERE kind <> 'judged' ORDER "+
		"BY session_id, kind, position", func() {
		p.Kind = states.PartKind(kind)
		parts[id] = append(parts[id],
			states.Part{Kind: p.Kind, Key: p.Key, Position: p.Position, Body: bytes.Clone(p.Body)})
	}, &id, &kind, &p.Key, &p.Position, &p.Body)
	if err != nil {
		return nil, err
	}

	var all []kept
	var k kept
	err = w.query(ctx, "SELECT id, root, goal, frame FROM workflow_sessions ORDER BY id", func() {
		k.body = nil
		k.record = record{}
		k.err = nil
		s, err := states.Assemble(k.id, []byte(frame), parts[k.id])
		if err == nil {
			k.body, err = s.Encode()
		}
		if err == nil {
			err = json.Unmarshal(k.body, &k.record)
		}
		k.err = err
		all = append(all, k)
	}, &k.id, &k.root, &k.goal, &frame)
	return all, err
}

// exported is the export of a session.
func exported(root, id string) string {
	return filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json")
}

// agree reports whether the export of a session has what the database has.
func (k kept) agree() bool {
	file, err := regularFile(exported(k.root, k.id))
	return err == nil && bytes.Equal(file, append(bytes.Clone(k.body), '\n'))
}

// agrees checks the export of a session that nobody has edited, and that was called after its export was last missing
// or behind.
func (w *world) agrees(k kept) {
	if !k.agree() {
		file, err := regularFile(exported(k.root, k.id))
		w.history.fault("an export that differs from its session", "session %s: %v\n%.2000s\nwant\n%.2000s", k.id, err,
			file, k.body)
	}
}

// whole checks an export that others may be writing: it must be some state of the session.
func (w *world) whole(k kept) {
	file, err := regularFile(exported(k.root, k.id))
	var r record
	if err == nil {
		err = json.Unmarshal(file, &r)
	}

	if errors.Is(err, fs.ErrNotExist) { // its root is at another machine
		return
	}

	if err == nil && (r.Session != k.id || r.Revision > k.record.Revision) {
		err = fmt.Errorf("it has revision %d of session %s, which has revision %d", r.Revision, r.Session,
			k.record.Revision)
	}
	if err != nil {
		w.history.fault("an export that is no state of its session", "session %s: %v: %.2000s", k.id, err, file)
	}
}
