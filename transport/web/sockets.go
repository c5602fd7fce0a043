package web

import (
	"cmp"
	queues "container/list"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout is how long one write may take before its client is considered gone.
	writeTimeout = 20 * time.Second
	// maxRefused is how many connections beyond the limit may be open at once, so that their
	// clients can be answered why they are refused.
	maxRefused = 64
)

// sockets is the listener of the HTTP server. It bounds the open connections: at the limit a new
// one replaces the one that has waited longest without a request, first of those that never
// completed one (half open, or slowly sending its header), then of those kept alive between
// requests. If every connection serves a request, that of the new one is refused (Server.track).
type sockets struct {
	net.Listener
	limit   func() int
	refused func(reason string)
	stall   time.Duration // how long one write may take
	peerOf  func(net.Conn) peer

	mu      sync.Mutex
	open    map[*socket]struct{}
	fresh   queues.List // of *socket: accepted, without a complete request; oldest in front
	resting queues.List // of *socket: between two requests; longest in front
}

func newSockets(l net.Listener, stall time.Duration, limit func() int, refused func(reason string), peerOf func(net.Conn) peer) *sockets {
	return &sockets{Listener: l, limit: limit, refused: refused, stall: stall, peerOf: peerOf, open: map[*socket]struct{}{}}
}

// A socket is an accepted connection. Each write has its own deadline: responses may last for
// hours, but a client must read what it is sent.
type socket struct {
	net.Conn
	owner *sockets
	peer  peer      // the user at the other end
	once  sync.Once // of Close

	// The following fields are guarded by owner.mu.
	queue   *queues.List    // fresh or resting; nil while it serves a request
	element *queues.Element // of the queue
}

// Accept implements net.Listener.
func (s *sockets) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := s.admit(conn); c != nil {
			return c, nil
		}
	}
}

// admit makes room for a connection, or closes it and returns nil.
func (s *sockets) admit(conn net.Conn) *socket {
	c := &socket{Conn: conn, owner: s, peer: s.peerOf(conn)}
	s.mu.Lock()
	var victim *socket
	limit := s.limit()
	if len(s.open) >= limit {
		if front := cmp.Or(s.fresh.Front(), s.resting.Front()); front != nil {
			victim = front.Value.(*socket)
		}
	}
	full := victim == nil && len(s.open) >= limit+maxRefused
	if !full {
		if victim != nil {
			s.forget(victim)
		}
		s.open[c] = struct{}{}
		s.enqueue(c, &s.fresh)
	}
	s.mu.Unlock()
	switch {
	case full:
		s.refused(refusedConnections)
		conn.Close()
		return nil
	case victim != nil:
		s.refused(refusedEvicted)
		victim.Conn.Close()
	}
	return c
}

// closeWaiting closes the connections that serve no request.
func (s *sockets) closeWaiting() {
	s.mu.Lock()
	var waiting []*socket
	for c := range s.open {
		if c.queue != nil {
			waiting = append(waiting, c)
		}
	}
	s.mu.Unlock()
	for _, c := range waiting {
		c.Close()
	}
}

func (s *sockets) enqueue(c *socket, l *queues.List) {
	c.queue, c.element = l, l.PushBack(c)
}

func (s *sockets) dequeue(c *socket) {
	if c.queue != nil {
		c.queue.Remove(c.element)
		c.queue, c.element = nil, nil
	}
}

func (s *sockets) forget(c *socket) {
	s.dequeue(c)
	delete(s.open, c)
}

// len returns how many connections are open.
func (s *sockets) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// busy marks a connection as serving a request, and returns how many do. It lasts until the
// connection is idle: after the request is handled, part of the response may still have to be
// written.
func (s *sockets) busy(c *socket) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dequeue(c)
	return len(s.open) - s.fresh.Len() - s.resting.Len()
}

// follow is the ConnState of the HTTP server.
func (s *sockets) follow(conn net.Conn, state http.ConnState) {
	c, ok := socketOf(conn)
	if !ok || state != http.StateIdle {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.open[c]; open && c.queue == nil {
		s.enqueue(c, &s.resting)
	}
}

// writeChunk is the part of a write that has one write timeout.
const writeChunk = 64 << 10

// Write implements net.Conn.
func (c *socket) Write(p []byte) (n int, err error) {
	for {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.owner.stall)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(len(p), n+writeChunk)])
		if n += m; err != nil || n >= len(p) {
			return n, err
		}
	}
}

// Close implements net.Conn.
func (c *socket) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		c.owner.mu.Lock()
		c.owner.forget(c)
		c.owner.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}

type socketKey struct{}

// socketOf returns the socket of a connection of the HTTP server.
func socketOf(conn net.Conn) (*socket, bool) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = wrapped.NetConn()
	}
	c, ok := conn.(*socket)
	return c, ok
}

// withSocket is the ConnContext of the HTTP server.
func withSocket(ctx context.Context, conn net.Conn) context.Context {
	c, _ := socketOf(conn)
	return context.WithValue(ctx, socketKey{}, c)
}

// track protects a connection from being replaced while it serves a request, and refuses the
// request if more than the limit do.
func (h *Server) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, _ := r.Context().Value(socketKey{}).(*socket); c != nil {
			if limit := h.sockets.limit(); h.sockets.busy(c) > limit {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				h.refuse(w, r, http.StatusServiceUnavailable, refusedConnections,
					fmt.Sprintf("all %d connections are in use: try again later, or raise http.max_connections in .deepwork/config.yml", limit))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
