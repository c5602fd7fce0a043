package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"deepwork/actor/wait"
)

const (
	// grace is how long calls in flight may go on after the program was told
	// to stop: transitions take milliseconds, and reviews are cut off. Containers
	// are killed after 10 s, so that what follows must fit into these too.
	grace = 5 * time.Second
	// answerGrace is how long calls that were cut off have to say so.
	answerGrace = time.Second
	// closeGrace is how long connections have to end when all calls have.
	closeGrace = 1500 * time.Millisecond
	// streamGrace is how long the streams of SSE outlive the last reply: clients
	// that see the end of a stream at once with a reply drop the reply.
	streamGrace = 200 * time.Millisecond
	// drainPoll is how often a server that stops looks for calls and requests in flight.
	drainPoll = 20 * time.Millisecond
)

// StopTime is how long Server.Serve takes at most from the end of its
// context to its return, whatever hangs; half a second more
// where a client is being turned away in that very moment.
const StopTime = grace + answerGrace + streamGrace + closeGrace

// Serve serves until ctx ends or the listener breaks. When ctx ends, new calls are
// refused (503) and /readyz says so; those in flight have 5 s to be answered,
// then they are cancelled and told so, and named in the log. It blocks until all
// of it is over, StopTime at most, and returns nil then. It ends every
// connection of the Server, which serves no other after it, and does not close the
// rest of it.
func (h *Server) Serve(ctx context.Context) error {
	serve := func() error { return h.http.Serve(h.sockets) }
	if h.http.TLSConfig != nil {
		serve = func() error { return h.http.ServeTLS(h.sockets, "", "") }
	}
	broken := make(chan error, 1) // one value
	var serving sync.WaitGroup
	serving.Go(func() { broken <- serve() })
	var err error
	select {
	case err = <-broken:
		err = fmt.Errorf("serving %s: %w", h.url, err)
	case <-ctx.Done():
		h.drain()
		if h.options.Transport == SSE && h.streams.Load() > 0 {
			time.Sleep(streamGrace)
		}
	}
	h.Stopping()
	// Streams, and what did not end in its time, are cut.
	h.Sessions.Stop()
	cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	if left := h.Sessions.Close(cut); left > 0 {
		h.Logger.Warn("connections did not stop", "connections", left, "calls", h.InFlight.Names())
	}
	h.sockets.closeWaiting() // Shutdown would wait for those that never made a request
	if h.http.Shutdown(cut) != nil {
		err = errors.Join(err, ignoreClosed(h.http.Close()))
	}
	serving.Wait()
	return err
}

// drain takes no more calls, and waits for those in flight.
func (h *Server) drain() {
	h.stopping.Store(true)
	inTime, cancel := context.WithTimeout(context.Background(), h.options.Grace)
	defer cancel()
	if h.quiet(inTime) {
		return
	}
	h.Logger.Warn("calls in flight are cut off", slog.Duration("after", h.options.Grace), slog.Any("calls", h.InFlight.Names()))
	h.Sessions.Stop()
	answers, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	h.quiet(answers)
}

// quiet waits until no call and no request is in flight any more, other than streams,
// and every reply is written. It reports false if ctx ends first.
func (h *Server) quiet(ctx context.Context) bool {
	for h.InFlight.Len() > 0 || h.requests.Load() > 0 || h.sse.owed() > 0 {
		if wait.For(ctx, drainPoll) != nil {
			return false
		}
	}
	return true
}
