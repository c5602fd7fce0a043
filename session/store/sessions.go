package store

import (
	"context"
	"errors"
	"time"

	"deepwork/catalog/task"
)

// Sessions stores the sessions of all roots of a project, and what goes with them. No process owns a session:
// a transition replaces one revision by the next, and fails if another process was faster. What a method
// writes is durable when it returns. ErrPending means that it may or may not have been written: the caller
// reads the session again and repeats the transition, which finds its own reply if it was. Errors are also
// those of a Board. Methods may be called from any goroutine.
type Sessions interface {
	// WriteSession makes a transition. It reports false, and writes nothing, if the session no longer has the
	// revision that the transition replaces. ErrWorkTaken: a row of w.EndWork does not belong to its runner.
	// ErrExists: a new session has the id of another one, or the branch of another active one. ErrRequested: the
	// call with w.Request has begun or moved another session.
	WriteSession(ctx context.Context, w *SessionWrite) (written bool, err error)
	// ReadSession returns a session. If it still has the known revision, Frame and Parts are left out; pass
	// -1 to read them. ErrNotFound: it does not exist.
	ReadSession(ctx context.Context, id string, known int64) (*SessionRecord, error)
	// Judged returns the body of the JudgedPart of a step, or "".
	Judged(ctx context.Context, id, step string) (body string, err error)
	// ListSessions returns the sessions that match.
	ListSessions(ctx context.Context, q SessionQuery) ([]Session, error)
	// Ancestry returns a session and those around it, active or not, the outermost first; none if there is no
	// such session.
	Ancestry(ctx context.Context, id string) ([]Session, error)
	// RemoveSessions removes ended sessions.
	RemoveSessions(ctx context.Context, ids []string) error

	// FindRequest returns the id of the session in which a call was made, or "".
	FindRequest(ctx context.Context, key Key) (session string, err error)

	// Definition returns a job definition that a transition stored, or ErrNotFound.
	Definition(ctx context.Context, hash string) ([]byte, error)
	// PruneDefinitions removes the definitions that no session needs and that were last stored longer than
	// kept ago, by the clock that dated them. It returns how many.
	PruneDefinitions(ctx context.Context, kept time.Duration) (int, error)
}

// ErrRequested reports that the call with a request_id has begun or moved another session.
var ErrRequested = errors.New("the call with this request_id has moved another session")

// A Session has the columns of a session's row, which are enough for lists and stacks.
type Session struct {
	ID         string
	Revision   int64
	Root       string // absolute path of the checkout or workspace where it began
	Parent     string // a session id, or ""
	Job        string
	Workflow   string
	Step       string // the current step
	Status     string // active, completed or aborted
	Goal       string
	Identity   string // the caller to whom it belongs
	MovedBy    string // the process that moved it last over a connection; "" if the last move came without one
	AttemptID  string // of the task board, in whose workspace it was begun; "" for a session of the project
	MachineID  string // the place that moved it last; "" in a store of one machine
	Machine    string // its name
	Place      string // the project's folder there
	Definition string // the hash of the one it goes on with; "" if none is stored
	Pinned     string // the hash of the definition that it began with
	Waiting    string // JSON: what may wait for a person; "" if nothing does
	Branch     string // the git branch that is made for it, which no other active session has; "" if none is
	// FailedTries is how many tries of its steps' checks and reviews have failed, with those that were withdrawn.
	FailedTries int
	StartedAt   time.Time
	UpdatedAt   time.Time
}

// PlaceOf returns the place that last moved the session, or nil in a store of one machine.
func (s *Session) PlaceOf() *task.Place {
	if s.MachineID == "" {
		return nil
	}
	return &task.Place{MachineID: s.MachineID, MachineName: s.Machine, Root: s.Place}
}

// A SessionPart is one element of a session's lists.
type SessionPart struct {
	Kind     string
	Key      string
	Position int64
	Body     string // JSON
}

// JudgedPart is the kind of the part with what a step has handed in for a person to judge, now and before;
// its key is the step's id. It does not belong to the session's state, is read only by Sessions.Judged, and
// is dropped when the session ends.
const JudgedPart = "judged"

// A SessionRecord is a whole session.
type SessionRecord struct {
	Session
	Frame string // JSON: the state without its lists
	Parts []SessionPart
}

// A SessionWrite is a transition of a session.
type SessionWrite struct {
	Session       // the row after the transition
	Before  int64 // the revision that the transition replaces; -1 makes a new session
	Frame   string
	Put     []SessionPart // the parts that differ
	Gone    []SessionPart // removed parts, only with kinds and keys
	Request *Key          // of the call that makes the transition
	Define  *Definition   // to store with it, unless already stored
	PutWork []WorkRow     // rows of work that this transition adds or replaces, after those of EndWork
	// EndWork has the rows of work that this transition removes, only with kinds and keys. If one has a Runner,
	// nothing is written unless the row is still that runner's.
	EndWork []WorkRow
	// Also has the transitions of other sessions that are made together with this one, or not at all: those
	// that a step begins because it is a workflow, and the one that goes on when such a workflow is complete.
	Also []*SessionWrite
}

// A Definition is a job's definition for a session.
type Definition struct {
	Hash string // the SHA-256 of Data
	Data []byte
}

// A SessionQuery selects sessions, most recently moved first. Zero fields select all.
type SessionQuery struct {
	IDs      []string
	Identity string
	Root     string // where they began
	Active   bool
	Ended    bool    // only completed or aborted ones
	Attempt  *string // of this attempt; "" for those of the project itself
	Parents  []string
	Waiting  bool      // only those that may wait for a person
	Before   time.Time // only those that last moved before this time
	Limit    int
	Brief    bool // reads only ID, Job, Workflow, Step and Status, in no order
}

// A Key identifies a call with a request_id: a digest of the id and its scope.
type Key [16]byte

// Members gives access to the processes of this machine that share the stores. presence.Member is one.
type Members interface {
	ID() string                      // the id of this process
	Enter(ctx context.Context) error // called before this process writes anything
	Alive(id string) bool            // reports whether a process of this machine lives; true if unknown
	Describe(id string) string       // for people; "" if unknown
}
