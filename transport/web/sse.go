package web

import (
	"context"
	"crypto/rand"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
)

// sse is the older transport of MCP (seed 001): a GET opens a session and stays open for messages
// of the server; POSTs carry those of the client. The SDK's own handler does not know the caller of
// a session.
type sse struct {
	owner    *Server
	sessions sync.Map // of *sseSession, by id
}

// An sseSession is the transport of a session. It counts unanswered calls: their POSTs end before
// they are executed, and a closed session drops unwritten replies, so a server that stops waits for
// them.
type sseSession struct {
	*mcp.SSEServerTransport
	id   string
	who  session.Caller
	owed atomic.Int64 // replies
}

// owed returns the number of unwritten replies of all sessions.
func (s *sse) owed() (n int) {
	for _, session := range s.sessions.Range {
		n += int(session.(*sseSession).owed.Load())
	}
	return n
}

func (s *sse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.open(w, r)
	case http.MethodPost:
		s.post(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "use GET to open a session, and POST to the address that it sends", http.StatusMethodNotAllowed)
	}
}

// open serves a session until its client is gone, it is idle for too long, or the server stops.
func (s *sse) open(w http.ResponseWriter, r *http.Request) {
	id := rand.Text()
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache, no-transform")
	head.Set("X-Accel-Buffering", "no") // proxies must not buffer messages

	opened := &sseSession{id: id, who: session.CallerOf(r.Context()), SSEServerTransport: &mcp.SSEServerTransport{
		Endpoint:            Link(r, "/sse?sessionid="+url.QueryEscape(id)),
		Response:            w,
		MaxRequestBodyBytes: -1, // admit has read it, within its limit
	}}
	s.sessions.Store(id, opened)
	defer s.sessions.Delete(id)

	// The session's calls have the values of the context, but do not end with it.
	ss, err := s.owner.MCP.Connect(r.Context(), opened, nil)
	if err != nil {
		s.owner.Logger.LogAttrs(r.Context(), slog.LevelDebug, "opening an SSE session", slog.Any("error", err))
		return // the client does not read
	}
	if err := s.owner.Sessions.Open(r.Context(), ss); err != nil {
		ss.Close()
		return // the server stops
	}
	stop := context.AfterFunc(r.Context(), func() {
		s.owner.Sessions.Cut(id) // nobody is left to answer
		ss.Close()
	})
	defer stop()
	ss.Wait()
	ss.Close() // no write comes after the end of the response
}

// post receives a message of a session's client.
func (s *sse) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}

	found, _ := s.sessions.Load(r.URL.Query().Get("sessionid"))
	theirs, ok := found.(*sseSession)
	who := session.CallerOf(r.Context())
	if !ok || theirs.who != who {
		if ok {
			s.owner.Sessions.Known(theirs.id, who) // may end it
		}
		s.owner.refuse(w, r, http.StatusNotFound, refusedSession,
			"this MCP session is not known: it has ended, or was idle for too long. Open a new one with GET /sse; "+
				"workflow sessions are resumed by their session_id")
		return
	}
	theirs.ServeHTTP(w, r)
}

// Connect implements mcp.Transport.
func (s *sseSession) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := s.SSEServerTransport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sseConnection{c, s}, nil
}

// An sseConnection is the connection of a session.
type sseConnection struct {
	mcp.Connection
	session *sseSession
}

func (c *sseConnection) SessionID() string { return c.session.id }

func (c *sseConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if call, ok := msg.(*jsonrpc.Request); ok && call.IsCall() {
		c.session.owed.Add(1)
	}
	return msg, err
}

func (c *sseConnection) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if _, ok := msg.(*jsonrpc.Response); ok {
		c.session.owed.Add(-1)
	}
	return err
}
