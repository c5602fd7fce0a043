package catalog

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An outcome is what came of a look.
type outcome struct {
	next    *state        // without a snapshot of its own; the old one where nothing changed
	visible bool          // readers will find a difference
	shape   bool          // other directories than before may have to be watched
	wait    time.Duration // how long to wait before asking again, as one of the keys is being written; 0: settled
}

// look compares what the keys name, and what is due, with the disk. It is called
// by the owner of the state alone.
func (s *state) look(keys []key, grace time.Duration) outcome {
	l := &glance{
		out:  outcome{next: &state{snap: s.snap, folders: slices.Clone(s.folders)}},
		seen: make(map[key]struct{}, len(keys)),
	}
	for _, k := range keys {
		if k.name == "" {
			l.list(k.folder)
		}
	}
	for _, k := range keys {
		// A name that is no entry is somebody's file in the folder.
		if k.name != "" && l.out.next.folders[k.folder].entry(k.name) != nil {
			l.add(k.folder, k.name)
		}
	}
	if now := time.Now(); s.overdue(now) {
		for i, f := range s.folders {
			if !f.due.IsZero() && !now.Before(f.due) {
				l.list(i)
			}
			for _, e := range f.entries {
				if e.awake(now) {
					l.add(i, e.name)
				}
			}
		}
	}
	lookAll(l.targets, grace)
	if !l.settle() && !l.out.shape {
		l.out.next = s
		return l.out
	}
	l.out.next.due = l.out.next.nextDue()
	return l.out
}

// A glance is one look under way.
type glance struct {
	out     outcome
	seen    map[key]struct{} // what was listed or is a target already
	targets []target
}

// first tells whether a key is met for the first time.
func (l *glance) first(k key) bool {
	_, twice := l.seen[k]
	l.seen[k] = struct{}{}
	return !twice
}

// list reads a folder's listing anew and adds what came or went.
func (l *glance) list(i int) {
	f := l.out.next.folders[i]
	if f.standard || !l.first(key{folder: i}) {
		return
	}
	f, touched := f.list()
	l.out.next.folders[i], l.out.shape = f, true
	for _, name := range touched {
		l.add(i, name)
	}
	// Who asks for the listing waits for what is new in it, also where somebody
	// else has found that before.
	for _, e := range f.entries {
		if e.phase == moving {
			l.add(i, e.name)
		}
	}
}

// add makes an entry a target, one that is not known yet too.
func (l *glance) add(i int, name string) {
	f := l.out.next.folders[i]
	if f.standard || !l.first(key{i, name}) {
		return
	}
	e := f.entry(name)
	if e == nil {
		e = newEntry(f.at.Name(), name)
	}
	l.targets = append(l.targets, target{folder: i, was: e})
}

// settle puts what became of the targets into their folders, and tells whether
// anything did.
func (l *glance) settle() bool {
	replaced := make(map[int]map[string]*entry)
	now := time.Now()
	for _, t := range l.targets {
		f := l.out.next.folders[t.folder]
		if t.is.phase == moving {
			l.out.wait = max(l.out.wait, t.is.due.Sub(now), time.Millisecond)
		}
		if t.is == t.was && f.entry(t.was.name) != nil && f.keeps(t.is) {
			continue
		}
		l.out.visible = l.out.visible || t.visible()
		l.out.shape = l.out.shape || t.is.link != t.was.link || t.is.phase != t.was.phase
		if replaced[t.folder] == nil {
			replaced[t.folder] = make(map[string]*entry)
		}
		replaced[t.folder][t.was.name] = t.is
	}
	for i, m := range replaced {
		l.out.next.folders[i] = l.out.next.folders[i].with(m)
	}
	return len(replaced) > 0
}

// A target is an entry that is looked at, before and after.
type target struct {
	folder  int
	was, is *entry
}

// visible tells whether the target serves something else than before.
func (t target) visible() bool {
	return t.was.good != t.is.good || (t.was.phase == vanished) != (t.is.phase == vanished) ||
		!slices.Equal(t.was.faults, t.is.faults)
}

// lookAll looks at all targets, on as many goroutines as there are processors,
// and waits for them.
func lookAll(targets []target, grace time.Duration) {
	const few = 16 // below this a goroutine costs more than it saves
	workers := min(runtime.GOMAXPROCS(0), (len(targets)+few-1)/few)
	if workers <= 1 {
		for i := range targets {
			targets[i].is = targets[i].was.look(grace)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(targets) {
					return
				}
				targets[i].is = targets[i].was.look(grace)
			}
		})
	}
	wg.Wait()
}
