package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// A requestKey is what a request_id is scoped to (DESIGN "Retries").
type requestKey struct{ identity, tool, id string }

// digest distinguishes keys: collisions do not occur by chance, and could only be forced within one
// identity, which is part of it.
func (k requestKey) digest() store.Key {
	text := make([]byte, 0, 128)
	for _, part := range []string{k.identity, k.tool, k.id} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return store.Key(sum[:16])
}

// claimRequest waits while a call with this key is in progress in this process, and claims the key;
// the caller calls end when its own call has ended.
func (e *Engine) claimRequest(ctx context.Context, k store.Key) (end func(), err error) {
	mine := make(chan struct{}) // closed by end
	for {
		other, busy := e.requests.LoadOrStore(k, mine)
		if !busy {
			return func() { e.requests.Delete(k); close(mine) }, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the call with the same request_id: %w", ctx.Err())
		}
	}
}

// searchRequest returns the session of a call, or "". The index of the store has each call before
// it is made, and the session's record shows whether it was: it has the reply, or so many later
// ones that the reply was dropped. The error is that of stores which are unavailable.
func (e *Engine) searchRequest(k requestKey) (id string, err error) {
	ids, err := e.records.FindRequest(k.digest())
	if errors.Is(err, store.ErrUnavailable) {
		return "", store.Refused(err)
	} else if err != nil {
		e.Logger.Warn("searching the session files for request ids", "error", err)
	}
	for _, id := range ids {
		s, err := e.records.Peek(id)
		switch {
		case err == nil && s.Identity == k.identity && (k.tool == machine.ToolStart || s.StoredReply(k.tool, k.id) != nil || len(keysOf(s)) >= machine.KeptRequests):
			return id, nil
		case errors.Is(err, store.ErrUnavailable):
			return "", err
		case err != nil && session.CodeOf(err) != "unknown_session": // which was never written, or was removed
			e.Logger.Warn("searching the session files for request ids", "session", id, "error", err)
		}
	}
	return "", nil
}

// keysOf returns the calls with a request_id whose replies a session has.
func keysOf(s *machine.State) []store.Key {
	var keys []store.Key
	for _, p := range s.Replies {
		if p.RequestID != nil {
			keys = append(keys, requestKey{s.Identity, p.Tool, *p.RequestID}.digest())
		}
	}
	return keys
}
