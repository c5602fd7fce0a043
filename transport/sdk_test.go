package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// The tests of this file are of the SDK alone: of what middleware.go says that we rely on.

type sdkKey struct{}

// bareSDK is a server of the SDK whose only tool is echo.
func bareSDK(handler mcp.ToolHandler) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"},
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}})
	s.AddTool(bareTool("echo"), handler)
	return s
}

func bareTool(name string) *mcp.Tool {
	return &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func nothing(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{}, nil
}

func TestSDKCallsTheToolThatMiddlewareNamesAndNotifiesOnce(t *testing.T) {
	t.Parallel()
	const exact = `{"z":9007199254740993,"a":[1.0,1e2],"b":""}`
	s := bareSDK(func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		testkit.Equal(t, fmt.Sprintf("%s %v %s", req.Params.Name, ctx.Value(sdkKey{}), req.Params.Arguments),
			"echo middleware "+exact)
		return &mcp.CallToolResult{StructuredContent: req.Params.Arguments}, nil
	})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			testkit.Equal(t, ctx.Value(sdkKey{}), "connected",
				"a call's context does not have the values of the one that its session was connected with")

			other, params := *call, *call.Params
			params.Name = "echo"
			other.Params = &params
			res, err := next(context.WithValue(ctx, sdkKey{}, "middleware"), method, &other)
			testkit.Contains(t, string(testkit.Get(json.Marshal(res)).Must(t)), `"structuredContent":`+exact,
				"raw JSON was changed")
			return res, err
		}
	})

	here, there := mcp.NewInMemoryTransports()
	ss := testkit.Get(s.Connect(context.WithValue(t.Context(), sdkKey{}, "connected"), here, nil)).Must(t)
	told := make(chan struct{}, 1000)
	cs := connect(t, there, stateful,
		&mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			told <- struct{}{}
		}})
	defer func() {
		cs.Close()
		ss.Wait()
	}()
	testkit.Works(t,
		testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      "not registered",
			Arguments: json.RawMessage(exact),
		})).Err(), "a tool that middleware names in the request")

	s.AddTool(bareTool("echo"), nothing)
	<-told
	time.Sleep(100 * time.Millisecond)
	testkit.Equal(t, len(told), 0, "one change is more than one notification")

	for i := range 900 {
		s.AddTool(bareTool(fmt.Sprintf("t%d", i)), nothing)
	}
	testkit.Equal(t, testkit.Get(cs.ListTools(t.Context(), nil)).Must(t).NextCursor, "",
		"the first page does not have all tools")
	testkit.Fails(t, testkit.Get(cs.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "d29ya2Zsb3c6eA"})).Err(), "",
		"a cursor that is not the SDK's is taken")
	testkit.Works(t, testkit.Get(cs.ListPrompts(t.Context(), nil)).Err(),
		"a capability that is not declared is refused, so that undeclared is not needed")
}

func TestSDKEndsAConnectionOverWhatItCannotDecodeAndRefusesASecondStream(t *testing.T) {
	t.Parallel()
	s := bareSDK(nothing)
	for _, text := range []string{"hello", "7", `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":7}`} {
		testkit.Fails(t, testkit.Get(jsonrpc.DecodeMessage([]byte(text))).Err(), "", "%s", text)
		in, to := io.Pipe()
		ss := testkit.Get(s.Connect(t.Context(), &mcp.IOTransport{Reader: in, Writer: nopCloser{io.Discard}}, nil)).
			Must(t)
		io.WriteString(to, text+"\n")
		ss.Wait()
		to.Close()
	}

	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer web.Close()
	c := httpClient(t, "")
	id := send(t, c, "POST", web.URL, initialize).header.Get("Mcp-Session-Id")
	req := testkit.Get(http.NewRequest("GET", web.URL, nil)).Must(t)
	req.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {id}}
	first := testkit.Get(c.Do(req)).Must(t)
	defer first.Body.Close()
	testkit.Equal(t, first.StatusCode, http.StatusOK)

	// if not, web.standalone may not be needed
	send(t, c, "GET", web.URL, "", "Mcp-Session-Id: "+id).is(t, http.StatusConflict)
	send(t, c, "DELETE", web.URL, "", "Mcp-Session-Id: "+id)
}
