package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
)

// ErrUnavailable reports that the stores cannot be used now, since their database does not answer or
// this process could not renew its lease in time. Nothing was changed.
var ErrUnavailable = errors.New("the store does not answer")

// ErrBusy reports that another process has not let this one write for too long, perhaps since it was
// stopped in the middle of a change. Nothing was changed. It is an ErrUnavailable.
var ErrBusy = fmt.Errorf("%w: another process is writing", ErrUnavailable)

// An OwnedError reports that a record was not written, because another process has taken it over.
type OwnedError struct {
	ID    string // of the session
	Owner string // the process that owns it; "" if nobody does
	Where string // that process, for people: its process id and host
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("session %s is owned by another server (%s)", e.ID, e.Where)
}

// Refused converts an error to one that agents can act on if the stores were unavailable; it returns
// any other error unchanged, also ErrPending: whether something has moved is not known then.
func Refused(err error) error {
	code := session.CodeOf(err)
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPending) || code == CodeUnavailable || code == CodeBusy {
		return err
	}
	if errors.Is(err, ErrBusy) {
		return session.NotNow(CodeBusy, "The store of this project cannot be written now, and nothing of this call has been carried out: %v. Make the same call again; if this continues, look for a stopped deepwork process of this project, such as one suspended with Ctrl-Z, and continue or end it.", err).Because(err).Wait(time.Second)
	}
	return session.NotNow(CodeUnavailable, "The store of this project cannot be used now, and this call has changed nothing: %v. Make the same call again; if this continues, tell the user.", err).Because(err).Wait(time.Second)
}

// CodeBusy is the code of a call that failed with ErrBusy.
const CodeBusy = "store_busy"

// CodeUnavailable is the code of a call that failed with ErrUnavailable.
const CodeUnavailable = "store_unavailable"

// Records are the stores of sessions, and of what goes with them.
type Records interface {
	Sessions
	Definitions
	RequestIDs
	ActiveSessions
	// Close waits for the calls in progress until ctx ends; later ones that write fail.
	Close(ctx context.Context) error
}

// RecordOptions configure Records. Stores do not know what a record means: these functions say what
// they need of one.
type RecordOptions struct {
	Logger   *slog.Logger // nil discards
	ReadOnly bool         // nothing is written
	// Head returns the head of a record.
	Head func(body []byte) Head
	// Keys returns the calls with a request_id whose replies a record has.
	Keys func(id string, body []byte) []Key
}

// A Head is what stores need to know of a session.
type Head struct {
	Owner  string // the process that owns it; "" if nobody does
	Active bool   // it has not ended
	Caller Key    // whose session it is

	Number     int64  // for NoteNewest
	Definition string // its hash; "" if it has none
}

// A Lease is a Members whose processes own what they own only while they renew a lease: what a
// process owned may belong to another one when the term has changed.
type Lease interface {
	Members
	// Term returns the term of this process, which grows when its lease has ended, or ErrUnavailable
	// while it holds no lease that it can trust. It does not block.
	Term() (int64, error)
}

// Stores are all stores of a project, as one process uses them. Package backend opens them.
type Stores struct {
	Members  Members
	Database Database
	Changes  Changes
	// Records opens the records of sessions. The caller closes them before the stores.
	Records func(RecordOptions) (Records, error)
	// Others reports whether other processes use the stores.
	Others func(ctx context.Context) (bool, error)
	// Inspect finds what is wrong in the storage of the sessions, beyond the records themselves. A nil
	// function is for files, of which the records' store reports it.
	Inspect func(ctx context.Context, o RecordOptions) (session.Report, error)
	// Unavailable returns why calls of a process that has entered fail now, nil if they do not. It
	// does not block. A nil function is for stores that need no service.
	Unavailable func() error
	// Place is where this process runs, if other machines use the stores, too; else nil.
	Place *task.Place
	// Project is the name that all machines use for the project; "" if only this one uses the stores.
	Project string
	// Env is the environment with which the programs of agents find shared stores, as NAME=value.
	Env []string
	// GoneFor returns for how long no process at a place has held a lease, by the clock of shared stores:
	// 0 if one does.
	GoneFor func(ctx context.Context, p task.Place) (time.Duration, error)
	// Close leaves the other processes and releases everything: from then on they may take over what
	// this process owned.
	Close func(ctx context.Context) error
}

// Census returns Members.Alive with a cache, for one pass over many records: it checks each process
// once. The function is for one goroutine.
func Census(m interface{ Alive(id string) bool }) func(id string) bool {
	known := make(map[string]bool)
	return func(id string) bool {
		lives, asked := known[id]
		if !asked {
			lives = m.Alive(id)
			known[id] = lives
		}
		return lives
	}
}
