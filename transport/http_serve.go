package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// httpGrace is how long calls in flight may go on after the program was told
	// to stop: transitions take milliseconds, and reviews are cut off. Containers
	// are killed after 10 s, so that what follows must fit into these too.
	httpGrace = 5 * time.Second
	// answerGrace is how long calls that were cut off have to say so.
	answerGrace = time.Second
	// closeGrace is how long connections have to end when all calls have.
	closeGrace = 1500 * time.Millisecond
	// streamGrace is how long the streams of SSE outlive the last reply: clients
	// that see the end of a stream at once with a reply drop the reply.
	streamGrace = 200 * time.Millisecond
	// drainPoll is how often a server that stops looks for requests in flight
	// that are no tool calls.
	drainPoll = 20 * time.Millisecond
)

// HTTPStopTime is how long HTTPServer.Serve takes at most from the end of its
// context to its return, whatever hangs; half a second more
// where a client is being turned away in that very moment.
const HTTPStopTime = httpGrace + answerGrace + streamGrace + closeGrace

// Serve serves until ctx ends or the listener breaks. When ctx ends, new calls are
// refused (503) and /readyz says so; those in flight have 5 s to be answered,
// then they are cancelled and told so, and named in the log. It blocks until all
// of it is over, HTTPStopTime at most, and returns nil then. It ends every
// connection of the Server, which serves no other after it, and does not close the
// rest of it.
func (h *HTTPServer) Serve(ctx context.Context) error {
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
		if h.over == TransportSSE && h.streams.Load() > 0 {
			time.Sleep(streamGrace)
		}
	}
	h.server.willStop()
	// Streams, and what did not end in its time, are cut.
	h.server.conns.stop()
	cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	if left := h.server.conns.close(cut); left > 0 {
		h.server.logger.Warn("connections did not stop", "connections", left, "calls", h.server.inflight.names())
	}
	h.sockets.closeWaiting() // Shutdown would wait for those that never made a request
	if h.http.Shutdown(cut) != nil {
		err = errors.Join(err, ignoreClosed(h.http.Close()))
	}
	serving.Wait()
	h.sockets.wg.Wait()
	return err
}

// willStop tells the engine that the connections which are closed from now on
// are closed with the server, so that no session is written for that.
func (s *Server) willStop() {
	if s.stops != nil {
		s.stops()
	}
}

// drain takes no more calls, and waits for those in flight.
func (h *HTTPServer) drain() {
	h.stopping.Store(true)
	grace, cancel := context.WithTimeout(context.Background(), h.grace)
	defer cancel()
	if h.quiet(grace) {
		return
	}
	h.server.logger.Warn("calls in flight are cut off", slog.Duration("after", h.grace), slog.Any("calls", h.server.inflight.names()))
	h.server.conns.stop()
	answers, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	h.quiet(answers)
}

// quiet waits until no call and no request is in flight any more, streams apart,
// and every reply is written.
func (h *HTTPServer) quiet(ctx context.Context) bool {
	for {
		if !h.server.inflight.wait(ctx) {
			return false
		}
		if h.requests.Load() == 0 && h.owed.Load() == 0 {
			return true
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return false
		}
	}
}
