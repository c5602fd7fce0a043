package workflow

import (
	"context"
	"errors"
	"sync/atomic"

	"deepwork/session/store"
)

// A faulty store fails, hangs or loses replies on demand.
type faulty struct {
	store.Sessions
	twice     atomic.Bool                              // each first write of a transition is overtaken
	overtaken atomic.Int64                             // counts those, and the second ones
	full      atomic.Bool                              // writes fail, and change nothing
	lose      atomic.Int32                             // so many replies to writes are lost, after they were made
	drop      atomic.Int32                             // so many writes are not made, and their replies are lost
	unread    atomic.Int32                             // so many reads fail
	during    atomic.Pointer[func()]                   // is called after a write, before its reply
	before    atomic.Pointer[func()]                   // is called before a write
	delay     atomic.Pointer[chan *store.SessionWrite] // receives the next write instead of the store, which does not confirm it
}

var errNoSpace = errors.New("no space left on device")

// makeFaulty puts a faulty store between a server and its stores.
func (s *server) makeFaulty() *faulty {
	f := &faulty{Sessions: s.records.Sessions}
	s.records.Sessions = f
	return f
}

func (f *faulty) WriteSession(ctx context.Context, w *store.SessionWrite) (bool, error) {
	if f.full.Load() {
		return false, errNoSpace
	}
	if f.drop.Load() > 0 {
		f.drop.Add(-1)
		return false, store.ErrPending
	}
	if to := f.delay.Swap(nil); to != nil {
		late := *w
		*to <- &late
		return false, store.ErrPending
	}
	if f.twice.Load() && w.Before >= 0 && f.overtaken.Add(1)%2 == 1 {
		return false, nil
	}
	if g := f.before.Load(); g != nil {
		(*g)()
	}
	written, err := f.Sessions.WriteSession(ctx, w)
	if g := f.during.Load(); g != nil {
		(*g)()
	}
	if f.lose.Load() > 0 && err == nil {
		f.lose.Add(-1)
		return false, store.ErrPending
	}
	return written, err
}

func (f *faulty) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	if f.unread.Load() > 0 {
		f.unread.Add(-1)
		return nil, errNoSpace
	}
	return f.Sessions.ReadSession(ctx, id, known)
}
