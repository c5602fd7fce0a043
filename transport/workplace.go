package transport

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/connection"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	"deepwork/session/run"
	"deepwork/session/state"
	"deepwork/session/why"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// Leader returns the leader of a project's runs. o are the options of the project's server, and folder is its state.
func Leader(o Options, folder *state.Folder) attempt.Leader {
	return func(ctx context.Context, l *attempt.Lead) board.RunEnd {
		w := &workplace{
			moved:   wait.NewSignal(),
			grants:  map[string]*grant{},
			dir:     folder.MCP(l.Attempt.ID),
			root:    l.Attempt.Workspace,
			attempt: l.Attempt,
			logger:  cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
			who:     session.LocalCaller(""),
		}
		defer func() {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := w.opened.close(bounded); err != nil {
				w.logger.Warn("closing the sessions of a run", "run", l.Attempt.ID, "error", err)
			}
		}()
		if err := w.open(ctx, w.options(ctx, o, folder, l)); err != nil {
			return board.RunEnd{
				State: board.Failed,
				Step:  board.OrEmpty(l.Attempt.WorkflowStep),
				Why:   []why.Why{{Kind: why.Other, Said: fmt.Sprintf("Its sessions could not be opened: %v", err)}},
			}
		}

		c, err := w.base.check(ctx)
		if err != nil {
			c = config.Default()
		}
		return run.Lead(ctx, l, w, c.Run.Retries)
	}
}

// A workplace serves a run: the sessions in the folder where it works, and an endpoint for its agents. It implements
// run.Workplace.
type workplace struct {
	base    *Server // of the folder, which no client reaches
	steps   *Server // of the endpoint
	web     *web.Server
	own     tool.WorkflowCaller // of the leader
	attempt *task.Attempt       // whose agents they are
	dir     string              // of the files for agents
	root    string              // in which it works
	moved   wait.Signal
	who     session.Caller
	logger  *slog.Logger
	opened  closers

	mu     sync.Mutex
	grants map[string]*grant // by the identity of their callers
}

// A grant is one that is in use.
type grant struct {
	run.Grant
	hash string

	mu       sync.Mutex
	called   bool      // its agent has connected
	inFlight int       // calls
	lastCall time.Time // when the last one ended
	children []string  // the workflows that its agent has started, over whatever connection
}

// options derives the options of the server of the run's folder from the project's.
func (w *workplace) options(ctx context.Context, o Options, folder *state.Folder, l *attempt.Lead) Options {
	o.ProjectRoot = w.root
	o.Toolsets = []string{"workflows"}
	o.moved = w.moved.Wake
	o.judge = l.Judge
	o.Logger = w.logger
	o.reviewed = func(executor string, stdout []byte) error {
		// a cancelled review is recorded, too
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return l.Reviewed(bounded, executor, stdout)
	}

	env := map[string]string{config.AttemptEnv: "", config.BoardEnv: ""} // in place, it is the project
	if !l.Run.InPlace {
		env = map[string]string{config.AttemptEnv: l.Attempt.ID, config.BoardEnv: folder.Database()}
		if o.AdditionalJobs == nil {
			o.AdditionalJobs = config.JobsFolders()
		}
		o.AdditionalJobs = append([]string{filepath.Join(folder.Root, ".deepwork", "jobs")}, o.AdditionalJobs...)
	}
	o.getenv = func(name string) string {
		if value, ok := env[name]; ok {
			return value
		}
		return os.Getenv(name)
	}
	return o
}

// open opens the server of the folder, and serves the endpoint. If it fails, w.opened has what was opened.
func (w *workplace) open(ctx context.Context, o Options) (err error) {
	w.opened.add("removing the files for agents", func(context.Context) error { return os.RemoveAll(w.dir) })
	if w.base, err = NewServer(o); err != nil {
		return err
	}
	w.opened.add("closing the sessions", w.base.Close)
	w.own = w.base.connect(w.who.Identity)
	w.opened.add("", func(context.Context) error {
		w.own.Close()
		return nil
	})
	w.steps, err = newServer(engines{
		check:       w.base.check,
		connect:     w.connect,
		agent:       w.agent,
		unavailable: w.base.unavailable,
	}, []string{stepTools}, o.Version, w.logger)
	if err != nil {
		return err
	}
	w.steps.conns.idle = nil // connections end with their agents, who may do long steps between two calls
	w.opened.add("closing the endpoint's server", w.steps.Close)
	if err := errors.Join(os.RemoveAll(w.dir), os.MkdirAll(w.dir, 0o700)); err != nil {
		return err
	}

	w.web, err = web.Listen(ctx, web.Backend{
		MCP: w.steps.mcp, Logger: w.logger, Settings: w.settings, LastSettings: func() config.HTTP {
			return w.settings(context.Background())
		},
		Check: w.steps.ready, Sessions: &w.steps.conns, InFlight: &w.steps.tools.InFlight,
	}, web.Options{Private: true, Grace: time.Second})
	if err != nil {
		return err
	}
	w.opened.follow("closing the endpoint", func(ctx context.Context) {
		if err := w.web.Serve(ctx); err != nil {
			w.logger.Error("the endpoint for the agents of a run", "error", err)
		}
	})
	return nil
}

// settings are the endpoint's: its callers are the running agents, never anyone without a token.
func (w *workplace) settings(context.Context) config.HTTP {
	s := config.Default().HTTP
	s.Tokens = []config.Token{{Name: "nobody", SHA256: strings.Repeat("0", 2*sha256.Size)}} // no token has that hash
	w.mu.Lock()
	defer w.mu.Unlock()
	for identity, g := range w.grants {
		s.Tokens = append(s.Tokens, config.Token{Name: identity, SHA256: g.hash})
	}
	return s
}

// Admit implements run.Workplace.
func (w *workplace) Admit(g run.Grant) (c run.Connection, end func() (called bool), err error) {
	identity := stepIdentity + g.Execution
	token, line, err := web.NewToken(config.Token{Name: identity})
	if err != nil {
		return c, nil, err
	}
	admitted := &grant{Grant: g, hash: strings.TrimPrefix(line, identity+":")}
	c.MCP = executors.MCP{File: filepath.Join(w.dir, g.Execution+".json"), URL: w.web.URL()}

	data, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{executors.MCPName: map[string]any{
		"type": "http", "url": c.MCP.URL, "headers": map[string]string{"Authorization": "Bearer " + token},
	}}}, "", "  ")
	if err == nil {
		err = os.WriteFile(c.MCP.File, data, 0o600)
	}
	if err != nil {
		return c, nil, fmt.Errorf("writing how an agent reaches its server: %w", err)
	}

	c.Called = admitted.lastActive
	c.Env = append(executors.WithoutProxy(), config.MCPURLEnv+"="+c.MCP.URL, executors.TokenEnv+"="+token,
		config.MCPConfigEnv+"="+c.MCP.File,
		config.SessionEnv+"="+g.Session, config.StepEnv+"="+g.Step)

	w.mu.Lock()
	w.grants[identity] = admitted
	w.mu.Unlock()
	return c, func() bool {
		w.mu.Lock()
		delete(w.grants, identity)
		w.mu.Unlock()
		w.steps.conns.End(identity)
		os.Remove(c.MCP.File)
		admitted.mu.Lock()
		defer admitted.mu.Unlock()
		return admitted.called
	}, nil
}

// connect returns the calls that an agent may make.
func (w *workplace) connect(identity string) tool.WorkflowCaller {
	w.mu.Lock()
	g := w.grants[identity]
	w.mu.Unlock()
	if g == nil {
		g = new(grant) // its token has just been withdrawn
	}
	g.mu.Lock()
	g.called = true
	g.mu.Unlock()
	return &stepCaller{WorkflowCaller: w.base.connect(w.who.Identity), grant: g, state: w.State}
}

// agent returns the span of the agent with an identity.
func (w *workplace) agent(identity string) telemetry.Ref {
	return attempt.AgentRef(w.attempt, strings.TrimPrefix(identity, stepIdentity))
}

// stepIdentity begins the identity of the agent of an execution.
const stepIdentity = "step-"

// asLeader returns a context in which calls are the leader's.
func (w *workplace) asLeader(ctx context.Context) context.Context {
	return session.WithCaller(ctx, w.who)
}

// Start implements run.Workplace.
func (w *workplace) Start(ctx context.Context, run *board.Run, request string) (string, error) {
	r, err := w.own.Start(w.asLeader(ctx), workflow.StartArgs{
		Goal:         run.Goal,
		JobName:      run.JobName,
		WorkflowName: run.WorkflowName,
		Inputs:       board.Given(run.Inputs),
		RequestID:    &request,
		Isolated:     !run.InPlace,
	})
	if err != nil {
		return "", err
	}
	return r.SessionID, nil
}

// State implements run.Workplace.
func (w *workplace) State(ctx context.Context, id string) (*machine.State, error) {
	return w.base.session(ctx, w.who.Identity, id)
}

// Started implements run.Workplace.
func (w *workplace) Started(ctx context.Context, parents map[string]bool) (all []run.Started, err error) {
	states, err := w.base.children(ctx, w.who.Identity, parents)
	for _, s := range states {
		for _, r := range s.Replies {
			if r.Tool != machine.ToolStart || r.RequestID == nil {
				continue
			}

			if parts := strings.SplitN(*r.RequestID, "/", 3); len(parts) == 3 {
				all = append(all, run.Started{
					SessionID: s.SessionID,
					Parent:    *s.ParentSessionID,
					Session:   parts[0],
					Step:      parts[1],
				})
			}
		}
	}
	return all, err
}

// Step implements run.Workplace.
func (w *workplace) Step(ctx context.Context, id string, stepID *string) (*replies.Step, error) {
	return w.own.Step(w.asLeader(ctx), workflow.StepArgs{SessionID: &id, StepID: stepID})
}

// Changed implements run.Workplace.
func (w *workplace) Changed(ctx context.Context, s *machine.State, stepID string) string {
	changed, err := workflow.Changed(ctx, s.RootOf(w.root, stepID), s.Progress(stepID).Asked())
	switch {
	case err != nil:
		return fmt.Sprintf("Its outputs cannot be read as they were handed in: %v.", err)
	case changed != nil:
		return fmt.Sprintf("%s changed after the outputs were handed in, so nobody can pass them. Hand them in again "+
			"when they are final.", strings.Join(changed, ", "))
	}
	return ""
}

// Finish implements run.Workplace.
func (w *workplace) Finish(ctx context.Context, id, stepID string, u *judging.Submission) (*replies.Finish, error) {
	if u == nil {
		return w.own.Finish(w.asLeader(ctx),
			workflow.FinishArgs{SessionID: &id, StepID: &stepID, Outputs: json.RawMessage("{}"), Merged: true})
	}

	outputs, err := json.Marshal(outputs.Plain(u.Outputs))
	if err != nil {
		return nil, err
	}
	return w.own.Finish(w.asLeader(ctx),
		workflow.FinishArgs{SessionID: &id, StepID: &stepID, Outputs: outputs, Notes: u.Notes})
}

// Isolate implements run.Workplace.
func (w *workplace) Isolate(ctx context.Context, id, stepID, folder string) error {
	return w.base.isolate(w.asLeader(ctx), id, stepID, folder)
}

// Defined implements run.Workplace.
func (w *workplace) Defined(ctx context.Context, s *machine.State, stepID string) (*job.Step, error) {
	return w.base.defined(ctx, s, stepID)
}

// Moved implements run.Workplace.
func (w *workplace) Moved() <-chan struct{} { return w.moved }

// A stepCaller is the agent of a step: it may get and finish its step, and start workflows for it and do all their
// steps.
type stepCaller struct {
	tool.WorkflowCaller
	grant *grant
	state func(ctx context.Context, sessionID string) (*machine.State, error)
}

// use notes that a call is in flight until its result is called.
func (g *grant) use() (over func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inFlight--
		g.lastCall = time.Now()
	}
}

// lastActive returns when the agent was last in a call: now, if it is.
func (g *grant) lastActive() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight > 0 {
		return time.Now()
	}
	return g.lastCall
}

// own returns the session and the step of a call. Both default to the agent's own; others are refused.
func (c *stepCaller) own(ctx context.Context, sessionID, stepID *string) (ownSession, ownStep *string, err error) {
	if c.grant.Session == "" { // its token was withdrawn after the request was let in
		return nil, nil, session.NotNow(codes.OtherSession,
			"Your token was withdrawn, because the agent of its step has ended. Nothing was done.")
	}

	if sessionID == nil {
		sessionID = &c.grant.Session
	}
	if *sessionID != c.grant.Session {
		if begun, err := c.begun(ctx, *sessionID); begun || err != nil {
			return sessionID, stepID, err
		}
		return nil, nil, session.NotNow(codes.OtherSession,
			"You do the step '%s' of session '%s', and session '%s' is another one. Leave session_id out, or pass "+
				"that of a workflow that you have started.",
			c.grant.Step, c.grant.Session, *sessionID).With("session_id", c.grant.Session)
	}
	if stepID == nil {
		stepID = &c.grant.Step
	}
	if *stepID != c.grant.Step {
		return nil, nil, session.NotNow(codes.OtherStep,
			"You do the step '%s' alone, and '%s' is another one. Leave step_id out.", c.grant.Step,
			*stepID).With("step_id", c.grant.Step)
	}
	return sessionID, stepID, nil
}

// begun reports whether the agent has started a session, or one of which it is a step.
func (c *stepCaller) begun(ctx context.Context, id string) (bool, error) {
	for {
		c.grant.mu.Lock()
		is := slices.Contains(c.grant.children, id)
		c.grant.mu.Unlock()

		if is {
			return true, nil
		}

		s, err := c.state(ctx, id)
		if code := session.CodeOf(err); code == codes.UnknownSession || code == codes.BadSessionID {
			return false, nil
		}

		if err != nil || s.CalledAs == "" {
			return false, err
		}
		id = *s.ParentSessionID
	}
}

// request makes a request_id unique to the agent's step: other agents of the run, which are the same caller to the
// sessions, may choose the same one and must not get what this one started. Started reads it.
func (c *stepCaller) request(id string) *string {
	if session.BlankRequestID(id) != nil {
		return &id // the sessions will refuse it
	}
	return new(c.grant.Session + "/" + c.grant.Step + "/" + id)
}

func (c *stepCaller) Step(ctx context.Context, a workflow.StepArgs) (*replies.Step, error) {
	defer c.grant.use()()
	var err error
	if a.SessionID, a.StepID, err = c.own(ctx, a.SessionID, a.StepID); err != nil {
		return nil, err
	}
	return c.WorkflowCaller.Step(ctx, a)
}

func (c *stepCaller) Finish(ctx context.Context, a workflow.FinishArgs) (*replies.Finish, error) {
	defer c.grant.use()()
	var err error
	if a.SessionID, a.StepID, err = c.own(ctx, a.SessionID, a.StepID); err != nil {
		return nil, err
	}
	if a.RequestID != nil {
		a.RequestID = c.request(*a.RequestID)
	}

	// no person at its client could answer
	r, err := c.WorkflowCaller.Finish(connection.WithAsk(ctx, nil, nil, nil), a)
	if err == nil {
		if waiting := r.Waiting(); waiting != nil && waiting.Code == codes.PersonAwaited {
			reply := *r
			reply.Feedback = new(personFeedback)
			return &reply, nil
		}
	}
	if err == nil && *a.SessionID == c.grant.Session && r.Status != replies.NeedsWork {
		r = r.Alone("Your step is finished, and so is your work: end now.")
	}
	return r, err
}

// personFeedback tells an agent that its step waits for a person, about its outputs or about used up rounds.
const personFeedback = "Waiting: a person must decide about these outputs and has been asked to. Change nothing in " +
	"them, and do not wait for the answer: end now, unless you have other steps to do. If they are good enough, the " +
	"step is finished without you; if not, you are told what to do. This is not a failed try, and " +
	"quality_review_override_reason does not skip it."

func (c *stepCaller) Start(ctx context.Context, a workflow.StartArgs) (*replies.Start, error) {
	defer c.grant.use()()
	var err error
	if a.ParentSessionID, _, err = c.own(ctx, a.ParentSessionID, nil); err != nil {
		return nil, err
	}

	if c.grant.Isolated {
		return nil, session.NotNow(codes.OtherSession,
			"You work in a worktree of the item of step '%s', in which no workflow can be started. Do the step "+
				"without one, or have the user remove isolation from its for_each.", c.grant.Step)
	}
	parent := *a.ParentSessionID
	a.RequestID = cmp.Or(a.RequestID, new(uuid.NewString()))
	a.RequestID = c.request(*a.RequestID)
	r, err := c.WorkflowCaller.Start(ctx, a)
	if err != nil {
		return nil, err
	}
	id := r.SessionID
	if err := c.grant.Child(ctx, parent, id); err != nil {
		_, undo := c.WorkflowCaller.Abort(context.WithoutCancel(ctx),
			workflow.AbortArgs{SessionID: &id, Explanation: "It could not be recorded as a part of its run."})
		return nil, errors.Join(err, undo)
	}

	c.grant.mu.Lock()
	c.grant.children = append(c.grant.children, id)
	c.grant.mu.Unlock()
	return r, nil
}
