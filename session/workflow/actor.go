package workflow

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"deepwork/actor"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// message is what a session's actor receives.
type message interface{ sessionMessage() }

// A caller is who makes a call, and how it is told from others.
type caller struct {
	Identity string
	Call     machine.Call
}

type finishMessage struct {
	caller
	Args     FinishArgs
	Arrived  time.Time
	Gone     <-chan struct{} // closed when the caller no longer waits
	Progress ProgressFunc    // may be nil
	Conn     *Conn           // is told once the transition is durable
	Reply    actor.Reply[*finished]

	// Step is the step that the call was found to be about when it came; it is
	// about no other when the session has moved on meanwhile. "" at first.
	Step string
	// Attempt is how many attempts the step had, this one included, when the call
	// joined the review that is its attempt; 0 where it has not.
	Attempt int
	outputs Outputs // as they were found valid
}

// gone tells whether the caller has left: then nothing must be moved, since
// nobody would know.
func (m *finishMessage) gone() bool {
	select {
	case <-m.Gone:
		return true
	default:
		return false
	}
}

type abortMessage struct {
	caller
	Explanation string
	Reply       actor.Reply[*AbortReply]
}

type stepMessage struct {
	caller
	Reply actor.Reply[*StepReply]
}

type goToMessage struct {
	caller
	StepID string
	Reply  actor.Reply[*GoToReply]
}

// takeUpMessage asks for the session to be on a stack.
type takeUpMessage struct {
	caller
	Reply actor.Reply[*stack.Handle]
}

// replayMessage asks for the reply to a call with a request_id that was done.
type replayMessage struct {
	caller
	Reply actor.Reply[*machine.StoredReply]
}

func (*finishMessage) sessionMessage() {}
func (abortMessage) sessionMessage()   {}
func (stepMessage) sessionMessage()    {}
func (goToMessage) sessionMessage()    {}
func (takeUpMessage) sessionMessage()  {}
func (replayMessage) sessionMessage()  {}

// A sessionActor owns the state of one session. Whatever it acknowledges is on
// disk before the reply goes out; when it dies, the next one reads that.
type sessionActor struct {
	engine *Engine
	id     string
	handle *stack.Handle
	state  *State

	reviews   map[string]*review // that run, by step
	uncertain error              // a transition that may have been made or not
}

// Start loads the session and makes this server its owner. Its error is the
// answer to whoever asked for the session.
func (a *sessionActor) Start(ctx context.Context) error {
	s, err := a.engine.claim(a.id)
	if err != nil {
		_, passing := errors.AsType[syscall.Errno](err) // the next call may read it
		passing = passing || errors.Is(err, store.ErrPending)
		switch session.CodeOf(err) {
		case "unknown_session", "session_damaged":
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
	a.engine.requests.learn(s)
	if s.Status != Active {
		a.engine.over(a.id)
	} else {
		a.engine.tellMoved(nil, s) // a transition may have been made that nobody was told of
	}
	return nil
}

// Stop answers whoever waits for a review: it will not come. A session that no
// stack holds is given up, so that no server keeps it from others for nothing.
func (a *sessionActor) Stop(context.Context) {
	for _, r := range a.reviews {
		a.drop(r, session.NotNow("shutting_down", "The server is shutting down, and the review of step '%s' was cancelled; the attempt does not count. When it is back, make the same call again with session_id '%s'.", r.stepID, a.id))
	}
	a.giveUp()
	a.engine.records.Forget(a.id)
}

// Receive handles one call. A refusal is in the reply, and the state is as it was.
func (a *sessionActor) Receive(ctx context.Context, m message) error {
	switch m := m.(type) {
	case *finishMessage:
		answer(m.Reply, func() (*finished, error) { return a.finish(ctx, m) })
	case hashedMessage:
		answer(m.M.Reply, func() (*finished, error) { return a.hashed(ctx, m) })
		a.leave()
	case verdictMessage:
		a.verdict(m)
		a.leave()
	case dueMessage:
		a.due(m)
		a.leave()
	case holdMessage:
		a.holding(m)
		a.leave()
	case abortMessage:
		answer(m.Reply, func() (*AbortReply, error) { return a.abort(m) })
	case stepMessage:
		answer(m.Reply, func() (*StepReply, error) { return a.step(ctx, m) })
	case goToMessage:
		answer(m.Reply, func() (*GoToReply, error) { return a.goTo(ctx, m) })
	case takeUpMessage:
		answer(m.Reply, func() (*stack.Handle, error) { return a.takeUp(m) })
	case replayMessage:
		answer(m.Reply, func() (*machine.StoredReply, error) { return a.replay(m) })
	case wakeMessage:
		m.Reply.Send(struct{}{})
	default:
		return fmt.Errorf("session %s was sent a %T", a.id, m)
	}
	if a.uncertain != nil {
		return a.uncertain // what is on disk counts now
	}
	return nil
}

// answer sends what f returns, unless that is for later.
func answer[R any](to actor.Reply[R], f func() (R, error)) {
	switch r, err := f(); {
	case err == nil:
		to.Send(r)
	case err != errLater:
		to.Fail(err)
	}
}

// commit makes a transition: durable first, then known to all. A review whose
// step it moves on from is cancelled.
func (a *sessionActor) commit(next *State) error {
	if err := a.engine.records.Save(next); err != nil {
		if session.CodeOf(err) == codeUncertain {
			a.uncertain = err
		}
		return err
	}
	before := a.state
	a.state = next
	a.engine.tellMoved(before, next)
	a.engine.requests.learn(next)
	a.handle.Publish(next)
	if next.Status != Active {
		a.engine.over(a.id)
	}
	for _, r := range a.reviews {
		if !next.AwaitsReview(r.stepID) {
			a.drop(r, session.NotNow("step_moved_on", "Step '%s' of session '%s' has moved on, or the session has ended, while its review ran; the review was cancelled. get_step tells where the session is.", r.stepID, a.id))
		}
	}
	return nil
}

// repetition returns the stored reply to a call with a request_id that was carried
// out, or nil. It refuses callers that the session does not belong to, in the words
// for a session that does not exist: they are not to learn that it does.
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

// alias keeps a reply under the request_id of a call that repeats another one too.
func (a *sessionActor) alias(stored *machine.StoredReply, c machine.Call) error {
	next := a.state.Alias(stored, c)
	if next == a.state {
		return nil
	}
	if a.state.Status == Active {
		return a.commit(next)
	}
	// Nobody owns a session that has ended: another server may add to it just now.
	next, err := a.engine.records.Update(a.id, func(now *State) (*State, error) {
		if next := now.Alias(stored, c); next != now {
			return next, nil
		}
		return nil, nil
	})
	if session.CodeOf(err) == "session_unreadable" {
		err = notSaved(a.id, errors.Unwrap(err))
	}
	if err != nil {
		return err
	}
	a.state = next
	a.engine.requests.learn(next)
	a.handle.Publish(next)
	return nil
}

func (a *sessionActor) abort(m abortMessage) (*AbortReply, error) {
	r, err := a.repetition(m.caller)
	if err != nil {
		return nil, err
	}
	if r == nil && a.state.Status != Active {
		if r = a.state.ReplayAbort(m.Explanation); r == nil {
			return nil, a.state.Ended()
		}
		if err := a.alias(r, m.Call); err != nil {
			return nil, err
		}
	}
	if r != nil {
		return machine.ReplyOf[AbortReply](r)
	}
	next, reply := a.state.Abort(m.Call, m.Explanation, a.engine.now())
	return reply, a.commit(next)
}

func (a *sessionActor) goTo(ctx context.Context, m goToMessage) (*GoToReply, error) {
	if r, err := a.repetition(m.caller); err != nil {
		return nil, err
	} else if r != nil {
		return machine.ReplyOf[GoToReply](r)
	}
	if a.state.Status != Active {
		return nil, a.state.Ended()
	}
	def, err := a.engine.definitions.Current(ctx, a.state)
	if err != nil {
		return nil, err
	}
	to, err := a.state.PlanGoTo(def, m.StepID)
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
	next, r := a.state.GoTo(def, m.Call, to, m.StepID, a.engine.now(), texts)
	return r, a.commit(next)
}

// takeUp returns the handle of a session that is to be on the caller's stack.
func (a *sessionActor) takeUp(m takeUpMessage) (*stack.Handle, error) {
	_, err := a.repetition(m.caller)
	return a.handle, err
}

// replay returns the stored reply to a call that was carried out in this session.
func (a *sessionActor) replay(m replayMessage) (*machine.StoredReply, error) {
	r, err := a.repetition(m.caller)
	if r == nil && err == nil {
		return nil, session.NotNow("reply_forgotten",
			"The call with request_id '%s' was done in session '%s', but so much has followed that its reply is no longer kept. get_step tells where the session is.",
			*m.Call.RequestID, a.id).With("session_id", a.id)
	}
	return r, err
}
