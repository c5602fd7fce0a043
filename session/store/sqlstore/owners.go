package sqlstore

import (
	"context"

	"deepwork/catalog/task"
	"deepwork/session"
)

// mine is the condition for the tasks, as t, that a caller sees. Its arguments are the caller's
// identity and group.
const mine = ` AND (t.identity = ? OR t.caller_group = ? AND t.caller_group <> '')`

// ofTask finds a row with its task, as t, by its id.
var ofTask = map[string]string{
	"task":      `SELECT 1 FROM tasks t WHERE t.id = ?`,
	"attempt":   `SELECT 1 FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE a.id = ?`,
	"session":   `SELECT 1 FROM sessions s JOIN attempts a ON a.id = s.attempt_id JOIN tasks t ON t.id = a.task_id WHERE s.id = ?`,
	"execution": `SELECT 1 FROM executions e JOIN attempts a ON a.id = e.attempt_id JOIN tasks t ON t.id = a.task_id WHERE e.id = ?`,
}

// limited reports whether the caller sees only a part of the board.
func limited(who *session.Caller) bool { return who != nil && !who.Owner }

// seen restricts a query for tasks t to those that the caller sees.
func (b board) seen(where string, args ...any) (string, []any) {
	if limited(b.who) {
		return where + mine, append(args, b.who.Identity, b.who.Group)
	}
	return where, args
}

// own returns ErrNotFound for something, one of ofTask, that does not exist or that the caller does
// not see.
func (t Tx) own(what, id string) error {
	if !limited(t.who) {
		return nil
	}
	found, err := t.First(ofTask[what]+mine, []any{id, t.who.Identity, t.who.Group}, new(int))
	if err == nil && !found {
		err = task.Missing(what, id)
	}
	return err
}

func (b board) VisibleBranches(ctx context.Context) ([]string, error) {
	return read(ctx, b, "listing the branches of attempts", func(t Tx) ([]string, error) {
		query, args := b.seen(`SELECT a.branch FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE TRUE`)
		return List[string](t, query, args...)
	})
}

func (b board) Maker(ctx context.Context, attemptID string) (session.Caller, error) {
	return read(ctx, b, "reading who made an attempt", func(t Tx) (c session.Caller, err error) {
		found, err := t.First(`SELECT identity, caller_group FROM attempts WHERE id = ?`, []any{attemptID}, &c.Identity, &c.Group)
		if err == nil && !found {
			err = task.Missing("attempt", attemptID)
		}
		return c, err
	})
}
