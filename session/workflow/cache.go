package workflow

import (
	"sync"
	"time"

	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// A recordCache holds, of records that were read, whose they are and which have
// ended, so that a search for the active ones of one identity does not read all the
// others again: neither ever changes.
type recordCache struct {
	mu sync.Mutex
	m  map[string]cachedRecord // by session id
}

type cachedRecord struct {
	at       time.Time // its file's time, for an id that is used again
	identity string
	over     bool
}

// maxCached bounds the cache; what is dropped is read again.
const maxCached = 100_000

// skip reports whether a record is known to be no active one of this identity.
func (l *recordCache) skip(info store.Info, identity string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.m[info.ID]
	return ok && s.at.Equal(info.ModTime) && (s.over || s.identity != identity)
}

func (l *recordCache) add(info store.Info, s *machine.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil || len(l.m) >= maxCached {
		l.m = map[string]cachedRecord{}
	}
	l.m[info.ID] = cachedRecord{at: info.ModTime, identity: s.Identity, over: s.Status != machine.Active}
}
