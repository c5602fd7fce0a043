//go:build faults

package record

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"

	"deepwork/session/store"
)

// A program built for the simulation uses a store with deliberate faults.
func init() {
	share, _ := strconv.ParseFloat(os.Getenv("DEEPWORK_FAULT_OVERTAKEN"), 64) // "" means 0
	without := os.Getenv("DEEPWORK_FAULT_BREAK")
	if share > 0 || without != "" {
		storing = func(s store.Sessions) store.Sessions {
			return &faultyStore{Sessions: s, overtaken: share, without: without}
		}
	}
}

// A faultyStore fails a share of the transitions at first, as if another process had been faster: the command
// is then applied again to the same state, which must not show. It also leaves out one check of the engine,
// to prove that it is needed. "reread" takes an unconfirmed write for one that was not made, and does not
// read the session again. "look" assumes that a session never changes outside of this process.
type faultyStore struct {
	store.Sessions
	overtaken float64
	without   string
	unread    sync.Map // ids of sessions that are not read again once
}

func (f *faultyStore) WriteSession(ctx context.Context, w *store.SessionWrite) (bool, error) {
	if w.Before >= 0 && rand.Float64() < f.overtaken {
		return false, nil
	}
	written, err := f.Sessions.WriteSession(ctx, w)
	if f.without == "reread" && errors.Is(err, store.ErrPending) {
		f.unread.Store(w.ID, true)
		err = errors.New("the store did not confirm it")
	}
	return written, err
}

func (f *faultyStore) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	_, unread := f.unread.LoadAndDelete(id)
	if known >= 0 && (unread || f.without == "look") {
		return &store.SessionRecord{Session: store.Session{ID: id, Revision: known}}, nil
	}
	return f.Sessions.ReadSession(ctx, id, known)
}
