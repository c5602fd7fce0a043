package web

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// writeTimeout is how long one write may take before its client is considered gone.
const writeTimeout = 20 * time.Second

// sockets is the listener of the HTTP server. It opens no more connections than leave files for other uses:
// those beyond wait to be accepted.
type sockets struct {
	net.Listener
	stall  time.Duration // how long one write may take
	peerOf func(net.Conn) peer
	open   atomic.Int64
	places *semaphore.Weighted
	closed context.Context
	end    context.CancelFunc
}

func newSockets(l net.Listener, most int, stall time.Duration, peerOf func(net.Conn) peer) *sockets {
	s := &sockets{Listener: l, stall: stall, peerOf: peerOf, places: semaphore.NewWeighted(int64(most))}
	s.closed, s.end = context.WithCancel(context.Background())
	return s
}

// Accept implements net.Listener.
func (s *sockets) Accept() (net.Conn, error) {
	if s.places.Acquire(s.closed, 1) != nil {
		return nil, net.ErrClosed
	}

	conn, err := s.Listener.Accept()
	if err != nil {
		s.places.Release(1)
		return nil, err
	}

	s.open.Add(1)
	c := &socket{Conn: conn, owner: s, peer: s.peerOf(conn)}
	c.release = sync.OnceFunc(func() {
		s.open.Add(-1)
		s.places.Release(1)
	})
	return c, nil
}

// Close implements net.Listener.
func (s *sockets) Close() error {
	s.end()
	return s.Listener.Close()
}

// A socket is an accepted connection. Each write has its own deadline: responses may last for
// hours, but a client must read what it is sent.
type socket struct {
	net.Conn
	owner   *sockets
	peer    peer // the user at the other end
	release func()
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
		n += m
		if err != nil || n >= len(p) {
			return n, err
		}
	}
}

// Close implements net.Conn.
func (c *socket) Close() error {
	defer c.release()
	return c.Conn.Close()
}

type socketKey struct{}

// withSocket is the ConnContext of the HTTP server.
func withSocket(ctx context.Context, conn net.Conn) context.Context {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = wrapped.NetConn()
	}
	c, _ := conn.(*socket)
	return context.WithValue(ctx, socketKey{}, c)
}

// slots bound the connections that serve a request or a stream. Others wait, except for one of the user:
// that is served, and not counted, so that callers cannot lock the user out.
type slots struct {
	limit func() int

	mu     sync.Mutex
	tokens chan struct{} // has as much room as the limit; replaced when that changes
	user   chan struct{} // has room for one
}

// channels returns the channels of which a request fills one.
func (s *slots) channels(user bool) (all, own chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit := s.limit(); cap(s.tokens) != limit || s.user == nil {
		s.tokens = make(chan struct{}, limit)
	}
	if s.user == nil {
		s.user = make(chan struct{}, 1)
	}
	if !user {
		return s.tokens, nil
	}
	return s.tokens, s.user
}

// take waits for a slot, which release frees. It reports false if ctx ends first.
func (s *slots) take(ctx context.Context, user bool) (release func(), ok bool) {
	all, own := s.channels(user)
	select {
	case own <- struct{}{}:
		return func() { <-own }, true
	default:
	}

	select {
	case own <- struct{}{}:
		return func() { <-own }, true
	case all <- struct{}{}:
		return func() { <-all }, true
	case <-ctx.Done():
		return nil, false
	}
}
