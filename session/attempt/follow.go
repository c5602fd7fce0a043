package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// id returns the attempt that a follow-up names, or nil.
func (a FollowUpArgs) id() (*string, error) {
	given := a.AttemptID
	if a.WorkspaceID != nil {
		if given != nil && !strings.EqualFold(*given, *a.WorkspaceID) {
			return nil, session.Wrong(codes.TwoTargets,
				"attempt_id (%q) and workspace_id (%q) differ. They are two names for the same argument: pass "+
					"attempt_id alone.",
				board.Clip(*given), board.Clip(*a.WorkspaceID)).With("argument", "workspace_id").With("value",
				board.Clip(*a.WorkspaceID)).With("attempt_id", board.Clip(*given))
		}
		given = a.WorkspaceID
	}
	if given == nil {
		return nil, nil
	}
	id, err := board.CheckID("attempt_id", *given)
	if err != nil {
		return nil, err
	}
	return &id, nil
}

// FollowUp sends an agent another prompt, queues one for the end of its current run, or drops the queued one
// (seed 004, "MCP follow-up tool"). Repeating a request_id has no further effect and returns the same reply.
func (e *Engine) FollowUp(ctx context.Context, who session.Caller, a FollowUpArgs) (*FollowUpReply, error) {
	named := a.RequestID
	a.RequestID = nil
	if err := checkFollowUp(&a); err != nil {
		return nil, err
	}

	b, cfg, err := e.View(ctx, who)
	if err != nil {
		return nil, err
	}

	if a.Action != ActionCancel {
		if err := e.MayStart(b.Who); err != nil {
			return nil, err
		}
	}

	request, done, err := b.Repeated(ctx, "follow_up", named, a)
	if err != nil {
		return nil, err
	}

	s, at, err := e.target(ctx, b, a)
	if err != nil {
		return nil, err
	}
	if done != "" {
		return a.repeatReply(s, done), nil
	}

	if a.Action == ActionCancel {
		a.Prompt, a.Variant = nil, nil
	} else if err := notComplete(at); err != nil {
		return nil, err
	} else if err := e.WithinBudget(ctx, b.Who, cfg); err != nil {
		return nil, err
	} else if !at.Elsewhere(e.Here) { // otherwise its machine checks it
		agent, err := e.choose(ctx, s.Executor, cmp.Or(a.Variant, s.Variant))
		if err != nil {
			return nil, err
		}
		if err := agent.check(ctx, *a.Prompt); err != nil {
			return nil, err
		}
	}

	ctx, cancel := context.WithTimeout(ctx, boardPatience)
	defer cancel()
	started, before, err := e.followUp(ctx, b.View, a, s.ID, at, request)
	if err != nil { // perhaps because a repetition of the same call was faster
		if earlier, unknown := b.FindRequest(ctx, request); unknown == nil && earlier != "" {
			return a.repeatReply(s, earlier), nil
		}
		return nil, board.FaultOf("following up", err, codes.UnknownSession, "session_id", s.ID, "list_task_attempts")
	}
	if started {
		e.wakeUp()
	}
	return a.reply(s, started, before), nil
}

// checkFollowUp checks everything that does not need the board.
func checkFollowUp(a *FollowUpArgs) error {
	actions := []string{ActionSend, ActionQueue, ActionCancel}
	if !slices.Contains(actions, a.Action) {
		return session.Wrong(codes.UnknownAction, "There is no action %q. Use one of %s.", board.Clip(a.Action),
			strings.Join(actions, ", ")).
			With("argument", "action").With("value", board.Clip(a.Action)).With("allowed", actions)
	}

	given, err := a.id()
	if err != nil {
		return err
	}
	switch {
	case given == nil && a.SessionID == nil:
		return session.Wrong(codes.NoTarget,
			"Neither attempt_id nor session_id is given. Pass exactly one of them.").
			Next("see both", "list_task_attempts").With("argument", "attempt_id").With("value", nil)
	case given != nil && a.SessionID != nil:
		return session.Wrong(codes.TwoTargets,
			"Both attempt_id (%s) and session_id (%s) are given. Pass exactly one of them.", *given,
			board.Clip(*a.SessionID)).
			With("argument", "session_id").With("value", board.Clip(*a.SessionID)).With("attempt_id", *given)
	}

	if a.SessionID != nil {
		id, err := board.CheckID("session_id", *a.SessionID)
		if err != nil {
			return err
		}
		a.SessionID = &id
	}
	if a.Action == ActionCancel {
		return nil
	}
	if a.Prompt == nil || strings.TrimSpace(*a.Prompt) == "" {
		return session.Wrong(codes.MissingPrompt,
			"prompt is missing or blank, and %s needs one. Say what the agent should do.",
			a.Action).With("argument", "prompt")
	}
	return board.CheckText("prompt", *a.Prompt, board.MaxPrompt)
}

// target returns the session that a follow-up continues: for an attempt, its latest.
func (e *Engine) target(ctx context.Context, b store.View, a FollowUpArgs) (*task.Session, *task.Attempt, error) {
	id, _ := a.id() // checked already
	if id == nil {
		s, err := b.Session(ctx, *a.SessionID)
		if err != nil {
			return nil, nil, board.FaultOf("reading the session", err, codes.UnknownSession, "session_id", *a.SessionID,
				"list_task_attempts")
		}

		at, err := b.Attempt(ctx, s.AttemptID)
		return s, at, board.FaultOf("reading the attempt", err, codes.UnknownSession, "session_id", *a.SessionID,
			"list_task_attempts")
	}
	at, err := b.Attempt(ctx, *id)
	if err != nil {
		return nil, nil, board.AttemptFault("reading the attempt", err, *id)
	}
	if at.LatestSessionID == nil {
		remedy := "Try again when it has run."
		if !at.State.Open() {
			remedy = "Start a new attempt."
		}
		return nil, nil, session.NotNow(codes.NoSession,
			"Attempt %s has no session: its agent never ran (the attempt is %s). %s", at.ID,
			e.StateOf(&at.Situation).Words(), remedy).
			With("attempt_id", at.ID).With("state", string(e.StateOf(&at.Situation)))
	}
	s, err := b.Session(ctx, *at.LatestSessionID)
	return s, at, board.AttemptFault("reading the session", err, *id)
}

// reply returns the reply to a follow-up that was started or, otherwise, replaced or dropped the queued one.
func (a FollowUpArgs) reply(s *task.Session, started bool, before *task.Queued) *FollowUpReply {
	r := &FollowUpReply{SessionID: s.ID, AttemptID: s.AttemptID, Action: a.Action, Status: FollowUpStarted}
	if before != nil {
		r.DroppedPrompt = &before.Prompt
	}
	switch {
	case started && a.Action == ActionQueue:
		r.Notice = new("The agent was idle, so it was started at once.")
	case started:
	case a.Action == ActionCancel && before == nil:
		r.Status, r.Notice = FollowUpEmpty, new("Nothing was queued.")
	case a.Action == ActionCancel:
		r.Status = FollowUpCancelled
	default:
		r.Status, r.QueuedPrompt = FollowUpQueued, a.Prompt
		if before != nil {
			r.Notice = new(fmt.Sprintf("It replaces the queued follow-up: %q.", board.Clip(before.Prompt)))
		}
	}
	return r
}

// repeatReply is reply for a repeated call, given the result of its request.
func (a FollowUpArgs) repeatReply(s *task.Session, done string) *FollowUpReply {
	var before *task.Queued
	started := json.Unmarshal([]byte(done), &before) != nil // before is the id of its execution
	r := a.reply(s, started, before)
	r.Notice = new(strings.TrimSpace(board.OrEmpty(r.Notice) +
		" This was done by an earlier call with this request_id, and more may have followed."))
	return r
}

// followUp does a follow-up of a session, and reports whether it was started and, if not, what was queued
// before. The board decides what runs and what waits, since other servers write to it, too.
func (e *Engine) followUp(
	ctx context.Context, b store.View, a FollowUpArgs, id string, at *task.Attempt, r task.Request,
) (started bool, before *task.Queued, err error) {
	for ctx.Err() == nil {
		if a.Action != ActionSend {
			var queue *task.Queued
			if a.Action == ActionQueue {
				queue = &task.Queued{Prompt: *a.Prompt, Variant: a.Variant}
			}
			before, idle, err := b.Queue(ctx, id, queue, r, a.Comments...)
			if err != nil || !idle || a.Action == ActionCancel {
				return false, before, err
			}
		}
		if err := e.beginFollowUp(ctx, b, a, id, at, r); err == nil {
			return true, nil, nil
		} else if !errors.Is(err, task.ErrRunning) {
			return false, nil, err
		}
		if a.Action == ActionSend {
			return false, nil, session.NotNow(codes.AttemptRunning,
				"The agent of attempt %s is still running.", at.ID).
				Next("send this when it ends", "follow_up", "action", ActionQueue, "attempt_id", at.ID).
				Next("stop it first", "stop_attempt", "attempt_id", at.ID).With("attempt_id", at.ID)
		}
		// Another call has started an execution meanwhile, so queue this follow-up after all.
	}
	return false, nil, ctx.Err()
}

// beginFollowUp runs the prompt as soon as a slot is free.
func (e *Engine) beginFollowUp(
	ctx context.Context, b store.View, a FollowUpArgs, id string, at *task.Attempt, r task.Request,
) error {
	last, err := b.LatestExecution(ctx, at.ID)
	if err != nil {
		return err
	}
	if last.State.Open() && last.StopAsked != nil { // then nothing can be queued either
		return task.ErrStopping
	}
	if last.State.Open() {
		return task.ErrRunning
	}

	if at.Elsewhere(e.Here) {
		if err := e.unreachable(ctx, at); err != nil {
			return err
		}
	} else if fi, err := os.Stat(at.Workspace); (err != nil || !fi.IsDir()) && (at.Run == nil || at.Made()) {
		// the leader makes the workspace of a run
		return session.NotNow(codes.WorkspaceGone,
			"The workspace %s of attempt %s no longer exists. Start a new attempt; the commits of this one are on "+
				"the branch %s.", at.Workspace, at.ID, at.Branch).With("attempt_id", at.ID)
	}

	_, err = b.AddExecution(ctx, id, *a.Prompt, a.Variant, r, a.Comments...)
	return err
}
