package sqlstore

import (
	"context"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A board is a Store in its role as the task board, for one caller or, if who is nil, for everybody.
// store.Board documents its methods.
type board struct {
	*Store
	who *session.Caller
}

func (b board) view() (*Store, *session.Caller) { return b.Store, b.who }

func (b board) For(who session.Caller) store.View { return board{b.Store, &who} }

// visibleTasks is the condition for the tasks, as t, that a caller sees. Its arguments are the caller's
// identity and group.
const visibleTasks = ` AND (t.identity = ? OR t.caller_group = ? AND t.caller_group <> '')`

// ofTask has queries for a row with its task, as t, by its id.
var ofTask = map[string]string{
	"task":    `FROM tasks t WHERE t.id = ?`,
	"attempt": `FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE a.id = ?`,
	"session": `FROM sessions s JOIN attempts a ON a.id = s.attempt_id JOIN tasks t ON t.id = a.task_id WHERE ` +
		`s.id = ?`,
	"execution": `FROM executions e JOIN attempts a ON a.id = e.attempt_id JOIN tasks t ON t.id = a.task_id WHERE ` +
		`e.id = ?`,
}

// give gives a task with its attempts to a group, or back to the owner if group is "". The group is then their maker,
// since what its members write in the task must not lead an agent to what only another caller sees.
func (t Tx) give(id, group string) {
	maker := session.LocalIdentity
	if group != "" {
		maker = "@" + group // no name of a token begins so
	}
	// with the status, whose triggers count the tasks again
	t.Exec(`UPDATE tasks SET identity = ?, caller_group = ?, status = status WHERE id = ?`, maker, group, id)
	t.Exec(`UPDATE attempts SET identity = ?, caller_group = ? WHERE task_id = ?`, maker, group, id)
}

// limited reports whether the caller sees only part of the board.
func limited(who *session.Caller) bool { return who != nil && !who.Owner }

// visibleTo restricts a query for tasks t to those that the caller sees.
func (b board) visibleTo(where string, args ...any) (string, []any) {
	if limited(b.who) {
		return where + visibleTasks, append(args, b.who.Identity, b.who.Group)
	}
	return where, args
}

// sees reports whether the caller sees something of a kind in ofTask, if it exists.
func (t Tx) sees(what, id string) bool {
	return !limited(t.who) || t.has(ofTask[what]+visibleTasks, id, t.who.Identity, t.who.Group)
}

// mustSee fails with ErrNotFound for something of a kind in ofTask that the caller does not see.
func (t Tx) mustSee(what, id string) {
	if !t.sees(what, id) {
		t.Fail(task.Missing(what, id))
	}
}

func (b board) VisibleBranches(ctx context.Context) ([]string, error) {
	return read(ctx, b, "listing the branches of attempts", func(t Tx) []string {
		query, args := b.visibleTo(`SELECT a.branch FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE TRUE`)
		return List[string](t, query, args...)
	})
}

func (b board) Maker(ctx context.Context, attemptID string) (session.Caller, error) {
	return read(ctx, b, "reading who made an attempt", func(t Tx) (c session.Caller) {
		if !t.First(`SELECT identity, caller_group FROM attempts WHERE id = ?`, []any{attemptID}, &c.Identity,
			&c.Group) {
			t.Fail(task.Missing("attempt", attemptID))
		}
		return c
	})
}
