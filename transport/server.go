package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/standard"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/workflow"
)

// ServerName is the name clients are told (seed 000, 001.1.10).
const ServerName = "deepwork"

// An agent is what the tools call: one connection's view of the engine. It is
// a *workflow.Conn.
type agent interface {
	Close()
	Stack() []workflow.StackEntry
	StackOf(ctx context.Context, sessionID *string) []workflow.StackEntry
	GetWorkflows(context.Context) (*workflow.WorkflowsReply, error)
	Start(context.Context, workflow.StartArgs) (*workflow.StartReply, error)
	Finish(context.Context, workflow.FinishArgs) (*workflow.FinishReply, error)
	Abort(context.Context, workflow.AbortArgs) (*workflow.AbortReply, error)
	Step(context.Context, workflow.StepArgs) (*workflow.StepReply, error)
	GoTo(context.Context, workflow.GoToArgs) (*workflow.GoToReply, error)
}

// parts are what a Server stands on. The functions are those of the catalog,
// the config and the engine; a nil check or jobs is none.
type parts struct {
	check func(context.Context) (*config.Config, error) // the config, before each call
	jobs  func(context.Context) *catalog.Snapshot       // for the instructions
	agent func(identity string) agent                   // a new connection's
	close func(context.Context) []error                 // in reverse order of opening
	stops func()                                        // told before the connections are closed for good; may be nil

	stateless func(identity string) agent // of an identity's requests without a connection
	execution func(ctx context.Context, identity, sessionID string) (*workflow.Execution, error)
	sessions  func() workflow.Stats // for the metrics; nil: not told
	reviews   func() gate.Stats     // likewise

	board     boardEngine          // of the set board
	workspace workspace            // nil: the server is in none, and offers no get_context
	attempts  func() attempt.Stats // for the metrics; nil: not told
}

// A Server is the MCP server of one project: its catalog, its engine and its
// tools. All transports share one (seed 000, 001.1.1).
type Server struct {
	parts
	logger *slog.Logger
	mcp    *mcp.Server
	impl   *mcp.Implementation // what it tells of itself
	conns  connections
	tools  map[string]handler // what is registered
	reads  map[string]bool    // of that, what only reads
	remote *remotes           // the workflows of other systems; nil: not chosen

	announce func() // has the SDK tell all clients that the list of tools changed
	anyTool  string // the name of a registered tool
	metrics  *metrics
	inflight inflight
	network  atomic.Pointer[config.HTTP] // as last read, for those who must not wait
}

// NewServer opens the project of the options and registers the tools. It
// returns when the jobs are loaded. An error says which option, folder or file
// is wrong; a config.yml that is bad at start is not one: calls are refused
// until it is good (seed 000, 001.1). Close releases what it opened.
func NewServer(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}
	root, err := resolveRoot(o.ProjectRoot)
	if err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ctx := context.Background()

	settings := config.Open(root)
	settings.Logger = logger
	reviews, err := newReviewing(o, settings.Current)
	if err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}
	initial, err := settings.Current(ctx)
	if err != nil {
		logger.Error("the config is bad: calls are refused until it is corrected", "error", err)
		initial = config.Default()
	}
	sets := o.Toolsets
	if sets == nil {
		sets = initial.Toolsets
	}
	if err := checkToolsets(sets); err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}

	additional := o.AdditionalJobs
	if additional == nil {
		additional = additionalJobs(os.Getenv(config.JobsFoldersEnv), logger)
	}
	bundled := o.StandardJobs
	if bundled == nil {
		bundled = standard.FS()
	}
	if _, _, inside := attempt.Workspace(os.Getenv); inside {
		if err := keepApart(root); err != nil {
			return nil, fmt.Errorf("making the server: %w", err)
		}
	}
	jobs, err := catalog.Open(ctx, catalog.Options{Root: root, Additional: additional, Standard: bundled, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("making the server: loading the jobs of %s: %w", root, err)
	}
	var judge *gate.Gate
	if reviews.enabled() {
		judge = gate.Open(gate.Options{Root: root, Logger: logger, Settings: reviews.settings})
	}
	closeGate := func(ctx context.Context) error {
		if judge == nil {
			return nil
		}
		return judge.Close(ctx)
	}
	member := session.NewMember(workflow.TmpDir(root), logger)
	db := sqlite.New(sqlite.Options{Path: sqlite.Path(root), Logger: logger})
	tasks, err := openBoard(ctx, root, member, db, sets == nil || slices.Contains(sets, "board"), settings, jobs, logger, os.Getenv)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the server: %w", err), closeGate(ctx), jobs.Close(ctx))
	}
	engine, err := workflow.Open(ctx, workflow.Options{
		Root: root, Catalog: jobs, Config: settings, Logger: logger, Member: member,
		Reviews: reviews.enabled(), Gate: judge, Reviewing: reviews.now, Moved: tasks.moved(),
		StatelessIdle: func() time.Duration { return idleTimeout(settings) },
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the server: opening the sessions of %s: %w", root, err), errors.Join(tasks.close(ctx)...), closeGate(ctx), jobs.Close(ctx))
	}

	p := parts{
		check: settings.Current,
		jobs: func(ctx context.Context) *catalog.Snapshot {
			if fresh, err := jobs.Fresh(ctx); err == nil {
				return fresh
			}
			return jobs.Snapshot()
		},
		agent:     func(identity string) agent { return engine.Connect(identity) },
		stateless: func(identity string) agent { return engine.ConnectStateless(identity) },
		sessions:  engine.Stats,
		execution: engine.Execution,
		stops:     engine.Stopping,
		close: func(ctx context.Context) (errs []error) {
			if left := engine.Close(ctx); len(left) > 0 {
				errs = append(errs, fmt.Errorf("sessions that did not stop: %s", strings.Join(left, ", ")))
			}
			errs = append(errs, tasks.close(ctx)...)
			if err := closeGate(ctx); err != nil {
				errs = append(errs, fmt.Errorf("reviews that did not stop: %w", err))
			}
			if err := jobs.Close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("the catalog did not stop: %w", err))
			}
			if err := db.Close(); err != nil {
				errs = append(errs, err)
			}
			if err := member.Leave(); err != nil { // last: until here nobody takes what is this server's
				errs = append(errs, err)
			}
			return errs
		},
	}
	if judge != nil {
		p.reviews = judge.Stats
	}
	tasks.share(&p)
	s, err := newServer(p, sets, o.Version, logger)
	if err != nil {
		return nil, errors.Join(append([]error{fmt.Errorf("making the server: %w", err)}, p.close(ctx)...)...)
	}
	if sets == nil || slices.Contains(sets, "remote") {
		err := s.openRemotes(remoteOptions{root: root, member: member, version: o.Version, settings: settings.Current, refused: settings.Refused, changes: jobs.Changes, logger: logger})
		if err != nil {
			return nil, errors.Join(append([]error{fmt.Errorf("making the server: %w", err)}, p.close(ctx)...)...)
		}
	}
	return s, nil
}

// newServer registers the tools of the sets over p.
func newServer(p parts, sets []string, version string, logger *slog.Logger) (*Server, error) {
	s := &Server{parts: p, logger: logger, tools: map[string]handler{}, reads: map[string]bool{}, metrics: newMetrics()}
	if p.stateless == nil {
		p.stateless = p.agent
	}
	s.conns.init(p.agent, p.stateless, func() time.Duration { return s.lastHTTP().IdleTimeout })
	s.impl = &mcp.Implementation{Name: ServerName, Title: "DeepWork", Version: cmp.Or(version, "dev")}
	s.mcp = mcp.NewServer(
		s.impl,
		&mcp.ServerOptions{
			Logger: quiet(logger),
			// Without this the SDK also offers MCP's logging, which is not ours.
			Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
		})
	if sets == nil {
		sets = toolsets
	}
	if slices.Contains(sets, "workflows") {
		s.addWorkflowTools()
	}
	if slices.Contains(sets, "remote") {
		s.addRemoteTools()
	}
	if slices.Contains(sets, "board") {
		s.addBoardTools()
	}
	if len(s.tools) == 0 {
		return nil, fmt.Errorf("the chosen toolsets (%s) have no tools in this version: add workflows", strings.Join(sets, ", "))
	}
	s.mcp.AddReceivingMiddleware(s.receive)
	return s, nil
}

// MCP returns the SDK's server, for transports that connect it themselves and
// for tests.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// Close ends every connection, cancelling calls in flight, then the engines and
// the catalogs, and waits for all of it until ctx ends. The error names what did
// not stop.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	s.willStop()
	if left := s.conns.close(ctx); left > 0 {
		errs = append(errs, fmt.Errorf("%d connections did not stop", left))
	}
	if s.remote != nil {
		errs = append(errs, s.remote.close(ctx)...)
	}
	if s.parts.close != nil {
		errs = append(errs, s.parts.close(ctx)...)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the server: %w", err)
	}
	return nil
}
