package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/actor/telemetry"
	"deepwork/actor/xslices"
	"deepwork/catalog"
	"deepwork/catalog/config"
	sources "deepwork/catalog/source"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/remote"
	"deepwork/session/store"
	"deepwork/session/work"
	"deepwork/transport/tool"
)

// Tools offers the workflows of other systems as tools of this server (seed 003), and the tools of
// the set "remote". The workflows are not registered with the SDK, which sorts, copies and
// announces each separately: the list is an immutable Listing, and names are looked up when they
// are called.
type Tools struct {
	Options
	set     *tool.Set
	catalog *sources.Catalog
	Runs    *remote.Engine

	making  sync.Mutex // held while the next listing is made
	listing atomic.Pointer[Listing]

	cancel  context.CancelFunc
	running sync.WaitGroup // watch
}

// Options are the parameters of New.
type Options struct {
	Root, Version string
	Stores        *store.Stores
	Work          *work.Loop
	Settings      func(context.Context) (*config.Config, error)
	Refused       func() error                            // returns why an edit of the config is not in use
	Jobs          func(context.Context) *catalog.Snapshot // this project's own, for expose_jobs; nil if never exposed
	Changes       func(context.Context) <-chan struct{}   // of the jobs
	Patience      time.Duration                           // how long a refresh waits for sources; 0 means 20 s
}

// New registers the set. Open must be called before any tool.
func New(s *tool.Set) *Tools {
	r := &Tools{set: s}
	r.listing.Store(&Listing{})
	addListWorkflowTools(s, r)
	addCallWorkflowTool(s, r)
	addWorkflowStatus(s, r)
	addCancelExecution(s, r)
	addRefreshWorkflowTools(s, r)
	return r
}

// Open connects the sources in the background and takes up the runs of earlier servers; it does
// not wait for sources.
func (r *Tools) Open(o Options) {
	r.Options = o
	r.Patience = cmp.Or(o.Patience, refreshWithin)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.catalog = sources.Open(sources.Options{
		// the names that no workflow of a source may have
		Root: o.Root, Settings: o.Settings, Reserved: func() []string {
			return slices.AppendSeq(r.set.Names(), maps.Keys(r.listing.Load().jobs))
		}, Version: o.Version, Logger: r.set.Logger,
	})

	r.Runs = remote.Open(remote.Options{
		Stores:   o.Stores,
		Work:     o.Work,
		Sources:  r.catalog,
		Settings: o.Settings,
		Logger:   r.set.Logger,
	})
	r.set.Unregistered = r.handler
	r.running.Go(func() { r.watch(ctx, o.Changes(ctx)) })
}

// lookEvery is how often the settings are checked for changes that affect only the listing.
const lookEvery = time.Second

// watch makes a new listing whenever something changed.
func (r *Tools) watch(ctx context.Context, jobs <-chan struct{}) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		r.Listing(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.catalog.Changed():
		case <-jobs:
		case <-look.C:
		}
	}
}

// follow applies edits of the config to the sources. It does not wait for sources; faults of the
// config are reported by the calls that need it.
func (r *Tools) follow(ctx context.Context) {
	if err := r.catalog.Reconfigure(ctx); err != nil {
		r.set.Logger.LogAttrs(ctx, slog.LevelDebug, "the config of sources is not followed now", slog.Any("error", err))
	}
}

// Listing returns the current listing. If it changed visibly for clients, each is notified once.
func (r *Tools) Listing(ctx context.Context) *Listing {
	r.making.Lock()
	defer r.making.Unlock()
	old := r.listing.Load()
	from, exposed := r.catalog.Snapshot(), r.exposed(ctx, old)
	if from == old.From && exposed == old.exposed {
		return old
	}
	next := newListing(old, from, exposed)
	r.listing.Store(next)

	// The tools of the set source are offered while jobs are exposed.
	if !slices.Equal(old.Tools, next.Tools) || (exposed == nil) != (old.exposed == nil) {
		r.set.Announce()
	}
	return next
}

// exposed returns the jobs that are offered as tools; nil means none.
func (r *Tools) exposed(ctx context.Context, old *Listing) *catalog.Snapshot {
	if r.Jobs == nil {
		return nil
	}

	settings, err := r.Settings(ctx)
	switch {
	case err != nil:
		return old.exposed
	case !settings.WorkflowTools.ExposeJobs:
		return nil
	}
	return r.Jobs(ctx)
}

// Close ends the drivers of runs, then the sources, and waits for them.
func (r *Tools) Close(ctx context.Context) error {
	r.cancel()
	r.running.Wait()
	var err error
	if left := r.Runs.Close(ctx); len(left) > 0 {
		err = fmt.Errorf("remote runs that did not stop: %s", strings.Join(left, ", "))
	}
	return errors.Join(err, r.catalog.Close(ctx))
}

// runSchema is the schema of the replies of workflow calls and workflow_status (seed 003, 2.3
// and 8.2).
func runSchema() *jsonschema.Schema {
	s := tool.OutputSchema[remote.Run](tool.Words{"state": {
		string(remote.Running), string(remote.Completed), string(remote.Failed),
		string(remote.Cancelled), string(remote.TimedOut), string(remote.Unknown),
	}})
	tool.OpenProperty(s, "result", "null", "boolean", "object", "array", "number", "string")
	return s
}

// runJSON is runSchema encoded, shared by all tools of a listing.
var runJSON = sync.OnceValue(func() json.RawMessage { return tool.ListedOutput(runSchema()) })

// Measure adds the metrics of the runs and of the listing.
func (r *Tools) Measure(m *telemetry.Metrics) {
	m.Gauge("deepwork_runs_running", "Workflows of other systems that run at their sources now.", func() int {
		return r.Runs.Stats().Running
	})
	m.Gauge("deepwork_runs_waiting", "Runs that wait for a slot.", func() int { return r.Runs.Stats().Waiting })
	m.Gauge("deepwork_workflow_tools", "Workflows that are listed as tools.", func() int {
		return len(r.listing.Load().Tools)
	})
}

// untrusted refuses a call that needs a source which the user has not approved: the name of its
// tool may be from an earlier list. nil means that all are approved. what is how the message begins.
func (r *Tools) untrusted(ctx context.Context, what string) error {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil
	}
	return session.UntrustedSources(r.Root, settings, what)
}

// checkApproval refuses a call about a run whose source may not be asked now, for want of the user's
// approval. nil means that it may be. The run stays, and is followed again with the approval.
func (r *Tools) checkApproval(ctx context.Context, x *remote.Run) error {
	err := r.changed(r.catalog.Snapshot(), x.Source)
	if settings, serr := r.Settings(ctx); serr == nil && err == nil {
		err = session.UntrustedSources(r.Root, settings,
			fmt.Sprintf("Run '%s' may go on, but its source cannot be asked about it, because the user has not "+
				"approved it:", x.ExecutionID), x.Source)
	}
	if refusal, ok := errors.AsType[*session.Error](err); ok {
		return refusal.With("run", x).With("execution_id", x.ExecutionID)
	}
	return err
}

// changed refuses a call of a source whose program is not the one that the user approved; nil means
// that it is another reason why the source is away.
func (r *Tools) changed(now *sources.Snapshot, source string) error {
	for _, s := range now.Sources {
		if s.Name == source && errors.Is(s.Err, trust.ErrChanged) {
			return session.Changed(r.Root, s.Err)
		}
	}
	return nil
}

// withheld returns the sources that the user has not approved, as not available.
func (r *Tools) withheld(ctx context.Context) []sources.Skipped {
	settings, err := r.Settings(ctx)
	if err != nil {
		return nil
	}
	return xslices.Map(settings.WithheldSources(), func(a config.Asked) sources.Skipped {
		return sources.Skipped{Source: strings.TrimPrefix(a.Key, config.SourcesKey), Reason: fmt.Sprintf(
			"it is not approved (%s), which a person does with `deepwork trust --path %s` in a terminal", a.Text,
			session.InShell(r.Root))}
	})
}
