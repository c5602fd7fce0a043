package catalog

import (
	"context"
	"maps"
	"slices"

	"deepwork/catalog/internal/stamp"
)

// A place is a directory, whatever it is called: two names of one directory have
// one watch between them, and events come under one name.
type place struct {
	dev, ino uint64
	path     string // where the system has no numbers
}

// A bed is the watches as they are.
type bed struct {
	watches map[string]place // path of the watch -> the directory it is on
}

// plant keeps the watches as the state wants them until ctx ends. What was not
// watched before is told of, as it may have changed before it was.
func (w *eventWatch) plant(ctx context.Context, n notifier, found chan<- batch) error {
	b := bed{watches: make(map[string]place)}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		// A directory that a watch was added for may hold by now what the next
		// one is for, so it is done until there is none to add.
		keys := make(map[key]struct{})
		for {
			added, err := w.replant(ctx, n, &b)
			if err != nil {
				return err
			}
			if len(added) == 0 {
				break
			}
			for _, i := range added {
				keys[i.key] = struct{}{}
			}
		}
		if len(keys) == 0 {
			continue
		}
		select {
		case found <- batch{keys: slices.Collect(maps.Keys(keys))}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replant makes one round, and returns the interests whose watches are new.
func (w *eventWatch) replant(ctx context.Context, n notifier, b *bed) ([]interest, error) {
	lost, all := w.takeLost()
	wanted := planFor(w.root, w.state())

	// Names of one directory share the watch of one of them, if possible of the
	// one that has it.
	names := slices.Sorted(maps.Keys(wanted))
	where := make(map[string]place, len(names))
	holder := make(map[place]string, len(names))
	for _, name := range names {
		st := stamp.At(name).Stat()
		if st.Kind != stamp.Dir {
			continue
		}
		at := place{dev: st.Dev, ino: st.Ino}
		if st.Ino == 0 {
			at.path = name
		}
		where[name] = at
		if _, taken := holder[at]; !taken || b.watches[name] == at {
			holder[at] = name
		}
	}
	routes := make(plan, len(holder))
	for _, name := range names {
		if at, ok := where[name]; ok {
			routes[holder[at]] = append(routes[holder[at]], wanted[name]...)
		}
	}
	for name, at := range b.watches {
		_, gone := lost[name]
		if is, ok := where[name]; gone || !ok || is != at || holder[at] != name {
			_ = n.Remove(name) // one that ended by itself is not there to remove
			delete(b.watches, name)
		}
	}
	// Before the first event can come under a new name.
	w.routes.Store(&routes)

	var added []interest
	for name := range routes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		_, has := b.watches[name]
		if has && !all {
			continue
		}
		// Adding again what is there is no harm, and renews what is not.
		ok, err := planted(name, n.Add(name))
		if err != nil {
			return nil, err
		}
		if !ok {
			delete(b.watches, name)
			continue
		}
		b.watches[name] = where[name]
		if !has {
			added = append(added, routes[name]...)
		}
	}
	return added, nil
}
