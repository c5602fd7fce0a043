package transport

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// This server relies on the following behavior of the MCP SDK that the SDK does not
// document. sdk_test.go has a test for each, against the bare SDK: if one fails after an
// upgrade, correct the code that is named here.
//
//   - The handler of a call is that of the tool that middleware puts into the request,
//     and middleware's context reaches it: tool.Set.Dispatch.
//   - Raw JSON goes in and out as it is, with its numbers and the order of its keys, but
//     for escapes: the arguments of a call, and structured content: tool.accepted.
//   - What middleware returns for a call need not be a *mcp.CallToolResult, but any result
//     that is encoded alike; its type of result is set by then: encodedResult.
//   - A tool that is registered again is one notification to each client:
//     tool.Set.Announce.
//   - tools/list has all registered tools in its first page, and refuses a cursor that
//     is not its own: remote.Tools.ListTools.
//   - A notification that cancels a call ends its context with the cause
//     context.Canceled; a connection that is lost ends it with another cause: byCaller in
//     tools/remote.
//   - ServerSession.Wait returns when no call is in flight any more: connections.
//   - The context of a session's calls has the values of the one that it was connected
//     with, and over streamable HTTP of its first request: session.CallerOf.
//   - Methods of capabilities that are not declared are answered: undeclared.
//   - A cancelled call is answered with an error, which wire.Stdio drops.
//   - A second stream of a session for messages from the server is refused:
//     web.standalone.
//   - jsonrpc.DecodeMessage refuses what ends the SDK's own connection over stdio: wire.Stdio.

// undeclared are the methods of a capability that the server does not declare, and offered those of
// capabilities that it declares only with the tools of workflows. The SDK would answer them all the
// same, with empty lists, which clients would take for support (found by MCP's conformance suite,
// SEP-2575).
var (
	undeclared = map[string]bool{"logging/setLevel": true}
	offered    = map[string]bool{
		"prompts/get":              true,
		"prompts/list":             true,
		"resources/list":           true,
		"resources/read":           true,
		"resources/templates/list": true,
	}
)

// notOffered is the answer to a method that the server does not support.
func notOffered(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
		Message: fmt.Sprintf("method not found: %q: this server does not offer it; tools/list lists its tools", method)}
}

// An encodedResult is the result of a call whose reply is already encoded. The SDK's own scans and copies
// text and structured content several times each, and makes a step over stdio more than a tenth slower.
type encodedResult struct {
	mcp.ResultBase
	Content    []encodedText   `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError,omitempty"`
	ResultType string          `json:"resultType,omitempty"` // set by the SDK in newer versions of MCP
}

type encodedText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// encoded returns a result that encodes like r, at less cost if possible.
func encoded(r *mcp.CallToolResult) mcp.Result {
	structured, ok := r.StructuredContent.(json.RawMessage)
	if !ok || len(r.Content) != 1 || r.InputRequests != nil || r.RequestState != "" {
		return r
	}
	block, ok := r.Content[0].(*mcp.TextContent)
	if !ok || block.Meta != nil || block.Annotations != nil {
		return r
	}
	rest := *r
	rest.Content, rest.StructuredContent = []mcp.Content{}, nil
	e := &encodedResult{}
	if frame, err := rest.MarshalJSON(); err != nil || json.Unmarshal(frame, e) != nil {
		return r
	}
	e.Content, e.Structured = []encodedText{{"text", block.Text}}, structured
	return e
}
