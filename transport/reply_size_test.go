package transport

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
	"deepwork/transport/tool"
)

// A hugeReply is one that no bound of its own holds back.
type hugeReply struct {
	Text string `json:"text"`
}

// serve carries out a call of a tool whose work is work.
func serve(ctx context.Context, s *Server, name string, work func() (any, error)) (*mcp.CallToolResult, error) {
	return s.tools.Serve(ctx, &tool.Caller{Workflows: &fakeAgent{}}, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: name}}, tool.CallLog{Tool: name},
		func(*tool.CallLog) *session.Error { return nil },
		func(context.Context) (any, error) { return work() })
}

// Whatever a tool would answer, what it does
// answer has at most tool.MaxReplyBytes, and an error at most 8,000 characters; what is
// too much is told with its size and with what to do, not cut.
func TestEveryReplyIsBounded(t *testing.T) {
	s, _ := fakeServer(t, nil, inWorkspace)
	names := []string{"report_sales"} // the tool of another system's workflow
	for _, tool := range listTools(t) {
		names = append(names, tool.Name)
	}
	call := func(name string, work func() (any, error)) *mcp.CallToolResult {
		t.Helper()
		res, err := serve(t.Context(), s, name, work)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return res
	}
	frame := len(`{"text":""}`)
	for i, name := range names {
		if i%replyTools != 0 {
			continue
		}
		for size, fits := range map[int]bool{tool.MaxReplyBytes: true, tool.MaxReplyBytes + 1: false} {
			res := call(name, func() (any, error) {
				return &hugeReply{strings.Repeat("x", size-frame)}, nil
			})
			if fits {
				if res.IsError || len(text(res)) != size {
					t.Errorf("%s: %d bytes are refused: %.300s", name, size, text(res))
				}
				continue
			}
			got := text(res)
			if !res.IsError || res.StructuredContent != nil || !strings.HasPrefix(got, "StateError: "+name+" ") || !strings.Contains(got, fmt.Sprintf("%d bytes of JSON, and at most %d are sent", size, tool.MaxReplyBytes)) {
				t.Errorf("%s: %d bytes: %.300s", name, size, got)
			}
			if code := res.Meta[tool.ErrorMeta].(map[string]any)["code"]; code != "reply_too_large" {
				t.Errorf("%s: the code is %v", name, code)
			}
			if _, what, _ := strings.Cut(got, "What to do now: "); len(what) < 20 {
				t.Errorf("%s: nothing says what to do: %s", name, got)
			}
			if strings.Contains(got, tool.SeeExecution) {
				t.Errorf("%s: it is told to see whether a run that ended was started: %s", name, got)
			}
			if carried := strings.Contains(got, "was executed"); carried == s.tools.Tool(name).Hints.ReadOnly {
				t.Errorf("%s only reads: %v; it says %s", name, s.tools.Tool(name).Hints.ReadOnly, got)
			}
		}
		res := call(name, func() (any, error) {
			return nil, session.Wrong("long", "%s", strings.Repeat("é", 3*tool.ErrorChars))
		})
		if n := utf8.RuneCountInString(text(res)); !res.IsError || n > tool.ErrorChars {
			t.Errorf("%s: an error of %d characters", name, n)
		}
	}
}

// What reads little at once says how in its own arguments.
func TestRemediesForLargeRepliesNameArguments(t *testing.T) {
	tools := map[string]*mcp.Tool{}
	for _, tool := range listTools(t) {
		tools[tool.Name] = tool
	}
	s, _ := fakeServer(t, nil, inWorkspace)
	for name, tool := range tools {
		how := s.tools.Tool(name).Smaller
		if how != "" && !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is no tool that only reads", name)
			continue
		}
		argument, ok := strings.CutPrefix(how, "give ")
		if !ok {
			continue
		}
		argument, _, _ = strings.Cut(strings.TrimPrefix(argument, "a smaller "), ",")
		if schemaFrom(t, tool.InputSchema).Properties[argument] == nil {
			t.Errorf("%s has no argument %q, which its remedy names: %s", name, argument, how)
		}
	}
}
