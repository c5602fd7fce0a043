package catalog

import (
	"path/filepath"
	"time"
)

// A state is everything known at one moment: the snapshot that readers see, and its sources. It is
// immutable; the catalog's goroutine publishes the next.
type state struct {
	snap    *Snapshot
	folders []*folder
	due     time.Time // when to check again even without an event; zero means never
}

// A key names something to check: an entry of a folder, or, if name is "", the folder's listing.
type key struct {
	folder int // index in state.folders
	name   string
}

// newState returns a state in which nothing has been checked.
func newState(paths []string) *state {
	s := &state{}
	for _, p := range paths {
		s.folders = append(s.folders, newFolder(p))
	}
	s.snap = assemble(s.folders, 0)
	return s
}

// listings returns the keys of all folders.
func (s *state) listings() []key {
	keys := make([]key, len(s.folders))
	for i := range s.folders {
		keys[i] = key{folder: i}
	}
	return keys
}

// stale compares everything with the disk and returns the keys that a look would find changed. It
// changes nothing, and may be called from any goroutine.
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

// staleFor is stale for what the name of a job refers to: the listings, and the entries of its
// directory's name; everything if the name is unknown.
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

// staleEntries is stale for entries of a folder. If there are many, it compares halves
// concurrently, since most of the time is spent in system calls.
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

// nextDue returns the earliest due time, or zero if there is none.
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
