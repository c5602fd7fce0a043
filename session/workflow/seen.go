package workflow

import (
	"sync"
	"time"

	"deepwork/session/store"
)

// A seenList remembers, of records that were read, whose they are and which are
// over, so that looking for the active ones of one identity does not read those
// of all the others again and again: neither ever changes.
type seenList struct {
	mu sync.Mutex
	m  map[string]seenRecord // by session id
}

// A seenRecord is what is remembered of one record.
type seenRecord struct {
	at       time.Time // its file's time, for an id that is used anew
	identity string
	over     bool
}

// keptSeen bounds the list; what is forgotten is read again.
const keptSeen = 100_000

// skip tells whether a record is known to be no active one of this identity.
func (l *seenList) skip(info store.Info, identity string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.m[info.ID]
	return ok && s.at.Equal(info.ModTime) && (s.over || s.identity != identity)
}

func (l *seenList) add(info store.Info, s *State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil || len(l.m) >= keptSeen {
		l.m = map[string]seenRecord{}
	}
	l.m[info.ID] = seenRecord{at: info.ModTime, identity: s.Identity, over: s.Status != Active}
}
