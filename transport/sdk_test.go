package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// The tests of this file are of the SDK alone: of what middleware.go says that we rely on.

type sdkKey struct{}

// bareSDK is a server of the SDK with one tool, and a client of it.
func bareSDK(t *testing.T, o *mcp.ClientOptions, handler mcp.ToolHandler) (*mcp.Server, *mcp.ClientSession) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}})
	s.AddTool(bareTool("echo"), handler)
	here, there := mcp.NewInMemoryTransports()
	ss := testkit.Get(s.Connect(context.WithValue(t.Context(), sdkKey{}, "connected"), here, nil)).Must(t)
	cs := connect(t, there, stateful, o)
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	return s, cs
}

func bareTool(name string) *mcp.Tool {
	return &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func nothing(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{}, nil
}

func TestSDKCallsTheToolThatMiddlewareNames(t *testing.T) {
	t.Parallel()
	const exact = `{"z":9007199254740993,"a":[1.0,1e2],"b":""}`
	s, cs := bareSDK(t, nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Params.Name != "echo" || ctx.Value(sdkKey{}) != "middleware" || string(req.Params.Arguments) != exact {
			t.Errorf("%s, %v, arguments %s", req.Params.Name, ctx.Value(sdkKey{}), req.Params.Arguments)
		}
		return &mcp.CallToolResult{StructuredContent: req.Params.Arguments}, nil
	})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			testkit.Equal(t, ctx.Value(sdkKey{}), "connected", "a call's context does not have the values of the one that its session was connected with")
			other, params := *call, *call.Params
			params.Name = "echo"
			other.Params = &params
			res, err := next(context.WithValue(ctx, sdkKey{}, "middleware"), method, &other)
			if data, _ := json.Marshal(res); !strings.Contains(string(data), `"structuredContent":`+exact) {
				t.Errorf("raw JSON was changed: %s", data)
			}
			return res, err
		}
	})
	testkit.Works(t, testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "not registered", Arguments: json.RawMessage(exact)})).Err(), "a tool that middleware names in the request")
}

func TestSDKNotifiesOnceOfAToolThatIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	told := make(chan struct{}, 1000)
	s, cs := bareSDK(t, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }}, nothing)
	s.AddTool(bareTool("echo"), nothing)
	<-told
	time.Sleep(100 * time.Millisecond)
	testkit.True(t, len(told) <= 0, "one change is more than one notification")
	for i := range 900 {
		s.AddTool(bareTool(fmt.Sprintf("t%d", i)), nothing)
	}
	res, err := cs.ListTools(t.Context(), nil)
	testkit.True(t, err == nil && res.NextCursor == "", "the first page does not have all tools: %v, %v", res, err)
	testkit.Fails(t, testkit.Get(cs.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "d29ya2Zsb3c6eA"})).Err(), "", "a cursor that is not the SDK's is taken")
	testkit.Works(t, testkit.Get(cs.ListPrompts(t.Context(), nil)).Err(), "a capability that is not declared is refused, so that undeclared is not needed")
}

// rawSDK is a server of the SDK whose only tool is echo, on pipes.
func rawSDK(t *testing.T, handler mcp.ToolHandler) (ss *mcp.ServerSession, to *io.PipeWriter, from *json.Decoder) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	s.AddTool(bareTool("echo"), handler)
	in, to := io.Pipe()
	out, w := io.Pipe()
	ss = testkit.Get(s.Connect(t.Context(), &mcp.IOTransport{Reader: in, Writer: w}, nil)).Must(t)
	return ss, to, json.NewDecoder(out)
}

const echoCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}` + "\n"

func TestSDKSaysWhyACallEnds(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"cancelled": false, "lost": true} {
		began, causes, proceed := make(chan struct{}), make(chan error), make(chan struct{})
		ss, to, from := rawSDK(t, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			close(began)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-proceed
			return nil, ctx.Err()
		})
		go func() {
			for from.Decode(new(any)) == nil {
			}
		}()
		io.WriteString(to, hello+echoCall)
		<-began
		if lost {
			to.Close()
		} else {
			io.WriteString(to, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`+"\n")
		}
		if err := <-causes; (err == context.Canceled) == lost {
			t.Errorf("%s: the cause is %v", name, err)
		}
		waited := make(chan struct{})
		go func() { ss.Wait(); close(waited) }()
		to.Close()
		select {
		case <-waited:
			t.Errorf("%s: Wait returns while a call is in flight", name)
		case <-time.After(50 * time.Millisecond):
		}
		close(proceed)
		<-waited
	}
}

func TestSDKEndsAConnectionOverWhatItCannotDecode(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hello", "7", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":7}`} {
		testkit.Fails(t, testkit.Get(jsonrpc.DecodeMessage([]byte(text))).Err(), "", "%s", text)
		ss, to, _ := rawSDK(t, nothing)
		io.WriteString(to, text+"\n")
		ss.Wait()
		to.Close()
	}
}

func TestSDKAnswersCancelledCalls(t *testing.T) {
	t.Parallel()
	ss, to, answers := rawSDK(t, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	go io.WriteString(to, hello+echoCall+`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`+"\n")
	var got []string
	for range 2 {
		var m struct {
			ID    any             `json:"id"`
			Error json.RawMessage `json:"error"`
		}
		must(t, answers.Decode(&m))
		id, _ := json.Marshal(m.ID)
		got = append(got, string(id)+map[bool]string{true: " error", false: ""}[m.Error != nil])
	}
	testkit.Same(t, got, []string{`"hello"`, "7 error"}, "answers")
	to.Close()
	ss.Wait()
}

func TestSDKRefusesASecondStream(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer web.Close()
	c := httpClient(t, "")
	r := send(t, c, "POST", web.URL, initialize)
	id := "Mcp-Session-Id: " + r.header.Get("Mcp-Session-Id")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", web.URL, nil)
	req.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {r.header.Get("Mcp-Session-Id")}}
	first, err := c.Do(req)
	testkit.Need(t, err == nil && first.StatusCode == 200, "%v %v", err, first)
	defer first.Body.Close()
	if r := send(t, c, "GET", web.URL, "", id); r.status != http.StatusConflict {
		t.Errorf("a second stream gets %d, so that web.standalone may not be needed", r.status)
	}
	cancel()
	send(t, c, "DELETE", web.URL, "", id)
}
