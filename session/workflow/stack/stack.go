// Package stack holds the sessions that the callers of one connection work on, and how they are
// nested. One implementation serves single connections, whose calls go to the top by default, and
// the requests of an identity without a connection, which share one stack.
package stack

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/session"
)

// ErrEmpty is the error of Default for a stack without an active session.
var ErrEmpty = errors.New("the stack is empty")

// Options configure a Stack.
type Options struct {
	Name   string // of its actor
	Logger *slog.Logger

	// Idle makes the stack a shared one: its sessions are independent unless they name a parent,
	// and each leaves it after this long without a call about it, or about one nested in it. It is
	// called at each sweep. nil means a stack of one connection.
	Idle func() time.Duration
	// Release releases the sessions that left; it must not block. Only for shared stacks.
	Release func([]*Handle)
}

// A Stack is the sessions that one connection works on. Its actor owns the list; each session's
// handle says whether it is active, so an ended session leaves every stack at once. Methods may be
// called from any goroutine; their errors are those of a stopped stack, or wrap ctx.Err().
type Stack struct {
	ref     *actor.Ref[operation]
	shared  bool
	moves   atomic.Uint64             // transitions made on this connection
	handles atomic.Pointer[[]*Handle] // bottom first, published by the actor; empty if shared
}

// An operation is a message to a stack's actor.
type operation func(*sessions)

// New starts the actor of a stack. Its state is only in memory and survives a crash of the actor.
func New(system *actor.System, o Options) *Stack {
	s := &Stack{shared: o.Idle != nil}
	s.handles.Store(&[]*Handle{})
	st := &sessions{Options: o, stack: s, byID: map[string]*entry{}}
	s.ref = actor.Spawn(system, actor.Options{Name: o.Name, Logger: o.Logger},
		func() (actor.Behavior[operation], error) { return st, nil })
	return s
}

// ask has the stack's actor call f and returns its result.
func ask[R any](ctx context.Context, s *Stack, f func(*sessions) (R, error)) (R, error) {
	r, err := actor.Ask(ctx, s.ref, func(reply actor.Reply[R]) operation {
		return func(st *sessions) {
			if r, err := f(st); err != nil {
				reply.Fail(err)
			} else {
				reply.Send(r)
			}
		}
	})
	if errors.Is(err, actor.ErrStopped) {
		return r, Closing().Because(err)
	}
	return r, err
}

// Closing returns the refusal of a call on a closing connection.
func Closing() *session.Error {
	return session.NotNow("shutting_down", "This connection is closing. Connect again; its sessions can be resumed by their session_id.")
}

// Handles returns the sessions on the stack, bottom first, without waiting; some may have ended. It
// is empty for a shared stack.
func (s *Stack) Handles() []*Handle { return *s.handles.Load() }

// Find returns an active session on the stack, or nil.
func (s *Stack) Find(ctx context.Context, id string) (*Handle, error) {
	for _, h := range slices.Backward(s.Handles()) {
		if h.ID == id && h.Active() {
			return h, nil
		}
	}
	return ask(ctx, s, func(st *sessions) (*Handle, error) {
		e := st.byID[id]
		if e == nil || !e.Active() {
			return nil, nil
		}
		st.touch(e)
		return e.Handle, nil
	})
}

// Default returns the session of a call without a session_id: the only one that no other is nested
// in. Errors: ErrEmpty, or a *session.Error that lists them if there are several.
func (s *Stack) Default(ctx context.Context) (*Handle, error) {
	return ask(ctx, s, (*sessions).only)
}

// Top returns the id of a new session's default parent, or "" if the stack is empty or shared.
func (s *Stack) Top(ctx context.Context) (string, error) {
	return ask(ctx, s, func(st *sessions) (string, error) {
		for _, e := range slices.Backward(st.entries) {
			if !s.shared && e.Active() {
				return e.ID, nil
			}
		}
		return "", nil
	})
}

// A Link is a session to be pushed, and its parent on the stack.
type Link struct {
	Handle *Handle // pinned, if it is active
	Parent string  // session id, or ""
}

// Push puts sessions on top, in this order; those already there stay. An ended session is
// remembered for a while, for Chain. Push waits even if ctx has ended.
func (s *Stack) Push(ctx context.Context, links []Link) error {
	_, err := ask(context.WithoutCancel(ctx), s, func(st *sessions) (struct{}, error) {
		st.push(links)
		return struct{}{}, nil
	})
	return err
}

// Chain returns a session and its ancestors, bottom first, as far as they are active. The last one
// continues after the session has ended.
func (s *Stack) Chain(ctx context.Context, id string) ([]*Handle, error) {
	return ask(ctx, s, func(st *sessions) (out []*Handle, err error) {
		for e := st.byID[id].nearest(); e != nil; e = e.parent.nearest() {
			out = append(out, e.Handle)
		}
		slices.Reverse(out)
		return out, nil
	})
}

// Stop ends the actor and unpins the sessions. It returns the sessions that were on the stack,
// bottom first.
func (s *Stack) Stop(ctx context.Context) ([]*Handle, error) {
	held := s.Handles()
	return held, s.ref.Stop(ctx)
}
