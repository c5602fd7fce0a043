package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/replies"
)

// nested is a caller with workflows in progress.
type nested struct {
	WorkflowCaller
	stack []replies.StackEntry
}

func (n nested) Stack() []replies.StackEntry                           { return n.stack }
func (n nested) StackOf(context.Context, *string) []replies.StackEntry { return n.stack }

type echoArgs struct {
	Do      string  `json:"do" arg:"What happens"`
	Session *string `json:"session_id" arg:"A session"`
}

type echoed struct {
	Text string `json:"text" jsonschema:"text"`
}

// offering serves a set with tools that do what their calls ask for, and connects a client.
func offering(
	t *testing.T, level slog.Level, m *telemetry.Metrics, change func(*Set),
) (*Set, *mcp.ClientSession, *testkit.Log) {
	t.Helper()
	log := &testkit.Log{}
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s := NewSet(server, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})), m, nil)

	do := func(ctx context.Context, _ *Caller, a echoArgs) (*echoed, error) {
		switch a.Do {
		case "refuse":
			return nil, session.NotNow(codes.BoardBusy, "Later.").With("n", 1).With("long",
				strings.Repeat("x", errorMetaBytes)).Because(errors.New("the cause")).Wait(time.Second)
		case "break":
			return nil, errors.New("the disk is on fire")
		case "panic":
			panic("at the disco")
		case "stop":
			stopped, cancel := context.WithCancelCause(ctx)
			cancel(ErrStopping)
			return nil, fmt.Errorf("reading: %w", context.Cause(stopped))
		case "large":
			return &echoed{strings.Repeat("x", MaxReplyBytes)}, nil
		}
		return &echoed{a.Do}, nil
	}
	Add(s, Tool{Name: "echo", Description: "Echoes", Session: "session_id", Recheck: "look at the echo"}, do)
	Add(s, Tool{
		Name:        "read_echo",
		Description: "Reads",
		Hints:       Hints{ReadOnly: true},
		Smaller:     "shout less.",
		Outcome:     func(any) string { return "heard" },
	}, do)
	Add(s, Tool{
		Name:        "held",
		Description: "Held",
		Withheld:    func(context.Context) *session.Error { return session.NotNow(codes.NoBoard, "Not offered.") },
	}, do)
	Add(s, Tool{Name: "run", Description: "Runs"}, func(_ context.Context, _ *Caller, a echoArgs) (*remote.Run, error) {
		return &remote.Run{
			ExecutionID: "e",
			Source:      "shop",
			State:       remote.Running,
			Result:      json.RawMessage(`"` + strings.Repeat("x", len(a.Do)*MaxReplyBytes/5) + `"`),
		}, nil
	})

	if change != nil {
		change(s)
	}
	caller := &Caller{
		Caller:    session.Caller{Identity: "ann"},
		Workflows: nested{stack: []replies.StackEntry{{Workflow: "a/b", SessionID: "0123abcd"}}},
	}
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if call, ok := req.(*mcp.CallToolRequest); ok {
				return s.Dispatch(ctx, caller, call, next, method)
			}
			return next(ctx, method, req)
		}
	})

	return s, connect(t, server, "client", nil), log
}

// connect connects a client with a name.
func connect(t *testing.T, server *mcp.Server, name string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	served := testkit.Get(server.Connect(t.Context(), here, nil)).Must(t)
	cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, o).Connect(t.Context(), there, nil)).
		Must(t)
	t.Cleanup(func() {
		cs.Close()
		served.Wait()
	})
	return cs
}

func TestHowACallEnds(t *testing.T) {
	for _, c := range []struct {
		tool, do    string
		says, meta  string
		log, metric string
	}{
		{"echo", "hello", `{"text":"hello"}`, `{}`,
			"level=INFO msg=call tool=echo caller=ann session=89abcdef stack=[a/b] outcome=ok", "ok"},
		{"read_echo", "hello", `{"text":"hello"}`, `{}`,
			"tool=read_echo caller=ann session=0123abcd stack=[a/b] outcome=heard", "heard"},
		{"echo", "refuse", "Later.",
			`{"deepwork/error":{"code":"board_busy","details_omitted":true,"n":1,"type":"StateError"},` +
				`"deepwork/waiting":{"code":"board_busy","retry_after_ms":1000}}`,
			"level=WARN msg=call tool=echo caller=ann session=89abcdef stack=[a/b] outcome=board_busy error=\"the " +
				"cause\"", "board_busy"},
		{"echo", "break", "echo failed because of an error in the server, not in your arguments; the log has the " +
			"details. What to do now: before you call echo again, look at the echo.",
			`{"deepwork/error":{"code":"internal","type":"ToolError"}}`,
			"level=ERROR msg=call tool=echo caller=ann session=89abcdef stack=[a/b] outcome=internal error=\"the " +
				"disk is on fire\"", "internal"},
		{"read_echo", "break", "What to do now: it changes nothing, so call read_echo again.",
			`{"deepwork/error":{"code":"internal","type":"ToolError"}}`, "outcome=internal", "internal"},
		{"echo", "panic", "echo failed because of an error in the server",
			`{"deepwork/error":{"code":"internal","type":"ToolError"}}`,
			"level=ERROR msg=call tool=echo caller=ann session=89abcdef stack=[a/b] outcome=panic panic=\"at the " +
				"disco\" trace=", "panic"},
		{"echo", "large", "echo was executed, but its reply is too large to send: it has 8388619 bytes of JSON, and " +
			"at most 8388608 are sent. What to do now: before you call echo again, look at the echo.",
			`{"deepwork/error":{"bytes":8388619,"code":"reply_too_large","max":8388608,"type":"StateError"}}`,
			"outcome=reply_too_large", "reply_too_large"},
		{"read_echo", "large", "read_echo has a reply that is too large to send: it has 8388619 bytes of JSON, " +
			"and at most 8388608 are sent. What to do now: shout less.",
			`{"deepwork/error":{"bytes":8388619,"code":"reply_too_large","max":8388608,"type":"StateError"}}`,
			"outcome=reply_too_large", "reply_too_large"},
		{"run", "", `"execution_id":"e"`, `{"deepwork/source":"shop"}`,
			"tool=run caller=ann session=0123abcd stack=[a/b] outcome=running", "running"},
		{"run", "large", "execution e is running, and its result is at its source: get it there.", ``,
			"outcome=reply_too_large", "reply_too_large"},
		{"held", "hello", "Not offered.", `{"deepwork/error":{"code":"no_board","type":"StateError"}}`,
			"outcome=no_board", "no_board"},
	} {
		m := telemetry.LocalMetrics()
		s, cs, log := offering(t, slog.LevelInfo, m, nil)
		args := map[string]any{"do": c.do}
		if c.tool == "echo" {
			args["session_id"] = "89abcdef"
		}
		res := testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: args})).Must(t)
		testkit.Contains(t, res.Content[0].(*mcp.TextContent).Text, c.says, "%s %s", c.tool, c.do)
		delete(res.Meta, "io.modelcontextprotocol/serverInfo")
		meta := string(testkit.Get(json.Marshal(res.Meta)).Must(t))
		testkit.True(t, c.meta == "" || meta == c.meta, "%s %s has %s, want %s", c.tool, c.do, meta, c.meta)
		testkit.Contains(t, regexp.MustCompile(` took_ms=[0-9.]+`).ReplaceAllString(log.String(), ""), c.log, "%s %s",
			c.tool, c.do)

		scraped := httptest.NewRecorder()
		m.Handler(slog.Default()).ServeHTTP(scraped, httptest.NewRequest("GET", "/metrics", nil))
		counted := scraped.Body.String()
		labels := `{outcome="` + c.metric + `",tool="` + c.tool + `"`
		testkit.ContainsAll(t, counted,
			[]string{"\ndeepwork_calls_total" + labels + "} 1\n",
				"\ndeepwork_call_duration_seconds_count" + labels + "} 1\n", "\ndeepwork_calls_in_flight 0\n"})
		testkit.Equal(t, strings.Contains(counted, "deepwork_call_errors_total"), res.IsError, "%s %s is an error",
			c.tool, c.do)
		testkit.Equal(t, s.InFlight.Len()+s.InFlight.Of("ann")+len(s.InFlight.Names()), 0)
	}
}

func TestCallsThatAreNotCarriedOut(t *testing.T) {
	s, cs, log := offering(t, slog.LevelDebug, telemetry.LocalMetrics(), func(s *Set) {
		s.Unregistered = func(_ context.Context, name string) Handler {
			if name != "other-workflow" {
				return nil
			}
			return func(context.Context, *Caller, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "made by " + name}}}, nil
			}
		}
	})
	call := func(name string, args map[string]any) (string, error) {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			return "", err
		}
		return res.Content[0].(*mcp.TextContent).Text, nil
	}
	testkit.Equal(t, testkit.Get(call("other-workflow", nil)).Must(t), "made by other-workflow")
	testkit.Fails(t, testkit.Get(call("ecko", nil)).Err(), `unknown tool "ecko": did you mean echo?`)
	testkit.Fails(t, testkit.Get(call("zzzzzzzzzzzz", nil)).Err(), `unknown tool "zzzzzzzzzzzz"`)
	testkit.Contains(t, testkit.Get(call("echo", map[string]any{"to": 1})).Must(t), `Missing required argument "do"`)
	testkit.Get(call("echo", map[string]any{"do": "x"})).Must(t)
	testkit.ContainsAll(t, log.String(),
		[]string{`msg="call of an unknown tool" tool=ecko caller=ann session=0123abcd`,
			`level=DEBUG msg="call began" tool=echo`})

	s.Check = func(context.Context) (*config.Config, error) { return nil, errors.New("line 1 is odd") }
	testkit.Contains(t, testkit.Get(call("echo", map[string]any{"do": "x"})).Must(t),
		"The configuration is not valid: line 1 is odd. Correct")
	s.Check = func(context.Context) (*config.Config, error) { return nil, session.NotNow(codes.NoBoard, "Own words.") }
	testkit.Equal(t, testkit.Get(call("echo", map[string]any{"do": "x"})).Must(t), "StateError: Own words.")

	var offered []string
	listed := testkit.Get(cs.ListTools(t.Context(), nil)).Must(t).Tools
	for _, own := range s.Offered(t.Context(), append(listed, &mcp.Tool{Name: "foreign"})) {
		offered = append(offered, own.Name)
	}
	testkit.Same(t, offered, []string{"echo", "read_echo", "run", "foreign"})
	testkit.Equal(t, s.Has("held") && !s.Has("foreign") && len(s.Names()) == 4 && s.Tool("echo").Recheck != "", true)
}

// Nobody is told of the end of a call that they have given up; that of one that the server gives up is told.
func TestInterruptedCalls(t *testing.T) {
	s := NewSet(nil, slog.New(slog.DiscardHandler), telemetry.LocalMetrics(), nil)
	for cause, want := range map[error]string{ErrStopping: "stopping", nil: "cancelled"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		log := CallLog{Tool: "echo", level: slog.LevelInfo}
		for _, failed := range []error{fmt.Errorf("reading: %w", context.Cause(ctx)),
			session.NotNow(codes.BoardBusy, "It cannot be read.").Because(context.Canceled)} {
			res, err := s.failed(ctx, &log, failed)
			testkit.Equal(t, log.outcome, want)
			testkit.True(t, (err != nil) == (cause == nil) &&
				(cause == nil || strings.Contains(res.Content[0].(*mcp.TextContent).Text,
					"The server is stopping, and echo was interrupted.")), "%s: %v, %v", want, res, err)
		}
	}
	for _, c := range []struct {
		outcome string
		res     *mcp.CallToolResult
		err     error
		want    string
	}{{"panic", nil, nil, "broken"}, {"internal", nil, nil, "broken"}, {"x", nil, context.Canceled, "cancelled"},
		{"x", &mcp.CallToolResult{IsError: true}, nil, "refused"}, {"ok", &mcp.CallToolResult{}, nil, ""}} {
		testkit.Equal(t, errorKind(c.outcome, c.res, c.err), c.want)
	}
}

// What other servers poll is not in the log, unless it fails.
func TestPollsAreNotLogged(t *testing.T) {
	s, own, log := offering(t, slog.LevelInfo, telemetry.LocalMetrics(), func(s *Set) {
		Add(s, Tool{Name: "poll", Description: "Polls", Polled: true},
			func(_ context.Context, _ *Caller, a echoArgs) (*echoed, error) {
				if a.Do == "break" {
					return nil, errors.New("broken")
				}
				return &echoed{a.Do}, nil
			})
	})

	other := connect(t, s.MCP, source.ClientName, nil)
	for _, c := range []struct {
		client *mcp.ClientSession
		do     string
		lines  int
	}{{other, "look", 0}, {other, "break", 1}, {own, "look", 2}} {
		testkit.Get(c.client.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "poll", Arguments: map[string]any{"do": c.do}})).Must(t)
		testkit.Equal(t, strings.Count(log.String(), "tool=poll"), c.lines, "after %s", c.do)
	}
}

func TestProgressReachesTheClient(t *testing.T) {
	told := make(chan string)
	s, _, _ := offering(t, slog.LevelInfo, telemetry.LocalMetrics(), func(s *Set) {
		Add(s, Tool{Name: "slow", Description: "Slow"},
			func(ctx context.Context, _ *Caller, _ NoArgs) (*echoed, error) {
				Progress(ctx, "halfway")
				return &echoed{<-told}, nil
			})
	})

	cs := connect(t, s.MCP, "client",
		&mcp.ClientOptions{ProgressNotificationHandler: func(
			_ context.Context, r *mcp.ProgressNotificationClientRequest,
		) {
			told <- r.Params.Message
		}})

	params := &mcp.CallToolParams{Name: "slow"}
	params.SetProgressToken("p")
	testkit.Contains(t, testkit.Get(cs.CallTool(t.Context(), params)).Must(t).Content[0].(*mcp.TextContent).Text,
		"halfway")
}

func TestTextsAreBounded(t *testing.T) {
	testkit.Equal(t, bounded("short", 5), "short")
	cut := bounded(strings.Repeat("a", 100)+strings.Repeat("z", 100), 100)
	n := len([]rune(cut))
	testkit.True(t, n <= 100, "%d characters: %q", n, cut)
	testkit.True(t, n >= 90, "%d characters: %q", n, cut)
	testkit.True(t, regexp.MustCompile(`^a+\n\[… \d+ characters cut …\]\nz+$`).MatchString(cut),
		"%d characters: %q", n, cut)

	for _, c := range []struct {
		text string
		max  int
		want string
	}{{" a \n b ", 3, "a b"}, {"abcdef", 6, "abcdef"}, {"abcdef", 5, "ab…"}, {"éééé", 6, "é…"},
		{"a\xff", 9, "a\uFFFD"}} {
		testkit.Equal(t, OneLine(c.text, c.max), c.want, "%q", c.text)
	}
	testkit.Equal(t, Plain("a\tb\n\u200dc\u202ed\x1be"), "a\tb\n\u200dcde")

	for cursor, want := range map[string]string{Workflows.Encode("x"): "x", "y": ""} {
		last, given, err := CursorArgument(&cursor, "next_cursor")
		testkit.Equal(t, last, want)
		testkit.Equal(t, given, (want != ""))
		testkit.Equal(t, (err == nil), given)
	}
	last, given, err := CursorArgument(nil, "n")
	testkit.Equal(t, last, "", "none: %q %t %v", last, given, err)
	testkit.Need(t, !given, "none: %q %t %v", last, given, err)
	testkit.True(t, err == nil, "none: %q %t %v", last, given, err)

	many := make([]replies.StackEntry, StackLogged+1)
	testkit.Contains(t, stackAttr(many).String(), "depth=21")
	testkit.Equal(t, strings.Contains(stackAttr(many[1:]).String(), "depth"), false)
}
