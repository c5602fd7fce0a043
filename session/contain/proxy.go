package contain

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"deepwork/catalog/hosts"
)

// A Refusal is a connection that a program was not allowed.
type Refusal struct {
	At     time.Time `json:"at"`
	Target string    `json:"target"` // host and port, as the program named them, in at most 300 characters
	Why    string    `json:"why"`
	// Allow is what allows it, as in the list allow of the config; "" means that nothing does.
	Allow string `json:"allow,omitempty"`
}

// Refused begins what the log of a program says about a refused connection.
const Refused = "refused "

const (
	maxConnections = 256
	maxHead        = 64 << 10 // bytes of a request's line and headers
	headPatience   = 30 * time.Second
	dialPatience   = 30 * time.Second
)

// A relay passes the connections of a contained program on: those at its proxy to the hosts that are allowed, and
// those at other ports to the same port of this machine. Every connection has a goroutine, which Close waits for.
type relay struct {
	allow   hosts.List
	refused func(Refusal)
	lookup  func(ctx context.Context, name string) ([]netip.Addr, error)
	dial    func(ctx context.Context, address string) (net.Conn, error)
	free    chan struct{} // capacity maxConnections: one element for each open connection; never closed
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

func newRelay(allow hosts.List, refused func(Refusal)) *relay {
	r := &relay{allow: allow, refused: refused, free: make(chan struct{}, maxConnections)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}
	r.dial = func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp", address)
	}
	return r
}

// serve passes on the connections at a listener, until it is closed. port is that of this machine, or 0 for the proxy.
func (r *relay) serve(l net.Listener, port int) {
	stop := context.AfterFunc(r.ctx, func() { l.Close() })
	r.work.Go(func() {
		defer stop()
		defer l.Close()
		for {
			conn, err := l.Accept()
			if err != nil && r.ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond) // too many open files, for example
				continue
			}
			if err != nil {
				return
			}
			r.free <- struct{}{}
			r.work.Go(func() {
				defer func() { <-r.free }()
				defer conn.Close()
				defer context.AfterFunc(r.ctx, func() { conn.Close() })()
				if port != 0 {
					r.forward(conn, port)
				} else {
					r.proxy(conn)
				}
			})
		}
	})
}

// close ends all connections.
func (r *relay) close() {
	r.cancel()
	r.work.Wait()
}

// forward connects a program to a port of this machine.
func (r *relay) forward(conn net.Conn, port int) {
	to, err := r.dial(r.ctx, net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	if err != nil {
		return // closing the connection says so
	}
	join(conn, conn, to)
}

// proxy answers one request of a program at its proxy.
func (r *relay) proxy(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(headPatience))
	in := bufio.NewReaderSize(conn, 16<<10)
	head, err := readHead(in)
	if err != nil {
		reply(conn, "400 Bad Request", err.Error())
		return
	}
	target, first, err := head.target()
	if err != nil {
		reply(conn, "400 Bad Request", err.Error())
		return
	}

	to, err := r.connect(target)
	var refused *Refusal
	if errors.As(err, &refused) {
		r.refused(*refused)
		reply(conn, "403 Forbidden", err.Error())
		return
	} else if err != nil {
		reply(conn, "502 Bad Gateway", err.Error())
		return
	}
	defer to.Close()
	conn.SetDeadline(time.Time{})
	if first == nil { // CONNECT
		io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	} else if _, err := to.Write(first); err != nil {
		return
	}
	join(conn, in, to)
}

// Error implements error.
func (r *Refusal) Error() string {
	said := fmt.Sprintf("deepwork refused a connection to %s: %s.", r.Target, r.Why)
	if r.Allow != "" {
		said += fmt.Sprintf(" A person can allow it, with allow: [%q] under contain in the config.", r.Allow)
	}
	return said
}

// maxNoted is how many targets of refused connections of one program are noted.
const maxNoted = 200

// Once returns a function that passes on the first refusal of each target, and a limited number of them.
func Once(note func(Refusal)) func(Refusal) {
	var mu sync.Mutex
	noted := map[string]bool{}
	return func(r Refusal) {
		mu.Lock()
		news := !noted[r.Target] && len(noted) < maxNoted
		if news {
			noted[r.Target] = true
		}
		mu.Unlock()
		if news {
			note(r)
		}
	}
}

// Note returns what the log of a program says about it.
func (r *Refusal) Note() string {
	said := Refused + fmt.Sprintf("%s: %s", r.Target, r.Why)
	if r.Allow != "" {
		said += fmt.Sprintf("; to allow it: contain: {allow: [%q]}", r.Allow)
	}
	return said
}

// connect connects to a host that is allowed. The error is a *Refusal for others.
func (r *relay) connect(target string) (net.Conn, error) {
	refuse := func(why, allow string) error {
		shown := strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, target[:min(len(target), 300)])
		return &Refusal{At: time.Now().UTC(), Target: shown, Why: why, Allow: allow}
	}
	at, permitted, err := r.allow.Permits(target)
	if err != nil {
		return nil, refuse(err.Error(), "")
	} else if !permitted {
		return nil, refuse("it is not among the hosts that are allowed", at)
	}
	name, port, _ := net.SplitHostPort(at)
	if _, err := netip.ParseAddr(name); err == nil { // listed as such
		return r.dial(r.ctx, at)
	}
	ctx, cancel := context.WithTimeout(r.ctx, dialPatience)
	defer cancel()
	// The name is resolved once, and what was checked is what is connected to.
	addresses, err := r.lookup(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", name, err)
	}
	err = fmt.Errorf("%s has no address", name)
	for _, a := range addresses {
		if !hosts.Public(a) {
			return nil, refuse(fmt.Sprintf("its name leads to %s, which is not in the internet", a), "")
		}
	}
	for _, a := range addresses {
		var to net.Conn
		if to, err = r.dial(ctx, net.JoinHostPort(a.Unmap().String(), port)); err == nil {
			return to, nil
		}
	}
	return nil, err
}

// A head is the first line of a request with its headers.
type head struct {
	method, uri, version string
	headers              []string // lines, without the hop-by-hop ones
}

// hopByHop are the headers that are only for a proxy.
var hopByHop = []string{"proxy-", "connection:", "keep-alive:", "te:", "upgrade:"}

func readHead(in *bufio.Reader) (*head, error) {
	var lines []string
	for size := 0; ; {
		line, err := in.ReadSlice('\n')
		if size += len(line); err != nil || size > maxHead {
			return nil, errors.New("the request cannot be read, or has too many headers")
		}
		text := string(bytes.TrimRight(line, "\r\n"))
		if text == "" {
			break
		}
		lines = append(lines, text)
	}
	if len(lines) == 0 {
		return nil, errors.New("the request is empty")
	}
	h, parts := &head{}, strings.Split(lines[0], " ")
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "HTTP/1.") {
		return nil, errors.New("the request is not one of HTTP/1")
	}
	h.method, h.uri, h.version = parts[0], parts[1], parts[2]
lines:
	for _, line := range lines[1:] {
		for _, name := range hopByHop {
			if len(line) >= len(name) && strings.EqualFold(line[:len(name)], name) {
				continue lines
			}
		}
		h.headers = append(h.headers, line)
	}
	return h, nil
}

// target returns the host and port that a request is for, and what is sent there first, nil for CONNECT.
func (h *head) target() (target string, first []byte, err error) {
	if h.method == "CONNECT" {
		return h.uri, nil, nil
	}
	u, err := url.Parse(h.uri)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
		return "", nil, errors.New("this is a proxy: it takes CONNECT, and requests with a URL of http://")
	}
	target = u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Hostname(), "80")
	}
	b := &bytes.Buffer{}
	fmt.Fprintf(b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", h.method, u.RequestURI(), u.Host)
	for _, line := range h.headers {
		if len(line) < 5 || !strings.EqualFold(line[:5], "host:") {
			b.WriteString(line + "\r\n")
		}
	}
	b.WriteString("\r\n")
	return target, b.Bytes(), nil
}

func reply(conn net.Conn, status, why string) {
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s\n", status, len(why)+1, why)
}

// join passes bytes on between two connections until both directions have ended. The system's keep-alive ends
// those whose other end is gone.
func join(a net.Conn, from io.Reader, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var both sync.WaitGroup
	pass := func(to net.Conn, from io.Reader) {
		io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	}
	both.Go(func() { pass(b, from) })
	both.Go(func() { pass(a, b) })
	both.Wait()
}
