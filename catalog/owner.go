package catalog

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
)

// lookAt asks the catalog's goroutine to compare the entries of the keys, and what is due, with the disk.
type lookAt struct {
	keys  []key
	reply actor.Reply[lookReply]
}

// lookReply answers lookAt.
type lookReply struct {
	base  *state        // the state before
	state *state        // the state now
	wait  time.Duration // ask again after this time, since a file is being written; 0 means settled
}

// An owner is the one goroutine that replaces the catalog's state. The state is published, immutable and
// built from the disk, so a restarted owner continues with it, including last good definitions.
type owner struct{ c *Catalog }

// Receive implements actor.Behavior.
func (o owner) Receive(_ context.Context, m lookAt) error {
	base := o.c.state.Load()
	l := base.look(m.keys, o.c.options.Grace)
	o.c.publish(l.next, l.visible, l.rewatch)
	m.reply.Send(lookReply{base: base, state: o.c.state.Load(), wait: l.wait})
	return nil
}

// publish makes next the state, with a new snapshot if readers will see a difference. Only the owner calls
// it, or Open before there is an owner.
func (c *Catalog) publish(next *state, visible, rewatch bool) {
	old := c.state.Load()
	if next == old {
		return
	}
	logFolders(c.options.Logger, old.folders, next.folders)

	changed := false
	if first := old.snap.Version == 0; visible || first {
		snap := assemble(next.folders, old.snap.Version+1)
		changed = first || !slices.Equal(old.snap.Jobs, snap.Jobs) ||
			!slices.EqualFunc(old.snap.Errors, snap.Errors, sameError)
		if changed {
			next.snap = snap
			logErrors(c.options.Logger, old.snap, snap)
		}
	}
	c.state.Store(next)
	if !next.due.Equal(old.due) {
		c.rescheduled.Wake()
	}

	if rewatch {
		c.watcher.rewatch.Wake()
	}

	if changed {
		c.listeners.Range(func(s, _ any) bool {
			s.(wait.Signal).Wake()
			return true
		})
	}
}

// logErrors logs each new or changed error, and each resolved one.
func logErrors(logger *slog.Logger, old, now *Snapshot) {
	for i := range now.Errors {
		e := &now.Errors[i]
		if was := old.errs[e.JobName]; was != nil && sameError(*was, *e) {
			continue
		}
		logger.Warn("job does not load; where it did before, its last good definition stays in use",
			"job", e.JobName, "dir", e.JobDir, "error", e.Diagnostics.Error())
	}

	for i := range old.Errors {
		e := &old.Errors[i]
		if current := now.errs[e.JobName]; current == nil || current.JobName != e.JobName {
			logger.Info("job loads again, or is gone", "job", e.JobName, "dir", e.JobDir)
		}
	}
}

// logFolders logs each folder that became unreadable.
func logFolders(logger *slog.Logger, old, now []*folder) {
	for i, f := range now {
		if f.fault != "" && f.fault != old[i].fault {
			logger.Warn("job folder cannot be listed; its jobs stay as they were last seen",
				"folder", f.dir(), "error", f.fault)
		}
	}
}

// A comparison compares parts of a state with the disk. Its results are the fields up to wait.
type comparison struct {
	next    *state        // without a new snapshot; equals the old state if nothing changed
	visible bool          // readers will see a difference
	rewatch bool          // the directories to watch may have changed
	wait    time.Duration // time until a file being written is checked again; 0 means settled

	seen    map[key]struct{} // already listed, or a target
	targets []target
}

// A target is an entry to check, before and after.
type target struct {
	folder       int
	old, current *entry
}

// look compares the entries of the keys, and what is due, with the disk. Only the owner of the
// state calls it.
func (s *state) look(keys []key, grace time.Duration) *comparison {
	l := &comparison{
		next: &state{snap: s.snap, folders: slices.Clone(s.folders)},
		seen: make(map[key]struct{}, len(keys)),
	}
	for _, k := range keys {
		if k.name == "" {
			l.list(k.folder)
		}
	}

	for _, k := range keys {
		// A name without an entry is an ordinary file in the folder.
		if k.name != "" && l.next.folders[k.folder].entry(k.name) != nil {
			l.add(k.folder, k.name)
		}
	}

	if now := time.Now(); s.overdue(now) {
		for i, f := range s.folders {
			if f.Awake(now) {
				l.list(i)
			}
			for _, e := range f.entries {
				if e.Awake(now) {
					l.add(i, e.name)
				}
			}
		}
	}

	// Parsing is CPU-bound, so more goroutines than processors would not help. Each one checks many targets,
	// since the stack of a new goroutine must grow for the parser.
	var checking sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(len(l.targets)))
	for range min(runtime.GOMAXPROCS(0), (len(l.targets)+7)/8) {
		checking.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				l.targets[i].current = l.targets[i].old.look(grace)
			}
		})
	}

	checking.Wait()
	if !l.apply() && !l.rewatch {
		l.next = s
	} else {
		l.next.due = l.next.nextDue()
	}
	return l
}

// first reports whether a key is seen for the first time.
func (l *comparison) first(k key) bool {
	_, seen := l.seen[k]
	l.seen[k] = struct{}{}
	return !seen
}

// list reads a folder's listing again, and adds what was added or removed as targets.
func (l *comparison) list(i int) {
	f := l.next.folders[i]
	if f.standard || !l.first(key{folder: i}) {
		return
	}
	f, touched := f.list()
	l.next.folders[i], l.rewatch = f, true
	for _, name := range touched {
		l.add(i, name)
	}

	// A caller that asks for the listing waits for everything new in it, even if another check found that
	// before.
	for _, e := range f.entries {
		if e.Phase == follow.Moving {
			l.add(i, e.name)
		}
	}
}

// add makes an entry a target, even one not known yet.
func (l *comparison) add(i int, name string) {
	f := l.next.folders[i]
	if f.standard || !l.first(key{i, name}) {
		return
	}
	e := f.entry(name)
	if e == nil {
		e = newEntry(f.dir(), name)
	}
	l.targets = append(l.targets, target{folder: i, old: e})
}

// apply puts the changed targets into their folders, and reports whether there are any.
func (l *comparison) apply() bool {
	changed := make(map[int]map[string]*entry)
	now := time.Now()
	for _, t := range l.targets {
		f := l.next.folders[t.folder]
		if t.current.Phase == follow.Moving {
			l.wait = max(l.wait, t.current.Due.Sub(now), time.Millisecond)
		}
		if t.current == t.old && f.entry(t.old.name) != nil && f.keeps(t.current) {
			continue
		}

		vanished := (t.old.Phase == follow.Vanished) != (t.current.Phase == follow.Vanished)
		l.visible = l.visible || vanished || t.old.Good != t.current.Good ||
			!slices.Equal(t.old.faults(), t.current.faults())
		l.rewatch = l.rewatch || vanished || t.old.link != t.current.link

		if changed[t.folder] == nil {
			changed[t.folder] = make(map[string]*entry)
		}
		changed[t.folder][t.old.name] = t.current
	}
	for i, m := range changed {
		l.next.folders[i] = l.next.folders[i].with(m)
	}

	return len(changed) > 0
}
