package page

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// An index has the heads of all sessions, so that a page does not read each record again. It reads
// those that the feed says have changed. The zero value is empty.
type index struct {
	mu  sync.Mutex
	at  uint64 // the number of the feed that it is as of; 0 means never
	all map[string]*workflow.SessionInfo
	// newest has the same, the last changed one first; nil if that is not known. It is replaced, never
	// changed.
	newest []*workflow.SessionInfo
}

// childrenTopic is the topic of sessions that begin in another one: children:SESSION.
const childrenTopic = "children"

// readSessions reads the sessions that have changed while pages are open, and all at the start, so that
// the first page does not wait for that.
func (s *Site) readSessions(ctx context.Context) {
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at == 0 || s.edits.streams.Load() > 0 {
		_ = x.read(ctx, s) // a page meets the error
	}
}

// read reads what has changed. x.mu is held.
func (x *index) read(ctx context.Context, s *Site) error {
	at := s.feed.position()
	ids, all := s.feed.since(x.at, store.SessionChanged)
	switch {
	case all || x.at == 0:
		list, err := s.Engine.List(ctx)
		if err != nil {
			return err
		}
		x.newest, x.all = nil, make(map[string]*workflow.SessionInfo, len(list))
		for _, i := range list {
			x.all[i.ID] = &i
		}
	case len(ids) > 0:
		x.newest = nil
		for _, id := range ids {
			switch i, err := s.Engine.Info(ctx, id); {
			case session.CodeOf(err) == codes.UnknownSession:
				delete(x.all, id)
			case err != nil:
				return err
			default:
				if x.all[id] == nil && i.Parent != "" {
					s.Touch(childrenTopic + ":" + i.Parent)
				}
				x.all[id] = i
			}
		}
	}
	x.at = at
	return nil
}

// sessions returns all sessions, the last changed one first. The caller does not change them.
func (s *Site) sessions(ctx context.Context) ([]*workflow.SessionInfo, error) {
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.read(ctx, s); err != nil {
		return nil, err
	}
	if x.newest == nil {
		x.newest = slices.SortedFunc(maps.Values(x.all), func(a, b *workflow.SessionInfo) int {
			return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), strings.Compare(a.ID, b.ID))
		})
	}
	return x.newest, nil
}

// sees reports whether a caller sees a session: its own, and the owner of the server all.
func sees(who session.Caller, i *workflow.SessionInfo) bool {
	return who.Owner || i.Identity == who.Identity
}
