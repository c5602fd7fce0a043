package page

import (
	"cmp"
	"context"
	"maps"
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
	// newest has the same, the last changed one first. It is replaced, never changed.
	newest []workflow.SessionInfo
}

// childrenTopic is the topic of sessions that begin in another one: children:SESSION.
const childrenTopic = "children"

// readSessions reads the sessions that have changed while pages are open, and all at the start, so that
// the first page does not wait for that.
func (s *Site) readSessions(ctx context.Context) {
	s.index.mu.Lock()
	first := s.index.at == 0
	s.index.mu.Unlock()
	if first || s.edits.streams.Load() > 0 {
		_, _ = s.sessions(ctx, session.Caller{}) // a page meets the error
	}
}

// sessions returns the sessions that a caller sees, the last changed one first. The caller does not
// change them.
func (s *Site) sessions(ctx context.Context, who session.Caller) ([]workflow.SessionInfo, error) {
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	at := s.feed.position()
	ids, all := s.feed.since(x.at, store.SessionChanged)
	switch {
	case !all && x.at > 0 && len(ids) == 0:
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
				if _, known := x.all[id]; !known && i.Parent != "" {
					s.Touch(childrenTopic + ":" + i.Parent)
				}
				x.all[id] = *i
			}
		}
	}
	if x.at = at; x.newest == nil || all || len(ids) > 0 {
		x.newest = slices.SortedFunc(maps.Values(x.all), func(a, b workflow.SessionInfo) int {
			return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), strings.Compare(a.SessionID, b.SessionID))
		})
	}
	if who.Owner {
		return x.newest, nil
	}
	var seen []workflow.SessionInfo
	for _, i := range x.newest {
		if sees(who, i) {
			seen = append(seen, i)
		}
	}
	return seen, nil
}

// sees reports whether a caller sees a session: its own, and the owner of the server all.
func sees(who session.Caller, i workflow.SessionInfo) bool {
	return who.Owner || i.Err == nil && i.Identity == who.Identity
}
