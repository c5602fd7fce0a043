// Package transport serves MCP: it decodes a call, sends one message and encodes the reply. It
// holds no business rules.
//
// # How a call flows
//
// finished_step, from the agent's call to its reply:
//
//  1. The transport checks the arguments against the schema of the tool.
//  2. The session that is meant is the one that the call names, or the only open one of those that the
//     connection remembers: a query says which are. The session's actor gets one message.
//  3. The actor of the session looks at the outputs. A pure state machine decides: if the call is
//     refused, the agent gets a ToolError or a StateError, and nothing has changed.
//  4. If the agent reviews its own work, the review instructions are written, and the reply is
//     needs_work with what to do.
//  5. If a reviewer program is due, the try is recorded, durably, and package gate runs one review
//     per file or step. Meanwhile the actor receives other calls: abort_workflow, get_step and more.
//  6. The verdicts arrive as messages and are recorded. If the outputs and criteria are still what was
//     judged, what the verdicts change is recorded, too, and the reply is next_step, or needs_work
//     with feedback.
//  7. If the step is finished, the actor reads the instructions of the next step, and one durable
//     transaction has all of it: completed, advanced, begun. Only when it is synced is the reply sent:
//     next_step with begin_step, or workflow_complete.
//
// In a process one goroutine has the state of a session, and is reached only by messages. Nobody owns the
// session: a transition is written if the session still has the revision that it replaces, so any server of
// the project serves it. Jobs are read from an immutable snapshot, without a lock.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/machine"
	"deepwork/session/remote"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/transport/page"
	"deepwork/transport/tasks"
	"deepwork/transport/tool"
	boardtools "deepwork/transport/tools/board"
	remotetools "deepwork/transport/tools/remote"
	"deepwork/transport/tools/source"
	"deepwork/transport/tools/workflows"
	"deepwork/transport/web"
)

// stepTools is the set of tools of the agents of runs.
const stepTools = "steps"

// ServerName is the name that clients see (seed 000, 001.1.10).
const ServerName = "deepwork"

// engines are the parts behind a Server. Nil functions are unavailable.
type engines struct {
	check func(context.Context) (*config.Config, error) // loads the config, before each call
	jobs  func(context.Context) *catalog.Snapshot       // for the instructions
	// why the stores cannot be used, or nil; nil if they need no service
	unavailable func() error
	local       session.Caller                  // callers without a token; zero means the user
	token       func(make bool) (string, error) // of that caller; see web.Backend

	connect          func(identity string) tool.WorkflowCaller // for a new connection
	connectStateless func(identity string) tool.WorkflowCaller // for the requests of an identity without a connection
	progress         func(ctx context.Context, identity, sessionID string) (*workflow.Progress, error)
	session          func(ctx context.Context, identity, sessionID string) (*machine.State, error)
	// nil only without session
	newest   func(ctx context.Context, identity string, limit int) ([]store.Session, error)
	children func(ctx context.Context, identity string, parents map[string]bool) ([]*machine.State, error)
	isolate  func(ctx context.Context, sessionID, stepID, folder string) error // see Engine.IsolateFor
	// a step by the job of a session
	defined func(ctx context.Context, s *machine.State, stepID string) (*job.Step, error)

	// the span of an agent that calls; nil means that callers are not agents of a run
	agent     func(identity string) telemetry.Ref
	longCalls store.LongCalls // of tasks; nil means that there are none
	here      string          // see tasks.Set

	board     *attempt.Engine
	getRun    boardtools.GetRun
	workspace *board.Context // nil outside a workspace: then there is no get_context

	metrics *telemetry.Metrics           // nil means that they are counted for this server alone, and nobody gets them
	pages   func() (page.Options, error) // of the web UI, without its callers; nil means that there is none
}

// A Server is the MCP server of one project: its catalog, engines and tools. All transports share
// one (seed 000, 001.1.1).
type Server struct {
	engines
	opened  closers // closed after the connections
	logger  *slog.Logger
	mcp     *mcp.Server
	tools   *tool.Set
	conns   connections
	remote  *remotetools.Tools          // the workflows of other systems; nil if not chosen
	tasks   *tasks.Set                  // nil without a store
	library *library                    // prompts and resources; nil without the tools of workflows
	network atomic.Pointer[config.HTTP] // as last read, for callers that must not block
}

// newServer registers the tools of the sets. Those of the set remote, if chosen, must be opened by
// the caller.
func newServer(e engines, sets []string, version string, logger *slog.Logger) (*Server, error) {
	if e.connectStateless == nil {
		e.connectStateless = e.connect
	}

	if e.local == (session.Caller{}) {
		e.local = session.LocalCaller("")
	}

	if e.metrics == nil {
		e.metrics = telemetry.LocalMetrics()
	}
	s := &Server{
		engines: e,
		logger:  logger,
		conns:   connections{connect: e.connect, stateless: e.connectStateless, byKey: map[any]*clientConn{}},
	}

	s.conns.idle = func() time.Duration { return s.lastHTTP().IdleTimeout }
	if sets == nil {
		sets = config.DefaultToolsets
	}
	can := capabilities(e, sets)
	options := &mcp.ServerOptions{Logger: web.Quiet(logger), Capabilities: can,
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			// the default lets a proxy give one caller's session or the project's jobs to another
			c.CacheScope = "private"
		}}
	if can.Prompts != nil && e.session != nil {
		options.CompletionHandler = func(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return s.library.complete(ctx, req)
		}
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{
		Name:    ServerName,
		Title:   "deepwork",
		Version: cmp.Or(version, "dev"),
	}, options)
	s.tools = tool.NewSet(s.mcp, logger, e.metrics, e.check)
	if slices.Contains(sets, "workflows") {
		workflows.Add(s.tools)
	}
	if slices.Contains(sets, stepTools) {
		workflows.AddForSteps(s.tools)
	}
	if slices.Contains(sets, "remote") {
		s.remote = remotetools.New(s.tools)
	}
	if s.tools.Has("finished_step") {
		source.Add(s.tools, source.Options{Jobs: e.jobs, Progress: e.progress, Offered: func(ctx context.Context) bool {
			if slices.Contains(sets, "source") || s.remote == nil || s.check == nil {
				return slices.Contains(sets, "source")
			}
			c, err := s.check(ctx)
			return err == nil && c.WorkflowTools.ExposeJobs
		}})
	}
	if slices.Contains(sets, "board") {
		boardtools.Add(s.tools, e.board, e.getRun, e.workspace)
	}
	if len(s.tools.Names()) == 0 {
		return nil, fmt.Errorf("the chosen toolsets (%s) have no tools: add workflows", strings.Join(sets, ", "))
	}

	if can.Prompts != nil {
		s.library = newLibrary(e, s.mcp)
	}

	s.mcp.AddReceivingMiddleware(s.receive)
	if e.longCalls != nil {
		if err := s.offerTasks(); err != nil {
			return nil, err
		}
	}

	return s, nil
}

// capabilities returns what the server declares. Without capabilities the SDK also offers MCP's logging, which is
// not supported.
func capabilities(e engines, sets []string) *mcp.ServerCapabilities {
	can := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}
	if e.jobs != nil && slices.Contains(sets, "workflows") {
		can.Prompts = &mcp.PromptCapabilities{ListChanged: true}
		can.Resources = &mcp.ResourceCapabilities{ListChanged: true}
	}
	if e.longCalls != nil {
		can.AddExtension(tasks.Extension, nil)
	}
	return can
}

// offerTasks lets clients that can do so follow long calls as tasks.
func (s *Server) offerTasks() error {
	set := &tasks.Set{
		Tools:   s.tools,
		Calls:   s.longCalls,
		Connect: s.connectStateless,
		Agents:  s.board,
		Here:    s.here,
		Logger:  s.logger,
		Quota:   func() int { return s.lastHTTP().Quotas.Requests },
		Runs: func() *remote.Engine {
			if s.remote == nil {
				return nil
			}
			return s.remote.Runs
		},
	}
	if err := set.Register(s.mcp); err != nil {
		return err
	}

	s.tools.Tasks, s.tasks = set, set
	return nil
}

// MCP returns the SDK's server, for transports that connect it themselves and
// for tests.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// Close ends every connection, cancelling calls in flight, then the engines and the catalogs, and
// waits until all have ended or ctx ends. The error names what did not stop.
func (s *Server) Close(ctx context.Context) error {
	var err error
	if left := s.conns.Close(ctx); left > 0 {
		err = fmt.Errorf("%d connections did not stop", left)
	}
	if err = errors.Join(err, s.opened.close(ctx)); err != nil {
		return fmt.Errorf("closing the server: %w", err)
	}
	return nil
}

// Listen opens the address of a network transport; see web.Listen.
func (s *Server) Listen(ctx context.Context, o web.Options) (*web.Server, error) {
	var pages func(*web.Login) (http.Handler, error)
	if s.pages != nil && o.Transport != web.SSE {
		pages = func(l *web.Login) (http.Handler, error) { return s.openPages(l, o.ReadOnly, false) }
	}
	return web.Listen(ctx, web.Backend{
		Pages:        pages,
		MCP:          s.mcp,
		Logger:       s.logger,
		Local:        s.local,
		Token:        s.token,
		Settings:     s.settings,
		LastSettings: s.lastHTTP,
		Check:        s.ready,
		Sessions:     &s.conns,
		InFlight:     &s.tools.InFlight,
		Metrics:      s.metrics,
	}, o)
}

// ready returns why calls are refused, or nil.
func (s *Server) ready(ctx context.Context) error {
	if s.check != nil {
		if _, err := s.check(ctx); err != nil {
			return err
		}
	}

	if s.unavailable != nil {
		return store.Refused(s.unavailable())
	}
	return nil
}

// settings returns the HTTP settings of the config, or the defaults if it was never good.
func (s *Server) settings(ctx context.Context) config.HTTP {
	var c *config.Config
	if s.check != nil {
		c, _ = s.check(ctx) // the error is the caller's to answer
	}

	if c == nil {
		c = config.Default()
	}

	s.network.Store(&c.HTTP)
	return c.HTTP
}

// lastHTTP returns the last result of settings, which is no older than the start of the current
// request. It does not block.
func (s *Server) lastHTTP() config.HTTP {
	if last := s.network.Load(); last != nil {
		return *last
	}
	return s.settings(context.Background())
}

// PagesAmongOthers returns the web UI of the project for a server of several projects, with logins l: see page.Chooser.
func (s *Server) PagesAmongOthers(l *web.Login, readOnly bool) (http.Handler, error) {
	return s.openPages(l, readOnly, true)
}

// openPages returns the web UI of the project. It follows the changes of the project until the server
// is closed.
func (s *Server) openPages(l *web.Login, readOnly, amongOthers bool) (http.Handler, error) {
	o, err := s.pages()
	if err != nil {
		return nil, err
	}
	if !amongOthers {
		l.Key = o.Key
	}
	o.Callers = l
	o.ReadOnly = readOnly
	o.AmongOthers = amongOthers
	o.Sources = s.remote
	site, err := page.New(o)
	if err != nil {
		return nil, fmt.Errorf("making the pages: %w", err)
	}
	s.opened.follow("the pages", site.Run)
	return site, nil
}
