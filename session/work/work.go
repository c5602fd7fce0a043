// Package work does what processes of a project are to do: judge what was handed in, follow a workflow at
// another system, remove worktrees for another machine. Each is a row of store.Work, and has a kind. A kind
// registers a handler with the Loop, of which each process that serves the project has one.
//
// A loop begins what is due, and what nobody does any more: at once if the runner was a process of this place
// that has ended, which its lock file shows, otherwise when the runner has not renewed the row in time. Only
// runners of this place are asked: those elsewhere have no lock file here. A runner that is released, since its
// process ends, is replaced at once.
//
// A claim only says who looks. Two processes may do the same work at once: one that was suspended does not know
// yet that it was replaced. So what must happen once is a transaction of the handler that swaps what the work is
// about, or removes the row only if that is still its runner's (store.SessionWrite.EndWork).
//
// To change it, know these, 9 concepts: Kind, Handler, Task and Loop; of a row (store.WorkRow) its runner, its place
// and its Outcome; gone, which a runner is whose process has ended, and lapsed, which a row is that was not renewed.
//
// To add a kind of work, write a handler, and register it with the loop of the process: see TestANewKindOfWork.
package work

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"deepwork/session/store"
)

// A Kind is a kind of work.
type Kind struct {
	Name  string
	Place string // at which this process does such work; "" means only what may be done anywhere
	Limit int    // of its rows that this process does at once; 0 means none
	Do    Handler
}

// A Handler does what a row is about, and says what becomes of the row. After an error, the row is due again
// after a pause that grows with the number of its claims. Its context ends if the handler must stop, with the
// reason as its cause: what it says then counts unless the row was taken over.
type Handler func(ctx context.Context, t *Task) (store.Outcome, error)

// The causes that end the context of a handler.
var (
	ErrStopped = errors.New("the work was asked to stop")
	ErrClosing = errors.New("the process is ending")
	// ErrTaken also ends the context after a transaction of the handler itself has removed the row.
	ErrTaken = store.ErrWorkTaken
)

// ErrEnded is returned by handlers that have ended the row in a transaction of their own.
var ErrEnded = errors.New("the row was ended by its handler")

// A Task is a row that this process does.
type Task struct {
	store.WorkRow // as it was claimed; it does not change

	of       *group
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when the handler has returned
	progress atomic.Pointer[json.RawMessage]

	// Owned by serve.
	stored  *json.RawMessage // the last stored progress
	renewed time.Time
}

// Report sets the progress, which is stored at the next renewal. The caller must not change it any more.
func (t *Task) Report(progress json.RawMessage) { t.progress.Store(&progress) }

// Closing returns a context that ends when the process must leave the row to others, also after the handler's own has
// ended because the work was asked to stop.
func (t *Task) Closing() context.Context { return t.of.ctx }
