package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// A urlWire is a source that is reached over streamable HTTP.
type urlWire struct {
	endpoint *url.URL
	headers  http.Header // from the config, for each request
	client   *http.Client
	base     *http.Transport
	cutting  context.Context // ended by cut; every request ends with it
	cut      context.CancelFunc
	ready    atomic.Bool  // the session has started
	refusal  atomic.Int32 // status of the last response before the session started
}

// openURL prepares a connection; headers take their variables from the current environment.
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

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 16
	w := &urlWire{endpoint: endpoint, headers: headers, base: base}
	w.cutting, w.cut = context.WithCancel(context.Background())
	w.client = &http.Client{
		Transport: w,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != endpoint.Host || r.URL.Scheme != endpoint.Scheme {
				return fmt.Errorf("it redirects to another server, %s; put that server's address in the config if "+
					"that is intended", r.URL.Host)
			}

			if len(via) >= 5 {
				return errors.New("it redirects too often")
			}
			return nil
		},
	}
	return w, nil
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand expands the variables of a header's value. Its errors do not contain values.
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
	return out, err
}

func (w *urlWire) transport() mcp.Transport {
	return &mcp.StreamableClientTransport{
		Endpoint: w.endpoint.String(), HTTPClient: w.client, MaxRetries: 2, MaxEventSize: maxMessage,
	}
}

func (w *urlWire) end() { w.cut() }

func (w *urlWire) begun() {
	w.ready.Store(true)
	w.refusal.Store(0)
}

func (w *urlWire) leave(ctx context.Context, close func()) {
	// Do not wait long for a hanging server to end the session.
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	stop := context.AfterFunc(ctx, w.cut)

	close()
	stop()
	cancel()
	w.cut()
	w.base.CloseIdleConnections()
}

// reason adds the address to an error, and the status with which the source refused to start a session; the
// SDK's errors have only the name of the status.
func (w *urlWire) reason(err error) error {
	if undecoded.MatchString(err.Error()) {
		err = malformedError{renamedError{err}}
	}

	status := int(w.refusal.Load())
	if status < 400 {
		return err
	}

	hint := ""
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		hint = "; see headers of the source in config.yml"
	}

	// without its secret parts
	shown := url.URL{Scheme: w.endpoint.Scheme, Host: w.endpoint.Host, Path: w.endpoint.Path}
	return fmt.Errorf("%s answers %d %s%s: %w", shown.String(), status, http.StatusText(status), hint, err)
}

// listenWithin is how long a source may take to open the stream for its messages. Some respond only when
// there is one. A test shortens it.
var listenWithin = 5 * time.Second

// RoundTrip implements http.RoundTripper for the SDK. It adds the headers of the config, gives the raw method
// its real name, limits what is read, and makes a refusal fail only its own call: after most refusals the SDK
// would end the session.
func (w *urlWire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(w.cutting, cancel)
	release := sync.OnceFunc(func() {
		stop()
		cancel()
	})
	next := r.Clone(ctx)
	maps.Copy(next.Header, w.headers)
	if host := w.headers.Get("Host"); host != "" {
		next.Host = host
	}

	call := callIn(ctx)
	if call != nil && r.Method == http.MethodPost {
		if err := rename(next, call); err != nil {
			release()
			return nil, err
		}
		call.sent.Store(true)
	}
	listening := r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == ""
	late := &time.Timer{}
	if listening {
		late = time.AfterFunc(listenWithin, cancel)
	}

	resp, err := w.base.RoundTrip(next)
	if listening && !late.Stop() && r.Context().Err() == nil && w.cutting.Err() == nil {
		if err == nil {
			resp.Body.Close()
		}

		release()
		// there is no stream
		return &http.Response{
			StatusCode: http.StatusMethodNotAllowed,
			Header:     make(http.Header),
			Body:       http.NoBody,
			Request:    r,
		}, nil
	}
	if err != nil {
		release()
		return nil, err
	}

	limit := int64(maxMessage)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		limit = maxStream // the SDK limits each event
	}
	resp.Body = &body{ReadCloser: resp.Body, left: limit, release: release}
	if r.Method == http.MethodPost && !w.ready.Load() {
		w.refusal.Store(int32(resp.StatusCode))
	} else if r.Method == http.MethodPost && resp.StatusCode >= 400 {
		refuse(call, next, resp)
	} else if call != nil && resp.StatusCode == http.StatusOK && kind != "text/event-stream" {
		read(call, resp, kind)
	}

	return resp, nil
}

// read handles a response whose message cannot be read. It replaces the response by one for which the SDK
// fails only that call; otherwise the SDK would mostly end the session, and with it the other calls in
// flight.
func read(c *call, resp *http.Response, kind string) {
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err == nil && kind != "application/json" { // perhaps from a proxy
		err = fmt.Errorf("its answer is of the type %.40q, not JSON", kind)
	} else if err == nil {
		if _, err = jsonrpc.DecodeMessage(text); err != nil {
			err = malformedError{fmt.Errorf("it is not a message: %w", err)}
		}
	}
	if err != nil {
		c.unread.Store(&err)
		resp.StatusCode, text = http.StatusBadGateway, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
}

// rename gives the raw method its real name in a request.
func rename(r *http.Request, c *call) error {
	text, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	text = bytes.Replace(text, []byte(`"method":"`+raw), []byte(`"method":"`), 1) // it precedes the parameters
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(len(text))
	if r.Header.Get("Mcp-Method") != "" { // in the newest version of MCP
		r.Header.Set("Mcp-Method", c.method)
		r.Header.Set("Mcp-Name", c.about)
	}

	return nil
}

// sessionWords matches the errors with which many servers refuse a session that they do not know. They send
// the status 400, instead of 404, which MCP requires.
var sessionWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(no valid|invalid|unknown|missing|expired) (mcp[- ])?session|session([- ]id)?( ` +
		`header)?( is| was| has)? (not found|unknown|invalid|expired|missing|required|not ` +
		`valid|terminated)|(server|session|transport)( is)? not (yet )?initialized`)
})

// refuse handles a response that refuses a call. It replaces the response by one for which the SDK fails the
// call and, if the source does not know the session, also ends the session. c is nil for requests that are
// not calls.
func refuse(c *call, r *http.Request, resp *http.Response) {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body.Close()
	m, _ := jsonrpc.DecodeMessage(text)
	answer, ok := m.(*jsonrpc.Response)
	// Python's SDK refuses a session with the id "server-error", C#'s with "", and others without an id.
	// After an error with an id, the SDK would not end the session.
	own := ok && answer.ID == sentID(r)
	words := jsontext.First(text) == '{' && sessionWords().Match(text) ||
		string(text) == "Bad Request: No valid session ID provided"
	gone := resp.StatusCode == http.StatusNotFound && (!own || c == nil && words) ||
		resp.StatusCode == http.StatusBadRequest && !own && words
	switch {
	case gone && r.Header.Get("Mcp-Session-Id") != "":
		if c != nil {
			c.forgotten.Store(true)
		}
		resp.StatusCode, text = http.StatusNotFound, nil
	case c == nil:
	case ok && answer.Error != nil: // the source's answer; with a status such as 500 the SDK does not read it
		resp.StatusCode = http.StatusBadRequest
	default:
		c.refused.Store(&resp.Status)
		resp.StatusCode, text = http.StatusBadGateway, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
}

// sentID returns the id of the message in a request.
func sentID(r *http.Request) jsonrpc.ID {
	body, _ := r.GetBody() // the body made by rename; cannot fail
	text, _ := io.ReadAll(body)
	m, _ := jsonrpc.DecodeMessage(text)
	if request, ok := m.(*jsonrpc.Request); ok {
		return request.ID
	}
	return jsonrpc.ID{}
}

// A body is the limited body of a response.
type body struct {
	io.ReadCloser
	left    int64 // bytes
	release func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes, which is the limit", maxMessage)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
