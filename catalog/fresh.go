package catalog

import (
	"context"
	"fmt"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
)

// Fresh returns a snapshot that includes every write to the job folders that ended
// before the call: new, changed and removed jobs (DESIGN "Read your own writes").
// While nothing changed it costs one look at each job's file, on the caller's
// goroutine, and neither locks nor waits; else it has only what differs read again and
// waits for it, at most until ctx ends. A file that is being written is waited for:
// about 10 ms after the last write, 50 ms if it looks like half of a save, and 200 ms
// at most; its last good definition is served until then. It also makes sure that the
// folders of standard jobs are on disk.
func (c *Catalog) Fresh(ctx context.Context) (*Snapshot, error) {
	if err := c.standard.onDisk(ctx, c); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("laying out the standard jobs: %w", err)
		}
		// They can be listed all the same; starting one reports why it cannot be.
		c.standard.logFailure(c.options.Logger, err)
	}
	return c.upToDate(ctx, (*state).stale)
}

// FreshJob is Fresh for one job, by its name or directory name; it looks at the other
// jobs only if this one is not known or has moved, or if a directory came or went. It
// fails if the job is a standard one and cannot be laid out.
func (c *Catalog) FreshJob(ctx context.Context, name string) (*Snapshot, error) {
	st := c.state.Load()
	was := st.snap.Job(name)
	if _, e := st.origin(was); e != nil {
		snap, err := c.upToDate(ctx, func(st *state) []key { return st.staleFor(name) })
		if err != nil {
			return nil, err
		}
		if is := snap.Job(name); is != nil && is.Dir == was.Dir {
			return snap, nil
		}
	}
	snap, err := c.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	if j := snap.Job(name); j != nil && c.standard.has(j) {
		if err := c.standard.onDisk(ctx, c); err != nil {
			return nil, fmt.Errorf("laying out the standard job %s: %w", j.Name, err)
		}
		// Where it was laid out may have changed meanwhile.
		snap = c.Snapshot()
	}
	return snap, nil
}

// upToDate returns a snapshot in which stale finds nothing.
func (c *Catalog) upToDate(ctx context.Context, stale func(*state) []key) (*Snapshot, error) {
	st := c.state.Load()
	keys := stale(st)
	if len(keys) == 0 && !st.overdue(time.Now()) {
		return st.snap, nil
	}
	st, err := c.look(ctx, st, keys, stale)
	if err != nil {
		return nil, err
	}
	return st.snap, nil
}

// look has the owner look at the keys, and again while a file is being written.
// Concurrent calls share the work: the second finds nothing left to do. The keys are
// what stale found to differ from st. If the owner had another state by then, that may
// be the result of looks before the caller's write and contain a name that the keys do
// not have, so the comparison is made again.
func (c *Catalog) look(ctx context.Context, st *state, keys []key, stale func(*state) []key) (*state, error) {
	for began := time.Now(); ; {
		r, err := c.ask(ctx, keys)
		if err != nil {
			return nil, fmt.Errorf("looking at the job folders again: %w", err)
		}
		left := follow.Bound - time.Since(began)
		if left <= 0 || r.wait == 0 && r.base == st {
			return r.state, nil
		}
		if err := wait.For(ctx, min(r.wait, left)); err != nil {
			return nil, fmt.Errorf("waiting for a job file that is being written: %w", err)
		}
		st = c.state.Load()
		if keys = stale(st); len(keys) == 0 && !st.overdue(time.Now()) {
			return st, nil
		}
	}
}

// ask has the owner look at the keys, and at what is due.
func (c *Catalog) ask(ctx context.Context, keys []key) (looked, error) {
	return actor.Ask(ctx, c.owner, func(reply actor.Reply[looked]) message {
		return lookAt{keys: keys, reply: reply}
	})
}
