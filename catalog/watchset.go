package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"deepwork/catalog/internal/follow"
)

// A plan maps the directories to watch to the names in them that matter.
type plan map[string][]string

// anyName in a plan means that every name in the directory matters.
const anyName = ""

// planFor returns the plan for a state: each job's directory, each folder, and the directories above it
// through which it may appear or be swapped. Within the project these are all up to the root, otherwise only
// the nearest existing one.
func planFor(root string, s *state) plan {
	p := make(plan)
	add := func(dir, name string) { p[dir] = append(p[dir], name) }
	for _, f := range s.folders {
		if f.standard {
			continue
		}

		if f.Stamp.Kind == follow.Dir {
			add(f.dir(), anyName)
		}
		for _, e := range f.entries {
			if e.Phase != follow.Vanished {
				add(e.dir, anyName)
			}
			if e.link != "" {
				add(e.link, anyName)
			}
		}

		for at := f.dir(); ; {
			parent := filepath.Dir(at)
			if parent == at {
				break
			}
			exists := follow.Path(parent).Stat().Kind == follow.Dir
			if exists {
				add(parent, filepath.Base(at))
			}
			if exists && !strings.HasPrefix(parent, root+string(filepath.Separator)) {
				break
			}
			at = parent
		}
	}

	return p
}

// An identity identifies a directory, whatever its name. Two names of one directory share one watch, and
// events carry one of them.
type identity struct {
	dev, ino uint64
	path     string // only on systems without these numbers
}

// A watchSet is the set of installed watches, by path.
type watchSet map[string]identity

// keepWatches updates the watches for the current state until ctx ends. A newly watched directory may have
// changed before it was watched, so it is checked.
func (w *watcher) keepWatches(ctx context.Context, n notifier) error {
	installed := make(watchSet)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.rewatch:
		}

		// A newly watched directory may meanwhile contain the next one to watch, so repeat this until none is
		// added.
		for {
			added, err := w.install(ctx, n, installed)
			if err != nil {
				return err
			}
			if !added {
				break
			}
			w.changed.Wake()
		}
	}
}

// install does one round, and reports whether it added watches.
func (w *watcher) install(ctx context.Context, n notifier, installed watchSet) (added bool, err error) {
	w.mu.Lock()
	ended, unknown := w.ended, w.unknown // watches lost since the last round
	w.ended, w.unknown = make(map[string]bool), false
	w.mu.Unlock()
	wanted := planFor(w.root, w.state())

	// Names of one directory share one watch, if possible under the name that already has it.
	names := slices.Sorted(maps.Keys(wanted))
	directory := make(watchSet, len(names))
	holder := make(map[identity]string, len(names))
	for _, name := range names {
		st := follow.Path(name).Stat()
		if st.Kind != follow.Dir {
			continue
		}
		id := identity{dev: st.Dev, ino: st.Ino}
		if st.Ino == 0 {
			id.path = name
		}
		directory[name] = id
		if _, taken := holder[id]; !taken || installed[name] == id {
			holder[id] = name
		}
	}

	routes := make(plan, len(holder))
	for _, name := range names {
		if id, ok := directory[name]; ok {
			routes[holder[id]] = append(routes[holder[id]], wanted[name]...)
		}
	}
	for name, id := range installed {
		if present, ok := directory[name]; ended[name] || !ok || present != id || holder[id] != name {
			_ = n.Remove(name) // the system has already removed some
			delete(installed, name)
		}
	}

	// Store it before the first event with a new name can arrive.
	w.plan.Store(&routes)

	for name := range routes {
		_, has := installed[name]
		if has && !unknown {
			continue
		}

		// Adding an existing watch is harmless, and renews one that has ended.
		err := n.Add(name)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE),
			errors.Is(err, syscall.ENOMEM):
			// No watches are left.
			return false, fmt.Errorf("watching %s: %w", name, err)
		case errors.Is(err, fsnotify.ErrClosed):
			return false, err
		case err != nil: // its parent reports that it is gone, or it cannot be watched
			delete(installed, name)
			continue
		}
		installed[name] = directory[name]
		added = added || !has
	}
	return added, nil
}
