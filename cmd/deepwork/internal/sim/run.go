//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A world is one simulation.
type world struct {
	o             Options
	random        *rand.Rand // of the faults
	history       *history
	servers       []*server
	ledger        string
	calls         sync.RWMutex // held for reading by each call
	shelf         *shelf
	clerks        []*clerk
	callers       []*caller
	source        *exec.Cmd // of workflows
	sourceAddress string
	cuts          atomic.Int64 // how often the power was cut
	result        Result
}

// power is how often the power was cut.
func (w *world) power() int { return int(w.cuts.Load()) }

// Run simulates. It blocks for a little longer than Options.Time, and returns
// what happened; Result.Faults are what must not have. The error is one of the
// simulation itself.
func Run(ctx context.Context, o Options) (*Result, error) {
	w := &world{o: o, random: rand.New(rand.NewPCG(o.Seed, 0)), history: newHistory(), ledger: filepath.Join(o.Dir, "ledger"), shelf: newShelf()}
	if err := w.layOut(ctx); err != nil {
		return nil, fmt.Errorf("laying out the simulation: %w", errors.Join(err, w.endSource()))
	}
	err := w.live(ctx)
	for _, s := range w.servers { // none is left but after an error
		if r, _ := s.current(); r != nil {
			err = errors.Join(err, r.kill())
		}
	}
	w.endAgents()
	err = errors.Join(err, w.endSource())
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	w.history.check(o.Dir)
	r := &w.result
	r.Calls, r.Lost, r.Refused = w.history.calls, w.history.lost, w.history.refused
	r.PowerCuts, r.Tasks = w.power(), len(w.shelf.tasks)
	r.Sessions, r.Tangled, r.Damaged = len(w.history.sessions), w.history.tangled, len(w.history.damaged)
	r.Journals, r.Losers = len(w.history.journals), len(w.history.losers)
	r.Faults = w.history.faults
	return r, nil
}

func (w *world) project(elements ...string) string {
	return filepath.Join(append([]string{w.o.Dir, "project"}, elements...)...)
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
		a := w.agent(n, pair)
		clients.Go(func() { a.work(working) })
	}
	// Agents and sources cost more than sessions do: a quarter as many clients each.
	for n := range (w.o.Clients + 3) / 4 {
		clerk, caller := newClerk(w.agent(w.o.Clients+2*n, nil), w.shelf), newCaller(w.agent(w.o.Clients+2*n+1, nil))
		w.clerks, w.callers = append(w.clerks, clerk), append(w.callers, caller)
		clients.Go(func() { clerk.work(working) })
		clients.Go(func() { caller.work(working) })
	}
	clients.Go(func() { w.edit(working) })
	err := w.rage(working)
	done()
	clients.Wait()
	return errors.Join(err, w.end(ctx))
}

// agent makes the client of a number.
func (w *world) agent(n int, pair *book) *agent {
	return &agent{number: n, world: w, random: rand.New(rand.NewPCG(w.o.Seed, uint64(n)+1)),
		home: w.servers[n%len(w.servers)], pair: pair, clients: map[*run]*mcp.ClientSession{}}
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
