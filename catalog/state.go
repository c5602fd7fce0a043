package catalog

import "time"

// A state is everything known at one moment: the snapshot that readers see, and what
// it was made of. It is immutable; the catalog's goroutine publishes the next.
type state struct {
	snap    *Snapshot
	folders []*folder
	due     time.Time // when to look again though nothing was heard; zero means never
}

// A key names what to look at: an entry of a folder, or, if name is "", the folder's
// listing.
type key struct {
	folder int // index in state.folders
	name   string
}

// newState returns a state in which nothing has been looked at.
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

// stale compares everything with the disk and returns what a look would find changed.
// It changes nothing, and may be called from any goroutine.
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

// staleEntries is stale for entries of a folder. Of many, it compares halves at once: the
// time goes to the system.
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

// overdue reports whether it is time to look at something again.
func (s *state) overdue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

// nextDue returns the earliest due of all, or the zero time.
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
