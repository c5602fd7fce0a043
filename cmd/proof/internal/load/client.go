package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withSessions is the newest protocol version that has MCP sessions.
const withSessions = "2025-11-25"

// errVanished is what a client's requests fail with after it has vanished.
var errVanished = errors.New("the client has vanished")

// A client is one real MCP client and the server that it is connected to.
type client struct {
	server  *server
	session *mcp.ClientSession
	wire    *wire
	// answered is when the last call that was answered began: whatever the server counts
	// as idle came after it.
	answered atomic.Pointer[time.Time]
}

// A wire is a client's way to its server. It can be cut, as if the client's
// process had died: without a farewell.
type wire struct {
	over  *http.Transport
	token string
	cut   atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		return nil, errVanished
	}
	if w.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.over.RoundTrip(r)
}

// connect connects a client over streamable HTTP, with a stream for what the
// server has to say as clients have it.
func connect(ctx context.Context, s *server, stateless bool) (*client, error) {
	w := &wire{over: &http.Transport{MaxIdleConnsPerHost: 32}, token: s.token}
	version := withSessions
	if stateless {
		version = ""
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "deepwork-load", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: w}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		w.over.CloseIdleConnections()
		return nil, fmt.Errorf("connecting to %s: %w", s.url, err)
	}
	return &client{server: s, session: session, wire: w}, nil
}

// leave ends the connection in order; its end may take what the server takes for it.
func (c *client) leave() error {
	err := c.session.Close()
	c.wire.over.CloseIdleConnections()
	if errors.Is(err, errVanished) {
		return nil
	}
	return err
}

// vanish ends it as a crash of the client does: the server is not told.
func (c *client) vanish() {
	c.wire.cut.Store(true)
	_ = c.leave() // the farewell fails, as it is to
}

// A refusal is a tool call that the server refused.
type refusal struct {
	tool, code, text string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s was refused (%s): %s", r.tool, r.code, r.text)
}

// refusedWith is the code that an error of call is refused with, or "".
func refusedWith(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	return ""
}

// call makes one tool call and returns the reply's JSON. A refusal is a *refusal.
func (c *client) call(ctx context.Context, tool string, args map[string]any) (string, error) {
	last, began := c.answered.Load(), time.Now()
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if errors.Is(err, mcp.ErrSessionMissing) && last != nil && time.Since(*last) > idleTimeout {
		return "", fmt.Errorf("%s: %w: %w", tool, errHeldUp, err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", tool, err)
	}
	c.answered.Store(&began)
	text := ""
	if len(result.Content) == 1 {
		if block, ok := result.Content[0].(*mcp.TextContent); ok {
			text = block.Text
		}
	}
	if !result.IsError {
		return text, nil
	}
	r := &refusal{tool: tool, text: text, code: "no code"}
	if meta, ok := result.Meta["deepwork/error"].(map[string]any); ok {
		r.code, _ = meta["code"].(string)
	}
	return "", r
}
