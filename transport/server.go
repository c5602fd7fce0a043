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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/standard"
	"deepwork/gate"
	"deepwork/session/workflow"
)

// ServerName is the name clients are told (seed 000, 001.1.10).
const ServerName = "deepwork"

// An agent is what the tools call: one connection's view of the engine. It is
// a *workflow.Conn.
type agent interface {
	Close()
	Stack() []workflow.StackEntry
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
}

// A Server is the MCP server of one project: its catalog, its engine and its
// tools. All transports share one (seed 000, 001.1.1).
type Server struct {
	parts
	logger *slog.Logger
	mcp    *mcp.Server
	conns  connections
	tools  map[string]bool // what is registered
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
	sets := o.Toolsets
	if sets == nil {
		switch c, err := settings.Current(ctx); {
		case err != nil:
			logger.Error("the config is bad: calls are refused until it is corrected", "error", err)
		default:
			sets = c.Toolsets
		}
	}
	if err := checkToolsets(sets); err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}

	additional := o.AdditionalJobs
	if additional == nil {
		additional = additionalJobs(os.Getenv(AdditionalJobsEnv), logger)
	}
	bundled := o.StandardJobs
	if bundled == nil {
		bundled = standard.FS()
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
	engine, err := workflow.Open(ctx, workflow.Options{
		Root: root, Catalog: jobs, Config: settings, Logger: logger,
		Reviews: reviews.enabled(), Gate: judge, Reviewing: reviews.now,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the server: opening the sessions of %s: %w", root, err), closeGate(ctx), jobs.Close(ctx))
	}

	p := parts{
		check: settings.Current,
		jobs: func(ctx context.Context) *catalog.Snapshot {
			if fresh, err := jobs.Fresh(ctx); err == nil {
				return fresh
			}
			return jobs.Snapshot()
		},
		agent: func(identity string) agent { return engine.Connect(identity) },
		close: func(ctx context.Context) (errs []error) {
			if left := engine.Close(ctx); len(left) > 0 {
				errs = append(errs, fmt.Errorf("sessions that did not stop: %s", strings.Join(left, ", ")))
			}
			if err := closeGate(ctx); err != nil {
				errs = append(errs, fmt.Errorf("reviews that did not stop: %w", err))
			}
			if err := jobs.Close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("the catalog did not stop: %w", err))
			}
			return errs
		},
	}
	s, err := newServer(p, sets, o.Version, logger)
	if err != nil {
		return nil, errors.Join(append([]error{fmt.Errorf("making the server: %w", err)}, p.close(ctx)...)...)
	}
	return s, nil
}

// newServer registers the tools of the sets over p.
func newServer(p parts, sets []string, version string, logger *slog.Logger) (*Server, error) {
	s := &Server{parts: p, logger: logger, tools: map[string]bool{}}
	s.conns.init(p.agent, localCaller)
	s.mcp = mcp.NewServer(
		&mcp.Implementation{Name: ServerName, Title: "DeepWork", Version: cmp.Or(version, "dev")},
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
	if len(s.tools) == 0 {
		return nil, fmt.Errorf("the chosen toolsets (%s) have no tools in this version: add workflows", strings.Join(sets, ", "))
	}
	s.mcp.AddReceivingMiddleware(s.receive)
	return s, nil
}

// MCP returns the SDK's server, for transports that connect it themselves and
// for tests.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// Close ends every connection, cancelling calls in flight, then the engine and
// the catalog, and waits for all of it until ctx ends. The error names what did
// not stop.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	if left := s.conns.close(ctx); left > 0 {
		errs = append(errs, fmt.Errorf("%d connections did not stop", left))
	}
	if s.parts.close != nil {
		errs = append(errs, s.parts.close(ctx)...)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the server: %w", err)
	}
	return nil
}
