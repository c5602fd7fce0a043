package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/session/workflow"
)

// ErrWrong is returned when a run has found something wrong, which the report tells.
var ErrWrong = errors.New("something is wrong")

// A run is one load on one project.
type run struct {
	Options
	wrong
	root     string
	servers  []*server
	book     *book
	ledger   *ledger
	archive  *workflow.Archive // to look at a file now and then
	others   map[string]bool   // sessions that were there before
	deadline time.Time

	begun   atomic.Int64 // sessions
	lost    atomic.Int64 // replies
	crashes atomic.Int64 // of clients
	moves   atomic.Int64 // to the other server
	spots   atomic.Int64 // files looked at during the run
	heldUp  atomic.Int64 // calls that failed because the machine stood still
}

// Run puts the load on and reports. It blocks until it is over, everything that
// it started has ended, and the session files are judged; when ctx ends that is
// soon. The error is ErrWrong where the report tells what is wrong.
func Run(ctx context.Context, o Options) (err error) {
	o, err = o.withDefaults()
	if err != nil {
		return err
	}
	if o.Idle > 0 {
		return idle(ctx, o)
	}
	r := &run{Options: o, wrong: wrong{newWrongs()}, book: newBook(o.Group, o.Servers), ledger: newLedger(o.Group)}
	temp, err := os.MkdirTemp("", "deepwork-load-")
	if err != nil {
		return fmt.Errorf("making a folder for the load: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	own := o.Root == ""
	if r.root = o.Root; own {
		r.root = filepath.Join(temp, "project")
	}
	if !own {
		if err := mustNotBe(r.root); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cleanUp(r.root)) }()
	}
	if err := layOut(r.root, own); err != nil {
		return err
	}
	editor := &editor{root: r.root, book: r.book, wrong: r.wrong}
	if err := editor.layOut(); err != nil {
		return err
	}
	if r.archive, err = workflow.OpenArchive(r.root, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("opening the session files: %w", err)
	}
	defer func() { err = errors.Join(err, r.archive.Close()) }()
	if err := r.before(ctx); err != nil {
		return err
	}

	var before, after yardstick
	if o.Bench {
		if before, err = measureYard(ctx, o, temp); err != nil {
			return err
		}
	}
	if err := r.startServers(ctx, temp); err != nil {
		return errors.Join(err, r.stopServers())
	}
	report := r.work(ctx, editor)
	if err := r.stopServers(); err != nil {
		r.add("a server that did not stop as it should", err.Error())
	}
	if o.Bench && ctx.Err() == nil {
		// Once more, since a machine that others use is not the same all the time.
		if after, err = measureYard(ctx, o, temp); err != nil {
			return err
		}
		report.yard = yardstick{(before.echoes + after.echoes) / 2, (before.writes + after.writes) / 2}
	}
	j := judge{root: r.root, ledger: r.ledger, book: r.book, wrong: r.wrong}
	if report.checked, err = j.run(context.WithoutCancel(ctx), r.others); err != nil {
		return fmt.Errorf("judging the session files: %w", err)
	}
	report.print(r)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the load was cut short: %w", context.Cause(ctx))
	}
	if len(r.bag.all()) > 0 {
		return ErrWrong
	}
	return nil
}

// before remembers the sessions that there are.
func (r *run) before(ctx context.Context) error {
	infos, err := r.archive.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the sessions that there are: %w", err)
	}
	r.others = map[string]bool{}
	for _, i := range infos {
		r.others[i.SessionID] = true
	}
	return nil
}

func (r *run) startServers(ctx context.Context, logs string) error {
	if r.URL != "" {
		r.servers = []*server{{url: r.URL, token: r.Token}}
		return nil
	}
	for i := range r.Servers {
		s, err := startServer(ctx, r.Options, r.root, logs, i)
		if err != nil {
			return fmt.Errorf("starting server %d: %w", i+1, err)
		}
		r.servers = append(r.servers, s)
	}
	return nil
}

// stopServers stops those that were started here, and reads their logs.
func (r *run) stopServers() error {
	var errs []error
	for _, s := range r.servers {
		if s.child != nil {
			errs = append(errs, s.child.stop(), s.complaints(r.wrong))
		}
	}
	return errors.Join(errs...)
}

// work has the agents and the editor at it until the time is over.
func (r *run) work(ctx context.Context, e *editor) *report {
	aside, stop := context.WithCancel(ctx)
	rep := &report{}
	var beside sync.WaitGroup
	for _, s := range r.servers {
		m := &memory{}
		rep.memory = append(rep.memory, m)
		beside.Go(func() { m.watch(aside, s, r.wrong) })
	}
	if r.Edit {
		for job := range jobCount {
			beside.Go(func() { e.edit(aside, job) })
		}
	}
	began := time.Now()
	r.deadline = began.Add(r.Duration)
	agents := make([]*agent, r.Connections)
	var working sync.WaitGroup
	for i := range agents {
		agents[i] = newAgent(r, i)
		working.Go(func() { agents[i].work(ctx) })
	}
	working.Wait()
	rep.took = time.Since(began)
	stop()
	beside.Wait()
	for _, a := range agents {
		rep.latencies = append(rep.latencies, &a.took)
	}
	return rep
}

// over tells whether no more work is to be begun.
func (r *run) over(ctx context.Context) bool {
	return ctx.Err() != nil || time.Now().After(r.deadline)
}

// another tells whether another session may be begun, and counts it.
func (r *run) another() bool {
	n := r.begun.Add(1)
	return r.Sessions == 0 || n <= int64(r.Sessions)
}
