package workflow

import (
	"context"
	"errors"
	"syscall"
	"time"

	"deepwork/actor"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// A message is an operation for a session's actor.
type message func(ctx context.Context, a *sessionActor)

// A caller is the caller of a call, and what identifies the call.
type caller struct {
	Identity string
	Channel  string
	Person   bool // it may act as a person
	Call     machine.Call
}

// A sessionActor owns the state of one session. All that it acknowledges is on disk before the
// reply is sent; after a crash, the next one reads that.
type sessionActor struct {
	engine *Engine
	id     string
	handle *stack.Handle
	state  *machine.State
	term   int64 // in which this server has owned the session since it was read

	reviews map[string]*review // running ones, by step
	stale   error              // why the state must be read again
}

// Start loads the session and makes this server its owner. Its error is returned to callers that
// use the session.
func (a *sessionActor) Start(ctx context.Context) error {
	s, err := a.engine.claim(a.id)
	if err == nil {
		a.term, err = a.engine.term(s)
	}
	if e, ok := errors.AsType[*session.Error](err); ok && e.Code == codeOwned && a.engine.lease != nil && a.engine.held(a.id) {
		owner, _ := e.Details["owner"].(string)
		err = taken(a.id, &store.OwnedError{Owner: owner, Where: a.engine.records.Describe(owner)})
	}
	if err != nil {
		_, passing := errors.AsType[syscall.Errno](err) // the next call may succeed
		passing = passing || errors.Is(err, store.ErrPending)
		switch session.CodeOf(err) {
		case "unknown_session", "session_damaged", codeForeign, codeTaken:
			a.engine.handles.Lose(a.id)
		case "session_unreadable":
			if !passing {
				a.engine.handles.Lose(a.id)
			}
		}
		return err
	}
	a.state, a.reviews = s, map[string]*review{}
	a.handle = a.engine.handles.Of(s, false)
	a.handle.Publish(s)
	if s.Status != machine.Active {
		a.engine.over(a.id)
	} else {
		a.engine.notifyMoved(nil, s) // a transition may have been made without its notification
	}
	return nil
}

// Stop answers callers that wait for a review, which will not come. A session that no stack holds
// is released, so that other servers can use it.
func (a *sessionActor) Stop(context.Context) {
	for _, r := range a.reviews {
		a.drop(r, session.NotNow("shutting_down", "The server is shutting down, and the review of step '%s' was cancelled; the attempt does not count. When it is back, make the same call again with session_id '%s'.", r.stepID, a.id).Wait(5*time.Second))
	}
	a.giveUp()
	a.engine.records.Forget(a.id)
}

// Receive carries out one message. A refusal is in its reply, and leaves the state unchanged.
func (a *sessionActor) Receive(ctx context.Context, do message) error {
	do(ctx, a)
	return a.stale // if set, the state is read from the store again
}

// owns reads the session again if this server's lease has ended since it was read: another server may
// have taken it over. It returns an error if it has, or if this server has no lease now.
func (a *sessionActor) owns(ctx context.Context) error {
	term, err := a.engine.term(a.state)
	if err != nil || term == a.term {
		return err
	}
	if s, err := a.engine.records.Peek(a.id); err == nil && s.Owner == a.state.Owner && s.Seq == a.state.Seq {
		a.term = term // reclaimed: nobody took it
		return nil
	}
	for _, r := range a.reviews {
		a.drop(r, taken(a.id, &store.OwnedError{}))
	}
	a.stale = a.Start(ctx)
	return a.stale
}

// answer sends the result of f, unless it comes later.
func answer[R any](to actor.Reply[R], f func() (R, error)) {
	switch r, err := f(); {
	case err == nil:
		to.Send(r)
	case err != errLater:
		to.Fail(err)
	}
}

// commit makes a transition: first durable, then published. A review of a step that it leaves is
// cancelled.
func (a *sessionActor) commit(next *machine.State) error {
	if err := a.engine.records.Save(next); err != nil {
		switch session.CodeOf(err) {
		case codeTaken:
			a.engine.handles.Lose(a.id)
			a.stale = err
		case codeUncertain:
			a.stale = err
		}
		return err
	}
	before := a.state
	a.state = next
	a.engine.notifyMoved(before, next)
	a.handle.Publish(next)
	if next.Status != machine.Active {
		a.engine.over(a.id)
	}
	for _, r := range a.reviews {
		if !next.AwaitsReview(r.stepID) {
			a.drop(r, session.NotNow("step_moved_on", "Step '%s' of session '%s' has moved on, or the session has ended, while its review ran; the review was cancelled. get_step says where the session is.", r.stepID, a.id))
		}
	}
	return nil
}

// repetition returns the stored reply to a repeated call with a request_id, or nil. It refuses
// callers that the session does not belong to with the error for a missing session, so that they do
// not learn that it exists.
func (a *sessionActor) repetition(c caller) (*machine.StoredReply, error) {
	if c.Identity != a.state.Identity {
		return nil, unknownSession(a.id)
	}
	if c.Call.RequestID == nil {
		return nil, nil
	}
	r := a.state.StoredReply(c.Call.Tool, *c.Call.RequestID)
	if r != nil && r.ArgsDigest != c.Call.ArgsDigest {
		return nil, session.Wrong("request_id_reused",
			"request_id '%s' was used before with other arguments. Repeat a call with exactly the arguments it had, or pass a fresh request_id.", *c.Call.RequestID)
	}
	return r, nil
}

func (a *sessionActor) abort(who caller, explanation string) (*machine.AbortReply, error) {
	r, err := a.repetition(who)
	if err != nil {
		return nil, err
	}
	if r == nil && a.state.Status != machine.Active {
		if r = a.state.ReplayAbort(explanation); r == nil {
			return nil, a.state.Ended()
		}
	}
	if r != nil {
		return machine.ReplyOf[machine.AbortReply](r)
	}
	next, reply := a.state.Abort(who.Call, explanation, a.engine.now())
	return reply, a.commit(next)
}

func (a *sessionActor) goTo(ctx context.Context, who caller, stepID string, all bool) (*machine.GoToReply, error) {
	if r, err := a.repetition(who); err != nil {
		return nil, err
	} else if r != nil {
		return machine.ReplyOf[machine.GoToReply](r)
	}
	if a.state.Status != machine.Active {
		return nil, a.state.Ended()
	}
	def, err := a.definition(ctx)
	if err != nil {
		return nil, err
	}
	to, err := a.state.PlanGoTo(def, stepID)
	if err != nil {
		return nil, err
	}
	texts, err := a.engine.definitions.Texts(def, def.Workflow.Entries[to])
	if err != nil {
		return nil, err
	}
	if def, err = a.engine.definitions.Keep(def, texts); err != nil {
		return nil, err
	}
	how, err := a.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	next, r := a.state.GoTo(def, who.Call, to, stepID, all, a.engine.now(), texts)
	if notice := a.engine.unclosable(how, def, to); notice != "" {
		r.Notice = join(r.Notice, notice)
	}
	return r, a.commit(next)
}

// replay returns the stored reply to an earlier call in this session.
func (a *sessionActor) replay(who caller) (*machine.StoredReply, error) {
	r, err := a.repetition(who)
	if r == nil && err == nil {
		return nil, session.NotNow("reply_forgotten",
			"The call with request_id '%s' was done in session '%s', but so much has followed that its reply is no longer kept. get_step says where the session is.",
			*who.Call.RequestID, a.id).With("session_id", a.id)
	}
	return r, err
}
