package connection

import (
	"context"
	"fmt"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// Start starts a session and pushes it onto the stack (seed 000, 001.3). The session is on disk when it
// returns.
func (c *Conn) Start(ctx context.Context, a workflow.StartArgs) (*replies.Start, error) {
	request := a.RequestID
	a.RequestID = nil
	return call(ctx, c, machine.ToolStart, request, &a, func(who workflow.Caller) (*replies.Start, string, error) {
		return c.start(ctx, who, a)
	}, func(r *replies.Start, id string, replayed bool) {
		r.SessionID = id
		if replayed {
			c.follow(ctx, r.BeginStep, id)
		}
		r.BeginStep = c.here(r.BeginStep)
		if replayed || a.Root {
			r.Stack = c.stackOf(ctx, id)
		}
		if !replayed || slices.ContainsFunc(r.Stack, func(e replies.StackEntry) bool { return e.SessionID == id }) {
			return
		}

		rows, err := c.server.Records().List(ctx, store.SessionQuery{IDs: []string{id}})
		if err == nil && len(rows) > 0 && rows[0].Status != string(machine.Active) {
			r.Notice = replies.Notice(r.Notice,
				fmt.Sprintf("This repeats the reply to the call that started session '%s', which has ended since (%s).",
					id, rows[0].Status))
		}
	})
}

func (c *Conn) start(ctx context.Context, who workflow.Caller, a workflow.StartArgs) (*replies.Start, string, error) {
	var stack []replies.StackEntry
	around := func(ctx context.Context, workflow string) (parent, notice string, err error) {
		if parent, stack, err = c.parent(ctx, a); err == nil {
			notice = c.duplicates(ctx, workflow, stack)
		}
		return parent, notice, err
	}
	started, err := c.server.Start(ctx, who, a, around)
	if started == nil {
		return nil, "", err
	}

	r := *started.Reply
	if !a.Root {
		c.push(started.Began)
		r.Stack = c.onTop(stack, started.Began)
	}
	c.moved(nil)
	return &r, started.Began[0].ID, err
}

// parent returns the parent of a new session, the named one or the top of the stack, and the stack. The top
// of a stateless connection may be another agent's.
func (c *Conn) parent(ctx context.Context, a workflow.StartArgs) (string, []replies.StackEntry, error) {
	id := a.ParentSessionID
	if named := a.SessionID; named != nil {
		if !machine.IsSessionID(*named) || id != nil && *id != *named {
			return "", nil, session.Wrong(codes.BadSessionID,
				"session_id '%s' says nothing to start_workflow: leave it out. The server knows its callers, and "+
					"begin_step.session_id of the reply is what the other tools take. To nest the workflow in a "+
					"session, pass that one's id as parent_session_id.", jsontext.Clip(*named, 100)).With("argument",
				"session_id")
		}
		id = named
	}
	if id == nil {
		rows, err := c.rows(ctx)
		if err != nil || len(rows) == 0 {
			return "", nil, err
		}
		return rows[len(rows)-1].ID, entriesOf(rows), nil
	}
	if !machine.IsSessionID(*id) {
		return "", nil, session.Wrong(codes.BadSessionID,
			"parent_session_id '%s' is not a session_id: expected 8 hexadecimal characters, as in begin_step and "+
				"stack.", jsontext.Clip(*id, 100))
	}

	row, err := c.resume(ctx, *id)
	if err != nil {
		return "", nil, err
	}
	if row.Status != string(machine.Active) {
		return "", nil, session.NotNow(codes.SessionEnded,
			"parent_session_id '%s' is a session that has ended (%s). Leave it out, or name an active one.", *id,
			row.Status)
	}
	return *id, c.stackOf(ctx, *id), nil
}
