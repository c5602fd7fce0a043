package catalog

import (
	"context"
	"log/slog"
	"time"

	"deepwork/actor"
)

// A message is what the catalog's goroutine is asked for.
type message interface{ isMessage() }

// lookAt has what the keys name, and what is due, compared with the disk.
type lookAt struct {
	keys  []key
	reply actor.Reply[looked]
}

// looked answers lookAt.
type looked struct {
	base  *state        // what was known before
	state *state        // what is known now
	wait  time.Duration // ask again after that: a file is being written; 0: settled
}

// layOut has the standard jobs written to disk, as far as they are not there.
type layOut struct{ reply actor.Reply[struct{}] }

func (lookAt) isMessage() {}
func (layOut) isMessage() {}

// An owner is the one that may replace the catalog's state. The state itself is
// published, immutable and made of what is on disk, so an owner that is
// restarted goes on from it, last good definitions included.
type owner struct{ c *Catalog }

// Receive implements actor.Behavior.
func (o owner) Receive(_ context.Context, m message) error {
	switch m := m.(type) {
	case lookAt:
		base := o.c.state.Load()
		out := base.look(m.keys, o.c.options.Grace)
		o.c.publish(out)
		m.reply.Send(looked{base: base, state: o.c.state.Load(), wait: out.wait})
	case layOut:
		if err := o.c.layOut(); err != nil {
			m.reply.Fail(err)
			return nil
		}
		m.reply.Send(struct{}{})
	}
	return nil
}

// publish makes the outcome of a look the state. The owner alone calls it, and
// Open before there is one.
func (c *Catalog) publish(out outcome) {
	old := c.state.Load()
	if out.next == old {
		return
	}
	logFolders(c.options.Logger, old.folders, out.next.folders)
	changed := false
	if out.visible || old.snap.Version == 0 {
		snap := assemble(out.next.folders, old.snap.Version+1)
		if changed = old.snap.Version == 0 || !sameView(old.snap, snap); changed {
			out.next.snap = snap
			logErrors(c.options.Logger, old.snap, snap)
		}
	}
	c.state.Store(out.next)
	if !out.next.due.Equal(old.due) {
		c.alarm.set()
	}
	if out.shape {
		c.watching.follow()
	}
	if changed {
		c.changes.tell()
	}
}

// logErrors logs each error that was not there, or was another, and each that
// is gone.
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

// logFolders logs each folder that began to be unreadable.
func logFolders(logger *slog.Logger, old, now []*folder) {
	for i, f := range now {
		if f.fault != "" && f.fault != old[i].fault {
			logger.Warn("job folder cannot be listed; its jobs stay as they were last seen",
				"folder", f.at.Name(), "error", f.fault)
		}
	}
}
