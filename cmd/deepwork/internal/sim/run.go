//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow"
	"deepwork/session/workflow/filestore"
)

// A world is one simulation.
type world struct {
	o       Options
	random  *rand.Rand // of the faults
	history *history
	servers []*server
	ledger  string
	calls   sync.RWMutex // held for reading by each call
	result  Result
}

// Run simulates. It blocks for a little longer than Options.Time, and returns
// what happened; Result.Faults are what must not have. The error is one of the
// simulation itself.
func Run(ctx context.Context, o Options) (*Result, error) {
	w := &world{o: o, random: rand.New(rand.NewPCG(o.Seed, 0)), history: newHistory(), ledger: filepath.Join(o.Dir, "ledger")}
	if err := w.layOut(); err != nil {
		return nil, fmt.Errorf("laying out the simulation: %w", err)
	}
	err := w.live(ctx)
	for _, s := range w.servers { // none is left but after an error
		if r, _ := s.current(); r != nil {
			err = errors.Join(err, r.kill())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	w.history.check(o.Dir)
	r := &w.result
	r.Calls, r.Lost, r.Refused = w.history.calls, w.history.lost, w.history.refused
	r.Sessions, r.Damaged = len(w.history.sessions), len(w.history.damaged)
	r.Faults = w.history.faults
	return r, nil
}

func (w *world) project(elements ...string) string {
	return filepath.Join(append([]string{w.o.Dir, "project"}, elements...)...)
}

func (w *world) layOut() error {
	job := w.project(".deepwork", "jobs", "sim")
	if err := os.MkdirAll(job, 0o755); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(job, "job.yml"), []byte(jobText("first")), 0o644)
	if err == nil {
		err = os.WriteFile(filepath.Join(job, "do.md"), []byte("Do it.\n"), 0o644)
	}
	// Up to three servers, the first over stdio, so that each kind is there.
	for n := range 1 + w.random.IntN(3) {
		w.servers = append(w.servers, newServer(n, n > 0 && w.random.IntN(3) > 0 || n == 0 && w.random.IntN(4) == 0))
	}
	return err
}

// jobText is the job of all workflows; edits of it change nothing but its summary.
func jobText(summary string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: sim\nversion: \"1.0.0\"\nsummary: %s\ncommon_job_info_provided_to_all_steps_at_runtime: Info\nworkflows:\n", summary)
	for _, name := range []string{"chain", "groups", "fork", "short"} {
		var entries []string
		for _, e := range workflows[name] {
			entries = append(entries, "["+strings.Join(e, ", ")+"]")
		}
		fmt.Fprintf(&b, "  - {name: %s, summary: W, steps: [%s]}\n", name, strings.Join(entries, ", "))
	}
	b.WriteString("steps:\n")
	for _, id := range stepNames {
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: do.md, outputs: {}, reviews: []}\n", id)
	}
	return b.String()
}

// live lets clients, faults and an editor loose, ends them, and takes stock.
func (w *world) live(ctx context.Context) error {
	for _, s := range w.servers {
		if err := s.start(ctx, w.o, w.plan()); err != nil {
			return err
		}
	}
	working, done := context.WithTimeout(ctx, w.o.Time)
	defer done()
	var clients sync.WaitGroup
	var pair *book
	for n := range w.o.Clients {
		if n%2 == 0 {
			pair = &book{}
		}
		a := &agent{number: n, world: w, random: rand.New(rand.NewPCG(w.o.Seed, uint64(n)+1)),
			home: w.servers[n%len(w.servers)], pair: pair, clients: map[*run]*mcp.ClientSession{}}
		clients.Go(func() { a.work(working) })
	}
	clients.Go(func() { w.edit(working) })
	err := w.rage(working)
	done()
	clients.Wait()
	return errors.Join(err, w.end(ctx))
}

// end stops all servers, looks with a last one where each session is, and has
// `deepwork check` judge what is on disk.
func (w *world) end(ctx context.Context) error {
	for _, s := range w.servers {
		if r, _ := s.current(); r != nil {
			if err := r.stop(); err != nil {
				w.history.fault("server %d: %v", s.number, err)
			}
		}
	}
	last := newServer(len(w.servers), false)
	w.servers = []*server{last}
	if err := last.start(ctx, w.o, Plan{Ledger: w.ledger}); err != nil {
		return err
	}
	a := &agent{number: w.o.Clients, world: w, random: rand.New(rand.NewPCG(w.o.Seed, 1<<32)), home: last, pair: &book{}, clients: map[*run]*mcp.ClientSession{}}
	for _, id := range w.history.known() {
		for range 2 { // one may be lost
			a.perform(ctx, input{Tool: "get_step", Session: id})
		}
	}
	r, err := last.wait(ctx)
	if err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		w.history.fault("the last server: %v", err)
	}
	if err := w.count(); err != nil {
		return err
	}
	w.judge(ctx, "at the end")
	return nil
}

// judge has `deepwork check` say whether all is well.
func (w *world) judge(ctx context.Context, when string) {
	check := exec.CommandContext(ctx, w.o.Check[0], append(w.o.Check[1:len(w.o.Check):len(w.o.Check)], "check", "--path", w.project())...)
	if text, err := check.CombinedOutput(); err != nil {
		w.history.fault("deepwork check %s: %v\n%s", when, err, text)
	}
}

// count holds the sessions on disk against those that were begun, and takes away
// what was damaged on purpose.
func (w *world) count() error {
	dir := workflow.TmpDir(w.project())
	store, err := filestore.Open(dir, filestore.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	aside, err := store.Damaged()
	if err != nil {
		return err
	}
	for _, path := range aside {
		id := strings.SplitN(filepath.Base(path)+"___", "_", 4)[2]
		if w.history.isDamaged(id) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	there := 0
	for info, err := range store.List() {
		if err != nil {
			return err
		}
		if !w.history.isDamaged(info.ID) {
			there++
			continue
		}
		if err := os.Remove(store.RecordPath(info.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	begun := len(w.history.known())
	if there < begun || there > begun+w.history.unknown {
		w.history.fault("%d sessions are on disk; %d were begun, and %d more may have been", there, begun, w.history.unknown)
	}
	return store.Close()
}

// edit is an editor that saves the job again and again, in the ways of editors.
func (w *world) edit(ctx context.Context) {
	random := rand.New(rand.NewPCG(w.o.Seed, 1<<33))
	file := w.project(".deepwork", "jobs", "sim", "job.yml")
	for n := 0; ctx.Err() == nil; n++ {
		text := []byte(jobText(fmt.Sprintf("save %d", n)))
		var err error
		switch random.IntN(3) {
		case 0: // a file that takes the place of the old one
			if err = os.WriteFile(file+"~", text, 0o644); err == nil {
				err = os.Rename(file+"~", file)
			}
		case 1: // in two pieces
			half := len(text) / 2
			if err = os.WriteFile(file, text[:half], 0o644); err == nil {
				pause(ctx, rand.N(20*time.Millisecond))
				err = os.WriteFile(file, text, 0o644)
			}
		case 2:
			if err = os.Remove(file); err == nil {
				err = os.WriteFile(file, text, 0o644)
			}
		}
		if err != nil {
			w.history.fault("the editor: %v", err)
			return
		}
		pause(ctx, time.Duration(50+random.IntN(400))*time.Millisecond)
	}
}
