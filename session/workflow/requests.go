package workflow

import (
	"context"
	"crypto/sha256"
	"deepwork/session/workflow/machine"
	"encoding/binary"
	"fmt"
	"sync"

	"deepwork/session"
	"deepwork/session/store"
)

// A requestKey is what a request_id is scoped to (DESIGN "Retries").
type requestKey struct{ identity, tool, id string }

// digest tells keys apart: nobody can make two of one digest by chance, and who
// tries is inside one identity, which is part of it.
func (k requestKey) digest() store.Key {
	text := make([]byte, 0, 128)
	for _, part := range []string{k.identity, k.tool, k.id} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return store.Key(sum[:16])
}

// requests are the calls with a request_id of this process. A repetition waits while
// the call is under way. The replies are in the records of the sessions; that a call was
// done is known here for longer than its reply is kept.
type requests struct {
	mu   sync.Mutex
	now  map[store.Key]chan struct{} // closed when the call has ended
	done map[store.Key][8]byte       // the session's id
}

// keptKeys is how many calls are remembered at most.
const keptKeys = 100_000

// begin waits while a call with this key is under way. It returns the session it was
// done in, or claims the key: the caller then calls end when its own call has ended.
func (r *requests) begin(ctx context.Context, k store.Key) (sessionID string, end func(), err error) {
	for {
		r.mu.Lock()
		id, known := r.done[k]
		before := r.now[k]
		if !known && before == nil {
			r.now[k] = make(chan struct{})
		}
		r.mu.Unlock()
		switch {
		case known:
			return string(id[:]), nil, nil
		case before == nil:
			return "", func() { r.end(k) }, nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return "", nil, fmt.Errorf("waiting for the call with the same request_id: %w", ctx.Err())
		}
	}
}

func (r *requests) end(k store.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.now[k])
	delete(r.now, k)
}

// learn remembers the call that made this state, if it had a request_id.
func (r *requests) learn(s *machine.State) {
	if len(s.Replies) == 0 || s.Replies[len(s.Replies)-1].RequestID == nil {
		return
	}
	last := s.Replies[len(s.Replies)-1]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.done) >= keptKeys {
		for old := range r.done { // any: the map's order is random
			delete(r.done, old)
			break
		}
	}
	r.done[requestKey{s.Identity, last.Tool, *last.RequestID}.digest()] = [8]byte([]byte(s.SessionID))
}

// searchRequest returns the session in which a call was done, or "". The index of the
// store has each call before it is done, and the session's record says whether it was.
func (e *Engine) searchRequest(k requestKey) string {
	ids, err := e.records.FindRequest(k.digest())
	if err != nil {
		e.Logger.Warn("searching the session files for request ids", "error", err)
	}
	for _, id := range ids {
		s, err := e.records.Peek(id)
		switch {
		case err == nil && s.Identity == k.identity && (k.tool == machine.ToolStart || s.StoredReply(k.tool, k.id) != nil):
			return id
		case err != nil && session.CodeOf(err) != "unknown_session": // which was never written, or was removed
			e.Logger.Warn("searching the session files for request ids", "session", id, "error", err)
		}
	}
	return ""
}

// keysOf returns the calls with a request_id that a session has replies to.
func keysOf(s *machine.State) []store.Key {
	var keys []store.Key
	for _, p := range s.Replies {
		if p.RequestID != nil {
			keys = append(keys, requestKey{s.Identity, p.Tool, *p.RequestID}.digest())
		}
	}
	return keys
}
