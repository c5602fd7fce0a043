package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withSessions is the newest protocol version that has MCP sessions.
const withSessions = "2025-11-25"

// A conn is a connection of a real MCP client to a process.
type conn struct {
	session *mcp.ClientSession
	over    *http.Transport // nil means stdio, whose one connection is shared
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "deepwork-proof", Version: "1"}, nil)
}

// connect connects a client to a process. Protocol version "" means the newest. Mortal processes
// are killed: a client does not wait for one to come back.
func connect(ctx context.Context, p *process, version string, mortal bool) (*conn, error) {
	if p.stdio != nil {
		return &conn{session: p.stdio}, nil
	}
	over := &http.Transport{MaxIdleConnsPerHost: 32}
	client := &http.Client{Transport: over}
	if p.where != nil && p.where.token != "" {
		client.Transport = bearer{over, p.where.token}
	}
	transport := &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: client}
	if mortal {
		transport.MaxRetries, transport.DisableStandaloneSSE = -1, true
	}
	session, err := newClient().Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		over.CloseIdleConnections()
		return nil, fmt.Errorf("connecting to %s: %w", p.url, err)
	}
	return &conn{session: session, over: over}, nil
}

// bearer sends a token with each request.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// leave closes the connection, which may be nil, gracefully. It blocks until the server has ended it.
func (c *conn) leave() error {
	if c == nil || c.over == nil {
		return nil
	}
	defer c.over.CloseIdleConnections()
	return c.session.Close()
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
