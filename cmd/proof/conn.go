package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withSessions is the newest protocol version that has MCP sessions.
const withSessions = "2025-11-25"

// errVanished is what a client's requests fail with after it has vanished.
var errVanished = errors.New("the client has vanished")

// A conn is a connection of one real MCP client to a process.
type conn struct {
	session *mcp.ClientSession
	wire    *wire // nil: the process is over stdio, and its one connection is shared
}

// A wire carries a client's requests. It can be cut, as if the client's process had died:
// without a farewell.
type wire struct {
	over *http.Transport
	cut  atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		return nil, errVanished
	}
	return w.over.RoundTrip(r)
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "deepwork-proof", Version: "1"}, nil)
}

// connect connects a client to a process. The protocol's version "" is the newest.
// Mortal processes are killed: a client does not wait for one to come back.
func connect(ctx context.Context, p *process, version string, mortal bool) (*conn, error) {
	if p.stdio != nil {
		return &conn{session: p.stdio}, nil
	}
	w := &wire{over: &http.Transport{MaxIdleConnsPerHost: 32}}
	over := &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: &http.Client{Transport: w}}
	if mortal {
		over.MaxRetries, over.DisableStandaloneSSE = -1, true
	}
	session, err := newClient().Connect(ctx, over, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		w.over.CloseIdleConnections()
		return nil, fmt.Errorf("connecting to %s: %w", p.url, err)
	}
	return &conn{session: session, wire: w}, nil
}

// leave ends the connection in order. It blocks for as long as the server takes for that.
func (c *conn) leave() error {
	if c.wire == nil {
		return nil
	}
	err := c.session.Close()
	c.wire.over.CloseIdleConnections()
	if errors.Is(err, errVanished) {
		return nil
	}
	return err
}

// vanish ends the connection as a crash of the client does: the server is not told.
func (c *conn) vanish() {
	if c.wire != nil {
		c.wire.cut.Store(true)
	}
	_ = c.leave() // the farewell fails, as it is to
}

// call makes one tool call, and returns the text of the result.
func (c *conn) call(ctx context.Context, tool string, args any) (text string, result *mcp.CallToolResult, err error) {
	result, err = c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", tool, err)
	}
	for _, block := range result.Content {
		if t, ok := block.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	return text, result, nil
}
