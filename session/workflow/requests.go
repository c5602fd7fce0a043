package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"time"

	"deepwork/session"
	"deepwork/session/store"
)

// A requestKey is what a request_id is scoped to (DESIGN "Retries").
type requestKey struct{ identity, tool, id string }

// A requestDigest stands for a requestKey in a table of many.
type requestDigest [16]byte

// digest tells keys apart: nobody can make two of one digest by chance, and who
// tries is inside one identity, which is part of it.
func (k requestKey) digest() requestDigest {
	text := make([]byte, 0, 128)
	for _, part := range []string{k.identity, k.tool, k.id} {
		text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return requestDigest(sum[:16])
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
	done    map[requestDigest]sessionNumber // 20 bytes each, as there are many
	current map[requestKey]chan struct{}    // closed when the call ended

	scan    sync.Mutex           // one search at a time; guards what follows
	scanned time.Time            // when the last whole search began, by the clock
	passed  time.Time            // the same, by the time that goes by
	began   time.Time            // when the last search began, whole or not
	alone   bool                 // no other server was there when it began
	mark    int64                // of who had entered by then
	looked  map[string]time.Time // the files that it has seen: session id -> the file's time
}

// A company is what knows of other servers on the same sessions.
type company interface {
	// Entered returns a mark that changes whenever a server enters.
	Entered() (mark int64, err error)
	// Alone tells whether no other server is there.
	Alone() (bool, error)
}

// keptKeys is how many calls are remembered at most. A repetition that comes
// after more others than that is known by its session alone, where it names it
// or that is the current one.
const keptKeys = 100_000

// requestHorizon is how far back, at the first request_id that this server does
// not know, the session files are searched for it; and the newest of them are
// whatever their age, for the clock may have been set forward meanwhile.
const requestHorizon = 24 * time.Hour

// settledAfter is when a file that is written again has another time, however
// coarse the system's are.
const settledAfter = 100 * time.Millisecond

func newRequests() *requests {
	return &requests{done: map[requestDigest]sessionNumber{}, current: map[requestKey]chan struct{}{}}
}

// learn files the request ids of a session.
func (r *requests) learn(s *State) {
	for _, p := range s.Replies {
		if p.RequestID != nil {
			r.add(requestKey{s.Identity, p.Tool, *p.RequestID}, s.SessionID)
		}
	}
}

func (r *requests) add(k requestKey, sessionID string) {
	number, ok := numberOf(sessionID)
	if !ok {
		return
	}
	d := k.digest()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.done) >= keptKeys {
		for old := range r.done { // any: the map's order is random
			delete(r.done, old)
			break
		}
	}
	r.done[d] = number
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

// searchRequest looks for a request_id that this server does not know in the
// files of sessions that moved since it last looked: a client that lost its
// reply to a server that died repeats the call to another. Nearly every call is
// none that is repeated, so this must cost little: a server that has been alone
// since it last looked knows without a look, and no file is read twice.
func (e *Engine) searchRequest(k requestKey) string {
	r := e.requests
	asked := time.Now()
	r.scan.Lock()
	defer r.scan.Unlock()
	if r.began.After(asked) { // another call has looked while this one waited
		return r.find(k)
	}
	r.began = time.Now()
	others, _ := e.records.(company)
	mark, alone := int64(0), false
	if others != nil {
		if m, err := others.Entered(); err == nil {
			if r.alone && m == r.mark {
				return r.find(k)
			}
			mark = m
			alone, err = others.Alone() // before the search: what others wrote, it finds
			if err != nil {
				e.Logger.Warn("looking for other servers", "error", err)
			}
		}
	}
	now := e.Now()
	var older newestFiles
	since := r.scanned
	if r.scanned.IsZero() {
		since = now.Add(-requestHorizon)
	} else if back := now.Add(-time.Since(r.passed)); back.Before(since) {
		since = back // the clock was set back
	}
	since = since.Add(-2 * time.Second) // file times are coarse
	whole := true
	looked := map[string]time.Time{}
	look := func(info store.Info) {
		if at, ok := r.looked[info.ID]; ok && at.Equal(info.ModTime) {
			looked[info.ID] = at
			return
		}
		s, err := e.records.Peek(info.ID)
		if err != nil {
			e.Logger.Warn("searching the session files for request ids", "session", info.ID, "error", err)
			if code := session.CodeOf(err); code != "session_damaged" && code != "unknown_session" && code != "session_too_new" {
				whole = false
			}
			return
		}
		r.learn(s)
		if time.Since(info.ModTime) > settledAfter {
			looked[info.ID] = info.ModTime
		}
	}
	for info, err := range e.records.List() {
		if err != nil {
			e.Logger.Warn("searching the session files for request ids", "error", err)
			whole = false
			break
		}
		switch {
		case e.handles.Get(info.ID) != nil: // this server's own are known
		case !info.ModTime.Before(since):
			look(info)
		case r.scanned.IsZero():
			older.add(info)
		}
	}
	for _, info := range older.all() {
		look(info)
	}
	r.looked = looked
	if whole {
		r.scanned, r.passed = now, r.began // else what was missed is looked for again
	}
	r.alone, r.mark = alone && whole, mark
	return r.find(k)
}

func (r *requests) find(k requestKey) string {
	d := k.digest()
	r.mu.Lock()
	defer r.mu.Unlock()
	if number, ok := r.done[d]; ok {
		return number.id()
	}
	return ""
}
