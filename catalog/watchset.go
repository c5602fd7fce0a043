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

// A plan is which directories are to be watched, and which names in them matter.
type plan map[string][]string

// anyName in a plan means that every name in the directory matters.
const anyName = ""

// planFor makes the plan for a state: each job's directory, each folder, and the
// directories above it through which it may appear or be swapped: up to the root
// within the project, else the nearest one that exists.
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
			exists := isDir(parent)
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

func isDir(path string) bool { return follow.Path(path).Stat().Kind == follow.Dir }

// An identity is a directory, whatever its name: two names of one directory share one
// watch, and events come under one name.
type identity struct {
	dev, ino uint64
	path     string // on systems without these numbers
}

// A watchSet is the set of installed watches, by path.
type watchSet map[string]identity

// keepWatches keeps the watches as the state needs them until ctx ends. What was not
// watched before may have changed before it was, so it is looked at.
func (w *watcher) keepWatches(ctx context.Context, n notifier) error {
	installed := make(watchSet)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.rewatch:
		}
		// A directory that a watch was added for may contain by now what the next one
		// is for, so this is repeated until there is none to add.
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

// install makes one round, and reports whether there are new watches.
func (w *watcher) install(ctx context.Context, n notifier, installed watchSet) (added bool, err error) {
	ended, unknown := w.takeLost()
	wanted := planFor(w.root, w.state())

	// Names of one directory share the watch of one of them, if possible of the one
	// that has it.
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
		if is, ok := directory[name]; ended[name] || !ok || is != id || holder[id] != name {
			_ = n.Remove(name) // the system has removed some already
			delete(installed, name)
		}
	}
	// Before the first event can come under a new name.
	w.plan.Store(&routes)

	for name := range routes {
		_, has := installed[name]
		if has && !unknown {
			continue
		}
		// Adding an existing watch does no harm, and renews one that has ended.
		err := n.Add(name)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case usedUp(err):
			return false, fmt.Errorf("watching %s: %w", name, err)
		case errors.Is(err, fsnotify.ErrClosed):
			return false, err
		case err != nil: // it is gone, which its parent reports, or cannot be watched
			delete(installed, name)
			continue
		}
		installed[name] = directory[name]
		added = added || !has
	}
	return added, nil
}

// usedUp reports whether an error of Add means that there are no more watches, and not
// that this directory cannot have one.
func usedUp(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
