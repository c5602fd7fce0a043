package store

import (
	"context"
	"encoding/json"
	"time"
)

// The states of a LongCall, which are those of an MCP task. A call that has ended doesn't change any more.
const (
	CallWorking   = "working"
	CallCompleted = "completed"
	CallCancelled = "cancelled"
)

// A LongCall is a call of a tool that its caller got a task of MCP for, since its work takes longer.
type LongCall struct {
	ID        string // a random UUID
	Key       string // what it is about: of the calls with one key, at most one is working
	Identity  string // of the caller, the only one that sees it
	Tool      string
	Work      json.RawMessage // how the work is looked at; see package tasks
	Status    string
	Result    json.RawMessage // that of the call, once it is completed
	CreatedAt time.Time
	EndedAt   *time.Time // nil while it is working
}

// LongCallKeptFor is how long a call is kept after its end.
const LongCallKeptFor = 24 * time.Hour

// LongCalls stores calls that take long. Changes are durable when a method returns. Each may return the errors of a
// Board, or the context's.
type LongCalls interface {
	// Add stores a call that is working, unless one with its key is, and returns the one that is.
	Add(ctx context.Context, c *LongCall) (*LongCall, error)
	// LongCall returns a call of an identity, or task.ErrNotFound: it is unknown, another's, or is not kept any more.
	LongCall(ctx context.Context, identity, id string) (*LongCall, error)
	// End ends a call that is working, and forgets those that are not kept any more. It returns the call as it is
	// now, which another process may have ended before.
	End(ctx context.Context, identity, id, status string, result json.RawMessage) (*LongCall, error)
	// Working returns the calls that are working, of an identity or, if that's "", of all: at most limit, in
	// the order of their ids, from after an id on.
	Working(ctx context.Context, identity, after string, limit int) ([]LongCall, error)
	// Count returns how many calls of an identity are working.
	Count(ctx context.Context, identity string) (int, error)
}
