package page

import (
	"context"
	"slices"
	"strings"
	"sync"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// An index has the heads of all sessions, so that a page does not read each record again. It reads
// those that the feed says have changed. The zero value is empty.
type index struct {
	mu  sync.Mutex
	at  uint64 // the number of the feed that it is as of; 0 means never
	all map[string]workflow.SessionInfo
}

// sessions returns the sessions that a caller sees, the last changed one first.
func (s *Site) sessions(ctx context.Context, who session.Caller) ([]workflow.SessionInfo, error) {
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	at := s.feed.position()
	ids, all := s.feed.since(x.at, store.SessionChanged)
	switch {
	case all || x.at == 0:
		list, err := s.Sessions.List(ctx)
		if err != nil {
			return nil, err
		}
		x.all = make(map[string]workflow.SessionInfo, len(list))
		for _, i := range list {
			x.all[i.SessionID] = i
		}
	default:
		for _, id := range ids {
			switch i, err := s.Sessions.Info(id); {
			case session.CodeOf(err) == "unknown_session":
				delete(x.all, id)
			case err != nil:
				return nil, err
			default:
				x.all[id] = *i
			}
		}
	}
	x.at = at
	var seen []workflow.SessionInfo
	for _, i := range x.all {
		if sees(who, i) {
			seen = append(seen, i)
		}
	}
	slices.SortFunc(seen, func(a, b workflow.SessionInfo) int {
		if c := b.UpdatedAt.Compare(a.UpdatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.SessionID, b.SessionID)
	})
	return seen, nil
}

// sees reports whether a caller sees a session: its own, and the owner of the server all.
func sees(who session.Caller, i workflow.SessionInfo) bool {
	return who.Owner || i.Err == nil && i.Identity == who.Identity
}
