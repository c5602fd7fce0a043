package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/session"
)

const (
	// grace is how long calls in flight may continue after the program is asked to stop:
	// transitions take milliseconds, and reviews are cancelled. Containers are killed after 10 s,
	// which must also suffice for the next phases.
	grace = 5 * time.Second
	// answerGrace is how long cancelled calls have to answer.
	answerGrace = time.Second
	// closeGrace is how long connections have to end after all calls have.
	closeGrace = 1500 * time.Millisecond
	// streamGrace is how long SSE streams outlive the last reply: clients that see the end of a
	// stream together with a reply drop the reply.
	streamGrace = 200 * time.Millisecond
	// drainPoll is how often a stopping server checks for calls and requests in flight.
	drainPoll = 20 * time.Millisecond
)

// StopTime is the maximum time from the end of the context of Server.Serve to its return, whatever
// hangs; half a second more if a client is being refused at that moment.
const StopTime = grace + answerGrace + streamGrace + closeGrace

// Serve serves until ctx ends or the listener fails. When ctx ends, new calls are refused (503),
// also by /readyz; those in flight have 5 s to be answered, then they are cancelled, answered so,
// and named in the log. It blocks until this is done, for at most StopTime, and then returns nil.
// It ends every connection of the Server, which cannot serve others afterwards, and closes nothing
// else of it.
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
	h.end()
	// Cut streams and whatever did not end in time.
	h.Sessions.Stop()
	cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	if left := h.Sessions.Close(cut); left > 0 {
		h.Logger.Warn("connections did not stop", "connections", left, "calls_in_flight", h.InFlight.Names())
	}
	if h.http.Shutdown(cut) != nil {
		err = errors.Join(err, ignoreClosed(h.http.Close()))
	}
	serving.Wait()
	return err
}

// drain refuses new calls and waits for those in flight.
func (h *Server) drain() {
	h.stop()
	inTime, cancel := context.WithTimeout(context.Background(), h.options.Grace)
	defer cancel()
	if h.quiet(inTime) {
		return
	}
	h.Logger.Warn("calls in flight are cut off", session.MS("after_ms", h.options.Grace), slog.Any("calls_in_flight", h.InFlight.Names()))
	h.Sessions.Stop()
	answers, cancel := context.WithTimeout(context.Background(), answerGrace)
	defer cancel()
	h.quiet(answers)
}

// quiet waits until no call and no request other than streams is in flight and every reply is
// written. It reports false if ctx ends first.
func (h *Server) quiet(ctx context.Context) bool {
	for h.InFlight.Len() > 0 || h.Stats().Requests > 0 || h.sse.owed() > 0 {
		if wait.For(ctx, drainPoll) != nil {
			return false
		}
	}
	return true
}
