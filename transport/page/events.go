package page

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"deepwork/session"
)

const (
	// heartbeat shows a browser, and proxies, that a stream is alive.
	heartbeat = 20 * time.Second
	// eventTimeout is how long one write to a stream may take.
	eventTimeout = 10 * time.Second
)

// events is the stream of a page: GET /events?at=NUMBER&on=TOPIC,… It sends the event "news" when one
// of the topics has changed after the number, so that a page that was cut off catches up.
func (s *Site) events(w http.ResponseWriter, r *http.Request) {
	on := topics(r.URL.Query().Get("on"))
	at, err := strconv.ParseUint(r.URL.Query().Get("at"), 10, 64)
	if err != nil {
		http.Error(w, "at must be the number of the page", http.StatusBadRequest)
		return
	}
	if seen, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		at = max(at, seen)
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	write := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(eventTimeout)) // net/http offers it
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && out.Flush() == nil
	}
	if !write("retry: 500\n\n") {
		return
	}
	s.edits.streams.Add(1)
	defer s.edits.streams.Add(-1)
	s.readSessions(r.Context()) // what began while no page was open is news for the page of its parent
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	defer s.followOutputs(session.CallerOf(r.Context()), on)()
	for {
		last, more := s.feed.changed(on)
		if last > at {
			at = last
			if !write("event: news\nid: %d\ndata: \n\n", at) {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-alive.C:
			if !write(": alive\n\n") {
				return
			}
		}
	}
}
