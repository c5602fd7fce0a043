package source_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// modeEnv makes the test binary a source: an MCP server over stdio.
const modeEnv = "DEEPWORK_TEST_SOURCE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		beSource(mode)
		return
	}

	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// A fakery is the workflows of another system, served by a real MCP server.
type fakery struct {
	mu      sync.Mutex
	list    func(cursor string) *mcp.CallToolResult // what the list tool answers
	execute func(ctx context.Context, r *mcp.CallToolRequest, id string,
		input json.RawMessage) (*mcp.CallToolResult, error)
	status  func(id string) *mcp.CallToolResult // nil: there is no such tool
	cancel  func(id string) *mcp.CallToolResult // nil: there is no such tool
	queries atomic.Int64
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func structured(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: json.RawMessage(s)}
}

func failure(s string) *mcp.CallToolResult {
	r := text(s)
	r.IsError = true
	return r
}

func workflow(id, name string, more ...string) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"description":"does %s"%s}`, id, name, name,
		strings.Join(append([]string{""}, more...), ","))
}

func listOf(workflows ...string) func(string) *mcp.CallToolResult {
	return func(string) *mcp.CallToolResult { return text("[" + strings.Join(workflows, ",") + "]") }
}

func (f *fakery) set(list func(string) *mcp.CallToolResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
}

func (f *fakery) asked() int { return int(f.queries.Load()) }

func (f *fakery) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "fakery", Version: "1"}, nil)
	type arguments struct {
		Cursor      string
		WorkflowID  string `json:"workflow_id"`
		ExecutionID string `json:"execution_id"`
		Input       json.RawMessage
	}
	add := func(name string, h func(context.Context, *mcp.CallToolRequest, arguments) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in arguments
				if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
					return nil, err
				}
				return h(ctx, r, in)
			})
	}
	add("workflows-list-tool", func(
		_ context.Context, r *mcp.CallToolRequest, in arguments,
	) (*mcp.CallToolResult, error) {
		f.queries.Add(1)
		f.mu.Lock()
		list := f.list
		f.mu.Unlock()
		return list(in.Cursor), nil
	})

	add("workflows-execute-tool",
		func(ctx context.Context, r *mcp.CallToolRequest, in arguments) (*mcp.CallToolResult, error) {
			if f.execute == nil {
				return text(string(in.Input)), nil
			}
			return f.execute(ctx, r, in.WorkflowID, in.Input)
		})

	for name, h := range map[string]func(string) *mcp.CallToolResult{"status": f.status, "cancel": f.cancel} {
		if h != nil {
			add("workflows-"+name+"-tool",
				func(_ context.Context, _ *mcp.CallToolRequest, in arguments) (*mcp.CallToolResult, error) {
					return h(in.WorkflowID + "/" + in.ExecutionID), nil
				})
		}
	}

	return s
}

// beSource is the other process: mode is how it behaves, and its arguments.
func beSource(mode string) {
	mode, argument, _ := strings.Cut(mode, " ")
	fmt.Fprintln(os.Stderr, "source begins:", mode)
	if file := os.Getenv("PID_FILE"); file != "" {
		os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o600)
		os.Rename(file+".new", file)
	}

	f := &fakery{list: listOf(workflow("1", "one"), workflow("2", "two", `"executionType":"sync"`))}
	switch mode {
	case "good":
	case "file": // the list is in a file
		f.list = func(string) *mcp.CallToolResult {
			data, err := os.ReadFile(argument)
			if err != nil {
				return failure(err.Error())
			}
			return text(string(data))
		}
	case "tell": // where it runs, and with what
		f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
			dir, _ := os.Getwd()
			return text(fmt.Sprintf(`{"dir":%q,"env":%q}`, filepath.ToSlash(dir), os.Getenv("REGION"))), nil
		}
	case "dies": // in the middle of a call
		f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
			fmt.Fprintln(os.Stderr, "cannot go on: the disk is made of cheese")
			os.Exit(3)
			return nil, nil
		}
	case "exit": // at once
		fmt.Fprintln(os.Stderr, "no license")
		os.Exit(2)
	case "mute": // reads, never answers
		io.Copy(io.Discard, os.Stdin)
		return
	case "stubborn": // answers, and does not end when it is asked to
		signal.Ignore(syscall.SIGTERM)
		f.server().Run(context.Background(), &mcp.StdioTransport{})
		testkit.Forever()
	case "garbage":
		for i := 0; ; i++ {
			fmt.Printf("<html>%d</html>\n", i)
			time.Sleep(time.Millisecond)
		}
	case "flood": // one message without an end
		fmt.Print(`{"jsonrpc":"2.0","method":"x","params":{"x":"`)
		for chunk := strings.Repeat("x", 1<<20); ; {
			if _, err := fmt.Print(chunk); err != nil {
				return
			}
		}
	case "noise": // far too much on its standard error
		go func() {
			for chunk := strings.Repeat("noise ", 10_000); ; {
				fmt.Fprintln(os.Stderr, chunk)
			}
		}()
	case "newest":
		f.newest().Run(context.Background(), &mcp.StdioTransport{})
		return
	case "raw":
		beRaw()
		return
	}
	f.server().Run(context.Background(), &mcp.StdioTransport{})
}

// found returns the candidates for a name, and the sources that are away and had it.
func found(s *source.Snapshot, name string) string {
	var names, sources []string
	candidates, gone := s.Find(name)
	for _, t := range candidates {
		names = append(names, t.Name)
	}
	for _, g := range gone {
		sources = append(sources, g.Source)
	}
	return fmt.Sprint(names, sources)
}

// A name that is shared, or whose source is away, means no workflow.
func TestReq003_6_4_ANameMeansOneWorkflow(t *testing.T) {
	a := &fakery{list: listOf(workflow("1", "send"), workflow("1b", "own"))}
	b := &fakery{list: listOf()}
	c := settings(overHTTP(t, "first", a), overHTTP(t, "second", b))
	c.WorkflowTools.KeepToolsFor = 0
	r := open(t, c)
	r.tools(t, "own", "send")
	b.set(listOf(workflow("2", "send")))
	r.refresh(t)
	s := r.tools(t, "own", "send_1", "send_2")
	testkit.Equal(t, found(s, "send")+" "+found(s, "nothing"), "[send_1 send_2] [] [] []")

	// The other does not take the name when the first is away, nor one that a name with an id was once another's.
	away := *c
	away.WorkflowTools.Sources = slices.Clone(c.WorkflowTools.Sources)
	away.WorkflowTools.Sources[0].URL = "http://127.0.0.1:1/mcp"
	r.settings.Store(&away)
	s = r.tools(t, "send_2")
	for name, want := range map[string]string{"send": "[send_2] [first]", "own": "[] [first]", "send_1": "[] [first]"} {
		testkit.Equal(t, found(s, name), want, "%s means", name)
	}

	b.set(listOf(workflow("2", "send"), workflow("1", "send")))
	r.refresh(t)
	s = r.until(t, "two tools", func(s *source.Snapshot) bool { return len(s.Tools) == 2 })
	testkit.True(t, s.Tool("send_1") == nil, "the name send_1 was the other source's: %s", toolNames(s))

	// A source that is renamed, or taken out, holds no names.
	b.set(listOf(workflow("2", "send")))
	r.settings.Store(settings(c.WorkflowTools.Sources[1]))
	r.refresh(t)
	r.tools(t, "send")
}

func TestReq003_4_3_RefreshTellsWhoWasSilent(t *testing.T) {
	hangs := &fakery{}
	broken := &fakery{}
	fine := &fakery{list: listOf(workflow("3", "fine"))}
	for _, f := range []*fakery{hangs, broken} {
		f.list = listOf(workflow("1", "known"))
	}
	r := open(t, settings(overHTTP(t, "hangs", hangs), overHTTP(t, "broken", broken), overHTTP(t, "fine", fine),
		command("dead", "exit")))
	r.until(t, "three sources", func(s *source.Snapshot) bool { return len(s.Tools) == 3 })
	let := make(chan struct{})
	defer close(let)
	hangs.set(func(string) *mcp.CallToolResult {
		<-let
		return text("[]")
	})
	broken.set(func(string) *mcp.CallToolResult { return failure("the database is down") })
	report, err := r.Refresh(t.Context(), time.Second)
	testkit.Need(t, err == nil && len(report.Silent) == 3, "%+v, %v", report, err)
	for i, want := range [][2]string{{"hangs", "did not answer within 1s; its earlier workflows stay listed"},
		{"broken", "the database is down"}, {"dead", "exit"}} {
		testkit.True(t, report.Silent[i].Source == want[0] && strings.Contains(report.Silent[i].Reason, want[1]), "%+v",
			report.Silent[i])
	}
	testkit.Equal(t, len(report.Removed), 0, "what a silent source said before is gone: %v", report.Removed)
}

// largeResult is the result of a tool, of about so many bytes.
func largeResult(size int) string {
	const row = `{"name":"Ada Lovelace","n":12345678901234567890},`
	rows := strings.TrimSuffix(strings.Repeat(row, size/len(row)), ",")
	return `{"content":[],"structuredContent":{"rows":[` + rows + `]}}`
}

// A result over the limit is refused with words that say so, and later calls work.
func TestAResultOverTheLimitIsRefused(t *testing.T) {
	web := newRawWeb(t)
	overWeb, ofWeb := web.open(t)
	overPipe, ofPipe := rawSource(t)
	for _, c := range []struct {
		name, kind string
		r          *rig
		w          *source.Workflow
	}{{"stdio", "", overPipe, ofPipe}, {"HTTP", isJSON, overWeb, ofWeb},
		{"a stream over HTTP", isStream, overWeb, ofWeb}} {
		size := 17 << 20
		web.call = func(w http.ResponseWriter, r *http.Request, id string) {
			text := `{"jsonrpc":"2.0","id":%ID%,"result":` + largeResult(size) + `}`
			if c.kind == isStream {
				text = "data: " + text + "\n\n"
			}
			reply(w, id, 200, c.kind, text)
		}
		execute := func() error { return testkit.Get(c.r.execute(t, c.w, fmt.Sprintf(`{"size":%d}`, size))).Err() }
		testkit.Fails(t, execute(), "16777216 bytes", "%s", c.name)
		size = 1000
		testkit.Until(t, c.name+" to work again", func() bool { return execute() == nil })
	}
}

// newest is a server that speaks the newest version of MCP alone: it does not know initialize, and takes no
// request that does not say its version.
func (f *fakery) newest() *mcp.Server {
	s := f.server()
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			meta := mcp.Meta{}
			if p := r.GetParams(); p != nil && method != "initialize" && !strings.HasPrefix(method, "notifications/") {
				meta = p.GetMeta()
			}
			version, _ := meta[mcp.MetaKeyProtocolVersion].(string)
			if version < "2026-07-28" && !strings.HasPrefix(method, "notifications/") {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not known"}
			}
			return next(ctx, method, r)
		}
	})

	return s
}

// A source that speaks only the newest version of MCP is reached, as a command and by its URL, and its next
// connection begins in that version.
func TestASourceOfTheNewestVersionIsReached(t *testing.T) {
	f := &fakery{list: listOf(workflow("1", "one"), workflow("2", "two", `"executionType":"sync"`))}
	web := listenAndServe(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		return f.newest()
	}, &mcp.StreamableHTTPOptions{Stateless: true}))
	stdio, pid := withPID(t, "newest")
	for name, src := range map[string]config.WorkflowSource{
		"command": stdio,
		"url":     named(config.WorkflowSource{Name: "s", URL: web.URL}),
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := offering(t, src, "one", "two")
			// Whatever is asked of it, and not only at first.
			r.gives(t, &r.Snapshot().Tools[1].Workflow, `{"n":12345678901234567890}`, `{"n":12345678901234567890}`)
			r.refresh(t)
			const told = "spoken to in another version"
			r.logged(t, told, "2026-07-28")
			if name != "command" {
				return
			}

			kill(t, pid)
			r.until(t, "it to be gone", away)
			r.back(t, "one", "two")
			testkit.Equal(t, r.log.Count(told), 1, "initialize was refused … times")
		})
	}
}
