package workflow

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"deepwork/actor"
	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/branch"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// A message is sent to a session's actor: a command.
type message interface {
	receive(ctx context.Context, a *sessionActor)
}

// A command is a function that the actor applies to the session's current state.
type command[R any] struct {
	do    func(ctx context.Context, a *sessionActor) (R, error)
	reply actor.Reply[R]
}

func (m command[R]) receive(ctx context.Context, a *sessionActor) {
	answer(m.reply, func() (R, error) { return apply(ctx, a, m.do) })
}

// An aboutSession is a message that says which session a call is about.
type aboutSession struct {
	message
	from context.Context // the caller's context
}

func (m aboutSession) receive(ctx context.Context, a *sessionActor) {
	telemetry.About(m.from, refOf(a.state))
	m.message.receive(ctx, a)
}

// A sessionActor holds this process's copy of one stored session, with its revision. It stores a change
// before it acknowledges it.
type sessionActor struct {
	engine *Engine
	id     string
	state  *machine.State
	row    store.Session
	wrote  bool // the command being applied has written
	// unsure is the revision that the command tried to store with its reply and that was not confirmed; 0
	// means none.
	unsure int64

	branchMade bool // the branch was made here, though the state still says that it is due

	kept *store.SessionPart // stored with the next transition, see keepHandIn; nil means nothing

	pin pin.Session

	gone bool // the session was pruned
}

// Start reads the session. Callers that use the session get its error.
func (a *sessionActor) Start(ctx context.Context) error {
	r, err := a.engine.records.Read(ctx, a.id, nil)
	if err == nil {
		a.state, a.row = r.State, r.Row
		a.engine.resendSpans(ctx, a.state)
	}
	return err
}

// Stop forgets the export.
func (a *sessionActor) Stop(context.Context) { a.engine.exports.Forget(a.id) }

// Receive handles one message. A refusal is sent in the reply and leaves the state unchanged.
func (a *sessionActor) Receive(ctx context.Context, m message) error {
	m.receive(ctx, a)
	if a.gone || a.state.Status != machine.Active {
		return actor.ErrRest // a repeated call reads the session again
	}
	return nil
}

// After these commit errors the session is read and the command applied again: another process was faster, or
// it is unknown whether the write was made.
var (
	errOvertaken = errors.New("another process has moved the session meanwhile")
	errUnsure    = errors.New("it is not known whether the transition was stored")
)

// maxApplied is how often a command is applied while other processes move the same session. Before try n+1 it
// waits up to n times applyPause. After maxUnsure unconfirmed commits the caller gets an error.
const (
	maxApplied = 20
	maxUnsure  = 3
	applyPause = 4 * time.Millisecond
)

// apply applies a command to the current state of the session. A successful write proves that the state was
// current. If the command wrote nothing (it read, refused or repeated) or another process wrote first, apply
// reads the session and applies the command again to the newer state. A command finds what an earlier
// application of it stored, since the record has its reply.
func apply[R any](
	ctx context.Context, a *sessionActor, do func(context.Context, *sessionActor) (R, error),
) (r R, err error) {
	unconfirmed := 0
	a.unsure = 0
	for n := range maxApplied {
		a.wrote = false
		r, err = do(ctx, a)
		unsure := errors.Is(err, errUnsure)
		again := unsure || errors.Is(err, errOvertaken)
		if unsure {
			unconfirmed++
		}
		if a.wrote && !again {
			return r, err
		}

		changed, failed := a.refresh(ctx)
		if failed == nil && !changed &&
			(unconfirmed >= maxUnsure || unconfirmed > 0 && errors.Is(err, store.ErrUnavailable)) {
			failed = err // an earlier, unconfirmed commit may still succeed
		}
		switch {
		case failed != nil && unconfirmed > 0:
			return r, session.NotNow(codes.SessionUncertain,
				"Session '%s' may have moved or not: the store did not confirm it (%v).", a.id, failed).
				Next("see where it is", "get_step", "session_id", a.id).
				Worded("Make the same call again, or call get_step to see where the session is.").
				With("session_id", a.id).Because(failed)
		case failed != nil:
			return r, failed
		case !changed && !again:
			a.engine.exports.Check(a.row, a.state)
			return r, err
		case again && n > 0:
			_ = wait.For(ctx, rand.N(time.Duration(n)*applyPause)) // the next try reports the end of ctx
		}
	}
	return r, session.NotNow(codes.SessionBusy,
		"Session '%s' is moved by several calls at once, and this one has changed nothing. Make the same call again.",
		a.id).With("session_id", a.id).Wait(time.Second)
}

// refresh reads the session if it has changed, and reports whether it had.
func (a *sessionActor) refresh(ctx context.Context) (changed bool, err error) {
	r, err := a.engine.records.Read(ctx, a.id, a.state)
	if err != nil {
		a.gone = session.CodeOf(err) == codes.UnknownSession
		return false, err
	}
	if r == nil {
		return false, nil
	}
	a.row = r.Row
	a.become(r.State)
	return true, nil
}

// become makes a stored state the current one.
func (a *sessionActor) become(next *machine.State) {
	a.leave(a.state, next)
	a.state = next
}

// commit stores a transition, then makes it visible. w is what else to store; nil means nothing.
func (a *sessionActor) commit(by *string, next *machine.State, w *store.SessionWrite) error {
	e := a.engine
	ctx := telemetry.Under(e.ctx, refOf(next))
	if err := e.enter(ctx); err != nil {
		return err
	}

	if w == nil {
		w = &store.SessionWrite{}
	}
	if a.kept != nil {
		w.Put = append(w.Put, *a.kept)
	}
	row := a.row
	if by != nil {
		row.MovedBy = *by
	}
	next.Place, next.BranchDue = e.Place, next.BranchDue && !a.branchMade
	next = e.sourced(a.state, next)
	written, err := e.records.Write(ctx, a.state, row, next, w)
	switch {
	case errors.Is(err, store.ErrPending):
		e.Logger.Warn("a transition was not confirmed; reading the session again", "session", a.id, "error", err)
		if n := len(next.Replies); n > 0 && next.Replies[n-1].Revision == next.Revision {
			a.unsure = next.Revision
		}
		return errUnsure
	case errors.Is(err, store.ErrWorkTaken), errors.Is(err, store.ErrRequested):
		return err
	case err != nil:
		return record.NotSaved(a.id, err)
	case !written:
		return errOvertaken
	}
	before := a.state
	a.wrote, a.kept = true, nil
	a.row = w.Session
	a.become(next)
	exportEnded(before, next)
	e.exports.Write(a.row, next)
	e.notifyMoved()
	return nil
}

// sourced returns next with the hash of this place's job.yml, if the session goes on with that version of it.
// At a place's first move it always does.
func (e *Engine) sourced(before, next *machine.State) *machine.State {
	hash := next.Definition.Source // as it was when taken over here; the file may have been edited since
	if next.Definition == before.Definition {
		here := e.definitions.Source(next.JobName)
		if _, known := next.Sources[e.placeKey()]; known && here != hash {
			return next // an edit has not been taken over yet
		}
		hash = here
	}
	if hash == "" {
		return next
	}
	return next.WithSource(e.placeKey(), hash)
}

// answer sends the result of f.
func answer[R any](to actor.Reply[R], f func() (R, error)) {
	if r, err := f(); err != nil {
		to.Fail(err)
	} else {
		to.Send(r)
	}
}

// repetition returns the stored reply to a repeated call with a request_id, or nil. A caller to whom the
// session does not belong gets the error for a missing session, so that it does not learn that the session
// exists.
func (a *sessionActor) repetition(c Caller) (*machine.StoredReply, error) {
	if !c.Anywhere {
		if err := a.engine.MayServe(c.Identity, a.row); err != nil {
			return nil, err
		}
	}

	if c.Call.RequestID == nil {
		own := a.state.OwnReply(c.Call)
		// others have moved the session since, which may have dropped the reply
		if own == nil && a.unsure != 0 && a.state.Revision > a.unsure {
			return nil, session.NotNow(codes.SessionUncertain,
				"Session '%s' may have been moved by this call or not: the store did not confirm it, and others have "+
					"moved the session since.", a.id).
				Next("see where it is", "get_step", "session_id", a.id).
				Worded("Call get_step to see where it is.").With("session_id", a.id)
		}
		return own, nil
	}

	r := a.state.StoredReply(c.Call.Tool, *c.Call.RequestID)
	if r != nil && r.ArgsDigest != c.Call.ArgsDigest {
		return nil, session.Wrong(codes.RequestIDReused,
			"request_id '%s' was used before with other arguments. Repeat a call with exactly the arguments it had, "+
				"or pass a fresh request_id.", *c.Call.RequestID)
	}
	return r, nil
}

// MayServe refuses sessions that agents of an identity do not get here: those of other roots, and those of
// other identities, whose existence it must not reveal.
func (e *Engine) MayServe(identity string, row store.Session) error {
	if row.Identity != identity {
		return e.records.Unknown(row.ID)
	}
	if row.AttemptID == e.Attempt {
		return nil
	}

	where := cmp.Or(row.Root, "another folder")
	return session.NotNow(codes.OtherRoot,
		"Session '%s' belongs to %s, and this server serves agents the sessions of %s only. Call a server that was "+
			"started there.", row.ID, where, e.Root).
		With("session_id", row.ID).With("root", row.Root)
}

func (a *sessionActor) abort(who Caller, explanation string) (*replies.Abort, error) {
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
		return machine.ReplyOf[replies.Abort](r)
	}
	next, reply := a.state.Abort(who.Call, explanation, a.engine.now())
	return reply, a.commit(who.MovedBy, next, nil)
}

func (a *sessionActor) goTo(ctx context.Context, who Caller, stepID string, all bool) (*replies.GoTo, error) {
	if r, err := a.repetition(who); err != nil {
		return nil, err
	} else if r != nil {
		return machine.ReplyOf[replies.GoTo](r)
	}

	if a.state.Status != machine.Active {
		return nil, a.state.Ended()
	}
	if err := a.branched(ctx, who); err != nil {
		return nil, err
	}

	def, err := a.pin.Definition(ctx, a.state)
	if err != nil {
		return nil, err
	}
	to, err := a.state.PlanGoTo(def, stepID)
	if err == nil && !who.Anywhere { // a person may use any session
		err = a.leavesEdits(ctx, def, to, stepID)
	}
	if err != nil {
		return nil, err
	}
	texts, err := a.engine.definitions.Texts(def, a.state.Restarts(def, to, stepID, all))
	if err != nil {
		return nil, err
	}
	if def, err = a.engine.definitions.Keep(def, texts); err != nil {
		return nil, err
	}
	if def, err = a.engine.protect(ctx, a.root(), a.state, def, a.state.Restarts(def, to, stepID, all)); err != nil {
		return nil, err
	}

	how, err := a.pin.Reviewing(ctx, a.state)
	if err != nil {
		return nil, err
	}
	next, r := a.state.GoTo(def, who.Call, to, stepID, all, a.engine.now(), texts)
	r.Notice = replies.Notice(r.Notice, a.pin.Unclosable(how, def, to))
	w, made := record.Defining(def), &nestedWrites{root: a.root()}
	if err := a.engine.calls(ctx, how, next, def, *cmp.Or(who.MovedBy, new("")),
		beginReply{&r.BeginStep, &r.ConcurrentSteps, &r.ConcurrentGroup}, made); err != nil {
		return nil, err
	}
	w.Also = made.writes
	if err := a.commit(who.MovedBy, next, w); err != nil {
		return nil, err
	}
	made.written(a.engine)
	return r, nil
}

// replay returns the stored reply to an earlier call in this session.
func (a *sessionActor) replay(ctx context.Context, who Caller) (*machine.StoredReply, error) {
	r, err := a.repetition(who)
	if err == nil {
		err = a.branched(ctx, who)
	}
	if r == nil && err == nil {
		return nil, session.NotNow(codes.ReplyForgotten,
			"The call with request_id '%s' was done in session '%s', but so much has followed that its reply is no "+
				"longer kept.", *who.Call.RequestID, a.id).
			Next("see where it is", "get_step", "session_id", a.id).
			Worded("get_step says where the session is.").With("session_id", a.id)
	}
	return r, err
}

// branched makes the branch of a session, unless that is done. The server that began the session may have
// been killed before, or git may have failed there; then the first call in the session's root makes it.
func (a *sessionActor) branched(ctx context.Context, who Caller) error {
	s := a.state
	if !s.BranchDue || s.Status != machine.Active || a.branchMade || who.Anywhere {
		return nil
	}

	err := branch.Tree{Root: a.engine.Root}.Make(ctx, s.BranchName, s.BranchStatus == replies.BranchCheckedOut)
	if err != nil {
		return session.NotNow(codes.GitFailed,
			"Session '%s' has begun, but its branch '%s' could not be made: %v.", a.id, s.BranchName, err).
			Next("end the session, if that cannot be corrected", machine.ToolAbort, "session_id", a.id).
			Worded("Correct that and call get_step with session_id '%s', which makes it; or end the session with "+
				"abort_workflow.", a.id).With("session_id", a.id).Because(err)
	}
	a.branchMade = true // the next transition records it
	return nil
}

// resendSpans exports again the spans that ended in the last minute before a session moved last, including
// those of its steps: the process that moved it may have been killed before sending them. It does so once per
// session.
func (e *Engine) resendSpans(ctx context.Context, s *machine.State) {
	if !telemetry.On() || s.Trace == "" {
		return
	}

	if _, done := e.resent.LoadOrStore(s.SessionID, true); done {
		return
	}

	if e.resends.Add(1)%10_000 == 0 { // an upper limit for memory: a span that is exported twice is still one span
		e.resent.Clear()
	}

	since := s.UpdatedAt.Add(-time.Minute)
	for _, span := range endedSpans(s, partsOf(s)) {
		if span.End.After(since) {
			telemetry.Export(span)
		}
	}

	for _, p := range partsOf(s) {
		if p.Child != "" && p.Done() && p.CompletedAt.After(since) {
			if r, err := e.records.Read(ctx, p.Child, nil); err == nil { // on an error its spans are lost
				e.resendSpans(ctx, r.State)
			}
		}
	}
}
