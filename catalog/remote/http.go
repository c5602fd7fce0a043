package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/catalog/config"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A urlWire is a source that is reached over streamable HTTP.
type urlWire struct {
	endpoint string
	headers  http.Header  // of the config, for each request
	client   *http.Client // the SDK's
	own      *http.Client // for requests that have their headers, and end with cutting
	base     *http.Transport
	cutting  context.Context // ended by cut: every request ends with it
	cut      context.CancelFunc
	met      atomic.Bool  // the session has begun
	refusal  atomic.Int32 // the status with which the last message before that was refused; 0: it was not
}

// openURL prepares a connection; headers take their variables from the
// environment as it is now.
func openURL(s *config.WorkflowSource) (*urlWire, error) {
	headers := make(http.Header, len(s.Headers))
	for name, value := range s.Headers {
		expanded, err := expand(value, os.LookupEnv)
		if err != nil {
			return nil, fmt.Errorf("the header %s: %w", name, err)
		}
		headers.Set(name, expanded)
	}
	endpoint, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("the url: %w", err)
	}
	w := &urlWire{endpoint: s.URL, base: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}}
	w.cutting, w.cut = context.WithCancel(context.Background())
	w.headers = headers
	w.own = &http.Client{
		Transport: w.base,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != endpoint.Host || r.URL.Scheme != endpoint.Scheme {
				return fmt.Errorf("it sends us on to another server, %s; write that server's address into the config if it is meant", r.URL.Host)
			}
			if len(via) >= 5 {
				return errors.New("it sends us on and on")
			}
			if host := headers.Get("Host"); host != "" {
				r.Host = host
			}
			return nil
		},
	}
	w.client = &http.Client{
		Transport:     renamingCarrier{&carrier{wire: w, host: endpoint.Host, scheme: endpoint.Scheme}},
		CheckRedirect: w.own.CheckRedirect,
	}
	return w, nil
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand puts in the variables of a header's value. It never tells a value.
func expand(value string, lookup func(string) (string, bool)) (string, error) {
	var err error
	out := variable.ReplaceAllStringFunc(value, func(m string) string {
		name := m[2 : len(m)-1]
		v, ok := lookup(name)
		if !ok || v == "" {
			err = fmt.Errorf("the environment variable %q is not set; set it where this server is started", name)
		}
		if strings.ContainsAny(v, "\x00\r\n") {
			err = fmt.Errorf("the environment variable %q has a line break or NUL byte in it", name)
		}
		return v
	})
	if err != nil {
		return "", err
	}
	return out, nil
}

func (w *urlWire) transport() mcp.Transport {
	return &mcp.StreamableClientTransport{
		Endpoint: w.endpoint, HTTPClient: w.client, MaxRetries: 2, MaxEventSize: maxMessage,
	}
}

func (w *urlWire) end() { w.cut() }

// caller makes the calls of a link: past the SDK, where the version has sessions.
func (w *urlWire) caller(l *link) caller {
	w.met.Store(true)
	w.refusal.Store(0)
	version := l.session.InitializeResult().ProtocolVersion
	if version > handshake {
		return l.callOverSDK
	}
	return (&poster{link: l, wire: w, session: l.session.ID(), version: version}).callTool
}

func (w *urlWire) leave(ctx context.Context, close func()) {
	// The farewell is a courtesy that a hanging server does not get for long.
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	stop := context.AfterFunc(ctx, w.cut)
	close()
	stop()
	cancel()
	w.cut()
	w.base.CloseIdleConnections()
}

// reason says with which status the source refused to begin a session; the SDK's
// errors have its name alone, and not the address.
func (w *urlWire) reason(err error) error {
	status := int(w.refusal.Load())
	if status == 0 {
		return err
	}
	hint := ""
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		hint = "; see headers of the source in config.yml"
	}
	return fmt.Errorf("%s answers %d %s%s: %w", shownURL(w.endpoint), status, http.StatusText(status), hint, err)
}

// shownURL is an address without what may be secret in it.
func shownURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "its url"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// A carrier sends the requests of one connection.
type carrier struct {
	wire         *urlWire
	scheme, host string
}

// dress gives a request the headers of the config.
func (w *urlWire) dress(r *http.Request) {
	for name, values := range w.headers {
		r.Header[name] = values
	}
	if host := w.headers.Get("Host"); host != "" {
		r.Host = host
	}
}

// listenWithin is how long a source may take to open the stream over which it
// speaks unasked; some do not before they have something to say.
const listenWithin = 5 * time.Second

// RoundTrip implements http.RoundTripper.
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(c.wire.cutting, cancel)
	release := sync.OnceFunc(func() { stop(); cancel() })
	next := r.Clone(ctx)
	if next.URL.Host == c.host && next.URL.Scheme == c.scheme {
		c.wire.dress(next)
	}
	listening := r.Method == http.MethodGet
	late := &time.Timer{}
	if listening {
		late = time.AfterFunc(listenWithin, cancel)
	}
	resp, err := c.wire.base.RoundTrip(next)
	if listening && !late.Stop() && r.Context().Err() == nil && c.wire.cutting.Err() == nil {
		if err == nil {
			resp.Body.Close()
		}
		release()
		return noStream(r), nil
	}
	if err != nil {
		release()
		return nil, err
	}
	if r.Method == http.MethodPost && !c.wire.met.Load() {
		status := int32(0)
		if resp.StatusCode >= 400 {
			status = int32(resp.StatusCode)
		}
		c.wire.refusal.Store(status)
	}
	limit := int64(maxMessage)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		limit = -1 // each event is bounded, not their number
	}
	resp.Body = &body{ReadCloser: resp.Body, left: limit, release: release}
	return resp, nil
}

// A renamingCarrier carries the SDK's requests.
type renamingCarrier struct{ *carrier }

// RoundTrip implements http.RoundTripper.
func (c renamingCarrier) RoundTrip(r *http.Request) (*http.Response, error) {
	next, err := renameBody(r)
	if err != nil {
		return nil, err
	}
	resp, err := c.carrier.RoundTrip(next)
	if err != nil || r.Header.Get("Mcp-Session-Id") == "" ||
		resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
		return resp, err
	}
	// The SDK knows one way to say that a session is not known, 404, and takes an
	// error of JSON-RPC in the body, as many send it, for an answer to the request alone.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if sessionUnknown(resp.StatusCode, body) {
		resp.StatusCode, resp.Status, body = http.StatusNotFound, "404 Not Found", nil
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// noStream is the answer of a server that does not speak unasked.
func noStream(r *http.Request) *http.Response {
	return &http.Response{
		Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, Request: r,
	}
}

// A body is a response's, bounded.
type body struct {
	io.ReadCloser
	left    int64 // bytes; negative: not bounded
	release func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes, the most that is read", maxMessage)
	}
	if b.left > 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
