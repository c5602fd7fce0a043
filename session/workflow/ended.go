package workflow

import (
	"context"
	"errors"
	"slices"
	"sync"

	"deepwork/actor"
)

// keptAwake is how many sessions that have ended stay in memory, for calls that
// are repeated: those that ended last. The others are read from their files; a
// server that ends hundreds of sessions a second would hold all of the last
// minutes otherwise.
const keptAwake = 64

// An endedQueue has the sessions that have ended and are in memory, the one that
// ended first in front.
type endedQueue struct {
	mu  sync.Mutex
	ids []string
}

// add puts a session at the end, if it is not there, and returns the one that
// may go, or "".
func (q *endedQueue) add(id string) (goes string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.ids, id) {
		return ""
	}
	q.ids = append(q.ids, id)
	if len(q.ids) <= keptAwake {
		return ""
	}
	goes = q.ids[0]
	q.ids = append(q.ids[:0], q.ids[1:]...)
	return goes
}

// isOver forgets a session that has ended, and has the actor of one that ended
// longer ago end too. It is called by actors, and does not wait.
func (e *Engine) isOver(id string) {
	e.handles.forget(id)
	goes := e.endedAwake.add(id)
	if goes == "" {
		return
	}
	e.aside(func() {
		ctx, cancel := context.WithTimeout(e.ctx, e.askTimeout)
		defer cancel()
		if err := e.sessions.Passivate(ctx, goes); err != nil && !errors.Is(err, actor.ErrBusy) {
			e.log.Debug("a session that has ended stays in memory", "session", goes, "error", err)
		}
	})
}
