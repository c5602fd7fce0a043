package connection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// keptListed is the maximum number of sessions that an error lists; triedListed is the maximum number of rows
// read to find them.
const (
	keptListed  = 20
	triedListed = 10_000
)

// noSession returns the error for a call that no session fits, with the sessions that can be resumed (seed
// 000, 001.4.4 and 001.6.4).
func (c *Conn) noSession(ctx context.Context) error {
	// The list includes sessions of this server's own connections: it cannot tell an HTTP client that has
	// left without closing from a silent one, and the caller may be that client.
	found, more, err := c.server.resumable(ctx, c.identity, keptListed, c.server.inUseHere(ctx, nil))
	if err != nil {
		return err
	}
	if len(found) == 0 && more {
		return session.NotNow(codes.NoActiveSession, "No active workflow session.").
			Next("begin one", machine.ToolStart).
			Worded("Begin one with start_workflow; there are so many sessions that only the newest were looked at: " +
				"`deepwork sessions list` has those that could be resumed by their session_id.")
	}
	if len(found) == 0 {
		return session.NotNow(codes.NoActiveSession, "No active workflow session.").
			Next("begin one", machine.ToolStart).
			Worded("Begin one with start_workflow; get_workflows lists the available ones.")
	}

	var b strings.Builder
	ids := c.server.listSessions(&b, found, more)
	return session.NotNow(codes.NoActiveSession, "No active workflow session on this connection.").
		Next("begin one", machine.ToolStart).
		Worded("Begin one with start_workflow, or resume one of these by passing its session_id (get_step says where "+
			"it is):%s", b.String()).With("resumable", ids)
}

// listSessions writes a line for each session and returns their ids; more means that there are others.
func (s *Server) listSessions(b *strings.Builder, found []store.Session, more bool) []string {
	ids := make([]string, len(found))
	for i, row := range found {
		ids[i] = row.ID
		at := ""
		if place := s.placeOf(&row); place != "" {
			at = " on " + place
		}
		fmt.Fprintf(b, "\n- %s: %s/%s, at step '%s', last moved %s%s, goal: %s",
			row.ID, row.Job, row.Workflow, row.Step, row.UpdatedAt.UTC().Format("2006-01-02 15:04:05Z"), at,
			jsontext.Clip(strings.Join(strings.Fields(row.Goal), " "), 80))
	}

	if more {
		b.WriteString("\nOlder ones are not listed; `deepwork sessions list` has them all.")
	}
	return ids
}

// inUse returns a function that reports whether somebody probably works on a session: a living process last
// moved it over a connection. If that is this process, the session must be in open. The result is only a
// hint; nothing is refused because of it.
func (s *Server) inUse(ctx context.Context, open map[string]bool) func(*store.Session) bool {
	inUse := s.Stores.InUse(ctx)
	return func(row *store.Session) bool {
		return open[row.ID] || row.MovedBy != s.Stores.Members.ID() && inUse(row)
	}
}

// inUseHere is like inUse but reports false for sessions that last moved at other places: those are listed
// with their place, from which the caller can tell whether somebody works on them.
func (s *Server) inUseHere(ctx context.Context, open map[string]bool) func(*store.Session) bool {
	inUse := s.inUse(ctx, nil)
	return func(row *store.Session) bool { return open[row.ID] || s.placeOf(row) == "" && inUse(row) }
}

// placeOf describes the place that last moved a session, for people, or returns "" if it is this one.
func (s *Server) placeOf(row *store.Session) string {
	if !s.Stores.MovedElsewhere(row) {
		return ""
	}
	return row.PlaceOf().Describe()
}

// resumable returns the newest active sessions of an identity that are not in use, at most that many. more
// reports that there are, or may be, others.
func (s *Server) resumable(
	ctx context.Context, identity string, most int, inUse func(*store.Session) bool,
) (found []store.Session, more bool, err error) {
	for limit := 4 * most; ; limit = min(10*limit, triedListed) {
		rows, err := s.Records().List(ctx,
			store.SessionQuery{Identity: identity, Attempt: &s.Attempt, Active: true, Limit: limit})
		if err != nil {
			return nil, false, err
		}

		found = nil
		for i := range rows {
			if inUse(&rows[i]) {
				continue
			}
			if len(found) == most {
				return found, true, nil
			}
			found = append(found, rows[i])
		}
		if len(rows) < limit || limit == triedListed {
			return found, len(rows) == limit, nil
		}
	}
}

// resumable returns the newest sessions that the caller can resume, for get_workflows.
func (c *Conn) resumable(ctx context.Context) []replies.ResumableSession {
	found, _, err := c.server.resumable(ctx, c.identity, keptListed, c.server.inUseHere(ctx, c.server.open()))
	if err != nil {
		c.server.Logger.Warn("listing the sessions that can be resumed", "error", err)
	}
	out := make([]replies.ResumableSession, len(found))
	for i, s := range found {
		out[i] = replies.ResumableSession{
			Machine:   c.server.placeOf(&s),
			SessionID: s.ID, Workflow: s.Job + "/" + s.Workflow, Step: s.Step,
			Goal: jsontext.Clip(strings.Join(strings.Fields(s.Goal), " "), 200),
			Age:  session.Ago(c.server.Now().Sub(s.UpdatedAt)),
		}
	}

	return out
}

// duplicates says that a workflow is already in progress, on the stack or in a session that the caller can
// resume, and how to go on with it, or returns "". It looks at the caller's newest 20 sessions.
func (c *Conn) duplicates(ctx context.Context, workflow string, stack []replies.StackEntry) string {
	var same, ids []string
	for _, e := range slices.Backward(stack) {
		ids = append(ids, e.SessionID)
		if e.Workflow == workflow {
			same = append(same, fmt.Sprintf("session '%s' (on the stack, at step '%s')", e.SessionID, e.Step))
		}
	}

	rows, err := c.server.Records().List(ctx,
		store.SessionQuery{Identity: c.identity, Attempt: &c.server.Attempt, Active: true, Limit: keptListed})
	if err != nil {
		c.server.Logger.Warn("looking for other sessions of a workflow", "error", err)
	}

	inUse := c.server.inUse(ctx, c.server.open())
	for i, s := range rows {
		if s.Job+"/"+s.Workflow == workflow && !slices.Contains(ids, s.ID) && !inUse(&rows[i]) {
			same = append(same, fmt.Sprintf("session '%s' (at step '%s', last moved %s ago)", s.ID, s.Step,
				session.Ago(c.server.Now().Sub(s.UpdatedAt))))
		}
	}
	if same == nil {
		return ""
	}

	more := ""
	if n := len(same) - 3; n > 0 {
		same, more = same[:3], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s is already in progress in %s%s; this is another session of it. To go on with the earlier "+
		"one instead, call abort_workflow for this one, then get_step with the session_id of the earlier one.",
		workflow, strings.Join(same, ", "), more)
}
