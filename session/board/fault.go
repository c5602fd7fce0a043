package board

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// OrEmpty returns the text, or "" for nil.
func OrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// RetryAfter is how long to wait before calling again while the board is locked or the server restarts.
const RetryAfter = 5 * time.Second

// Fault turns a board's error into one that an agent can act on. Callers first handle errors about which they
// know more, such as the id that was not found.
func Fault(doing string, err error) error {
	if err == nil {
		return nil
	}

	if _, ok := errors.AsType[*session.Error](err); ok {
		return err
	}

	switch {
	case errors.Is(err, task.ErrFull):
		return session.Wrong(codes.DiskFull,
			"The task board cannot be written, and nothing was changed: %v. Then try again.", err).Because(err)
	case errors.Is(err, task.ErrDamaged):
		return session.NotNow(codes.BoardDamaged, "The task board cannot be used: %v.", err).Because(err)
	case errors.Is(err, task.ErrVersion):
		return session.NotNow(codes.BoardVersion, "The task board cannot be used: %v.", err).Because(err)
	case errors.Is(err, task.ErrClosed):
		return session.NotNow(codes.ShuttingDown,
			"The server is shutting down. Try again when it is back.").Because(err).Wait(RetryAfter)
	case errors.Is(err, task.ErrStopping):
		return session.NotNow(codes.AttemptRunning,
			"The agent is being stopped, and what is queued now would be dropped. Try again when it has ended.").
			Next("see its state", "get_attempt").Because(err).Wait(RetryAfter)
	case errors.Is(err, task.ErrDeleting):
		return session.NotNow(codes.BeingDeleted,
			"The task is being deleted, so nothing was started. Create a new task.").
			Next("delete it after an interruption", "delete_task").Because(err)
	case errors.Is(err, task.ErrBlocked):
		blocked, _ := errors.AsType[*task.BlockedError](err)
		var ids []string
		for _, by := range blocked.By {
			ids = append(ids, by.ID)
		}
		return session.NotNow(codes.Blocked, "Nothing was started: %v.", blocked).
			Next("set a task done once it is, or change what this one depends on", "update_task").
			With("blocked_by", ids).Because(err)
	case errors.Is(err, task.ErrCycle):
		return session.Wrong(codes.DependencyCycle, "Nothing was changed: %v. Leave out one of these dependencies.",
			err).With("argument", "depends_on").Because(err)
	case errors.Is(err, task.ErrDependency):
		return session.Wrong(codes.BadDependency,
			"Nothing was changed: %v. Name tasks of the same project.", err).
			Next("see them", "list_tasks").With("argument", "depends_on").Because(err)
	case errors.Is(err, task.ErrReused):
		return session.Wrong(codes.RequestIDReused,
			"request_id was used before for a call with other arguments. Pass a new one, or repeat that call exactly.").
			With("argument", "request_id").Because(err)
	case errors.Is(err, task.ErrComments):
		return session.Wrong(codes.TooManyComments,
			"Nothing was changed: %v. Send those that wait first, or remove some.", err).With("argument",
			"comments").With("max", task.MaxComments).Because(err)
	case errors.Is(err, task.ErrQueued):
		return session.NotNow(codes.FollowUpQueued,
			"Another follow-up is queued, which comments do not replace. Send them when it has started, or drop it "+
				"first.").Next("drop it", "follow_up", "action", "cancel").Because(err)
	case errors.Is(err, store.ErrPending):
		return session.NotNow(codes.BoardBusy,
			"The database did not say whether it has made the change: %v. Check before you try again.", err).
			Next(seeEffect, "get_attempt").Because(err).Wait(RetryAfter)
	case errors.Is(err, context.DeadlineExceeded):
		return session.NotNow(codes.BoardBusy,
			"The task board did not answer in time: another process, such as a backup or a sqlite3 shell, may have "+
				"locked it. End that process if this continues. Check before you try again.").
			Next(seeEffect, "get_attempt").Because(err).Wait(RetryAfter)
	}

	return fmt.Errorf("%s: %w", doing, err)
}

// seeEffect is the next step after a change of which it is not known whether it was made.
const seeEffect = "see whether it had an effect"

// Passing reports whether an error of the stores may not occur again if the call is repeated: their database
// does not answer, or the disk is full.
func Passing(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPending) || errors.Is(err, task.ErrFull) ||
		errors.Is(err, syscall.ENOSPC)
}

// Midway returns an error of a call that may already have changed something: if the store does not answer,
// the error does not say that nothing has moved.
func Midway(err error) error {
	if !errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return session.NotNow(codes.BoardBusy,
		"This had begun when the database did not answer any more: %v. Check before you try again.",
		err).Next(seeEffect, "get_attempt").
		Because(fmt.Errorf("%w: %w", store.ErrPending, err)).Wait(RetryAfter)
}

// Deleted says that what a request_id created was deleted.
func Deleted(err error) error {
	return session.Wrong(codes.DeletedSince,
		"What the call with this request_id created was deleted since. Pass a new request_id to create another one.").
		With("argument", "request_id").Because(err)
}

// FaultOf is Fault for a call that names something by an id. If the board does not have it, the error has the
// given code, such as codes.UnknownTask, and names the tool that lists what exists.
func FaultOf(doing string, err error, code, field, id, list string) error {
	if errors.Is(err, task.ErrDeleted) {
		return Deleted(err)
	}
	if errors.Is(err, task.ErrNotFound) {
		what := strings.TrimPrefix(code, "unknown_")
		return session.Wrong(code, "There is no %s with the id %s.", what, id).
			Next("see those that exist", list).With("argument", field).With("value", id)
	}
	return Fault(doing, err)
}

// AttemptFault is FaultOf for an attempt.
func AttemptFault(doing string, err error, id string) error {
	return FaultOf(doing, err, codes.UnknownAttempt, "attempt_id", id, "list_task_attempts")
}

// RunFault is FaultOf for a run.
func RunFault(doing string, err error, id string) error {
	return FaultOf(doing, err, codes.UnknownRun, "run_id", id, "list_task_attempts")
}

// TaskFault is FaultOf for a task.
func TaskFault(doing string, err error, id string) error {
	return FaultOf(doing, err, codes.UnknownTask, "task_id", id, "list_tasks")
}

// cursor returns a list's error, explained if the cursor is the cause.
func cursor(p task.Page, err error) error {
	if !errors.Is(err, task.ErrCursor) {
		return err
	}
	return session.Wrong(codes.BadCursor,
		"cursor %q is not a cursor of this list with these filters. Pass next_cursor of the previous reply with the "+
			"same filters, or leave it out to start again.", Clip(p.Cursor)).
		With("argument", "cursor").With("value", Clip(p.Cursor)).Because(err)
}

// digest returns equal texts only for equal arguments.
func digest(args any) string {
	text, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("attempt: arguments of type %T: %v", args, err)) // args were decoded from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Stamp formats a time for replies.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// StampOrNull is Stamp for a time that may be nil.
func StampOrNull(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(Stamp(*t))
}

// OrNull returns nil for an empty text.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// NonNil returns l, or an empty list for nil, so that JSON never has null.
func NonNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
