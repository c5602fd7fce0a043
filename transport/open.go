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
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
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
	here, err := Workspace(ctx, o, folder, getenv, logger)
	if err != nil {
		return nil, err
	}
	around, attemptID := folder, ""
	if here != nil {
		around, _ = here.State() // calls are refused with its error
		attemptID = here.Attempt
	}
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
	if here != nil {
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
	// The sessions of an attempt's workspace are those of its project, too.
	stores, err := backend.Open(ctx, around, choice, false, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	opened.add("closing the stores", stores.Close)
	if stores.Unavailable != nil {
		opened.follow("entering the store", func(ctx context.Context) { enter(ctx, stores.Members) })
	}
	current := func(ctx context.Context) (*config.Config, error) {
		if err := confirm(ctx, here, stores.Database); err != nil {
			return nil, err
		}
		c, err := settings.Current(ctx)
		if now, _ := backend.Choose(o.Store, o.Project, settings.User()); err == nil && now != choice {
			return nil, session.NotNow(codes.RestartNeeded, "Your own config names another store than the one that this server was started with. Tell the user: the server must be restarted, or the config corrected.")
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
	awaiting := func(ctx context.Context, who session.Caller, attempts []string) ([]session.AwaitingStep, error) {
		return engine.Awaiting(ctx, who, attempts)
	}
	tasks, err := openBoard(ctx, root, around, attemptID, stores, slices.Contains(sets, "board"), settings, jobs, awaiting, Leader(o, around), logger, getenv)
	if err != nil {
		return nil, err
	}
	opened.add("closing the task board", tasks.close)
	engine, err = workflow.Open(ctx, workflow.Options{
		Root: root, State: folder, Catalog: jobs, Config: settings, Logger: logger, Stores: stores, Place: stores.Place, Attempt: attemptID,
		Reviews: reviews.enabled(), Gate: judge, Reviewing: reviews.now, Moved: o.moved,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions of %s: %w", root, err)
	}
	opened.add("sessions that did not stop", func(ctx context.Context) error { return notStopped(engine.Close(ctx)) })

	if here == nil {
		opened.follow("removing old sessions", (&pruner{engine, settings.Current, logger}).follow)
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
		unavailable:      stores.Unavailable,
		metrics:          sessionMetrics(engine.Stats),
	}
	if judge != nil {
		e.metrics = append(e.metrics, reviewMetrics(judge.Stats)...)
	}
	tasks.share(&e, engine)
	e.pages = func() (page.Options, error) {
		key, err := folder.Sign("web pages", nil)
		return page.Options{Project: filepath.Base(root), Root: root, Board: tasks.engine, Engine: engine, Jobs: e.jobs, Config: current, Changes: stores.Database.Changes(), Key: key, Logger: logger}, err
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

// enter makes this process one of those that share a store, as soon as that answers, so that it is ready
// before the first call and takes over from processes that are gone.
func enter(ctx context.Context, members store.Members) {
	for members.Enter(ctx) != nil && wait.For(ctx, time.Second) == nil {
	}
}

// Workspace returns the attempt in whose workspace a program is, whose folder has this state, or nil. Of the
// options only the store counts. In a workspace the config of the
// attempt's project applies, never what a branch says, and its database has the sessions. What only the
// environment says is checked now, since servers of other projects have the same; what is not known then,
// because the database cannot be used, is decided by the calls.
func Workspace(ctx context.Context, o Options, folder *state.Folder, getenv func(string) string, logger *slog.Logger) (*attempt.Workspace, error) {
	w := attempt.FindWorkspace(folder.Root, getenv)
	if w == nil || w.ByPath {
		return w, nil
	}
	project, _ := w.State() // Confirm returns the error
	own, err := config.Open(project.Root).Own(ctx)
	if err != nil {
		own = &config.User{}
	}
	choice, err := backend.Choose(o.Store, o.Project, own)
	if err != nil {
		return nil, err
	}
	stores, err := backend.Open(ctx, project, choice, true, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, confirmFor)
	defer cancel()
	is, err := w.Confirm(bounded, stores.Database)
	if err != nil {
		logger.Error("it is not known whether this server is in the workspace of an attempt: calls are refused until it is", "attempt", w.Attempt, "error", err)
	} else if !is {
		w = nil
	}
	if err := stores.Close(ctx); err != nil {
		logger.Warn("closing the store in which an attempt was looked up", "error", err)
	}
	return w, nil
}

// confirmFor is how long the start waits for the database that says whether the server is in a workspace.
const confirmFor = 2 * time.Second

// confirm refuses calls in the workspace of an attempt until the database has confirmed it.
func confirm(ctx context.Context, w *attempt.Workspace, db store.Database) error {
	if w == nil {
		return nil
	}
	is, err := w.Confirm(ctx, db)
	if err == nil && !is {
		err = session.NotNow(codes.RestartNeeded, "This server was started while the database of attempt %s could not be used, and has nothing to do with that attempt. Tell the user: the server must be restarted.", w.Attempt)
	}
	return err
}

// notStopped returns an error with the names of what did not stop, or nil.
func notStopped(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return errors.New(strings.Join(names, ", "))
}
