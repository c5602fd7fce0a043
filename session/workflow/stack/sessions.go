package stack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"deepwork/session"
)

// sessions is the state of a stack, owned by its actor.
type sessions struct {
	Options
	stack   *Stack
	entries []*entry          // in the order they were pushed; ended ones stay for a while
	byID    map[string]*entry // the same
	ended   []Ended           // on this connection, the last keptEnded
	sweep   *time.Timer       // of a shared stack that is not empty

	compactAt int // number of entries at the next compact
}

// An entry is a session on a stack.
type entry struct {
	*Handle
	parent *entry
	used   time.Time // last call about it, or about one nested in it
	over   bool      // found to have ended by an earlier compact
}

// nearest returns e or its nearest ancestor that is active, or nil.
func (e *entry) nearest() *entry {
	for e != nil && !e.Active() {
		e = e.parent
	}
	return e
}

// Receive carries out one operation.
func (st *sessions) Receive(_ context.Context, do operation) error {
	do(st)
	return nil
}

// Stop unpins the sessions; the caller of Stack.Stop decides what to do with them.
func (st *sessions) Stop(context.Context) {
	if st.sweep != nil {
		st.sweep.Stop()
	}
	for _, e := range st.entries {
		e.Unpin()
	}
	st.entries, st.byID = nil, nil
	st.publish()
}

func (st *sessions) publish() {
	if st.stack.shared {
		return // there may be thousands, and callers only see their own
	}
	hs := make([]*Handle, len(st.entries))
	for i, e := range st.entries {
		hs[i] = e.Handle
	}
	st.stack.handles.Store(&hs)
}

func (st *sessions) push(links []Link) {
	for _, l := range links {
		old := st.byID[l.Handle.ID]
		if old != nil && old.Active() {
			l.Handle.Unpin() // it is already pinned here
			st.touch(old)
			continue
		}
		e := &entry{Handle: l.Handle, parent: st.byID[l.Parent].nearest()}
		st.entries = append(st.entries, e)
		st.byID[e.ID] = e
		st.touch(e)
	}
	if len(st.entries) >= st.compactAt {
		st.compact(func(*entry) bool { return false })
	}
	st.publish()
	st.sweepLater()
}

// compact drops ended sessions and those chosen by drop. One that ended since the last compact
// stays once more, since the call that ended it may be about to ask for its ancestors.
func (st *sessions) compact(drop func(*entry) bool) {
	var kept []*entry
	live := 0
	for _, e := range st.entries {
		switch {
		case e.Active() && !drop(e):
			e.parent = e.parent.nearest()
			live++
		case e.Active() || e.over:
			e.Unpin()
			continue
		}
		e.over = !e.Active()
		kept = append(kept, e)
	}
	st.entries, st.byID, st.compactAt = kept, make(map[string]*entry, len(kept)), len(kept)+live+16
	for _, e := range kept {
		st.byID[e.ID] = e
	}
}

// only implements Stack.Default.
func (st *sessions) only() (*Handle, error) {
	inner := map[*entry]bool{}
	for _, e := range st.entries {
		if e.Active() {
			inner[e.parent.nearest()] = true
		}
	}
	var leaves []*Handle
	for _, e := range st.entries {
		if e.Active() && !inner[e] {
			leaves = append(leaves, e.Handle)
		}
	}
	switch len(leaves) {
	case 0:
		return nil, ErrEmpty
	case 1:
		return leaves[0], nil
	}
	names, more := make([]string, 0, len(leaves)), ""
	ids := make([]string, 0, len(leaves))
	for _, h := range leaves {
		v := h.View()
		ids = append(ids, h.ID)
		names = append(names, fmt.Sprintf("%s (%s, step '%s')", h.ID, v.Workflow, v.Step))
	}
	if n := len(names) - listed; n > 0 {
		names, more = names[:listed], fmt.Sprintf(", and %d more", n)
	}
	return nil, session.NotNow("session_id_needed",
		"Several workflows are open side by side on this connection: %s%s. Pass session_id to say which one you mean.",
		strings.Join(names, ", "), more).With("session_ids", ids)
}

// listed is the maximum number of sessions in an error.
const listed = 20

// touch resets the idle time of a session and its ancestors.
func (st *sessions) touch(e *entry) {
	if !st.stack.shared {
		return
	}
	now := time.Now()
	for e = e.nearest(); e != nil; e = e.parent.nearest() {
		e.used = now
	}
}

// maxSweep limits how late a shared stack notices that Idle became shorter.
const maxSweep = 10 * time.Minute

// sweepLater schedules the sweep of a shared stack, unless it is empty.
func (st *sessions) sweepLater() {
	if !st.stack.shared || st.sweep != nil || len(st.entries) == 0 {
		return
	}
	st.sweep = time.AfterFunc(min(max(st.Idle()/8, time.Millisecond), maxSweep), func() {
		// The error means that the engine has stopped.
		_ = st.stack.ref.Tell(context.Background(), (*sessions).sweepNow)
	})
}

// sweepNow drops ended sessions and releases idle ones.
func (st *sessions) sweepNow() {
	var idle []*Handle
	now, after := time.Now(), st.Idle()
	st.compact(func(e *entry) bool {
		over := now.Sub(e.used) >= after
		if over {
			idle = append(idle, e.Handle)
		}
		return over
	})
	st.Release(idle)
	st.sweep = nil
	st.sweepLater()
}
