package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK decodes what a tool answers into maps and floats: the order of keys and
// the digits of large numbers are lost. So calls go through it as a method of our
// own, whose answer stays as it is, and are renamed on their way out. So is the
// list of tools, of which the SDK takes none where one is not as it should be.
const (
	exactMethod = exactPrefix + "tools/call"
	toolsMethod = exactPrefix + "tools/list"
	exactPrefix = "deepwork/"
)

// A request is one call of a source's tool.
type request struct {
	mcp.ParamsBase
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// A toolsRequest asks for a page of a source's tools.
type toolsRequest struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

// A toolsReply is a page of a source's tools.
type toolsReply struct {
	mcp.ResultBase
	Names      []string
	NextCursor string
}

// UnmarshalJSON implements json.Unmarshaler. It takes the names that it finds.
func (r *toolsReply) UnmarshalJSON(data []byte) error {
	var in struct {
		Tools      []json.RawMessage `json:"tools"`
		NextCursor json.RawMessage   `json:"nextCursor"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("its answer is no list of tools: %w", err)
	}
	for _, raw := range in.Tools {
		var tool struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &tool) == nil {
			r.Names = append(r.Names, tool.Name)
		}
	}
	textOf(in.NextCursor, &r.NextCursor)
	return nil
}

// registerExact lets a client send calls whose answers stay exact.
func registerExact(c *mcp.Client) error {
	if err := mcp.AddSendingCustomMethod[*toolsRequest, *toolsReply](c, toolsMethod); err != nil {
		return err
	}
	return mcp.AddSendingCustomMethod[*request, *reply](c, exactMethod)
}

// listExact asks for a page of tools; the client's transport is to rename the
// method.
func listExact(ctx context.Context, s *mcp.ClientSession, r *toolsRequest) (*toolsReply, error) {
	page, err := mcp.CallCustomMethod[*toolsRequest, *toolsReply](ctx, s, toolsMethod, r)
	if err != nil {
		return nil, renamedError{err}
	}
	return page, nil
}

// callExact calls a tool; the client's transport is to rename the method.
func callExact(ctx context.Context, s *mcp.ClientSession, r *request) (*reply, error) {
	answer, err := mcp.CallCustomMethod[*request, *reply](ctx, s, exactMethod, r)
	if err != nil {
		return nil, renamedError{err}
	}
	return answer, nil
}

// A renamedError speaks of the method by its real name.
type renamedError struct{ error }

// Error names the method as the source knows it.
func (e renamedError) Error() string {
	return strings.ReplaceAll(e.error.Error(), exactPrefix+"tools/", "tools/")
}

// Unwrap returns the error as it was.
func (e renamedError) Unwrap() error { return e.error }

// A renaming connection gives exact calls their real name.
type renaming struct{ mcp.Connection }

// Write implements mcp.Connection.
func (c renaming) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok && strings.HasPrefix(r.Method, exactPrefix) {
		renamed := *r
		renamed.Method = r.Method[len(exactPrefix):]
		m = &renamed
	}
	return c.Connection.Write(ctx, m)
}

// Headers that the newest version of MCP has beside the body, and that are to say
// the same.
const (
	methodHeader = "Mcp-Method"
	nameHeader   = "Mcp-Name"
)

// renameBody does the same to an HTTP request, where the SDK takes no connection
// but its own.
func renameBody(req *http.Request) (*http.Request, error) {
	if req.Method != http.MethodPost || req.Body == nil {
		return req, nil
	}
	body, err := io.ReadAll(req.Body)
	req.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	name := "" // of the tool that is called
	if bytes.Contains(body, []byte(exactPrefix)) {
		var message struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id,omitempty"`
			Method  string          `json:"method"`
			Params  json.RawMessage `json:"params,omitempty"`
		}
		if err := json.Unmarshal(body, &message); err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		if method, ours := strings.CutPrefix(message.Method, exactPrefix); ours {
			message.Method = method
			var params struct {
				Name string `json:"name"`
			}
			if json.Unmarshal(message.Params, &params) == nil {
				name = params.Name
			}
			var out bytes.Buffer
			encoder := json.NewEncoder(&out)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(&message); err != nil {
				return nil, fmt.Errorf("writing the request: %w", err)
			}
			body = out.Bytes()
		}
	}
	next := req.Clone(req.Context())
	if method, ours := strings.CutPrefix(next.Header.Get(methodHeader), exactPrefix); ours {
		next.Header.Set(methodHeader, method)
		if name != "" {
			next.Header.Set(nameHeader, name)
		}
	}
	next.Body = io.NopCloser(bytes.NewReader(body))
	next.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	next.ContentLength = int64(len(body))
	return next, nil
}
