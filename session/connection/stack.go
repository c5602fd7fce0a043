package connection

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// A stack is what a connection remembers: the ids of the sessions that it began or resumed and of those
// around them, which never change. Which of them are active, and at which step, is read from the store at
// each call.
type stack struct {
	open    []string          // in order of arrival; ended sessions leave at the next look
	parents map[string]string // also of ended sessions, since others are nested in them
}

// push puts sessions on top, in this order. Those already on the stack keep their place.
func (s *stack) push(rows ...store.Session) {
	for _, row := range rows {
		s.parents[row.ID] = row.Parent
		if row.Status == string(machine.Active) && !slices.Contains(s.open, row.ID) {
			s.open = append(s.open, row.ID)
		}
	}
}

// keep drops the ended sessions.
func (s *stack) keep(active map[string]bool) {
	s.open = slices.DeleteFunc(s.open, func(id string) bool { return !active[id] })
	if len(s.parents) < 4*len(s.open)+64 {
		return
	}

	needed := map[string]string{}
	for _, id := range s.open {
		for up := id; up != ""; up = s.parents[up] {
			if _, seen := needed[up]; seen {
				break
			}
			needed[up] = s.parents[up]
		}
	}
	s.parents = needed
}

// around returns the nearest open session around a session, or "".
func (s *stack) around(id string) string {
	for n, up := 0, s.parents[id]; up != "" && n <= len(s.parents); n, up = n+1, s.parents[up] {
		if slices.Contains(s.open, up) {
			return up
		}
	}
	return ""
}

// A stackRead reads the stack once, for all calls that waited for it before it began.
type stackRead struct {
	done chan struct{} // closed when the following fields are set
	rows []store.Session
	err  error
}

// rows returns the active sessions on the connection's stack, bottom first, with what
// store.SessionQuery.Brief reads. They are shared with other calls.
func (c *Conn) rows(ctx context.Context) ([]store.Session, error) {
	c.mu.Lock()
	r, running := c.next, c.reading
	if r != nil {
		c.mu.Unlock()
		<-r.done
		return r.rows, r.err
	}
	r = &stackRead{done: make(chan struct{})}
	c.next = r
	c.mu.Unlock()

	defer close(r.done)
	if running != nil {
		<-running
	}
	runtime.Gosched() // calls that were answered by the same commit may join

	c.mu.Lock()
	c.next, c.reading = nil, r.done
	c.mu.Unlock()
	r.rows, r.err = c.read(context.WithoutCancel(ctx))
	return r.rows, r.err
}

// read is rows for one call.
func (c *Conn) read(ctx context.Context) ([]store.Session, error) {
	c.mu.Lock()
	ids := slices.Clone(c.stack.open)
	c.mu.Unlock()
	if len(ids) == 0 {
		c.last.Store(nil)
		return nil, nil
	}

	found, err := c.server.Records().List(ctx, store.SessionQuery{IDs: ids, Active: true, Brief: true})
	if err != nil {
		return nil, err
	}

	at := make(map[string]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}

	slices.SortFunc(found, func(a, b store.Session) int { return cmp.Compare(at[a.ID], at[b.ID]) })
	if len(found) < len(ids) {
		active := map[string]bool{}
		for _, row := range found {
			active[row.ID] = true
		}

		c.mu.Lock()
		for _, id := range c.stack.open {
			if _, read := at[id]; !read { // pushed meanwhile
				active[id] = true
			}
		}

		c.stack.keep(active)
		c.mu.Unlock()
	}

	all := entriesOf(found)
	c.last.Store(&all)
	return found, nil
}

// entriesOf returns the active sessions among rows as a stack.
func entriesOf(rows []store.Session) []replies.StackEntry {
	out := make([]replies.StackEntry, 0, len(rows))
	for _, row := range rows {
		if row.Status == string(machine.Active) {
			out = append(out, replies.StackEntry{
				Workflow:  row.Job + "/" + row.Workflow,
				Step:      row.Step,
				SessionID: row.ID,
			})
		}
	}
	return out
}

// Stack returns the connection's stack as it was last read, bottom first. It never blocks. Without a
// connection it is empty; see StackOf.
func (c *Conn) Stack() []replies.StackEntry {
	if last := c.last.Load(); last != nil {
		return *last
	}
	return []replies.StackEntry{}
}

// StackOf returns the stack for a call with this session_id, bottom first: as it was last read on the
// connection or, without a connection, the session and those around it. nil means no session_id.
func (c *Conn) StackOf(ctx context.Context, sessionID *string) []replies.StackEntry {
	if sessionID == nil || !c.stateless {
		return c.Stack()
	}
	return c.stackOf(ctx, *sessionID)
}

// stackOf returns the stack for the reply to a call that has moved a session. Sessions that cannot be read
// are left out, since the call has succeeded.
func (c *Conn) stackOf(ctx context.Context, id string) []replies.StackEntry {
	rows, err := c.rows(ctx)
	if c.stateless && id != "" {
		rows, err = c.server.Records().Ancestry(ctx, id)
		rows = slices.DeleteFunc(rows, func(row store.Session) bool { return row.Identity != c.identity })
	}
	if err != nil {
		c.server.Logger.Warn("the stack of a reply could not be read", "session", id, "error", err)
	}
	return entriesOf(rows)
}

// stackAfter is like stackOf for a call that has left its session with this row. It reads nothing if no other
// session can be on the stack.
func (c *Conn) stackAfter(ctx context.Context, row store.Session) []replies.StackEntry {
	c.mu.Lock()
	alone := c.stateless && row.Parent == "" || len(c.stack.open) == 1 && c.stack.open[0] == row.ID
	c.mu.Unlock()
	if !alone || row.Status != string(machine.Active) {
		return c.stackOf(ctx, row.ID)
	}

	all := entriesOf([]store.Session{row})
	if !c.stateless {
		c.last.Store(&all)
	}
	return all
}

// openStack returns the stack for get_workflows, which resumes nothing. Without a connection it is the
// identity's only session.
func (c *Conn) openStack(ctx context.Context) []replies.StackEntry {
	if !c.stateless {
		return c.stackOf(ctx, "")
	}

	found, more, err := c.server.resumable(ctx, c.identity, 1, c.server.inUse(ctx, c.server.open()))
	if err != nil || more {
		return []replies.StackEntry{}
	}
	return entriesOf(found)
}

// resumed returns what continues below an ended session (seed 000, 001.6.8).
func (c *Conn) resumed(ctx context.Context, id string) (workflow, step *string) {
	rows, err := c.server.Records().Ancestry(ctx, id)
	if err != nil {
		return nil, nil
	}
	for _, row := range slices.Backward(rows) {
		if row.ID != id && row.Status == string(machine.Active) && row.Identity == c.identity {
			return new(row.Job + "/" + row.Workflow), &row.Step
		}
	}
	return nil, nil
}

// target returns the id of the session that a call is about: the named one, which is resumed if it is not on
// the stack, or the only open one (seed 000, 001.4.4 and 001.4.5).
func (c *Conn) target(ctx context.Context, id *string) (string, error) {
	switch {
	case id == nil:
		return c.only(ctx)
	case !machine.IsSessionID(*id):
		return "", session.Wrong(codes.BadSessionID,
			"session_id '%s' is not a session_id: expected 8 hexadecimal characters, as in begin_step and stack.",
			jsontext.Clip(*id, 100))
	case c.stateless || c.holds(*id):
		return *id, nil // its actor checks the rest
	}

	_, err := c.resume(ctx, *id)
	return *id, err
}

// holds reports whether a session is on the connection's stack.
func (c *Conn) holds(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.stack.open, id)
}

// only returns the only session that has no others nested in it: on the stack or, without a connection, among
// the identity's sessions.
func (c *Conn) only(ctx context.Context) (string, error) {
	c.mu.Lock()
	if !c.stateless && len(c.stack.open) == 1 {
		defer c.mu.Unlock()
		return c.stack.open[0], nil
	}
	c.mu.Unlock()

	var rows []store.Session
	var err error
	more, s := false, &stack{parents: map[string]string{}}
	if c.stateless {
		rows, more, err = c.server.resumable(ctx, c.identity, keptListed, c.server.inUse(ctx, c.server.open()))
		slices.Reverse(rows)
		s.push(rows...)
	} else {
		rows, err = c.rows(ctx)
		s = &c.stack
	}
	if err != nil {
		return "", err
	}

	c.mu.Lock()
	inner := map[string]bool{}
	for _, row := range rows {
		inner[s.around(row.ID)] = true
	}
	c.mu.Unlock()
	leaves := slices.DeleteFunc(slices.Clone(rows), func(row store.Session) bool { return inner[row.ID] })
	switch {
	case len(leaves) == 0:
		return "", c.noSession(ctx)
	case len(leaves) == 1 && !more:
		return leaves[0].ID, nil
	}

	var b strings.Builder
	if c.stateless {
		slices.Reverse(leaves)
		b.WriteString("Several workflows are active, and this request comes without a connection to tell them apart. " +
			"Pass session_id to say which one you mean:")
		ids := c.server.listSessions(&b, leaves, more)
		return "", session.NotNow(codes.SessionIDNeeded, "%s", b.String()).With("session_ids", ids)
	}
	names := []string{}
	rest := ""
	ids := []string{}
	for _, row := range leaves {
		ids = append(ids, row.ID)
		names = append(names, fmt.Sprintf("%s (%s/%s, step '%s')", row.ID, row.Job, row.Workflow, row.Step))
	}
	if n := len(names) - keptListed; n > 0 {
		names, rest = names[:keptListed], fmt.Sprintf(", and %d more", n)
	}
	return "", session.NotNow(codes.SessionIDNeeded,
		"Several workflows are open side by side on this connection: %s%s. Pass session_id to say which one you mean.",
		strings.Join(names, ", "), rest).With("session_ids", ids)
}

// resume puts a session that is named by its id on the stack, with the sessions around it: after a crash,
// after a restart, or when its connection is gone. An ended session is returned, too, but only the sessions
// around it are put on the stack. resume writes nothing.
func (c *Conn) resume(ctx context.Context, id string) (store.Session, error) {
	rows, err := c.server.Records().Ancestry(ctx, id)
	if err != nil {
		return store.Session{}, err
	}
	row := rows[len(rows)-1]
	if err := c.server.MayServe(c.identity, row); err != nil || c.stateless {
		return row, err
	}

	c.mu.Lock()
	for _, up := range rows {
		if up.Identity == c.identity && up.AttemptID == row.AttemptID {
			c.stack.push(up)
		}
	}

	n := len(c.stack.open)
	c.mu.Unlock()
	c.server.Logger.InfoContext(ctx, "session resumed", "session", id, "sessions_on_stack", n)
	return row, nil
}

// An ended is a session that left this connection's attention: its last step was finished, or it has begun
// others, which calls are about from then on. The caller may have lost the reply.
type ended struct {
	workflow.Ended
	move int // the number of this transition on the connection
}

// keptEnded is how many ended sessions a connection remembers, and how many are read without a connection.
const keptEnded = 16

// moved records a transition on the connection, and the session that it ended or left for others, or nil.
func (c *Conn) moved(e *workflow.Ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moves++

	if e == nil {
		return
	}

	if c.ended = append(c.ended, ended{*e, c.moves}); len(c.ended) > keptEnded {
		c.ended = slices.Delete(c.ended, 0, 1)
	}
}

// lastEnded returns the session that ended on this connection, or began others, when this step was finished
// with the same outputs, or "". With now, that must have been the connection's last transition. Without a
// connection it searches the sessions of the identity that ended last, for calls that named no session: the
// repeated call named none.
func (c *Conn) lastEnded(ctx context.Context, stepID string, now bool, same func(outputs.Map) bool) string {
	if c.stateless {
		return c.lastEndedOf(ctx, stepID, now, same)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range slices.Backward(c.ended) {
		if (!now || e.move == c.moves) && e.Step == stepID && same(e.Outputs) {
			return e.SessionID
		}
	}

	return ""
}

func (c *Conn) lastEndedOf(ctx context.Context, stepID string, now bool, same func(outputs.Map) bool) string {
	newest := func(active bool, limit int) []store.Session {
		rows, err := c.server.Records().List(ctx, store.SessionQuery{
			Identity: c.identity,
			Attempt:  &c.server.Attempt,
			Active:   active,
			Ended:    !active,
			Limit:    limit,
		})
		if err != nil {
			return nil // the call itself reports the error
		}
		return slices.DeleteFunc(rows, func(row store.Session) bool { return row.MovedBy != "" })
	}
	rows := newest(false, keptEnded)
	if now {
		open := newest(true, keptEnded)
		rows = rows[:min(1, len(rows))]
		// the session, and those that it has begun with it
		if len(open) > 0 && (len(rows) == 0 || open[0].UpdatedAt.After(rows[0].UpdatedAt)) {
			last := open[0].UpdatedAt
			rows = slices.DeleteFunc(open, func(row store.Session) bool {
				return len(open) == 1 || !row.UpdatedAt.Equal(last)
			})
		}
	}
	for _, row := range rows {
		r, err := c.server.Records().Read(ctx, row.ID, nil)
		if err != nil || r.State.Status == machine.Aborted {
			continue
		}
		if stored := r.State.Replay(stepID, same); stored != nil && !stored.Named {
			return row.ID
		}
	}

	return ""
}

// push adds sessions that a call has begun to the stack.
func (c *Conn) push(rows []store.Session) {
	if c.stateless {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range rows {
		c.stack.push(row)
	}
}

// onTop returns the stack for the reply of a call that has read it and then begun sessions: rows, of which
// the first one has the others nested in it.
func (c *Conn) onTop(read []replies.StackEntry, rows []store.Session) []replies.StackEntry {
	if c.stateless {
		return append(read, entriesOf(rows[:1])...)
	}
	all := append(read, entriesOf(rows)...)
	c.last.Store(&all)
	return all
}
