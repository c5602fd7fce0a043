package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/standard"
	"deepwork/catalog/trust"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/connection"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	"deepwork/session/work"
	"deepwork/session/workflow"
	"deepwork/transport/page"
	"deepwork/transport/tool"
	remotetools "deepwork/transport/tools/remote"
)

// NewServer opens the project of the options and registers the tools. It returns when the jobs are
// loaded. An error names the option, folder or file that is wrong. A bad config.yml is not an
// error: calls are refused until it is good (seed 000, 001.1). Close releases all resources.
func NewServer(o Options) (*Server, error) {
	p := &opening{options: o, logger: o.Logger, getenv: o.getenv, ctx: context.Background()}
	p.logger = cmp.Or(p.logger, slog.New(slog.DiscardHandler))
	if p.getenv == nil {
		p.getenv = os.Getenv
	}
	for _, step := range []func() error{p.locate, p.configure, p.openMetrics, p.chooseTools, p.openStores, p.openJobs,
		p.openReviews, p.openBoard, p.openSessions, p.openServer} {
		if err := step(); err != nil {
			return nil, errors.Join(fmt.Errorf("making the server: %w", err), p.opened.close(p.ctx))
		}
	}

	return p.server, nil
}

// closers are the functions that close what was opened.
type closers []func(context.Context) error

func (c *closers) add(what string, stop func(context.Context) error) {
	*c = append(*c, func(ctx context.Context) error {
		if err := stop(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// follow runs a function until the server is closed.
func (c *closers) follow(what string, do func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { do(ctx) })
	c.add(what, func(ctx context.Context) error {
		stop()
		return wait.Group(ctx, &ended)
	})
}

// close runs them in reverse order.
func (c closers) close(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(c) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// An opening is a server that is being opened. NewServer calls its methods in order; each sets fields that
// the next ones need.
type opening struct {
	options Options
	logger  *slog.Logger
	getenv  func(string) string
	ctx     context.Context
	opened  closers

	// locate
	root         string           // that is served: of the project, or the workspace of an attempt
	folder       *state.Folder    // its state
	workspace    *board.Workspace // nil outside of workspaces
	projectState *state.Folder    // the state of the project

	// configure
	settings *config.Source
	policy   *trust.Policy
	reviews  *reviewing

	metrics *telemetry.Metrics // nil of a run: they are counted for it alone, and nobody gets them

	sets   []string       // of tools
	choice backend.Choice // of the store
	stores *store.Stores
	work   *work.Loop
	jobs   *catalog.Catalog
	judge  *gate.Gate // nil if nothing is reviewed
	checks *check.Runner
	board  *taskBoard
	engine *connection.Server
	server *Server
}

// attempt returns the id of the attempt whose workspace this is, or "".
func (p *opening) attempt() string {
	if p.workspace == nil {
		return ""
	}
	return p.workspace.Attempt
}

// locate finds the root, its state, and the project around it.
func (p *opening) locate() (err error) {
	if err := p.options.check(); err != nil {
		return err
	}
	if p.root, err = resolveRoot(p.options.ProjectRoot); err != nil {
		return err
	}
	p.folder, err = state.Find(p.root)
	if err = cmp.Or(p.options.Refusal, err); err != nil {
		p.logger.Error("there is no place for the state of the project: calls that write are refused", "error", err)
		p.folder = state.None(p.root, err)
	}
	if p.workspace, err = Workspace(p.ctx, p.options, p.folder, p.getenv, p.logger); err != nil {
		return err
	}
	p.projectState = p.folder
	if p.workspace != nil {
		p.projectState, _ = p.workspace.State() // calls are refused with its error
		err = keepApart(p.folder)
	} else if board.ByAgent(p.getenv) {
		p.logger.Info("an agent of a task board started this server outside its workspace: sessions here are not "+
			"those of its attempt, and no attempts are run", "attempt", p.getenv(config.AttemptEnv))
		if filepath.Dir(p.getenv(config.BoardEnv)) != p.folder.Dir {
			os.Unsetenv(config.ProjectEnv) // the agent's is the name of another project
		}
	}
	process.Avoid(p.projectState.Root)
	return err
}

// configure opens the config of the project.
func (p *opening) configure() (err error) {
	p.settings = config.Open(p.projectState.Root)
	p.settings.Logger = p.logger
	p.policy = &trust.Policy{
		Root:   p.projectState.Root,
		File:   p.settings.Path(),
		Ledger: trust.OpenLedger(p.projectState.Grants(), p.projectState.Root),
		Logger: p.logger,
	}
	p.settings.Approve = p.policy.Approve
	if p.reviews, err = newReviewing(p.options, p.projectState.Root, p.root, p.settings.Current); err != nil {
		return err
	}
	p.reviews.own = p.settings.User
	p.reviews.approved = func(key string, command []string) (*config.Approval, error) {
		return p.policy.Approved(p.settings.User(), key, command)
	}
	return nil
}

// config returns the current config, or the default one while it has an error. That is logged elsewhere, and calls are
// refused before they get here.
func (p *opening) config() *config.Config {
	c, err := p.settings.Current(p.ctx)
	if err != nil {
		return config.Default()
	}
	return c
}

// openMetrics opens the metrics, which are sent until all else has been closed. The sessions and reviews of a run are
// counted by the server that leads it.
func (p *opening) openMetrics() error {
	if p.options.tally == nil {
		p.metrics = metricsFor(p.settings.Telemetry(p.ctx), p.options.Version, p.logger)
		p.opened.add("closing the metrics", p.metrics.Close)
		p.options.tally = newTally(p.metrics)
	}
	p.opened.add("", func(context.Context) error {
		p.options.tally.leave(p)
		return nil
	})
	return nil
}

// chooseTools chooses the sets of tools.
func (p *opening) chooseTools() error {
	for _, sets := range [][]string{p.options.Toolsets, p.config().Toolsets, config.DefaultToolsets} {
		if p.sets == nil {
			p.sets = sets
		}
	}
	return checkToolsets(p.sets)
}

// openStores opens the database. The sessions of an attempt's workspace are those of its project, too.
func (p *opening) openStores() error {
	own, err := p.settings.Own(p.ctx)
	if err != nil {
		own = &config.User{} // calls are refused
	}
	if p.choice, err = backend.Choose(p.options.Store, p.options.Project, own, p.projectState.Root); err != nil {
		return err
	}
	if p.stores, err = backend.Open(p.ctx, p.projectState, p.choice, false, p.logger); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	p.opened.add("closing the stores", p.stores.Close)
	p.work = work.New(p.ctx, work.Options{Stores: p.stores, Logger: p.logger})
	p.work.Start()
	p.opened.add("work that did not stop", func(ctx context.Context) error { return notStopped(p.work.Close(ctx)) })
	if p.stores.Unavailable != nil {
		// As soon as the store answers: it is then ready before the first call, and takes over from processes that are
		// gone.
		p.opened.follow("entering the store", func(ctx context.Context) {
			for p.stores.Members.Enter(ctx) != nil && wait.For(ctx, time.Second) == nil {
			}
		})
	}

	return nil
}

// current returns the config, or why calls are refused.
func (p *opening) current(ctx context.Context) (*config.Config, error) {
	if err := confirm(ctx, p.workspace, p.stores.Database); err != nil {
		return nil, err
	}

	c, err := p.settings.Current(ctx)
	now, _ := backend.Choose(p.options.Store, p.options.Project, p.settings.User(), p.projectState.Root)
	if err == nil && now != p.choice {
		return nil, session.NotNow(codes.RestartNeeded,
			"Your own config names another store than the one that this server was started with. Tell the user: the "+
				"server must be restarted, or the config corrected.")
	}
	return c, err
}

// openJobs loads the jobs.
func (p *opening) openJobs() (err error) {
	o := catalog.Options{
		Root:        p.root,
		Additional:  p.options.AdditionalJobs,
		Standard:    p.options.StandardJobs,
		StandardDir: p.folder.StandardJobs(),
		MakeState:   func() error { return session.MakeState(p.folder) },
		Logger:      p.logger,
	}
	if o.Additional == nil {
		o.Additional = config.JobsFolders()
	}
	o.Standard = cmp.Or(o.Standard, standard.FS())
	if p.jobs, err = catalog.Open(p.ctx, o); err != nil {
		return fmt.Errorf("loading the jobs of %s: %w", p.root, err)
	}
	p.opened.add("the catalog did not stop", p.jobs.Close)
	return nil
}

// freshJobs returns the jobs as they are now.
func (p *opening) freshJobs(ctx context.Context) *catalog.Snapshot {
	if fresh, err := p.jobs.Fresh(ctx); err == nil {
		return fresh
	}
	return p.jobs.Snapshot()
}

// openReviews opens the pools of reviews and of checks.
func (p *opening) openReviews() error {
	if p.reviews.enabled() {
		p.judge = gate.Open(gate.Options{
			Root:     p.root,
			Logger:   p.logger,
			Settings: func() gate.Settings { return p.reviews.merge(p.config()) },
		})
		p.opened.add("reviews that did not stop", p.judge.Close)
	}
	p.openChecks()
	return nil
}

// openSessions opens the engine of the sessions.
func (p *opening) openSessions() error {
	sessions, err := workflow.Open(p.ctx, workflow.Options{
		Root:      p.root,
		State:     p.folder,
		Catalog:   p.jobs,
		Config:    p.settings,
		Notice:    p.options.Notice,
		Logger:    p.logger,
		Stores:    p.stores,
		Place:     p.stores.Place,
		Attempt:   p.attempt(),
		Reviews:   p.reviews.enabled(),
		Gate:      p.judge,
		Checks:    p.checks,
		Work:      p.work,
		Reviewing: p.reviews.now,
		Moved:     p.options.moved,
		Wrote:     p.options.tally.wrote,
	})
	if err != nil {
		return fmt.Errorf("opening the sessions of %s: %w", p.root, err)
	}
	p.engine = connection.NewServer(sessions)
	p.opened.add("sessions that did not stop", func(ctx context.Context) error {
		return notStopped(p.engine.Close(ctx))
	})
	if p.workspace == nil {
		p.opened.follow("removing old sessions", (&pruner{sessions, p.settings.Current, p.logger}).follow)
	}
	return nil
}

// openServer registers the tools, and opens the sources of workflows.
func (p *opening) openServer() (err error) {
	s, err := newServer(p.engines(), p.sets, p.options.Version, p.logger)
	if err != nil {
		return err
	}

	if s.remote != nil {
		o := remotetools.Options{
			Root:     p.projectState.Root,
			Version:  p.options.Version,
			Stores:   p.stores,
			Work:     p.work,
			Settings: p.settings.Current,
			Refused:  p.settings.Refused,
			Changes:  p.jobs.Changes,
		}
		if s.tools.Has("finished_step") { // otherwise a started workflow could not be finished
			o.Jobs = p.freshJobs
		}
		s.remote.Open(o)
		s.remote.Measure(p.metrics)
		p.opened.add("closing the sources", s.remote.Close)
	}

	if s.library != nil {
		p.opened.follow("the list of prompts did not stop", func(ctx context.Context) {
			s.library.follow(ctx, p.jobs.Changes(ctx))
		})
	}

	p.opened.follow("ending tasks that nobody asks for", s.tasks.Follow)
	s.opened, p.server = p.opened, s
	return nil
}

// engines are those behind the server.
func (p *opening) engines() engines {
	e := engines{
		check:            p.current,
		jobs:             p.freshJobs,
		connect:          func(identity string) tool.WorkflowCaller { return p.engine.Connect(identity) },
		connectStateless: func(identity string) tool.WorkflowCaller { return p.engine.ConnectStateless(identity) },
		progress:         p.engine.Progress,
		session:          p.engine.Session,
		newest:           p.engine.Newest,
		children:         p.engine.Children,
		defined:          p.engine.Defined,
		isolate:          p.engine.IsolateFor,
		token:            p.folder.Token,
		longCalls:        p.stores.Database.LongCalls(),
		here:             p.here(),
		unavailable:      p.stores.Unavailable,
		metrics:          p.metrics,
	}
	p.options.tally.join(p)
	p.board.share(&e, p.engine)
	e.pages = func() (page.Options, error) {
		key, err := p.folder.Sign("web pages", nil)
		return page.Options{
			Project: filepath.Base(p.root),
			Root:    p.root,
			Board:   p.board.engine,
			Engine:  p.engine.Engine,
			Jobs:    p.freshJobs,
			Config:  p.current,
			Approves: func(e trust.Entry) bool {
				return p.policy.Ledger.ApprovesCheck(e, p.settings.User().TrustedFolders) == nil
			},
			Changes: p.stores.Database.Changes(),
			Key:     key,
			Logger:  p.logger,
			Help:    p.options.Help,
			Version: cmp.Or(p.options.Version, "dev"),
		}, err
	}

	return e
}

// here identifies the place of this server's sessions within the store: see tasks.Set.
func (p *opening) here() string {
	if p.stores.Place == nil {
		return p.root
	}
	return p.stores.Place.MachineID + " " + p.root
}

// notStopped returns an error with the names of what did not stop, or nil.
func notStopped(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return errors.New(strings.Join(names, ", "))
}

// confirm refuses calls in the workspace of an attempt until the database has confirmed it.
func confirm(ctx context.Context, w *board.Workspace, db store.Database) error {
	if w == nil {
		return nil
	}

	is, err := w.Confirm(ctx, db)
	if err == nil && !is {
		err = session.NotNow(codes.RestartNeeded,
			"This server was started while the database of attempt %s could not be used, and has nothing to do with "+
				"that attempt. Tell the user: the server must be restarted.", w.Attempt)
	}
	return err
}
