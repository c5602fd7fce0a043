package catalog

import (
	"time"

	"deepwork/catalog/internal/stamp"
)

// A state is all that is known at one moment: the snapshot readers see, and what
// it was made of. It is immutable; the catalog's goroutine publishes the next.
type state struct {
	snap    *Snapshot
	folders []*folder
	due     time.Time // when to look again though nothing was heard; zero: never
}

// A key names what is to be looked at: an entry of a folder, or, where name is
// "", the folder's listing.
type key struct {
	folder int // index in state.folders
	name   string
}

// newState is a state in which nothing has been looked at.
func newState(paths []string) *state {
	s := &state{}
	for _, p := range paths {
		s.folders = append(s.folders, &folder{at: stamp.At(p)})
	}
	s.snap = assemble(s.folders, 0)
	return s
}

// everything returns the keys of all listings.
func (s *state) everything() []key {
	keys := make([]key, len(s.folders))
	for i := range s.folders {
		keys[i] = key{folder: i}
	}
	return keys
}

// stale compares everything with the disk, changing nothing, and returns what a
// look would find changed. It may be called from any goroutine, and allocates
// nothing while nothing changed.
func (s *state) stale() []key {
	var keys []key
	for i, f := range s.folders {
		if f.standard {
			continue
		}
		if f.stale() {
			keys = append(keys, key{folder: i})
		}
		for _, e := range f.entries {
			if e.stale() {
				keys = append(keys, key{i, e.name})
			}
		}
	}
	return keys
}

// staleListings is stale for the folders alone.
func (s *state) staleListings() []key {
	var keys []key
	for i, f := range s.folders {
		if f.stale() {
			keys = append(keys, key{folder: i})
		}
	}
	return keys
}

// overdue tells whether the time has come to look at something again.
func (s *state) overdue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

// nextDue returns the earliest due of all, or the zero time.
func (s *state) nextDue() time.Time {
	var due time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	for _, f := range s.folders {
		earlier(f.due)
		for _, e := range f.entries {
			earlier(e.due)
		}
	}
	return due
}

// staleKey is stale for what one key names.
func (s *state) staleKey(k key) bool {
	f := s.folders[k.folder]
	if k.name == "" {
		return f.stale()
	}
	e := f.entry(k.name)
	return e != nil && e.stale()
}
