package web

import (
	"context"
	"crypto/rand"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sse is the older transport of MCP (seed 001): a GET opens a session and stays
// open for the server's messages, POSTs bring the client's. The SDK's own handler
// does not know whose session it is.
type sse struct {
	owner *Server

	mu       sync.Mutex
	sessions map[string]sseSession // by id
}

type sseSession struct {
	transport *sseTransport
	identity  string
}

func newSSE(h *Server) *sse { return &sse{owner: h, sessions: map[string]sseSession{}} }

func (s *sse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.open(w, r)
	case http.MethodPost:
		s.post(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "use GET to open a session, and POST to the address it tells", http.StatusMethodNotAllowed)
	}
}

// open serves a session until its client is gone, it was idle for too long, or
// the server stops.
func (s *sse) open(w http.ResponseWriter, r *http.Request) {
	id := rand.Text()
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache, no-transform")
	head.Set("X-Accel-Buffering", "no") // a proxy is to pass on each message
	transport := &sseTransport{SSEServerTransport: &mcp.SSEServerTransport{
		Endpoint:            "/sse?sessionid=" + url.QueryEscape(id),
		Response:            w,
		MaxRequestBodyBytes: -1, // admit has read it, within its limit
	}, total: &s.owner.owed}
	defer transport.end()
	s.mu.Lock()
	s.sessions[id] = sseSession{transport, CallerOf(r.Context()).Identity}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.sessions, id)
		s.mu.Unlock()
	}()
	// The context's values are those of the session's calls, its end is not.
	ss, err := s.owner.MCP.Connect(r.Context(), transport, nil)
	if err != nil {
		s.owner.Logger.LogAttrs(r.Context(), slog.LevelDebug, "opening an SSE session", slog.Any("error", err))
		return // the client does not read
	}
	if err := s.owner.Sessions.Open(r.Context(), ss); err != nil {
		ss.Close()
		return // the server stops
	}
	stop := context.AfterFunc(r.Context(), func() {
		s.owner.Sessions.Cut(ss) // nobody is there to be answered
		ss.Close()
	})
	defer stop()
	ss.Wait()
	ss.Close() // no write comes after the response is over
}

// post takes a message of a session's client.
func (s *sse) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	s.mu.Lock()
	session, ok := s.sessions[r.URL.Query().Get("sessionid")]
	s.mu.Unlock()
	if !ok || session.identity != CallerOf(r.Context()).Identity {
		s.owner.refuse(w, r, http.StatusNotFound, refusedSession,
			"this MCP session is not known: it has ended, or was idle for too long. Open a new one with GET /sse; workflow sessions are resumed by their session_id")
		return
	}
	session.transport.ServeHTTP(w, r)
}
