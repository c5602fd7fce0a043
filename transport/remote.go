package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/presence"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/remote"
	"deepwork/session/execution"
)

// remotes are the workflows of other systems, as tools of this server (seed 003).
// None of them is registered with the SDK, which sorts, copies and announces each
// by itself: what is listed is an immutable listing, and a name is looked up when
// it is called.
type remotes struct {
	server   *Server
	catalog  *remote.Catalog
	runs     *execution.Engine
	settings func(context.Context) (*config.Config, error)
	refused  func() error                            // what is wrong with an edit of the config that is not in use
	jobs     func(context.Context) *catalog.Snapshot // this project's own, for expose_jobs; nil: never exposed
	patience time.Duration                           // how long a refresh waits for sources

	making  sync.Mutex // held by who makes the next listing
	listing atomic.Pointer[listing]

	cancel  context.CancelFunc
	running sync.WaitGroup // watch
}

// remoteOptions are what remotes stand on.
type remoteOptions struct {
	root, version string
	member        *presence.Member
	settings      func(context.Context) (*config.Config, error)
	refused       func() error
	changes       func(context.Context) <-chan struct{} // of the jobs
	logger        *slog.Logger
}

// openRemotes connects the sources in the background and takes up the runs of
// earlier servers; it waits for no source.
func (s *Server) openRemotes(o remoteOptions) error {
	r := &remotes{server: s, settings: o.settings, refused: o.refused, patience: refreshWithin}
	if s.tools["finished_step"] != nil { // what is started could not be finished else
		r.jobs = s.parts.jobs
	}
	r.listing.Store(&listing{})
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	var err error
	r.catalog, err = remote.Open(ctx, remote.Options{
		Root: o.root, Settings: o.settings, Reserved: r.reserved, Version: o.version, Logger: o.logger,
	})
	if err != nil {
		cancel()
		return err
	}
	r.runs, err = execution.Open(ctx, execution.Options{Root: o.root, Member: o.member, Sources: r.catalog, Settings: o.settings, Logger: o.logger})
	if err != nil {
		cancel()
		return errors.Join(err, r.catalog.Close(context.Background()))
	}
	s.remote = r
	r.running.Go(func() { r.watch(ctx, o.changes(ctx)) })
	return nil
}

// reserved are the names that no workflow of a source may have.
func (r *remotes) reserved() []string {
	names := slices.Collect(maps.Keys(r.server.tools))
	return slices.AppendSeq(names, maps.Keys(r.listing.Load().jobs))
}

// lookEvery is how often the settings are looked at for what only the listing
// depends on.
const lookEvery = time.Second

// watch makes a new listing whenever there is a reason to.
func (r *remotes) watch(ctx context.Context, jobs <-chan struct{}) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		r.relist(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.catalog.Changed():
		case <-jobs:
		case <-look.C:
		}
	}
}

// follow has edits of the config reach the sources. It waits for none of them;
// what is wrong with the config is told by whoever needs it.
func (r *remotes) follow(ctx context.Context) {
	if err := r.catalog.Reconfigure(ctx); err != nil {
		r.server.logger.LogAttrs(ctx, slog.LevelDebug, "the config of sources is not followed now", slog.Any("error", err))
	}
}

// relist makes the listing anew where what it is made of is not as it was, and
// tells every client, once, if anybody could see a difference. It returns the
// listing as it then is.
func (r *remotes) relist(ctx context.Context) *listing {
	r.making.Lock()
	defer r.making.Unlock()
	old := r.listing.Load()
	from, exposed := r.catalog.Snapshot(), r.exposed(ctx, old)
	if from == old.from && exposed == old.exposed {
		return old
	}
	next := newListing(old, from, exposed)
	r.listing.Store(next)
	if !slices.Equal(old.tools, next.tools) {
		r.server.announce()
	}
	return next
}

// exposed is the jobs that are offered as tools; nil: none is.
func (r *remotes) exposed(ctx context.Context, old *listing) *catalog.Snapshot {
	if r.jobs == nil {
		return nil
	}
	settings, err := r.settings(ctx)
	switch {
	case err != nil:
		return old.exposed
	case !settings.WorkflowTools.ExposeJobs:
		return nil
	}
	return r.jobs(ctx)
}

// close ends the runs' drivers, then the sources, and waits for them.
func (r *remotes) close(ctx context.Context) (errs []error) {
	r.cancel()
	r.running.Wait()
	if left := r.runs.Close(ctx); len(left) > 0 {
		errs = append(errs, fmt.Errorf("runs that did not stop: %s", strings.Join(left, ", ")))
	}
	if err := r.catalog.Close(ctx); err != nil {
		errs = append(errs, err)
	}
	return errs
}
