package transport

import (
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// undeclared are the methods of capabilities that the server does not declare: it
// has tools. The SDK would answer them all the same, with empty lists; a client that
// asks would take that for support (found by MCP's conformance suite, SEP-2575).
var undeclared = map[string]bool{
	"logging/setLevel":         true,
	"prompts/get":              true,
	"prompts/list":             true,
	"resources/list":           true,
	"resources/read":           true,
	"resources/templates/list": true,
}

// notOffered is the answer to a method that the server does not have.
func notOffered(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
		Message: fmt.Sprintf("method not found: %q: this server offers tools only; tools/list lists them", method)}
}
