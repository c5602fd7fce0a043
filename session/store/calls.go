package store

import (
	"context"
	"encoding/json"
	"time"
)

// The states of a LongCall, which are those of an MCP task. An ended call does not change any more.
const (
	CallWorking   = "working"
	CallCompleted = "completed"
	CallCancelled = "cancelled"
)

// A LongCall is a call of a tool for which its caller got an MCP task, since its work takes longer.
type LongCall struct {
	ID        string // a random UUID
	Key       string // what the call is about: of the calls with one key, at most one is working
	Identity  string // of the caller; nobody else sees the call
	Tool      string
	Work      json.RawMessage // how to check the work; see package tasks
	Status    string
	Result    json.RawMessage // the result of the call, once it is completed
	CreatedAt time.Time
	EndedAt   *time.Time // nil while working
}

// LongCallKeptFor is how long a call is kept after its end.
const LongCallKeptFor = 24 * time.Hour

// LongCalls stores calls that take long. Changes are durable when a method returns. Each may return the
// errors of a Board, or the context's.
type LongCalls interface {
	// Add stores a working call and returns nil, unless one with its key is already working, which it
	// returns.
	Add(ctx context.Context, c *LongCall) (*LongCall, error)
	// LongCall returns a call of an identity, or task.ErrNotFound if it is unknown, belongs to another
	// identity, or is no longer kept.
	LongCall(ctx context.Context, identity, id string) (*LongCall, error)
	// End ends a working call, and forgets calls that are no longer kept. It returns the current call, which
	// another process may have ended earlier.
	End(ctx context.Context, identity, id, status string, result json.RawMessage) (*LongCall, error)
	// Working returns the working calls of an identity, or of all if that is "": at most limit, by id,
	// starting after an id.
	Working(ctx context.Context, identity, after string, limit int) ([]LongCall, error)
	// Count returns how many calls of an identity are working.
	Count(ctx context.Context, identity string) (int, error)
}
