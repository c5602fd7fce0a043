package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"deepwork/session/workflow"
)

const (
	// codeOwned is how a session is refused that another living server owns.
	codeOwned = "session_owned"
	// handedWithin is how long a session may stay its server's after its
	// connection was closed.
	handedWithin = 20 * time.Second
	// askAgain is how long who wants it waits before it asks again.
	askAgain = 5 * time.Millisecond
)

// comeBack is a client that crashes, and takes its work up on the same server.
func (a *agent) comeBack(ctx context.Context, s *account) error {
	if err := a.reconnect(ctx); err != nil {
		return err
	}
	a.crashes.Add(1)
	_, err := a.read(ctx, s, true)
	return err
}

// move closes the connection and takes the work up on the other server: there at
// once in half of the cases; else a connection to each wants the session, and
// exactly one gets it. Then the other server must refuse it.
func (a *agent) move(ctx context.Context, s *account) error {
	here := a.client.server
	there := a.servers[(here.index+1)%len(a.servers)]
	if err := a.client.leave(); err != nil {
		return fmt.Errorf("closing a connection to move: %w", err)
	}
	a.client = nil
	c, err := connect(ctx, there, false)
	if err != nil {
		return err
	}
	a.client = c
	if a.Group > 1 && a.chance(0.5) {
		rival, err := connect(ctx, here, false)
		if err != nil {
			return err
		}
		if err := a.contest(ctx, s, rival); err != nil {
			return errors.Join(err, rival.leave())
		}
	} else if err := a.takeUp(ctx, s); err != nil {
		return err
	}
	a.moves.Add(1)
	return a.spot(s)
}

// takeUp takes the session up, as soon as the other server has let go of it.
func (a *agent) takeUp(ctx context.Context, s *account) error {
	for began := time.Now(); ; {
		_, err := a.read(ctx, s, true)
		if refusedWith(err) != codeOwned {
			return err
		}
		if time.Since(began) > handedWithin {
			return wrongf("a session that was not handed over", "session %s, %v after its connection was closed: %v", s.id, handedWithin, err)
		}
		if err := wait(ctx, askAgain); err != nil {
			return err
		}
	}
}

// contest has two connections, one to each server, finish the same step of the
// session with different outputs, both again and again until one is told that it
// has. Whoever has, goes on with it; the other is refused.
func (a *agent) contest(ctx context.Context, s *account, rival *client) error {
	step := entries(a.Group)[1][0]
	sides := []*client{a.client, rival}
	events := make([]*event, len(sides))
	replies := make([]*workflow.FinishReply, len(sides))
	errs := make([]error, len(sides))
	won := make(chan struct{}) // closed when one has
	var once sync.Once
	var wg sync.WaitGroup
	for i, c := range sides {
		var args map[string]any
		events[i], args = a.finishing(s, step)
		args["session_id"] = s.id
		wg.Go(func() {
			// One that is a part of this agent, and calls over its own client.
			side := &agent{run: a.run, index: a.index, client: c}
			for began := time.Now(); ; {
				replies[i], errs[i] = do[workflow.FinishReply](ctx, side, kept, workflow.ToolFinish, args)
				if errs[i] == nil {
					once.Do(func() { close(won) })
				}
				if refusedWith(errs[i]) != codeOwned || time.Since(began) > handedWithin {
					return
				}
				select {
				case <-won:
					return
				default:
				}
				if wait(ctx, askAgain) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	winner := -1
	for i := range sides {
		switch {
		case errs[i] == nil && winner >= 0:
			return wrongf(wrongOwners, "session %s: both servers told that %s is finished, with different outputs", s.id, step)
		case errs[i] == nil:
			winner = i
			s.ack(events[i], sides[i].server.index)
		case refusedWith(errs[i]) == codeOwned:
			s.never(events[i])
		default:
			return errs[i]
		}
	}
	if winner < 0 {
		return wrongf("a session that was not handed over", "session %s, %v after its connection was closed: %v", s.id, handedWithin, errs[0])
	}
	a.client = sides[winner]
	if err := sides[1-winner].leave(); err != nil {
		return fmt.Errorf("closing a connection: %w", err)
	}
	r := replies[winner]
	if r.Status != workflow.NextStep || r.BeginStep != nil || len(r.PendingConcurrentSteps) != a.Group-1 {
		return wrongf("a wrong reply", "session %s: the reply to the end of %s, alone of its group, is %s", s.id, step, shown(r))
	}
	return a.sameStack(r.Stack, a.stack)
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
