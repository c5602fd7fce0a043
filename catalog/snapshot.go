package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
	"deepwork/catalog/job"
)

// A Snapshot is the content of the job folders at one moment. It is immutable; readers load it without a lock
// (Catalog.Snapshot) and may store it.
type Snapshot struct {
	Version uint64      // grows by one with every published change
	Jobs    []*job.Job  // good jobs, in the order of their folders
	Errors  []LoadError // one entry per bad job, in the same order

	byName map[string]*job.Job   // by name, then by directory name
	errs   map[string]*LoadError // by directory name, then by the served name
}

// A LoadError reports a job that currently cannot be loaded. If its last good definition is still served, the
// job is also in Jobs.
type LoadError struct {
	JobName     string          // the directory's name
	JobDir      string          // absolute
	Diagnostics job.Diagnostics // all errors
}

// Job returns the job with this name, else the one with this directory name, else nil.
func (s *Snapshot) Job(name string) *job.Job { return s.byName[name] }

// Err returns the load error of a job, given its directory's name or the name of the definition that is still
// served; nil means no error.
func (s *Snapshot) Err(name string) *LoadError { return s.errs[name] }

// Missing returns the jobs that load but name missing files, with an error for each file. It reads the disk,
// one stat per file.
func (s *Snapshot) Missing() (all []LoadError) {
	for _, j := range s.Jobs {
		if j.Bundled {
			continue // its files are written before a session needs them
		}
		if faults := job.MissingFiles(j); len(faults) > 0 {
			all = append(all, LoadError{JobName: filepath.Base(j.Dir), JobDir: j.Dir, Diagnostics: faults})
		}
	}
	return all
}

// FolderFaults says which job folders have no jobs because of how they are written, or because they do not
// exist, one sentence each. It reads the disk.
func FolderFaults(additional []string) (all []string) {
	for _, dir := range additional {
		if !filepath.IsAbs(dir) {
			all = append(all, fmt.Sprintf("The job folder %q is not an absolute path: write all of it, since ~ and "+
				"the working directory do not count here.", dir))
		} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			all = append(all, fmt.Sprintf("The job folder %s does not exist, or cannot be read.", dir))
		}
	}
	return all
}

// FolderFaults is FolderFaults for the additional folders of the catalog.
func (c *Catalog) FolderFaults() []string { return FolderFaults(c.options.Additional) }

// Fresh returns a snapshot that includes every write to the job folders that ended before the call: new,
// changed and removed jobs (DESIGN "Read your own writes"). If nothing changed, it costs one stat of each
// job's file, on the caller's goroutine, and does not wait. Otherwise the changed files are read again, and
// Fresh waits for that until ctx ends. It also waits for a file that is being written: about 10 ms after the
// last write, 50 ms if it looks like half of a save, and at most 200 ms; until then its last good definition
// is served.
func (c *Catalog) Fresh(ctx context.Context) (*Snapshot, error) {
	return c.look(ctx, c.state.Load(), (*state).stale)
}

// FreshJob is Fresh for a caller that needs one job, by its name or directory name. While that job is served
// from the same directory, it costs one stat of each folder and of the job's file. If it is a standard job,
// FreshJob writes its folder to disk, and fails if that fails.
func (c *Catalog) FreshJob(ctx context.Context, name string) (*Snapshot, error) {
	st := c.state.Load()
	was := st.snap.Job(name)
	snap, err := c.look(ctx, st, func(s *state) []key { return s.staleFor(name) })
	if err == nil && was != nil && (snap.Job(name) == nil || snap.Job(name).Dir != was.Dir) {
		snap, err = c.Fresh(ctx) // another file may have the name now
	}
	if err != nil {
		return nil, err
	}
	if j := snap.Job(name); j != nil && c.standard.has(j) {
		if err := c.standard.onDisk(); err != nil {
			return nil, fmt.Errorf("laying out the standard job %s: %w", j.Name, err)
		}
	}

	return snap, nil
}

// look makes the owner check the keys that stale finds, and what is due, and check again while a file is
// being written. Concurrent calls share the work: the second finds nothing left to do. If the owner had
// another state meanwhile, that may result from checks before the caller's write and contain a name that is
// not among the keys, so the comparison is repeated.
func (c *Catalog) look(ctx context.Context, st *state, stale func(*state) []key) (*Snapshot, error) {
	keys := stale(st)
	for left := follow.Bound; len(keys) > 0 || st.overdue(time.Now()); {
		r, err := c.ask(ctx, keys)
		if err != nil {
			return nil, fmt.Errorf("looking at the job folders again: %w", err)
		}
		if left <= 0 || r.wait == 0 && r.base == st {
			return r.state.snap, nil
		}
		pause := min(r.wait, left)
		if err := wait.For(ctx, pause); err != nil {
			return nil, fmt.Errorf("waiting for a job file that is being written: %w", err)
		}
		left -= max(pause, time.Millisecond)
		st = c.state.Load()
		keys = stale(st)
	}
	return st.snap, nil
}

// ask makes the owner check the keys, and what is due.
func (c *Catalog) ask(ctx context.Context, keys []key) (lookReply, error) {
	return actor.Ask(ctx, c.owner, func(reply actor.Reply[lookReply]) lookAt {
		return lookAt{keys: keys, reply: reply}
	})
}

// A state is everything known at one moment: the snapshot that readers see, and its sources. It is immutable;
// the catalog's goroutine publishes the next one.
type state struct {
	snap    *Snapshot
	folders []*folder
	due     time.Time // when to check again even without an event; zero means never
}

// A key says what to check: an entry of a folder or, if name is "", the folder's listing.
type key struct {
	folder int // index in state.folders
	name   string
}

// listings returns the keys of all folders.
func (s *state) listings() []key {
	keys := make([]key, len(s.folders))
	for i := range s.folders {
		keys[i] = key{folder: i}
	}
	return keys
}

// stale compares everything with the disk and returns the keys that a look would find changed. It changes
// nothing, and may be called from any goroutine.
func (s *state) stale() []key {
	var keys []key
	for i, f := range s.folders {
		if f.stale() {
			keys = append(keys, key{folder: i})
		}
		if !f.standard {
			keys = append(keys, staleEntries(i, f.entries)...)
		}
	}
	return keys
}

// staleFor is stale for only what a job's name refers to: the listings, and the entries of its directory's
// name; everything if the name is unknown.
func (s *state) staleFor(name string) (keys []key) {
	j := s.snap.Job(name)
	if j == nil {
		return s.stale()
	}
	dir := filepath.Base(j.Dir)
	for i, f := range s.folders {
		if f.stale() {
			keys = append(keys, key{folder: i})
		}
		if e := f.entry(dir); e != nil && !f.standard && e.Stale() {
			keys = append(keys, key{i, dir})
		}
	}
	return keys
}

// staleEntries is stale for entries of a folder. If there are many, it compares two halves concurrently,
// since most of the time is spent in system calls.
func staleEntries(folder int, entries []*entry) (keys []key) {
	if half := len(entries) / 2; half >= 128 {
		second := make(chan []key, 1)
		go func() { second <- staleEntries(folder, entries[half:]) }()
		return append(staleEntries(folder, entries[:half]), <-second...)
	}
	for _, e := range entries {
		if e.Stale() {
			keys = append(keys, key{folder, e.name})
		}
	}
	return keys
}

// overdue reports whether it is time to check something again.
func (s *state) overdue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

// nextDue returns the earliest due time, or the zero time if nothing is due.
func (s *state) nextDue() (due time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	for _, f := range s.folders {
		earlier(f.Due)
		for _, e := range f.entries {
			earlier(e.Due)
		}
	}
	return due
}
