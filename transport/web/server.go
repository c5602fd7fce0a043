// Package web serves MCP over the network: streamable HTTP and HTTP with server-sent events, with
// authentication and limits.
package web

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
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/metric"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/tool"
)

// The network transports: values of Options.Transport.
const (
	HTTP = "http" // streamable HTTP, at /mcp
	SSE  = "sse"  // HTTP with server-sent events, at /sse (seed 001); deprecated in MCP
)

// DefaultHost is the default address of a network transport: this machine only.
const DefaultHost = "127.0.0.1"

const (
	headerTimeout, bodyTimeout = 10 * time.Second, 30 * time.Second
	// keepAlive is how long a connection may be open between two requests.
	keepAlive = 2 * time.Minute
	// maxHeaderBytes bounds the header of a request; net/http adds 4 KiB.
	maxHeaderBytes = 64 << 10
)

// Options say how a network transport is reached. Zero fields have their default value. Limits,
// allowed hosts and origins, and more tokens are in the config (key http), which may change.
type Options struct {
	// Transport is HTTP (the default) or SSE.
	Transport string
	// Host is the address or name to listen on; default DefaultHost.
	Host string
	// Port is the TCP port, 0 to 65535; 0 picks a free one.
	Port int
	// TokenFile is a file of lines name:sha256[:group[:rights]]; "" means none. It must be valid and have a token;
	// it is read again whenever it changes.
	TokenFile string
	// TLSCert and TLSKey are the PEM files of a certificate chain and its key;
	// both or neither. They are read once.
	TLSCert, TLSKey string
	// AllowedHosts and AllowedOrigins are allowed in addition to the config's, in the form that config.HostName and
	// config.Origin return.
	AllowedHosts, AllowedOrigins []string
	// BasePath is the path under which a proxy serves this server, as BasePath returns it, if the proxy does not
	// say it in the header X-Forwarded-Prefix. Requests may have it or not.
	BasePath string

	// HeaderTimeout is how long a client may take to send the header of a request, TLS
	// handshake included (default 10 s), and BodyTimeout its body (30 s). WriteTimeout is
	// how long one write may take (20 s), and Grace how long calls in flight may go on
	// after the server was told to stop (5 s).
	HeaderTimeout, BodyTimeout, WriteTimeout, Grace time.Duration

	// UnknownPeers makes the server behave as on systems that do not tell who owns a connection. It is for tests.
	UnknownPeers bool

	// Secret lets one person in who opens /login?secret=…, once. Such a server has pages only, no MCP. "" means no
	// secret.
	Secret string
	// LoginFile, in a folder of the user's alone, keeps the login of that person for the next server with this file, on
	// connections that are known to be the user's. "" means that the login ends with the server.
	LoginFile string
	// Private servers answer nothing without a token.
	Private bool
	// ReadOnly makes pages change nothing.
	ReadOnly bool
}

// A Backend is what a Server serves.
type Backend struct {
	MCP    *mcp.Server
	Logger *slog.Logger
	Local  session.Caller // callers without a token, if none is needed
	// Token returns the token of the local caller, for where the owner of a connection cannot be
	// known; if it is missing, it makes it if make is set, and otherwise the error is
	// state.ErrMissing.
	Token func(make bool) (string, error)
	// Settings returns the HTTP config. It may wait for a file that is being written; LastSettings
	// does not, and returns the last result of Settings.
	Settings     func(context.Context) config.HTTP
	LastSettings func() config.HTTP
	Check        func(context.Context) error // returns why calls are refused, or nil
	Sessions     Sessions
	InFlight     *tool.InFlight
	Metrics      *telemetry.Metrics // nil means only those of the Server
	// Pages returns the web UI; nil means no web UI.
	Pages func(*Login) (http.Handler, error)
}

// Sessions are the MCP sessions of the clients.
type Sessions interface {
	Open(context.Context, *mcp.ServerSession) error
	// Known reports whether a session is open and was opened by this caller, with the same group and
	// rights; with others it ends the session.
	Known(id string, who session.Caller) bool
	Cut(id string) // cancels the calls of a session whose client is gone
	Len() int
	Stop()                            // cancels all calls and admits no new session
	Close(context.Context) (left int) // waits for all sessions to end
}

// A Server serves the tools of a backend to many clients over the network: /mcp or /sse, and
// /healthz, /readyz and /metrics.
type Server struct {
	Backend
	options  Options
	url      string
	access   *access
	sites    sites
	sockets  *sockets
	http     *http.Server
	refused  metric.Int64Counter
	requests requests
	streams  atomic.Int64
	slots    slots
	sse      sse
	refusals refusals
	stopping context.Context // ends when no new calls are served
	stop     context.CancelFunc
	ending   context.Context // ends when streams of pages must
	end      context.CancelFunc
}

// Stats are the numbers of open resources of a Server.
type Stats struct{ Connections, Requests, Streams, Owed int }

// Stats returns the current numbers.
func (h *Server) Stats() Stats {
	requests, _ := h.requests.add("", 0)
	return Stats{int(h.sockets.open.Load()), requests, int(h.streams.Load()), h.sse.owed()}
}

// Listen opens the address and checks the access settings: the error says what is wrong with the address,
// the certificate or the token file, or says that a token is needed. Nothing is served before
// Serve; a server that will not be served must be closed with Close.
func Listen(ctx context.Context, b Backend, o Options) (*Server, error) {
	o.complete()
	h := &Server{
		Backend: b,
		options: o,
		access:  &access{local: b.Local, token: b.Token, peers: !o.UnknownPeers && CanKnowPeers()},
	}
	if h.Metrics == nil {
		h.Metrics = telemetry.LocalMetrics()
	}
	h.refused = h.Metrics.Adder("deepwork_refused_total", "HTTP requests and connections that were refused, by reason.")
	h.ending, h.end = context.WithCancel(context.WithoutCancel(ctx))
	h.stopping, h.stop = context.WithCancel(h.ending)
	h.slots.limit = func() int { return h.LastSettings().MaxConnections }
	h.Settings = func(ctx context.Context) config.HTTP {
		now := b.Settings(ctx)
		now.AllowedHosts = slices.Concat(now.AllowedHosts, o.AllowedHosts)
		now.AllowedOrigins = slices.Concat(now.AllowedOrigins, o.AllowedOrigins)
		return now
	}

	certificates, err := o.certificates()
	if err != nil {
		return nil, err
	}
	if o.TokenFile != "" {
		if h.access.file, err = openTokenFile(o.TokenFile, b.Logger); err != nil {
			return nil, err
		}
	}

	listener, err := h.listen(ctx)
	if err != nil {
		return nil, err
	}
	if !h.sites.loopback && certificates == nil {
		b.Logger.Warn("tokens and all that callers send go over the network in clear text: give --tls-cert and "+
			"--tls-key, or let callers come through a proxy with TLS", "host", o.Host)
	}

	if limit, most := b.LastSettings().MaxConnections, openable(); limit > most {
		b.Logger.Warn("fewer connections are taken than http.max_connections allows: the process may have too few "+
			"files open; raise its limit (ulimit -n)",
			"max_connections", limit, "taken", most)
	}
	path := h.name(listener.Addr().(*net.TCPAddr), certificates != nil)

	var pages http.Handler
	if b.Pages != nil {
		if pages, err = b.Pages(newLogin(h)); err != nil {
			return nil, errors.Join(fmt.Errorf("making the pages: %w", err), listener.Close())
		}
	}

	peers := peerOf
	if !h.knowsUsers() {
		peers = func(net.Conn) peer { return peer{err: errNoPeers} } // a token is needed
	}
	h.sockets = newSockets(listener, openable(), o.WriteTimeout, peers)
	h.http = &http.Server{
		Handler:           h.routes(path, pages),
		ReadHeaderTimeout: o.HeaderTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withSocket,
		Protocols:         new(http.Protocols),
		ErrorLog:          slog.NewLogLogger(b.Logger.Handler(), slog.LevelDebug),
	}

	// HTTP/2 would put many requests and streams on one connection, and no MCP client needs it.
	h.http.Protocols.SetHTTP1(true)
	if certificates != nil {
		h.http.TLSConfig = &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12}
	}
	return h, nil
}

// knowsUsers reports whether the server finds out which user a connection is of.
func (h *Server) knowsUsers() bool {
	return h.access.loopback && h.access.peers && h.access.file == nil
}

// complete fills in the default values.
func (o *Options) complete() {
	o.Host = cmp.Or(strings.TrimSuffix(strings.TrimPrefix(o.Host, "["), "]"), DefaultHost)
	o.Transport = cmp.Or(o.Transport, HTTP)
	o.HeaderTimeout, o.BodyTimeout = cmp.Or(o.HeaderTimeout, headerTimeout), cmp.Or(o.BodyTimeout, bodyTimeout)
	o.WriteTimeout, o.Grace = cmp.Or(o.WriteTimeout, writeTimeout), cmp.Or(o.Grace, grace)
}

// certificates loads the TLS certificate; nil means that there is none.
func (o *Options) certificates() ([]tls.Certificate, error) {
	if o.TLSCert == "" && o.TLSKey == "" {
		return nil, nil
	}
	info, err := os.Stat(o.TLSKey)
	if err == nil {
		err = faultOfSecret(info)
	}
	if err != nil {
		return nil, fmt.Errorf("the TLS key %s: %w", o.TLSKey, err)
	}
	pair, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("loading the TLS certificate %s and its key %s: %w", o.TLSCert, o.TLSKey, err)
	}
	return []tls.Certificate{pair}, nil
}

// listen opens the address, and closes it again if access to it would not be safe.
func (h *Server) listen(ctx context.Context) (net.Listener, error) {
	address := net.JoinHostPort(h.options.Host, strconv.Itoa(h.options.Port))
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err = e.Err // what is around it is in the message
		}
		return nil, fmt.Errorf("listening on %s: %w; choose another --port (0 picks a free one) or --host",
			address, err)
	}
	bound := listener.Addr().(*net.TCPAddr)
	addr, _ := netip.AddrFromSlice(bound.IP)
	h.sites = sites{loopback: bound.IP.IsLoopback(), host: strings.ToLower(h.options.Host), addr: addr}
	h.access.loopback = h.sites.loopback
	if err := h.access.check(address, h.options.AllowedHosts, h.Settings(ctx), h.Logger); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// name sets the URL of the server, and returns the path of the transport in it.
func (h *Server) name(bound *net.TCPAddr, secure bool) (path string) {
	scheme, path := "http", "/mcp"
	if secure {
		scheme = "https"
	}
	if h.options.Transport == SSE {
		path = "/sse"
	}
	if h.sites.loopback {
		h.sites.origin = scheme + "://" + bound.String()
	}
	h.url = scheme + "://" + net.JoinHostPort(h.options.Host, strconv.Itoa(bound.Port)) + path
	return path
}

// URL returns the URL for clients: scheme, host, port and path.
func (h *Server) URL() string { return h.url }

// Close stops listening and cuts every connection. It's for a server that was never served; Serve shuts down
// gracefully.
func (h *Server) Close() error {
	h.end()
	return errors.Join(h.http.Close(), ignoreClosed(h.sockets.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// routes returns the handler of all paths.
func (h *Server) routes(path string, pages http.Handler) http.Handler {
	h.sse.owner = h
	endpoint := http.Handler(&h.sse)
	if path == "/mcp" {
		endpoint = h.streamable()
	}

	mux := http.NewServeMux()
	if h.options.Private {
		mux.Handle("/", h.guard(h.authenticate(http.NotFoundHandler())))
	} else {
		mux.HandleFunc("GET /healthz", healthz)
		mux.HandleFunc("GET /readyz", h.readyz)
		mux.Handle("GET /metrics", h.guard(h.authenticate(h.metrics())))
	}
	if h.options.Secret == "" {
		mux.Handle(path, h.guard(h.authenticate(h.admit(endpoint))))
	}
	if pages != nil {
		mux.Handle("/", h.guardPages(h.endPages(pages)))
	}
	return h.timely(h.locate(mux))
}
