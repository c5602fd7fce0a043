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
	"github.com/prometheus/client_golang/prometheus"

	"deepwork/actor/presence"
	"deepwork/catalog"
	"deepwork/catalog/config"
	sources "deepwork/catalog/remote"
	"deepwork/session/execution"
	"deepwork/session/store"
	"deepwork/transport/tool"
)

// Tools are the workflows of other systems, as tools of this server (seed 003), and the
// tools of the set "remote". The workflows are not registered with the SDK, which
// sorts, copies and announces each separately: what is listed is an immutable listing,
// and a name is looked up when it is called.
type Tools struct {
	Options
	set        *tool.Set
	catalog    *sources.Catalog
	Executions *execution.Engine

	making  sync.Mutex // held while the next listing is made
	listing atomic.Pointer[Listing]

	cancel  context.CancelFunc
	running sync.WaitGroup // watch
}

// Options are what an open Tools needs.
type Options struct {
	Root, Version string
	Member        *presence.Member
	Database      store.Database
	Settings      func(context.Context) (*config.Config, error)
	Refused       func() error                            // why an edit of the config is not in use
	Jobs          func(context.Context) *catalog.Snapshot // this project's own, for expose_jobs; nil if they are never exposed
	Changes       func(context.Context) <-chan struct{}   // of the jobs
	Patience      time.Duration                           // how long a refresh waits for sources; 0 means 20 s
}

// New registers the set. The result is to be opened before a tool is called.
func New(s *tool.Set) *Tools {
	r := &Tools{set: s}
	r.listing.Store(&Listing{})
	addListWorkflowTools(s, r)
	addCallWorkflowTool(s, r)
	addWorkflowStatus(s, r)
	addRefreshWorkflowTools(s, r)
	return r
}

// Open connects the sources in the background and takes up the executions of earlier
// servers; it waits for no source.
func (r *Tools) Open(o Options) error {
	r.Options = o
	r.Patience = cmp.Or(o.Patience, refreshWithin)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	var err error
	r.catalog, err = sources.Open(ctx, sources.Options{
		Root: o.Root, Settings: o.Settings, Reserved: r.reserved, Version: o.Version, Logger: r.set.Logger,
	})
	if err != nil {
		cancel()
		return err
	}
	r.Executions, err = execution.Open(ctx, execution.Options{Database: o.Database, Member: o.Member, Sources: r.catalog, Settings: o.Settings, Logger: r.set.Logger})
	if err != nil {
		cancel()
		return errors.Join(err, r.catalog.Close(context.Background()))
	}
	r.set.Unregistered = r.handler
	r.running.Go(func() { r.watch(ctx, o.Changes(ctx)) })
	return nil
}

// reserved are the names that no workflow of a source may have.
func (r *Tools) reserved() []string {
	names := r.set.Names()
	return slices.AppendSeq(names, maps.Keys(r.listing.Load().jobs))
}

// lookEvery is how often the settings are looked at for what only the listing
// depends on.
const lookEvery = time.Second

// watch makes a new listing whenever there is a reason to.
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

// follow has edits of the config reach the sources. It waits for no source; faults of
// the config are reported where it is needed.
func (r *Tools) follow(ctx context.Context) {
	if err := r.catalog.Reconfigure(ctx); err != nil {
		r.set.Logger.LogAttrs(ctx, slog.LevelDebug, "the config of sources is not followed now", slog.Any("error", err))
	}
}

// Listing returns the listing as it is now. If it changed in a way that clients can
// see, each is notified once.
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
	if !slices.Equal(old.Tools, next.Tools) {
		r.set.Announce()
	}
	return next
}

// exposed is the jobs that are offered as tools; nil means none is.
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

// Close ends the drivers of executions, then the sources, and waits for them.
func (r *Tools) Close(ctx context.Context) error {
	r.cancel()
	r.running.Wait()
	var err error
	if left := r.Executions.Close(ctx); len(left) > 0 {
		err = fmt.Errorf("runs that did not stop: %s", strings.Join(left, ", "))
	}
	return errors.Join(err, r.catalog.Close(ctx))
}

// executionSchema is the schema of what calls of workflows and workflow_status answer
// with (seed 003, 2.3 and 8.2).
func executionSchema() *jsonschema.Schema {
	s := tool.OutputSchema[execution.Execution](tool.Words{Enums: map[string][]any{"state": {
		string(execution.Running), string(execution.Completed), string(execution.Failed),
		string(execution.Cancelled), string(execution.TimedOut), string(execution.Unknown),
	}}})
	tool.OpenProperty(s, "result", "null", "boolean", "object", "array", "number", "string")
	return s
}

// executionJSON is executionSchema as all the tools of a listing share it.
var executionJSON = sync.OnceValue(func() json.RawMessage { return tool.MustJSON(executionSchema()) })

// Collectors returns the metrics of the executions and of the listing.
func (r *Tools) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		tool.Gauge("deepwork_runs_running", "Workflows of other systems that run at their sources now.", func() int { return r.Executions.Stats().Running }),
		tool.Gauge("deepwork_runs_waiting", "Runs that wait for a slot.", func() int { return r.Executions.Stats().Waiting }),
		tool.Gauge("deepwork_workflow_tools", "Workflows that are listed as tools.", func() int { return len(r.listing.Load().Tools) }),
	}
}
