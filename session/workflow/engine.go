// Package workflow leads agents through the workflows of job.yml files: a pure
// state machine for one session, an actor that owns it, a stack of sessions per
// connection, and a store with one durable record per transition.
package workflow

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"deepwork/catalog"
	"deepwork/catalog/config"
)

// Options configure an Engine. The zero value of a field is its default.
type Options struct {
	Root    string // project root, absolute
	Catalog *catalog.Catalog
	Config  *config.Source
	Logger  *slog.Logger

	// Reviews false is --no-quality-gate: steps are not reviewed (seed 000, 001.1.3).
	Reviews bool
	// IdleAfter is how long a session's actor stays in memory unused; default 5 min.
	IdleAfter time.Duration
	Now       func() time.Time // default time.Now
}

// An Engine runs the sessions of one project in this process.
type Engine struct{}

// Open claims a place among the servers of the project and begins to learn
// which sessions are on disk. The project folder need not have a .deepwork yet.
func Open(ctx context.Context, o Options) (*Engine, error) { panic("not yet") }

// Close stops every session actor; what was acknowledged is on disk already.
// It returns the names of the actors that did not stop before ctx ended.
func (e *Engine) Close(ctx context.Context) []string { panic("not yet") }

// Connect makes the stack of one MCP connection. identity is the caller's name;
// a session is reached only by callers of the identity that started it.
func (e *Engine) Connect(identity string) *Conn { panic("not yet") }

// A Conn is one MCP connection's view of the engine: its stack of sessions. Its
// methods may be called concurrently; each returns a *session.Error when the
// call is refused, any other error when something broke.
type Conn struct{}

// Close forgets the stack; its active sessions stay resumable by their ids.
func (c *Conn) Close() { panic("not yet") }

// Stack returns the stack as it is now, bottom first. It never blocks.
func (c *Conn) Stack() []StackEntry { panic("not yet") }

// GetWorkflows lists the jobs (seed 000, 001.2).
func (c *Conn) GetWorkflows(ctx context.Context) (*WorkflowsReply, error) { panic("not yet") }

// StartArgs are the parameters of start_workflow (seed 000, 001.3.2 and 3).
type StartArgs struct {
	Goal            string  `json:"goal"`
	JobName         string  `json:"job_name"`
	WorkflowName    string  `json:"workflow_name"`
	InstanceID      *string `json:"instance_id"`
	ParentSessionID *string `json:"parent_session_id"`
	RequestID       *string `json:"request_id"`
}

// Start begins a session and pushes it onto the stack.
func (c *Conn) Start(ctx context.Context, a StartArgs) (*StartReply, error) { panic("not yet") }

// FinishArgs are the parameters of finished_step (seed 000, 001.4.2 and 3).
type FinishArgs struct {
	Outputs        json.RawMessage `json:"outputs"` // untyped: 001.5 judges it
	Notes          *string         `json:"notes"`
	OverrideReason *string         `json:"quality_review_override_reason"`
	SessionID      *string         `json:"session_id"`
	StepID         *string         `json:"step_id"`
	RequestID      *string         `json:"request_id"`
}

// Finish reports a step as finished (seed 000, 001.4).
func (c *Conn) Finish(ctx context.Context, a FinishArgs) (*FinishReply, error) { panic("not yet") }

// AbortArgs are the parameters of abort_workflow (seed 000, 001.6).
type AbortArgs struct {
	Explanation string  `json:"explanation"`
	SessionID   *string `json:"session_id"`
	RequestID   *string `json:"request_id"`
}

// Abort ends a session and takes it off the stack (seed 000, 001.6).
func (c *Conn) Abort(ctx context.Context, a AbortArgs) (*AbortReply, error) { panic("not yet") }

// StepArgs are the parameters of get_step.
type StepArgs struct {
	SessionID *string `json:"session_id"`
}

// Step reads the current step without moving; it takes a session up as well.
func (c *Conn) Step(ctx context.Context, a StepArgs) (*StepReply, error) { panic("not yet") }

// GoToArgs are the parameters of go_to_step.
type GoToArgs struct {
	StepID    string  `json:"step_id"`
	SessionID *string `json:"session_id"`
	RequestID *string `json:"request_id"`
}

// GoTo goes back to an earlier step, or begins the current one anew.
func (c *Conn) GoTo(ctx context.Context, a GoToArgs) (*GoToReply, error) { panic("not yet") }
