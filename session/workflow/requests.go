package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
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

// A sessionNumber is a session id's eight digits as the number they are.
type sessionNumber uint32

func numberOf(id string) (sessionNumber, bool) {
	n, err := strconv.ParseUint(id, 16, 32)
	return sessionNumber(n), err == nil && len(id) == 8
}

func (n sessionNumber) id() string { return fmt.Sprintf("%08x", uint32(n)) }

// requests knows which session the call with a request_id was done in, and
// holds a repetition back while the call is under way. The replies themselves
// are in the session files: this is an index, made anew from them.
type requests struct {
	mu      sync.Mutex
	done    map[store.Key]sessionNumber  // 20 bytes each, as there are many
	current map[requestKey]chan struct{} // closed when the call ended
}

// keptKeys is how many calls are remembered at most. A repetition that comes
// after more others than that is known by its session alone, where it names it
// or that is the current one.
const keptKeys = 100_000

func newRequests() *requests {
	return &requests{done: map[store.Key]sessionNumber{}, current: map[requestKey]chan struct{}{}}
}

// learn files the request ids of a session.
func (r *requests) learn(s *State) {
	number, ok := numberOf(s.SessionID)
	if !ok {
		return
	}
	for _, k := range keysOf(s) {
		r.add(k, number)
	}
}

func (r *requests) add(k store.Key, number sessionNumber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.done) >= keptKeys {
		for old := range r.done { // any: the map's order is random
			delete(r.done, old)
			break
		}
	}
	r.done[k] = number
}

// begin claims a key: it returns the session the call was done in, or, with
// claimed, the caller's duty to call end. It waits while the same call is under way.
func (r *requests) begin(ctx context.Context, k requestKey) (sessionID string, claimed bool, err error) {
	d := k.digest()
	for {
		r.mu.Lock()
		if number, ok := r.done[d]; ok {
			r.mu.Unlock()
			return number.id(), false, nil
		}
		wait, busy := r.current[k]
		if !busy {
			r.current[k] = make(chan struct{})
		}
		r.mu.Unlock()
		if !busy {
			return "", true, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return "", false, fmt.Errorf("waiting for the call with the same request_id: %w", ctx.Err())
		}
	}
}

// end gives a claimed key back. A call that was done has been learned by then.
func (r *requests) end(k requestKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.current[k])
	delete(r.current, k)
}

// searchRequest returns the session in which a call that this server does not know was
// done, or "": a client that lost its reply to a server that died repeats the call to
// another one. The index of the store has each call before it is done, and the session's
// record says whether it was.
func (e *Engine) searchRequest(k requestKey) string {
	ids, err := e.records.FindRequest(k.digest())
	if err != nil {
		e.Logger.Warn("searching the session files for request ids", "error", err)
	}
	for _, id := range ids {
		s, err := e.records.Peek(id)
		switch {
		case err == nil && s.Identity == k.identity && s.StoredReply(k.tool, k.id) != nil:
			e.requests.learn(s)
			return id
		case err != nil && session.CodeOf(err) != "unknown_session": // which was never written, or was removed
			e.Logger.Warn("searching the session files for request ids", "session", id, "error", err)
		}
	}
	return ""
}

// keysOf returns the calls with a request_id that a session has replies to.
func keysOf(s *State) []store.Key {
	var keys []store.Key
	for _, p := range s.Replies {
		if p.RequestID != nil {
			keys = append(keys, requestKey{s.Identity, p.Tool, *p.RequestID}.digest())
		}
	}
	return keys
}
