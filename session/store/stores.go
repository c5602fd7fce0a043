package store

import (
	"context"
	"errors"
	"fmt"
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

// Refused converts an error to one that agents can act on if the stores were unavailable; it returns
// any other error unchanged: ErrPending, since whether something has changed is not known then, and one that
// has a code, which may say so, too, and why.
func Refused(err error) error {
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPending) || session.CodeOf(err) != "" {
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

// Stores are all stores of a project, as one process uses them. Package backend opens them.
type Stores struct {
	Members  Members
	Database Database
	// Others reports whether other processes use the stores.
	Others func(ctx context.Context) (bool, error)
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
	// Close leaves the other processes, which may then take over the agents and executions of this one,
	// and releases everything.
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
