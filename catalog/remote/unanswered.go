package remote

import (
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// unanswered counts what a command sends while requests of its own wait for their
// answers to be read.
type unanswered struct {
	mu   sync.Mutex
	open map[jsonrpc.ID]bool
	size int // bytes, about, of requests and notifications since one has been open
}

// received notes a message; it returns an error if there are too many.
func (u *unanswered) received(r *jsonrpc.Request) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.IsCall() {
		if u.open == nil {
			u.open = make(map[jsonrpc.ID]bool)
		}
		u.open[r.ID] = true
	}
	if len(u.open) == 0 {
		return nil
	}
	if u.size += 1024 + len(r.Params); u.size > maxUnread {
		return errors.New("it goes on sending, and does not read what its requests are answered")
	}
	return nil
}

// answered notes that the answer to a request was written.
func (u *unanswered) answered(id jsonrpc.ID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if delete(u.open, id); len(u.open) == 0 {
		u.size = 0
	}
}
