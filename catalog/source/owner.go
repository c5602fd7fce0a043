package source

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"deepwork/actor"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// update asks the owner to apply the settings and make a new snapshot.
type update struct{ reply actor.Reply[struct{}] }

// An owner starts and ends sources and publishes the snapshot.
type owner struct {
	c        *Catalog
	settings config.WorkflowTools
	order    []*source             // as in the config
	leaving  map[string]*source    // removed sources, by name, until they have ended
	skipped  map[string]bool       // workflows that have been logged
	names    map[string]string     // current and former names of tools, and their sources
	texts    map[string]*described // by source and id, as describes writes it

	// The published snapshot was made from these.
	offers   []*offer
	reserved []string
	made     config.WorkflowTools
}

// settingsWithin bounds how long the owner waits for settings that are being
// written.
const settingsWithin = 5 * time.Second

// Receive implements actor.Behavior.
func (o *owner) Receive(ctx context.Context, m update) error {
	limited, cancel := context.WithTimeout(ctx, settingsWithin)
	defer cancel()
	err := o.configure(limited)
	if o.publish(); err != nil {
		m.reply.Fail(err)
	} else {
		m.reply.Send(struct{}{})
	}
	return nil
}

// configure adds, removes and reconnects the sources whose own definition
// changed, and no other (seed 003, 4.1 and 4.4).
func (o *owner) configure(ctx context.Context) error {
	c := o.c
	settings, err := c.options.Settings(ctx)
	if err != nil {
		return fmt.Errorf("configuring the sources of workflows: %w", err)
	}
	if settings == c.applied.Load() || c.ctx.Err() != nil {
		return nil
	}
	o.settings = settings.WorkflowTools
	wanted := o.settings.Sources
	if !o.settings.Enabled {
		wanted = nil
	}
	p := policy{refresh: o.settings.RefreshInterval, retries: o.settings.RetryAttempts}
	old := maps.Clone(*c.sources.Load())
	now := make(map[string]*source, len(wanted))
	order := make([]*source, 0, len(wanted))
	for _, def := range wanted {
		s := old[def.Name]
		delete(old, def.Name)
		switch {
		case s == nil:
			s = o.start(def, nil, p)
		case sameSource(s.def, def):
			s.follow(p)
		default:
			c.options.Logger.Info("a source's definition changed; connecting it again", "source", def.Name)
			s.cancel()
			s = o.start(def, s, p)
		}
		now[def.Name] = s
		order = append(order, s)
	}
	maps.DeleteFunc(o.leaving, func(_ string, s *source) bool { return s.ended() })
	for name, s := range old {
		c.options.Logger.Info("a source is not configured any more", "source", name)
		s.cancel()
		o.leaving[name] = s
	}
	maps.DeleteFunc(o.names, func(_, source string) bool { return now[source] == nil })
	o.order = order
	c.sources.Store(&now)
	c.applied.Store(settings)
	return nil
}

// sameSource reports whether two definitions lead to the same connection.
func sameSource(a, b config.WorkflowSource) bool {
	a.ExecutionTimeout, b.ExecutionTimeout = nil, nil // read by the caller of a workflow
	return reflect.DeepEqual(a, b)
}

// start starts a source after the one that it replaces has ended: a command may need the port or
// files of its predecessor.
func (o *owner) start(def config.WorkflowSource, before *source, p policy) *source {
	c := o.c
	s := newSource(def, c.options, before, p, c.offers, c.grace)
	if before == nil {
		before = o.leaving[def.Name]
	}
	ctx, cancel := context.WithCancel(c.ctx)
	s.cancel = cancel
	c.running.Go(func() {
		if before != nil {
			<-before.done // bounded
		}
		s.run(ctx)
	})
	return s
}

// publish makes a snapshot of all offers, if any of its inputs changed.
func (o *owner) publish() {
	c := o.c
	now := time.Now()
	offers := make([]*offer, len(o.order))
	for i, s := range o.order {
		offers[i] = s.offer.Load()
	}
	reserved := slices.Sorted(slices.Values(c.options.Reserved()))
	due := c.due.Load()
	if slices.Equal(offers, o.offers) && slices.Equal(reserved, o.reserved) && reflect.DeepEqual(o.made, o.settings) &&
		(due == nil || now.Before(*due)) {
		return
	}
	old := c.snapshot.Load()
	next, due := o.snapshot(offers, reserved, now)
	c.due.Store(due)
	o.offers, o.reserved, o.made = offers, reserved, o.settings
	if sameSnapshot(old, next) {
		return
	}
	c.snapshot.Store(next)
	c.changed.Wake()
}

// snapshot names the offered workflows. due is when tools of an unreachable source must be removed;
// nil means never.
func (o *owner) snapshot(offers []*offer, reserved []string, now time.Time) (_ *Snapshot, due *time.Time) {
	next := &Snapshot{Sources: make([]SourceState, len(offers))}
	var all []*offered
	var away []string // the source of each of all
	for i, s := range o.order {
		of := offers[i]
		next.Sources[i] = SourceState{Name: s.def.Name, Connected: of.connected, Err: of.err, Workflows: len(of.workflows)}
		why := ""
		if !of.connected {
			if !of.queried {
				continue
			}
			until := of.since.Add(o.settings.KeepToolsFor)
			if !now.Before(until) {
				next.Sources[i].Workflows = 0
				next.gone = append(next.gone, goneTools{s.def.Name, of.err, of.workflows, o.settings})
				continue
			}
			if due == nil || until.Before(*due) {
				due = &until
			}
			why = of.err.Error()
		}
		next.Skipped = append(next.Skipped, of.skipped...)
		for _, w := range of.workflows {
			if wanted(w.Name, o.settings.Include, o.settings.Exclude) {
				all, away = append(all, w), append(away, why)
			}
		}
	}
	old := o.c.snapshot.Load()
	names := nameAll(all, o.settings.Prefix, reserved, o.names)
	plain := make([]string, len(all))
	for i, w := range all {
		plain[i] = plainName(o.settings.Prefix, &w.Workflow)
	}
	o.remember(all, names)
	skipped := make(map[string]bool)
	for i, w := range all {
		if names[i] == "" {
			reason := "its name and the name made of its id are both taken by other tools"
			next.Skipped = append(next.Skipped, Skipped{Source: w.Source, Workflow: jsontext.Clip(w.ID, 100), Reason: reason})
			key := w.Source + "\x00" + w.ID
			if skipped[key] = true; !o.skipped[key] {
				o.c.options.Logger.Warn("a workflow is not offered", "source", w.Source, "workflow", jsontext.Clip(w.ID, 100), "reason", reason)
			}
			continue
		}
		t, changed := old.Tool(names[i]), o.describes(w, names[i], now)
		if t == nil || t.origin != w || t.Changed != changed || t.Away != away[i] || t.plain != plain[i] {
			t = &Tool{Name: names[i], Workflow: w.Workflow, Away: away[i], Changed: changed, plain: plain[i], origin: w, check: w.check}
		}
		next.Tools = append(next.Tools, t)
	}
	o.skipped = skipped
	slices.SortFunc(next.Tools, func(a, b *Tool) int { return strings.Compare(a.Name, b.Name) })
	return next, due
}

// maxNames is the maximum number of remembered tool names.
const maxNames = 100_000

// remember notes the sources of the names of all. If there are too many, names without a current
// tool are forgotten.
func (o *owner) remember(all []*offered, names []string) {
	if len(o.names)+len(all) > maxNames {
		clear(o.names)
	}
	for i, w := range all {
		if names[i] != "" {
			o.names[names[i]] = w.Source
		}
	}
}

// sameSnapshot reports whether two snapshots look the same from outside.
func sameSnapshot(a, b *Snapshot) bool {
	return slices.Equal(a.Tools, b.Tools) && slices.Equal(a.Skipped, b.Skipped) &&
		slices.EqualFunc(a.Sources, b.Sources, func(x, y SourceState) bool {
			return x.Name == y.Name && x.Connected == y.Connected && x.Workflows == y.Workflows &&
				(x.Err == y.Err || x.Err != nil && y.Err != nil && x.Err.Error() == y.Err.Error())
		})
}
