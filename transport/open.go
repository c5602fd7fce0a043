package transport

import (
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
	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/standard"
	"deepwork/catalog/trust"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	"deepwork/session/store/local"
	"deepwork/session/workflow"
	"deepwork/transport/page"
	"deepwork/transport/tool"
	remotetools "deepwork/transport/tools/remote"
)

// NewServer opens the project of the options and registers the tools. It returns when the jobs are
// loaded. An error names the option, folder or file that is wrong. A bad config.yml is not an
// error: calls are refused until it is good (seed 000, 001.1). Close releases all resources.
func NewServer(o Options) (*Server, error) {
	var opened closers
	s, err := openServer(o, &opened)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the server: %w", err), opened.close(context.Background()))
	}
	return s, nil
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
	c.add(what, func(ctx context.Context) error { stop(); return wait.Group(ctx, &ended) })
}

// close runs them in reverse order.
func (c closers) close(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(c) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// openServer opens the project and records how to close it.
func openServer(o Options, opened *closers) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	root, err := resolveRoot(o.ProjectRoot)
	if err != nil {
		return nil, err
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	getenv := o.getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	ctx := context.Background()

	folder, err := state.Find(root)
	if err != nil {
		logger.Error("there is no place for the state of the project: calls that write are refused", "error", err)
		folder = state.None(root, err)
	}
	if earlier := folder.Earlier(); earlier != nil {
		logger.Warn("state of an earlier version is in the project, and not used: deepwork adopt takes it over", "found", strings.Join(earlier, ", "))
	}
	around := configured(folder, getenv, logger)
	process.Avoid(around.Root)
	settings := config.Open(around.Root)
	settings.Logger = logger
	policy := &trust.Policy{Root: around.Root, File: settings.Path(), Ledger: trust.OpenLedger(around.Grants(), around.Root), Logger: logger}
	settings.Approve = policy.Approve
	reviews, err := newReviewing(o, around.Root, root, settings.Current)
	if err != nil {
		return nil, err
	}
	reviews.approved = func(key string, command []string) (*config.Approval, error) {
		return policy.Approved(settings.User(), key, command)
	}
	initial, err := settings.Current(ctx)
	if err != nil {
		initial = config.Default() // the fault is logged where it was found
	}
	sets := o.Toolsets
	if sets == nil {
		sets = initial.Toolsets
	}
	if sets == nil {
		sets = config.DefaultToolsets
	}
	if err := checkToolsets(sets); err != nil {
		return nil, err
	}

	additional := o.AdditionalJobs
	if additional == nil {
		var relative []string
		additional, relative = config.JobsFolders()
		for _, dir := range relative {
			logger.Warn("ignoring a job folder that is not an absolute path: make it absolute", "variable", config.JobsFoldersEnv, "folder", dir)
		}
	}
	bundled := o.StandardJobs
	if bundled == nil {
		bundled = standard.FS()
	}
	_, attemptID, inside := attempt.Workspace(folder.Root, getenv)
	if inside {
		if err := keepApart(folder); err != nil {
			return nil, err
		}
	} else if attempt.ByAgent(getenv) {
		logger.Info("an agent of a task board started this server outside its workspace: sessions here are not those of its attempt, and no attempts are run", "attempt", getenv(config.AttemptEnv))
		if filepath.Dir(getenv(config.BoardEnv)) != folder.Dir {
			os.Unsetenv(config.ProjectEnv) // the agent's is the name of another project
		}
	}
	makeState := func() error { return session.MakeState(folder) }
	own, err := settings.Own(ctx)
	if err != nil {
		own = &config.User{} // calls are refused
	}
	choice, err := backend.Choose(o.Store, o.Project, own)
	if err != nil {
		return nil, err
	}
	stores, boards, err := openStores(ctx, folder, around, choice, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	for _, s := range []*store.Stores{stores, boards} {
		if s != nil {
			opened.add("closing the stores", s.Close)
		}
	}
	if stores.Unavailable != nil {
		opened.follow("entering the store", func(ctx context.Context) { enter(ctx, stores.Members) })
	}
	current := func(ctx context.Context) (*config.Config, error) {
		c, err := settings.Current(ctx)
		if now, _ := backend.Choose(o.Store, o.Project, settings.User()); err == nil && now != choice {
			return nil, session.NotNow("restart_needed", "Your own config names another store than the one that this server was started with. Tell the user: the server must be restarted, or the config corrected.")
		}
		return c, err
	}
	jobs, err := catalog.Open(ctx, catalog.Options{Root: root, Additional: additional, Standard: bundled, StandardDir: folder.StandardJobs(), MakeState: makeState, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("loading the jobs of %s: %w", root, err)
	}
	opened.add("the catalog did not stop", jobs.Close)
	var judge *gate.Gate
	if reviews.enabled() {
		judge = gate.Open(gate.Options{Root: root, Logger: logger, Settings: reviews.settings})
		opened.add("reviews that did not stop", judge.Close)
	}
	var engine *workflow.Engine // opened below, before any call
	awaiting := func(ctx context.Context, who session.Caller, workspaces []string) ([]session.AwaitingStep, error) {
		steps, err := engine.Awaiting(ctx, who.Identity)
		c, cerr := settings.Current(ctx)
		if err = errors.Join(err, cerr); err != nil {
			return nil, err
		}
		return workflow.AwaitingIn(ctx, steps, workspaces, &c.QualityGate, logger)
	}
	tasks, err := openBoard(ctx, root, folder, around, stores, boards, slices.Contains(sets, "board"), settings, jobs, awaiting, Leader(o, around), o.moved, logger, getenv)
	if err != nil {
		return nil, err
	}
	opened.add("closing the task board", tasks.close)
	engine, err = workflow.Open(ctx, workflow.Options{
		Root: root, State: folder, Catalog: jobs, Config: settings, Logger: logger, Stores: stores, Place: stores.Place, Attempt: attemptID,
		Reviews: reviews.enabled(), Gate: judge, Reviewing: reviews.now, Moved: tasks.moved(), Requests: stores.Database.Requests(),
		StatelessIdle: func() time.Duration { return idleTimeout(settings) },
	})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions of %s: %w", root, err)
	}
	opened.add("sessions that did not stop", func(ctx context.Context) error { return notStopped(engine.Close(ctx)) })

	if !inside {
		archive, err := workflow.OpenArchive(folder, stores, logger)
		if err != nil {
			return nil, fmt.Errorf("opening the sessions of %s: %w", root, err)
		}
		opened.add("closing the sessions", func(context.Context) error { return archive.Close() })
		opened.follow("removing old sessions", (&pruner{archive, settings.Current, logger}).follow)
	}

	e := engines{
		check: current,
		jobs: func(ctx context.Context) *catalog.Snapshot {
			if fresh, err := jobs.Fresh(ctx); err == nil {
				return fresh
			}
			return jobs.Snapshot()
		},
		connect:          func(identity string) tool.WorkflowCaller { return engine.Connect(identity) },
		connectStateless: func(identity string) tool.WorkflowCaller { return engine.ConnectStateless(identity) },
		execution:        engine.Execution,
		session:          engine.Session,
		children:         engine.Children,
		executor:         engine.Executor,
		token:            folder.Token,
		stopping:         engine.Stopping,
		unavailable:      stores.Unavailable,
		metrics:          sessionMetrics(engine.Stats),
	}
	if judge != nil {
		e.metrics = append(e.metrics, reviewMetrics(judge.Stats)...)
	}
	tasks.share(&e, engine.AskAbout)
	e.pages = func() (page.Options, error) {
		archive, err := workflow.OpenArchive(folder, stores, logger)
		if err != nil {
			return page.Options{}, err
		}
		if stores.Place == nil {
			_ = stores.Database.Open(ctx) // without it, changes of session files are in no feed; calls report the error
		}
		key, err := folder.Sign("web pages", nil)
		return page.Options{Project: filepath.Base(root), Root: root, Board: tasks.engine, Sessions: archive, Engine: engine, Jobs: e.jobs, Config: current, Changes: stores.Changes, Key: []byte(key), Logger: logger}, err
	}
	s, err := newServer(e, sets, o.Version, logger)
	if err != nil {
		return nil, err
	}
	if s.remote != nil {
		o := remotetools.Options{Root: around.Root, Version: o.Version, Member: stores.Members, Database: stores.Database, Settings: settings.Current, Refused: settings.Refused, Changes: jobs.Changes}
		if s.tools.Has("finished_step") { // otherwise a started workflow could not be finished
			o.Jobs = e.jobs
		}
		if err := s.remote.Open(o); err != nil {
			return nil, err
		}
		opened.add("closing the sources", s.remote.Close)
	}
	if s.library != nil {
		opened.follow("the list of prompts did not stop", func(ctx context.Context) { s.library.follow(ctx, jobs.Changes(ctx)) })
	}
	s.close = opened.close
	return s, nil
}

// openStores opens the stores of a server and, in the workspace of an attempt, those with its board,
// unless they are files. Sessions in a workspace are always files there.
func openStores(ctx context.Context, folder, around *state.Folder, c backend.Choice, logger *slog.Logger) (stores, boards *store.Stores, err error) {
	if folder == around {
		stores, err = backend.Open(ctx, folder, c, false, logger)
		return stores, nil, err
	}
	if c.URL != "" {
		if boards, err = backend.Open(ctx, around, c, false, logger); err != nil {
			return nil, nil, err
		}
	}
	return local.Stores(folder, false, logger), boards, nil
}

// enter makes this process one of those that share a store, as soon as that answers, so that it is ready
// before the first call and takes over from processes that are gone.
func enter(ctx context.Context, members store.Members) {
	for members.Enter(ctx) != nil && wait.For(ctx, time.Second) == nil {
	}
}

// configured returns the state folder of the project whose config applies to a server: in
// the workspace of an attempt the project that the attempt is of, never what a branch says.
func configured(folder *state.Folder, getenv func(string) string, logger *slog.Logger) *state.Folder {
	file, _, inside := attempt.Workspace(folder.Root, getenv)
	if !inside {
		return folder
	}
	around, err := state.Open(filepath.Dir(file))
	if err != nil {
		logger.Error("the project of this workspace is not found: no config but the user's applies", "error", err)
		return state.None(filepath.Dir(file), err) // where no config is
	}
	return around
}

// notStopped returns an error with the names of what did not stop, or nil.
func notStopped(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return errors.New(strings.Join(names, ", "))
}
