package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"deepwork/session"
)

// The kinds of targets of requests.
const (
	OfAttempt = "attempt"
	OfPlace   = "place" // a project's folder on one machine, by task.Place.Key
)

// A Request asks the owner of a target, in whichever process, to act on it.
type Request struct {
	ID        string          // made by Ask
	Kind      string          // of the target: one of those above
	Target    string          // its id
	Action    string          // what to do, such as "stop" or "abort"
	Arguments json.RawMessage // nil means none
	Caller    session.Caller  // checked again by the owner
	AskedAt   time.Time       // set by Ask
}

// ErrNotAnswered reports that a request was stored but not answered within AnswerTime: it may still
// be carried out.
var ErrNotAnswered = errors.New("asked, not answered yet")

// Time limits of requests.
const (
	AnswerTime  = 5 * time.Second // that Ask waits for an answer
	RequestLife = time.Minute     // after which a request that nobody took is dropped
)

// Requests reach the owner of an attempt, or a server at a place, from another process. Each is carried out at
// most once.
type Requests interface {
	// Ask stores a request, waits for the answer, and returns it. An error of the owner is a
	// *session.Error, or else has its text. ErrNotAnswered means no answer in time, also if the
	// target has no owner.
	Ask(ctx context.Context, r Request) (json.RawMessage, error)
	// Serve carries out the requests about targets of a kind that this process owns: owns reports
	// that, quickly, and do acts and returns the answer (nil means none); several may run at once.
	// Serve blocks until ctx ends and every do has returned. It creates the store if it does not
	// exist.
	Serve(ctx context.Context, kind string, owns func(id string) bool, do func(ctx context.Context, r Request) (any, error))
}
