package pgtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// A Proxy forwards connections to a server, and breaks them on request. Its methods may be called
// concurrently.
type Proxy struct {
	URL string // of the same schema, through the proxy

	network, addr string // of the server
	dir           string
	listener      net.Listener
	running       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // nil once it is closed
	refuse bool
	frozen chan struct{} // closed when forwarding continues; nil means it does
	delay  time.Duration
	left   int64 // number of bytes until everything is cut; negative means never
	catch  func(Message) bool
	hold   time.Duration // how long to hold back what catch returns true for; 0 means cut it off
	caught chan struct{} // closed when catch has returned true
	over   chan struct{} // closed when the proxy is closed
}

// A Message is a message of PostgreSQL's protocol.
type Message struct {
	FromServer bool
	Type       byte   // 0 for the first one of a client
	Body       []byte // without the length
	// the message confirms a commit: CommandComplete of COMMIT, or of an UPDATE, INSERT, DELETE or CALL
	// outside a transaction
	Commits bool
}

// Completes reports whether a message is the server's CommandComplete of a command such as "COMMIT".
func (m Message) Completes(command string) bool {
	return m.FromServer && m.Type == 'C' && bytes.HasPrefix(m.Body, []byte(command))
}

// NewProxy starts a proxy to the server of a URL; it ends with the test.
func NewProxy(t testing.TB, raw string) *Proxy {
	t.Helper()
	p, err := StartProxy(raw)
	Need(t, err)
	t.Cleanup(p.Close)
	return p
}

// StartProxy starts a proxy to the server of a URL, without TLS. The caller closes it.
func StartProxy(raw string) (*Proxy, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return nil, err
	}
	p := &Proxy{URL: through(raw, dir), dir: dir, conns: map[net.Conn]bool{}, over: make(chan struct{}), left: -1}
	p.network, p.addr = address(raw)
	if p.listener, err = net.Listen("unix", socketIn(dir)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.running.Go(p.accept)
	return p, nil
}

// DelayCommits holds back the confirmation of each commit for this long.
func (p *Proxy) DelayCommits(d time.Duration) { p.set(func() { p.delay = d }) }

// Refuse closes all connections, and new ones at once, until it is called with false.
func (p *Proxy) Refuse(yes bool) {
	p.set(func() { p.refuse = yes })
	p.Sever()
}

// Freeze forwards nothing, and keeps connections open, until it is called with false.
func (p *Proxy) Freeze(yes bool) {
	p.set(func() {
		switch {
		case yes && p.frozen == nil:
			p.frozen = make(chan struct{})
		case !yes && p.frozen != nil:
			close(p.frozen)
			p.frozen = nil
		}
	})
}

// CutAfter closes all connections after this many more bytes in either direction, perhaps in the middle of a
// message. New connections are accepted.
func (p *Proxy) CutAfter(bytes int64) { p.set(func() { p.left = bytes }) }

// CutAt closes a connection instead of forwarding the first message for which match returns true, and then
// closes the channel. Each call of CutAt, RefuseAt or HoldAt replaces the previous one.
func (p *Proxy) CutAt(match func(Message) bool) <-chan struct{} { return p.HoldAt(match, 0) }

// RefuseAt is like CutAt, and refuses all connections from that message on, until Refuse is called with
// false.
func (p *Proxy) RefuseAt(match func(Message) bool) <-chan struct{} {
	return p.CutAt(func(m Message) bool { // called with p.mu held
		if !match(m) {
			return false
		}

		p.refuse = true
		for c := range p.conns {
			c.Close()
		}
		return true
	})
}

// HoldAt is like CutAt, but forwards the message and what follows after a delay, like a slow network, even if
// its sender has closed the connection meanwhile. Other connections are not affected.
func (p *Proxy) HoldAt(match func(Message) bool, d time.Duration) <-chan struct{} {
	caught := make(chan struct{})
	p.set(func() { p.catch, p.hold, p.caught = match, d, caught })
	return caught
}

// Sever closes all connections. New ones are accepted.
func (p *Proxy) Sever() {
	p.set(func() {
		for c := range p.conns {
			c.Close()
		}
	})
}

// Close ends the proxy and closes its connections.
func (p *Proxy) Close() {
	close(p.over)
	p.Freeze(false)
	p.listener.Close()
	p.Sever()
	p.set(func() { p.conns = nil })
	p.running.Wait()
	_ = os.RemoveAll(p.dir)
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve forwards the messages of one connection until it ends.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial(p.network, p.addr)
	if err != nil {
		return
	}
	defer server.Close()

	open := false
	p.set(func() {
		if open = p.conns != nil && !p.refuse; open {
			p.conns[client], p.conns[server] = true, true
		}
	})
	if !open {
		return
	}
	defer p.set(func() {
		delete(p.conns, client)
		delete(p.conns, server)
	})

	var both sync.WaitGroup
	forward := func(to, from net.Conn, fromServer bool) {
		defer client.Close()
		defer server.Close()
		s := stream{p: p, fromServer: fromServer, first: !fromServer}
		for s.next(to, from) == nil {
		}
	}
	both.Go(func() { forward(server, client, false) })
	both.Go(func() { forward(client, server, true) })
	both.Wait()
}

// A stream is one direction of a connection.
type stream struct {
	p          *Proxy
	fromServer bool
	first      bool // the next message has no type
	inside     bool // a transaction has begun
}

var errCut = errors.New("cut")

// next forwards a message.
func (s *stream) next(to io.Writer, from io.Reader) error {
	head := make([]byte, 5)
	if s.first {
		head = head[1:]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[len(head)-4:])
	if size < 4 || size > 1<<30 {
		return errCut
	}
	whole := append(head, make([]byte, size-4)...)
	if _, err := io.ReadFull(from, whole[len(head):]); err != nil {
		return err
	}
	m := Message{FromServer: s.fromServer, Body: whole[len(head):]}
	if !s.first {
		m.Type = whole[0]
	}
	s.first = false
	s.follow(&m)
	cut := len(whole)
	all := false
	frozen := (chan struct{})(nil)
	delay := time.Duration(0)
	if m.Commits {
		s.p.set(func() { delay = s.p.delay })
	}
	s.p.set(func() {
		frozen = s.p.frozen
		switch {
		case s.p.catch != nil && s.p.catch(m):
			close(s.p.caught)
			s.p.catch = nil
			delay += s.p.hold
			if s.p.hold == 0 {
				cut = 0
			}
		case s.p.left >= 0 && s.p.left < int64(len(whole)):
			cut = int(s.p.left)
			all = true
			s.p.left = -1
		case s.p.left >= 0:
			s.p.left -= int64(len(whole))
		}
	})
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-s.p.over:
		}
	}

	if frozen != nil {
		<-frozen
	}
	_, err := to.Write(whole[:cut])

	if all {
		s.p.Sever()
	}
	if cut < len(whole) {
		return errCut
	}

	return err
}

// follow keeps track of transactions.
func (s *stream) follow(m *Message) {
	if !m.FromServer {
		return
	}

	switch {
	case m.Type == 'Z' && len(m.Body) == 1: // ReadyForQuery
		s.inside = m.Body[0] != 'I'
	case m.Completes("BEGIN"):
		s.inside = true
	case m.Completes("COMMIT"):
		m.Commits, s.inside = true, false
	case m.Completes("ROLLBACK"):
		s.inside = false
	case !s.inside && (m.Completes("UPDATE") || m.Completes("INSERT") || m.Completes("DELETE") || m.Completes("CALL")):
		m.Commits = true
	}
}
