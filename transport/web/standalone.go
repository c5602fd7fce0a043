package web

import (
	"context"
	"net/http"
	"sync"
)

// standalone holds the streams that clients keep open for messages from the server, one
// for each MCP session. A client whose network was gone for a moment opens another while
// the server does not know yet that the first is dead; the SDK would refuse that one, and
// clients then give up the session. The newest wins.
type standalone struct{ open sync.Map } // of *standaloneStream, by the session's id

type standaloneStream struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when its request, and those before it, are over
}

// take ends the stream that a session has, waits until that is over, and returns the
// request to serve; release is to be called when it is served. A request that ends
// before its turn is returned as it is.
func (s *standalone) take(id string, r *http.Request) (_ *http.Request, release func()) {
	ctx, cancel := context.WithCancel(r.Context())
	mine := &standaloneStream{cancel, make(chan struct{})}
	before := make(chan struct{})
	if stream, found := s.open.Swap(id, mine); found {
		before = stream.(*standaloneStream).done
		stream.(*standaloneStream).cancel()
	} else {
		close(before)
	}
	select {
	case <-before:
	case <-ctx.Done(): // its client has left, or opened yet another
	}
	return r.WithContext(ctx), func() {
		cancel()
		<-before
		s.open.CompareAndDelete(id, mine)
		close(mine.done)
	}
}
