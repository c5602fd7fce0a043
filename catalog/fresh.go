package catalog

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"deepwork/actor"
	"deepwork/catalog/internal/stamp"
	"deepwork/catalog/job"
)

// freshBound is for how long a call waits for a file that is being written; then
// it gets the last good definition.
const freshBound = settleBound + 5*stamp.Settle

// Fresh returns a snapshot that includes every write to the job folders that
// ended before the call: new, changed and removed jobs (DESIGN "Read your own
// writes"). While nothing changed it costs one look at each job's file, on the
// caller's goroutine, and neither locks nor waits; else it has what differs, and
// that alone, read again and waits for it, at most until ctx ends. A file that
// is being written is waited for: about 10 ms after the last write, 50 ms where it
// looks like half of a save, and 200 ms at most; its last good definition is
// served until then. It also sees to it
// that the folders of standard jobs are on disk.
func (c *Catalog) Fresh(ctx context.Context) (*Snapshot, error) {
	if err := c.standardOnDisk(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("laying out the standard jobs: %w", err)
		}
		// They can be listed all the same; starting one tells why it cannot be.
		c.standardFailed(err)
	}
	st := c.state.Load()
	keys := st.stale()
	if len(keys) == 0 && !st.overdue(time.Now()) {
		return st.snap, nil
	}
	st, err := c.look(ctx, st, keys, (*state).stale)
	if err != nil {
		return nil, err
	}
	return st.snap, nil
}

// FreshJob is Fresh for one job, by its name or directory name; it looks at the
// other jobs only when this one is not known or has moved, or when a directory
// came or went.
func (c *Catalog) FreshJob(ctx context.Context, name string) (*Snapshot, error) {
	st := c.state.Load()
	j := st.snap.Job(name)
	if j == nil {
		return c.freshStandard(ctx, name)
	}
	i, e := st.origin(j)
	if e == nil || st.folders[i].standard {
		return c.freshStandard(ctx, name)
	}
	keys := st.staleFor(name)
	if len(keys) == 0 && !e.awake(time.Now()) {
		return st.snap, nil
	}
	now, err := c.look(ctx, st, keys, func(st *state) []key { return st.staleFor(name) })
	if err != nil {
		return nil, err
	}
	if is := now.snap.Job(name); is != nil && is.Dir == j.Dir {
		return now.snap, nil
	}
	return c.freshStandard(ctx, name)
}

// freshStandard is Fresh, and fails where the named job is a standard one and
// cannot be laid out.
func (c *Catalog) freshStandard(ctx context.Context, name string) (*Snapshot, error) {
	snap, err := c.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	if j := snap.Job(name); j != nil && c.bundle != nil && c.bundle.has(j) {
		if err := c.standardOnDisk(ctx); err != nil {
			return nil, fmt.Errorf("laying out the standard job %s: %w", j.Name, err)
		}
		// Where it was laid out may have changed meanwhile.
		snap = c.Snapshot()
	}
	return snap, nil
}

// look has the owner look at the keys, and again while one is being written.
// Calls at the same time share the work: the second finds nothing left to do.
// The keys are what scan found to differ from st. Where the owner had another
// state by then, whose makers may have looked before the caller wrote and so
// know a name that the keys do not have, the comparison is made again.
func (c *Catalog) look(ctx context.Context, st *state, keys []key, scan func(*state) []key) (*state, error) {
	for began := time.Now(); ; {
		r, err := actor.Ask(ctx, c.owner, func(reply actor.Reply[looked]) message {
			return lookAt{keys: keys, reply: reply}
		})
		if err != nil {
			return nil, fmt.Errorf("looking at the job folders again: %w", err)
		}
		left := freshBound - time.Since(began)
		switch {
		case left <= 0, r.wait == 0 && r.base == st:
			return r.state, nil
		case r.wait > 0:
			if err := sleep(ctx, min(r.wait, left)); err != nil {
				return nil, fmt.Errorf("waiting for a job file that is being written: %w", err)
			}
		}
		st = c.state.Load()
		if keys = scan(st); len(keys) == 0 && !st.overdue(time.Now()) {
			return st, nil
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// origin finds the entry that a served job came from, or nil.
func (s *state) origin(j *job.Job) (folder int, e *entry) {
	dir, name := filepath.Split(j.Dir)
	dir = filepath.Clean(dir)
	for i, f := range s.folders {
		if f.at.Name() == dir {
			if e := f.entry(name); e != nil {
				return i, e
			}
		}
	}
	return 0, nil
}

// staleFor is stale for what one job's name stands for: the listings and that
// job, or everything where the name is not known.
func (s *state) staleFor(name string) []key {
	j := s.snap.Job(name)
	if j == nil {
		return s.stale()
	}
	i, e := s.origin(j)
	if e == nil || s.folders[i].standard {
		return s.stale()
	}
	keys := s.staleListings()
	if e.stale() {
		keys = append(keys, key{i, e.name})
	}
	return keys
}
