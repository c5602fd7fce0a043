package catalog

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
)

// lookAt asks the catalog's goroutine to compare the entries of the keys, and what is due, with the
// disk.
type lookAt struct {
	keys  []key
	reply actor.Reply[looked]
}

// looked answers lookAt.
type looked struct {
	base  *state        // the state before
	state *state        // the state now
	wait  time.Duration // ask again after that time: a file is being written; 0 means settled
}

// An owner is the one goroutine that replaces the catalog's state. The state is published,
// immutable and built from the disk, so a restarted owner continues with it, last good definitions
// included.
type owner struct{ c *Catalog }

// Receive implements actor.Behavior.
func (o owner) Receive(_ context.Context, m lookAt) error {
	base := o.c.state.Load()
	l := base.look(m.keys, o.c.options.Grace)
	o.c.publish(l.next, l.visible, l.rewatch)
	m.reply.Send(looked{base: base, state: o.c.state.Load(), wait: l.wait})
	return nil
}

// publish makes next the state, with a new snapshot if readers will see a difference. Only the
// owner calls it, and Open before there is one.
func (c *Catalog) publish(next *state, visible, rewatch bool) {
	old := c.state.Load()
	if next == old {
		return
	}
	logFolders(c.options.Logger, old.folders, next.folders)
	changed := false
	if first := old.snap.Version == 0; visible || first {
		snap := assemble(next.folders, old.snap.Version+1)
		if changed = first || !slices.Equal(old.snap.Jobs, snap.Jobs) || !slices.EqualFunc(old.snap.Errors, snap.Errors, sameError); changed {
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

// logErrors logs each new or changed error, and each that was resolved.
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
		if is := now.errs[e.JobName]; is == nil || is.JobName != e.JobName {
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
