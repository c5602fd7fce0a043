package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/store"
)

// codeUncertain is the code for a transition that may or may not have been made.
const codeUncertain = "session_uncertain"

// codeForeign is the code for a session whose file was not sealed here, or is an older version.
const codeForeign = "session_foreign"

// The codes for a session that another running server has, and for one that it took over from this
// server.
const (
	codeOwned = "session_owned"
	codeTaken = "owned_elsewhere"
)

// explain converts the errors of stores that are shared with other machines to ones that agents can
// act on; it returns any other error unchanged.
func explain(id string, err error) error {
	if o, ok := errors.AsType[*store.OwnedError](err); ok {
		return taken(id, o).Because(err)
	}
	return store.Refused(err)
}

// taken returns the error of a call in a session that another server has.
func taken(id string, o *store.OwnedError) *session.Error {
	if o.Owner == "" {
		return session.NotNow(codeTaken, "Another deepwork server has gone on with session '%s' meanwhile, and this call has changed nothing. Call get_step with its session_id to see where it is.", id).With("session_id", id).Wait(0)
	}
	return session.NotNow(codeTaken,
		"Session '%s' is in use by another deepwork server (%s), and this call has changed nothing. Go on there; or stop that server, and then call get_step here with the session_id.",
		id, o.Where).With("session_id", id).With("owner", o.Owner).Wait(10 * time.Second)
}

// unreadable converts a read error to one that agents can act on.
func (r *storedRecords) unreadable(id string, err error) error {
	err = explain(id, err)
	if _, ok := errors.AsType[*session.Error](err); ok {
		return err
	}
	if errors.Is(err, store.ErrNotFound) {
		if _, gone := os.Stat(r.state.Root); gone != nil {
			return projectGone(r.state.Root, gone)
		}
		e := unknownSession(id).Because(err)
		if r.files == nil {
			return e
		}
		if aside, lerr := r.files.Damaged(context.Background()); lerr == nil {
			for _, path := range aside {
				if strings.Contains(filepath.Base(path), "damaged_session_"+id) {
					e.Message += fmt.Sprintf(" Its file was damaged, and set aside as %s.", path)
					e.With("path", path)
				}
			}
		}
		return e
	}
	if f, ok := errors.AsType[*store.ForeignError](err); ok {
		return session.NotNow(codeForeign,
			"The file of session '%s' %s. Nothing of it was used, and it was left untouched. If the user knows where it comes from, they can look at it and take it over with `deepwork sessions adopt %s` in a terminal; else start the workflow again.",
			id, f.Finding(), id).With("session_id", id).With("path", f.Path).Because(err)
	}
	if d, ok := errors.AsType[*store.DamagedError](err); ok {
		return session.NotNow("session_damaged",
			"The file of session '%s' is damaged (%s). It is at %s; nothing was overwritten. Restore it from a backup, or start the workflow again: the files it made are where they were.",
			id, d.Reason, d.Path).With("session_id", id).With("path", d.Path).Because(err)
	}
	return session.NotNow("session_unreadable",
		"The file of session '%s' cannot be read: %v.", id, err).With("session_id", id).Because(err)
}

func projectGone(root string, err error) error {
	return session.NotNow("project_gone", "The project folder %s cannot be reached: %v. Restore it and call again.", root, err).Because(err)
}

func unknownSession(id string) *session.Error {
	return session.NotNow("unknown_session",
		"Session '%s' not found in this project. get_workflows lists the sessions that you can go on with, in resumable and stack; start_workflow begins a new one.", id).With("session_id", id)
}

// notSaved returns the error of a transition that could not be made durable, and was not made.
func notSaved(id string, err error) error {
	if err := store.Refused(err); session.CodeOf(err) == session.CodeNoStateFolder || session.CodeOf(err) == store.CodeUnavailable {
		return err
	}
	return session.NotNow("not_saved",
		"Session '%s' could not be saved, so nothing has moved: %v. Correct that and make the same call again.", id, err).With("session_id", id).Because(err)
}
