package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"deepwork/actor"
	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// update asks the owner to apply the settings and make a new snapshot.
type update struct{ reply actor.Reply[struct{}] }

// An owner starts and ends sources and publishes the snapshot.
type owner struct {
	c        *Catalog
	settings config.WorkflowTools
	order    []*source            // as in the config
	leaving  map[string]*source   // removed sources that have not ended yet, by name
	names    map[string]string    // current and former names of tools, and their sources
	texts    map[string]described // what workflows say of themselves, by source and id

	// The inputs of the published snapshot:
	offers   []*offer
	reserved []string
	made     *config.Config
	expires  time.Time // when to remove tools of an unreachable source; zero means never
}

// settingsWithin limits how long the owner waits for settings that are being written.
const settingsWithin = 5 * time.Second

// Receive implements actor.Behavior.
func (o *owner) Receive(ctx context.Context, m update) error {
	limited, cancel := context.WithTimeout(ctx, settingsWithin)
	defer cancel()
	err := o.configure(limited)
	o.publish()
	if err != nil {
		m.reply.Fail(err)
	} else {
		m.reply.Send(struct{}{})
	}
	return nil
}

// configure adds, removes and reconnects only those sources whose own definition has changed (seed 003, 4.1
// and 4.4).
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
		s, apart := old[def.Name], def.URL == "" && settings.Approval.Unapproved()
		delete(old, def.Name)
		switch {
		case s == nil:
			s = o.start(def, nil, p, apart)
		case sameSource(s.def, def) && s.apart == apart:
			if old := s.policy.Swap(&p); *old != p {
				s.adjusted.Wake()
			}
		default:
			c.options.Logger.Info("a source's definition changed; connecting it again", "source", def.Name)
			s.cancel()
			s = o.start(def, s, p, apart)
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
	a.ExecutionTimeout, b.ExecutionTimeout = nil, nil // the caller of a workflow reads it
	return reflect.DeepEqual(a, b)
}

// start starts a source once the one that it replaces has ended, since a command may need the port or files
// of its predecessor.
func (o *owner) start(def config.WorkflowSource, before *source, p policy, apart bool) *source {
	c := o.c
	s := newSource(def, c.options, before, p, c.offers, c.grace)
	s.apart = apart
	before = cmp.Or(before, o.leaving[def.Name])
	ctx, cancel := context.WithCancel(c.ctx)
	s.cancel = cancel
	c.running.Go(func() {
		if before != nil {
			<-before.done // takes only limited time
		}
		s.run(ctx)
	})

	return s
}

// publish makes a snapshot of all offers if any of its inputs has changed.
func (o *owner) publish() {
	c, now := o.c, time.Now()
	offers := xslices.Map(o.order, func(s *source) *offer { return s.offer.Load() })
	reserved := slices.Sorted(slices.Values(c.options.Reserved()))
	if slices.Equal(offers, o.offers) && slices.Equal(reserved, o.reserved) && o.made == c.applied.Load() &&
		(o.expires.IsZero() || now.Before(o.expires)) {
		return
	}

	old := c.snapshot.Load()
	next := o.snapshot(offers, reserved, now)
	o.offers = offers
	o.reserved = reserved
	o.made = c.applied.Load()
	if !sameSnapshot(old, next) {
		c.snapshot.Store(next)
		c.changed.Wake()
	}
}

// snapshot names the offered workflows.
func (o *owner) snapshot(offers []*offer, reserved []string, now time.Time) *Snapshot {
	next := &Snapshot{Sources: make([]SourceState, len(offers))}
	o.expires = time.Time{}
	var all []*offered
	var away []string // why the source of each of all is, or ""
	for i, of := range offers {
		name := o.order[i].def.Name
		next.Sources[i] = SourceState{Name: name, Connected: of.connected, Err: of.err, Workflows: len(of.workflows)}
		why := ""
		if !of.connected {
			if !of.queried {
				continue
			}

			why = of.err.Error()
			until := of.since.Add(o.settings.KeepToolsFor)
			if !now.Before(until) {
				next.Sources[i].Workflows = 0
				for tool, source := range o.names {
					if source == name {
						next.gone = append(next.gone, Skipped{name, tool, why})
					}
				}
				continue
			}
			if o.expires.IsZero() || until.Before(o.expires) {
				o.expires = until
			}
		}
		next.Skipped = append(next.Skipped, of.skipped...)
		for _, w := range of.workflows {
			if included(w.Name, o.settings.Include, o.settings.Exclude) {
				all, away = append(all, w), append(away, why)
			}
		}
	}
	old := o.c.snapshot.Load()
	names := nameAll(all, o.settings.Prefix, reserved, o.names)
	o.remember(all, names)
	for i, w := range all {
		if names[i] == "" {
			reason := "its name and the name made of its id are both taken by other tools"
			next.Skipped = append(next.Skipped,
				Skipped{Source: w.Source, Workflow: jsontext.Clip(w.ID, 100), Reason: reason})
			o.c.options.Logger.Warn("a workflow is not offered", "source", w.Source, "workflow",
				jsontext.Clip(w.ID, 100), "reason", reason)
			continue
		}
		t := old.Tool(names[i])
		changed := o.describes(w, names[i], now)
		plain := plainName(o.settings.Prefix, &w.Workflow)
		if t == nil || t.origin != w || t.Changed != changed || t.Away != away[i] || t.plain != plain {
			t = &Tool{
				Name:     names[i],
				Workflow: w.Workflow,
				Away:     away[i],
				Changed:  changed,
				plain:    plain,
				origin:   w,
				check:    w.check,
			}
		}

		next.Tools = append(next.Tools, t)
	}
	slices.SortFunc(next.Tools, func(a, b *Tool) int { return strings.Compare(a.Name, b.Name) })
	return next
}

// maxNames is the maximum number of remembered tool names.
const maxNames = 100_000

// remember records the sources of all names. If there are too many, it forgets names without a current tool.
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

// A described workflow is what agents were told about it: its description and input schema, which influence
// them like instructions. A source may change them after its user has read them.
type described struct {
	sum [sha256.Size]byte
	at  time.Time // time of the last change; zero means none
}

// describes records what a workflow says of itself now, and returns when that last changed since this process
// first listed it; zero means never. It logs each change.
func (o *owner) describes(w *offered, tool string, now time.Time) time.Time {
	key := w.Source + "\x00" + w.ID
	sum := sha256.Sum256([]byte(w.Description + "\x00" + string(w.InputSchema)))
	was, known := o.texts[key]
	switch {
	case !known:
		if len(o.texts) >= maxNames {
			clear(o.texts)
		}
		o.texts[key] = described{sum: sum}
		return time.Time{}
	case was.sum == sum:
		return was.at
	}
	o.texts[key] = described{sum, now}
	o.c.options.Logger.Warn("a source changed the description or the input schema of a tool", "tool", tool,
		"source", w.Source, "workflow", jsontext.Clip(w.ID, 100), "description", jsontext.Clip(w.Description, 300))
	return now
}

// sameSnapshot reports whether two snapshots look the same to readers.
func sameSnapshot(a, b *Snapshot) bool {
	return slices.Equal(a.Tools, b.Tools) && slices.Equal(a.Skipped, b.Skipped) &&
		slices.EqualFunc(a.Sources, b.Sources, func(x, y SourceState) bool {
			return x.Name == y.Name && x.Connected == y.Connected && x.Workflows == y.Workflows &&
				(x.Err == y.Err || x.Err != nil && y.Err != nil && x.Err.Error() == y.Err.Error())
		})
}
