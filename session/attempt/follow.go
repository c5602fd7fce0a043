package attempt

import (
	"cmp"
	"context"
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

// id returns the attempt that a follow-up names, or nil if it names none.
func (a FollowUpArgs) id() (*string, error) {
	given := a.AttemptID
	if a.WorkspaceID != nil {
		if given != nil && !strings.EqualFold(*given, *a.WorkspaceID) {
			return nil, session.Wrong(codes.TwoTargets, "attempt_id (%q) and workspace_id (%q) differ. They are two names for the same argument: pass attempt_id alone.",
				board.Clip(*given), board.Clip(*a.WorkspaceID)).With("argument", "workspace_id").With("value", board.Clip(*a.WorkspaceID)).With("attempt_id", board.Clip(*given))
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

// FollowUp sends an agent another prompt, queues one for the end of its current run, or drops the
// queued one (seed 004, "MCP follow-up tool").
func (e *Engine) FollowUp(ctx context.Context, who session.Caller, a FollowUpArgs) (*FollowUpReply, error) {
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
	s, at, err := e.target(ctx, b, a)
	if err != nil {
		return nil, err
	}
	if a.Action == ActionCancel {
		a.Prompt, a.Variant = nil, nil
	} else if err := notComplete(at); err != nil {
		return nil, err
	} else if err := e.WithinBudget(ctx, b.Who, cfg); err != nil {
		return nil, err
	} else if !at.Elsewhere(e.Here) { // else its machine checks it
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
	r, err := e.followUp(ctx, b.View, a, s.ID, at)
	if err != nil {
		return nil, board.FaultOf("following up", err, codes.UnknownSession, "session_id", s.ID, board.RemedySession)
	}
	r.SessionID, r.AttemptID, r.Action = s.ID, at.ID, a.Action
	if r.Status == FollowUpStarted {
		e.wakeUp()
	}
	return r, nil
}

// checkFollowUp checks what does not need the board.
func checkFollowUp(a *FollowUpArgs) error {
	actions := []string{ActionSend, ActionQueue, ActionCancel}
	if !slices.Contains(actions, a.Action) {
		return session.Wrong(codes.UnknownAction, "There is no action %q. Use one of %s.", board.Clip(a.Action), strings.Join(actions, ", ")).
			With("argument", "action").With("value", board.Clip(a.Action)).With("allowed", actions)
	}
	given, err := a.id()
	if err != nil {
		return err
	}
	switch {
	case given == nil && a.SessionID == nil:
		return session.Wrong(codes.NoTarget, "Neither attempt_id nor session_id is given. Pass exactly one of them; list_task_attempts returns both.").
			With("argument", "attempt_id").With("value", nil)
	case given != nil && a.SessionID != nil:
		return session.Wrong(codes.TwoTargets, "Both attempt_id (%s) and session_id (%s) are given. Pass exactly one of them.", *given, board.Clip(*a.SessionID)).
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
		return session.Wrong(codes.MissingPrompt, "prompt is missing or blank, and %s needs one. Say what the agent should do.", a.Action).With("argument", "prompt")
	}
	return board.CheckText("prompt", *a.Prompt, board.MaxPrompt)
}

// target finds the session that a follow-up is for: of an attempt, its latest.
func (e *Engine) target(ctx context.Context, b store.View, a FollowUpArgs) (*task.Session, *task.Attempt, error) {
	id, _ := a.id() // already checked
	if id == nil {
		s, err := b.Session(ctx, *a.SessionID)
		if err != nil {
			return nil, nil, board.FaultOf("reading the session", err, codes.UnknownSession, "session_id", *a.SessionID, board.RemedySession)
		}
		at, err := b.Attempt(ctx, s.AttemptID)
		return s, at, board.FaultOf("reading the attempt", err, codes.UnknownSession, "session_id", *a.SessionID, board.RemedySession)
	}
	at, err := b.Attempt(ctx, *id)
	if err != nil {
		return nil, nil, board.AttemptFault("reading the attempt", err, *id)
	}
	if at.LatestSessionID == nil {
		remedy := "Call get_attempt until latest_session_id is not null, then call follow_up again."
		if !at.State.Open() {
			remedy = "Start a new attempt with start_task_attempt."
		}
		return nil, nil, session.NotNow(codes.NoSession, "Attempt %s has no session: its agent never ran (the attempt is %s). %s", at.ID, e.StateOf(&at.Situation).Words(), remedy).
			With("attempt_id", at.ID).With("state", string(e.StateOf(&at.Situation)))
	}
	s, err := b.Session(ctx, *at.LatestSessionID)
	return s, at, board.AttemptFault("reading the session", err, *id)
}

// followUp performs a follow-up of a session. The board decides what runs and what waits, since
// other servers write there too.
func (e *Engine) followUp(ctx context.Context, b store.View, a FollowUpArgs, id string, at *task.Attempt) (*FollowUpReply, error) {
	r := &FollowUpReply{Status: FollowUpStarted}
	for ctx.Err() == nil {
		if a.Action != ActionSend {
			var queue *task.Queued
			if a.Action == ActionQueue {
				queue = &task.Queued{Prompt: *a.Prompt, Variant: a.Variant}
			}
			before, idle, err := b.Queue(ctx, id, queue, a.Comments...)
			switch {
			case err != nil:
				return nil, err
			case a.Action == ActionCancel && before == nil:
				return &FollowUpReply{Status: FollowUpEmpty, Notice: new("Nothing was queued.")}, nil
			case a.Action == ActionCancel:
				return &FollowUpReply{Status: FollowUpCancelled, DroppedPrompt: &before.Prompt}, nil
			case !idle && before == nil:
				return &FollowUpReply{Status: FollowUpQueued, QueuedPrompt: a.Prompt}, nil
			case !idle:
				return &FollowUpReply{Status: FollowUpQueued, QueuedPrompt: a.Prompt, DroppedPrompt: &before.Prompt,
					Notice: new(fmt.Sprintf("It replaces the queued follow-up: %q.", board.Clip(before.Prompt)))}, nil
			}
			r.Notice = new("The agent was idle, so it was started at once.")
		}
		if err := e.beginFollowUp(ctx, b, a, id, at); err == nil {
			return r, nil
		} else if !errors.Is(err, task.ErrRunning) {
			return nil, err
		}
		if a.Action == ActionSend {
			return nil, session.NotNow(codes.AttemptRunning, "The agent of attempt %s is still running. Use action queue to send this prompt when it ends, or call stop_attempt first.", at.ID).
				With("attempt_id", at.ID)
		}
		// Another call has started an execution in the meantime: queue this one after all.
	}
	return nil, ctx.Err()
}

// beginFollowUp runs the prompt as soon as a slot is free.
func (e *Engine) beginFollowUp(ctx context.Context, b store.View, a FollowUpArgs, id string, at *task.Attempt) error {
	last, err := b.LatestExecution(ctx, at.ID)
	if err != nil {
		return err
	}
	if last.State.Open() {
		return task.ErrRunning
	}
	if at.Elsewhere(e.Here) {
		if err := e.unreachable(ctx, at); err != nil {
			return err
		}
	} else if fi, err := os.Stat(at.Workspace); (err != nil || !fi.IsDir()) && (at.Run == nil || at.Made()) { // the leader makes that of a run
		return session.NotNow(codes.WorkspaceGone, "The workspace %s of attempt %s no longer exists. Start a new attempt; the commits of this one are on the branch %s.", at.Workspace, at.ID, at.Branch).With("attempt_id", at.ID)
	}
	_, err = b.AddExecution(ctx, id, *a.Prompt, a.Variant, a.Comments...)
	return err
}
