package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
)

// The network transports, as HTTPOptions.Transport has them.
const (
	TransportHTTP = "http" // streamable HTTP, at /mcp
	TransportSSE  = "sse"  // HTTP with server-sent events, at /sse (seed 001)
)

// DefaultHost is where a network transport listens: on this machine alone.
const DefaultHost = "127.0.0.1"

const (
	// headerTimeout is how long a client may take to send the header of a request,
	// TLS handshake included.
	headerTimeout = 10 * time.Second
	// bodyTimeout is how long it may take to send the body.
	bodyTimeout = 30 * time.Second
	// keepAlive is how long a connection may be open between two requests.
	keepAlive = 2 * time.Minute
	// maxHeaderBytes bounds the header of a request; net/http adds 4 KiB.
	maxHeaderBytes = 64 << 10
)

// HTTPOptions say how a network transport is reached. The zero value of a field
// is its default. Limits, allowed hosts and origins, and more tokens are in the
// config (key http) and followed as it changes.
type HTTPOptions struct {
	// Transport is TransportHTTP (the default) or TransportSSE.
	Transport string
	// Host is the address or name to listen on; default DefaultHost.
	Host string
	// Port is the TCP port, 0 to 65535; 0 picks a free one.
	Port int
	// TokenFile is a file of lines name:sha256; "": there is none. It must be
	// good and have a token; it is read again whenever it changes.
	TokenFile string
	// TLSCert and TLSKey are the PEM files of a certificate chain and its key;
	// both or neither. They are read once.
	TLSCert, TLSKey string
}

// An HTTPServer serves a Server's tools to many clients over the network. It has
// /mcp or /sse, and /healthz, /readyz and /metrics.
type HTTPServer struct {
	server   *Server
	url      string
	over     string // the transport
	access   *access
	sites    sites
	sockets  *sockets
	http     *http.Server
	body     time.Duration // how long the body of a request may take
	grace    time.Duration // for calls in flight when the server stops
	stopping atomic.Bool
	requests atomic.Int64 // in flight, streams not counted
	streams  atomic.Int64
	owed     atomic.Int64 // replies to calls that came over SSE
	told     refusals
}

// Listen opens the address and checks that who may call is settled: the error
// says what is wrong with the address, the certificate, the token file, or that
// a token is needed. Nothing is served before Serve; a server that is not to be
// served is closed by Close.
func (s *Server) Listen(ctx context.Context, o HTTPOptions) (*HTTPServer, error) {
	o.Host = cmp.Or(strings.TrimSuffix(strings.TrimPrefix(o.Host, "["), "]"), DefaultHost)
	o.Transport = cmp.Or(o.Transport, TransportHTTP)
	h := &HTTPServer{server: s, over: o.Transport, access: &access{}, body: bodyTimeout, grace: httpGrace}
	var certificates []tls.Certificate
	if o.TLSCert != "" || o.TLSKey != "" {
		pair, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("loading the TLS certificate %s and its key %s: %w", o.TLSCert, o.TLSKey, err)
		}
		certificates = []tls.Certificate{pair}
	}
	if o.TokenFile != "" {
		file, err := openTokenFile(o.TokenFile, s.logger)
		if err != nil {
			return nil, err
		}
		h.access.file = file
	}
	address := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w; choose another --port (0 picks a free one) or --host", address, bareNet(err))
	}
	bound := listener.Addr().(*net.TCPAddr)
	addr, _ := netip.AddrFromSlice(bound.IP)
	h.sites = sites{loopback: bound.IP.IsLoopback(), host: strings.ToLower(o.Host), addr: addr}
	h.access.loopback = h.sites.loopback
	if err := h.access.check(address, h.settings(ctx)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}

	scheme, path := "http", "/mcp"
	if certificates != nil {
		scheme = "https"
	}
	if o.Transport == TransportSSE {
		path = "/sse"
	}
	h.url = scheme + "://" + net.JoinHostPort(o.Host, strconv.Itoa(bound.Port)) + path
	most := openable()
	if limit := s.lastHTTP().MaxConnections; limit > most {
		s.logger.Warn("fewer connections are taken than http.max_connections allows: the process may have too few files open; raise its limit (ulimit -n)",
			"max_connections", limit, "taken", most)
	}
	h.sockets = newSockets(listener, certificates == nil, func() int { return min(s.lastHTTP().MaxConnections, most) },
		func(reason string) { s.metrics.refused.WithLabelValues(reason).Inc() })
	h.http = &http.Server{
		Handler:           h.routes(path),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withSocket,
		ConnState:         h.sockets.follow,
		Protocols:         new(http.Protocols),
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	// HTTP/2 would put many requests and streams on one connection, past the
	// limit on connections, and no MCP client needs it.
	h.http.Protocols.SetHTTP1(true)
	if certificates != nil {
		h.http.TLSConfig = &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12}
	}
	return h, nil
}

// URL returns where clients connect: scheme, host, port and path.
func (h *HTTPServer) URL() string { return h.url }

// Close stops listening and cuts every connection. It is for a server that is
// not served; Serve stops in order.
func (h *HTTPServer) Close() error {
	return errors.Join(h.http.Close(), ignoreClosed(h.sockets.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// bareNet leaves out of an error what is said beside it.
func bareNet(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// settings is what the config says of HTTP now; while it was never good, the
// defaults. It may wait for a file that is being written.
func (h *HTTPServer) settings(ctx context.Context) config.HTTP { return h.server.settings(ctx) }

func (s *Server) settings(ctx context.Context) config.HTTP {
	now := config.Default().HTTP
	if s.check != nil {
		if c, err := s.check(ctx); err == nil {
			now = c.HTTP
		}
	}
	s.network.Store(&now)
	return now
}

// lastHTTP is what settings found last, which is never longer ago than the
// beginning of the request that is being served. It does not wait.
func (s *Server) lastHTTP() config.HTTP {
	if last := s.network.Load(); last != nil {
		return *last
	}
	return s.settings(context.Background())
}

// routes is the handler of everything there is at the address.
func (h *HTTPServer) routes(path string) http.Handler {
	endpoint := http.Handler(newSSE(h))
	if path == "/mcp" {
		endpoint = h.streamable()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", h.guard(h.authenticate(h.metricsHandler())))
	mux.Handle(path, h.guard(h.authenticate(h.admit(endpoint))))
	return h.sockets.track(h.timely(mux))
}

// sessionsPerConnection is how many MCP sessions there may be for each network
// connection that there may be: a session needs none between its calls, and some
// clients leave theirs behind.
const sessionsPerConnection = 2

// streamable is streamable HTTP. The newest protocol version has no sessions, the
// older ones do, and the SDK wants a handler for each.
func (h *HTTPServer) streamable() http.Handler {
	options := mcp.StreamableHTTPOptions{
		Logger:                     quiet(h.server.logger),
		MaxRequestBodyBytes:        -1,   // admit has read it, within its limit
		DisableLocalhostProtection: true, // guard has looked, and knows what the config allows
	}
	server := func(*http.Request) *mcp.Server { return h.server.mcp }
	stateful := mcp.NewStreamableHTTPHandler(server, &options)
	options.Stateless = true
	options.PropagateRequestCancellation = true // whoever hangs up gets no reply elsewhere
	stateless := mcp.NewStreamableHTTPHandler(server, &options)
	var standing standalone
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := callerOf(r.Context())
		if isStateless(r) {
			who.stateless = true
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, &who))
			stateless.ServeHTTP(w, r)
			return
		}
		if id := r.Header.Get("Mcp-Session-Id"); id != "" {
			// Another caller's session is as unknown as one that has ended: the
			// client is to begin one of its own.
			if !h.server.conns.known(id, who.identity) {
				h.refuse(w, r, http.StatusNotFound, refusedSession,
					"this MCP session is not known: it has ended, or was idle for too long. Initialize a new one; workflow sessions are resumed by their session_id")
				return
			}
			switch r.Method {
			case http.MethodDelete:
				h.server.conns.cutID(id) // it is not to wait for a review
			case http.MethodGet:
				if r.Header.Get("Last-Event-Id") == "" { // else it is refused
					var release func()
					r, release = standing.take(id, r)
					defer release()
				}
			}
		} else if limit := sessionsPerConnection * h.server.lastHTTP().MaxConnections; h.server.conns.len() >= limit {
			w.Header().Set("Retry-After", "60")
			h.refuse(w, r, http.StatusServiceUnavailable, refusedSessions,
				fmt.Sprintf("%d MCP sessions are open, as many as are allowed: end those that are not used (DELETE), or raise http.max_connections or lower http.idle_timeout in .deepwork/config.yml", limit))
			return
		}
		stateful.ServeHTTP(w, r)
	})
}

// statelessSince is the first protocol version without sessions.
const statelessSince = "2026-07-28"

// isStateless tells by the protocol version, which compares like a date, whether
// a request belongs to no MCP session. It stands in a header; a request that has
// it in its body alone is told by the stateless handler that the header is missing.
func isStateless(r *http.Request) bool {
	if version := r.Header.Get("Mcp-Protocol-Version"); version != "" {
		return version >= statelessSince
	}
	if r.Header.Get("Mcp-Session-Id") != "" {
		return false
	}
	body, ok := r.Body.(*readBody)
	return ok && metaVersion(body.data) >= statelessSince
}
