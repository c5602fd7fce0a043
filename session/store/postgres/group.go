package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"deepwork/session/store"

	"github.com/jackc/pgx/v5/pgconn"
)

// Transitions share transactions, and thus syncs and round trips, only while all lanes are in use. Then
// further ones wait, and the next free lane takes them as a group. No transaction waits for the rows of
// several sessions: a group leaves out rows that are locked elsewhere. A transition that was left out, or
// whose group was refused, is tried alone, outside the lanes.
const (
	lanes      = 8       // concurrent transactions
	groupSize  = 32      // maximum number of members in a group
	groupBytes = 1 << 18 // of a group's texts; a larger transition goes alone
)

// A member is a transition that waits.
type member struct {
	write *store.SessionWrite
	turn  chan []*member // capacity 1: receives the group that it has to lead, or is closed after its group has ended
	made  *bool          // with err, the outcome; if both are nil, the transition must be tried alone
	err   error
}

// groups are the lanes of a store.
type groups struct {
	mu      sync.Mutex // guards the following fields
	busy    int        // lanes in use
	waiting []*member
}

// enter takes a free lane and returns nil; the caller must call leave. Without a free lane it returns a
// waiting member.
func (g *groups) enter(w *store.SessionWrite) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy < lanes {
		g.busy++
		return nil
	}

	m := &member{write: w, turn: make(chan []*member, 1)}
	g.waiting = append(g.waiting, m)
	return m
}

// withdraw removes a member from those that wait, and reports whether it was waiting.
func (g *groups) withdraw(m *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.waiting {
		if other == m {
			g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// leave hands the caller's lane to those that have waited longest.
func (g *groups) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < min(len(g.waiting), groupSize) {
		size += sizeOf(g.waiting[n].write)
		if n > 0 && size > groupBytes {
			break
		}
		n++
	}
	if n == 0 {
		g.busy--
		return
	}
	group := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	group[0].turn <- group
}

// sizeOf returns approximately how many bytes a transition sends.
func sizeOf(w *store.SessionWrite) int {
	n := len(w.Frame)
	for _, p := range w.Put {
		n += len(p.Body)
	}
	return n
}

// inGroup makes a transition in a lane, alone or with others. It returns nil and no error if the transition
// must be tried outside the lanes. So must those for whose rows others may wait: new sessions and
// definitions.
func (d database) inGroup(ctx context.Context, w *store.SessionWrite, now time.Time) (made *bool, err error) {
	if w.Before < 0 || w.Define != nil {
		return nil, nil
	}

	g := &d.groups
	m := g.enter(w)
	if m == nil {
		defer g.leave()
		all, err := d.move(ctx, now, w)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}

	var group []*member
	select {
	case group = <-m.turn:
	case <-ctx.Done():
		if g.withdraw(m) {
			return nil, d.explain(ctx.Err())
		}
		group = <-m.turn // being carried out, which takes at most callTime
	}
	if group != nil {
		defer g.leave()
		d.lead(ctx, now, group)
	}

	return m.made, m.err
}

// lead makes the transitions of a group for all of its members. If the context of the leading call ends, that
// does not affect the others.
func (d database) lead(ctx context.Context, now time.Time, group []*member) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	defer func() {
		for _, m := range group[1:] {
			close(m.turn)
		}
	}()
	writes := make([]*store.SessionWrite, len(group))
	for i, m := range group {
		writes[i] = m.write
	}

	made, err := d.move(ctx, now, writes...)
	_, said := errors.AsType[*pgconn.PgError](err)
	if said && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrPending) {
		made, err = make([]*bool, len(group)), nil // one of them was refused
	}
	for i, m := range group {
		m.err = err
		if err == nil {
			m.made = made[i]
		}
	}
}
