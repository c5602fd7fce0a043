package web

import (
	"context"
	"net/http"
	"sync"
)

// standalone are the streams that clients hold open for messages from the server,
// one for each MCP session. A client whose network was gone for a moment opens
// another while the server does not know yet that the first is dead; the SDK would
// refuse that one, and clients then give up the session. The newest wins.
type standalone struct {
	mu   sync.Mutex
	open map[string]*standaloneStream // by the session's id
}

type standaloneStream struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when its request is over
}

// take ends the stream that a session has, waits until that is over, and returns
// the request to serve; release is to be called when it is served. A request that
// ends before it got its turn is returned as it is.
func (s *standalone) take(id string, r *http.Request) (_ *http.Request, release func()) {
	ctx, cancel := context.WithCancel(r.Context())
	mine := &standaloneStream{cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	before := s.open[id]
	if s.open == nil {
		s.open = map[string]*standaloneStream{}
	}
	s.open[id] = mine
	s.mu.Unlock()
	if before != nil {
		before.cancel()
		select {
		case <-before.done:
		case <-ctx.Done(): // its client has left, or opened yet another
		}
	}
	return r.WithContext(ctx), func() {
		cancel()
		if before != nil {
			// Who waits for this one must not meet the one before it.
			<-before.done
		}
		s.mu.Lock()
		if s.open[id] == mine {
			delete(s.open, id)
		}
		s.mu.Unlock()
		close(mine.done)
	}
}
