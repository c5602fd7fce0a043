package transport

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What is not declared is not answered either: clients take an answer for support.
func TestUndeclaredMethodsAreNotFound(t *testing.T) {
	s, _ := fakeServer(t, nil)
	cs := client(t, s)
	if c := cs.InitializeResult().Capabilities; c.Prompts != nil || c.Resources != nil || c.Completions != nil || c.Tools == nil {
		t.Errorf("capabilities %+v", c)
	}
	ctx := context.Background()
	for method, call := range map[string]func() error{
		"prompts/list": func() error { _, err := cs.ListPrompts(ctx, nil); return err },
		"prompts/get":  func() error { _, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p"}); return err },
		"resources/list": func() error {
			_, err := cs.ListResources(ctx, nil)
			return err
		},
		"resources/templates/list": func() error {
			_, err := cs.ListResourceTemplates(ctx, nil)
			return err
		},
		"resources/read": func() error {
			_, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///r"})
			return err
		},
	} {
		err := call()
		if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeMethodNotFound || !strings.Contains(e.Message, method) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if res := callTool(t, cs, "get_step", `{}`); res.IsError {
		t.Errorf("after them: %s", text(res))
	}
}
