package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
)

// ErrUnavailable reports that the stores cannot be used now, because their database does not answer. Nothing
// was changed.
var ErrUnavailable = errors.New("the store does not answer")

// ErrBusy reports that another process has kept this one from writing for too long, perhaps because it was
// stopped in the middle of a change. Nothing was changed. It is an ErrUnavailable.
var ErrBusy = fmt.Errorf("%w: another process is writing", ErrUnavailable)

// Refused converts an error to one on which agents can act, if the stores were unavailable. It returns other
// errors unchanged: ErrPending, which leaves open whether something has changed, and errors with a code,
// which may already say so and why.
func Refused(err error) error {
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPending) || session.CodeOf(err) != "" {
		return err
	}
	if errors.Is(err, ErrBusy) {
		return session.NotNow(codes.StoreBusy,
			"The store of this project cannot be written now, and nothing of this call has been carried out: %v. "+
				"Try again; if this continues, look for a stopped deepwork process of this project, "+
				"such as one suspended with Ctrl-Z, and continue or end it.", err).Because(err).Wait(time.Second)
	}
	return session.NotNow(codes.StoreUnavailable,
		"The store of this project cannot be used now, and nothing was changed: %v. Try again.", err).
		Ask("look into it if this continues").Because(err).Wait(time.Second)
}

// Stores are all stores of a project, as one process uses them. Package backend opens them.
type Stores struct {
	Members  Members
	Database Database
	// Others reports whether other processes use the stores.
	Others func(ctx context.Context) (bool, error)
	// Unavailable returns why calls fail now, or nil. It does not block. The function is nil for stores that
	// need no service.
	Unavailable func() error
	// Place is where this process runs, if other machines use the stores, too; else nil.
	Place *task.Place
	// Project is the name that all machines use for the project; "" if only this one uses the stores.
	Project string
	// Env has the environment with which agents' programs find shared stores, as NAME=value.
	Env []string
	// GoneFor returns how long no process at a place has used shared stores, by their clock; 0 if one does.
	GoneFor func(ctx context.Context, p task.Place) (time.Duration, error)
	// Close releases everything and signs this process off; others may then take over its agents.
	Close func(ctx context.Context) error
}

// InUse returns a function that reports whether somebody probably works on a session: the process that last
// moved it over a connection lives or, if that was at another place, any process there does. The function is
// for one pass over many sessions, by one goroutine.
func (s *Stores) InUse(ctx context.Context) func(row *Session) bool {
	alive, lives := Census(s.Members), map[task.Place]bool{}
	return func(row *Session) bool {
		if row.MovedBy == "" || !s.MovedElsewhere(row) {
			return row.MovedBy != "" && alive(row.MovedBy)
		}

		p := *row.PlaceOf()
		used, known := lives[p]
		if !known {
			gone, err := s.GoneFor(ctx, p)
			used = gone == 0 || err != nil // true if that cannot be determined
			lives[p] = used
		}
		return used
	}
}

// Mover says, for people, who last moved a session over a connection; "" if unknown.
func (s *Stores) Mover(row *Session) string {
	if s.MovedElsewhere(row) {
		return "a server on " + row.PlaceOf().Describe()
	}
	return s.Members.Describe(row.MovedBy)
}

// MovedElsewhere reports whether a session last moved at another place.
func (s *Stores) MovedElsewhere(row *Session) bool {
	p := row.PlaceOf()
	return s.Place != nil && p != nil && p.Elsewhere(*s.Place)
}

// Census returns Members.Alive with a cache that checks each process once. The function is for one pass over
// many records, by one goroutine.
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
