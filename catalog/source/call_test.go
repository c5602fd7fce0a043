package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

const exact = `{"zebra":12345678901234567890,"ant":[1.10,"x"],"é":null}`

const syncType = `"executionType":"sync"`

func sums(_ context.Context, _ *mcp.CallToolRequest, id string, input json.RawMessage) (*mcp.CallToolResult, error) {
	var in struct{ How string }
	json.Unmarshal(input, &in)
	switch in.How {
	case "structured":
		return structured(exact), nil
	case "text":
		return text(" " + exact + "\n"), nil
	case "plain":
		return text("all <done>"), nil
	case "several":
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"},
			&mcp.ImageContent{MIMEType: "image/png", Data: []byte{1}}}}, nil
	case "nothing":
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	case "refuse":
		return failure("no such region: " + strings.Repeat("x", 10_000)), nil
	}

	return text(id), nil
}

func TestReq003_2_2_ASyncWorkflowRunsToItsEnd(t *testing.T) {
	r, w := offering(t, overHTTP(t, "web", &fakery{list: listOf(workflow("s/1", "sum", syncType)), execute: sums}),
		"sum")
	for how, want := range map[string]string{
		"structured": exact, "text": exact, "plain": `"all <done>"`, "other": `"s/1"`, "nothing": "",
		"several": `[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AQ=="}]`,
	} {
		r.gives(t, w, `{"how":"`+how+`"}`, want, how)
	}
	_, err := r.execute(t, w, `{"how":"refuse"}`)
	e, ok := errors.AsType[*source.RefusedError](err)
	testkit.Need(t, ok, "%T %.100v", err, err)
	testkit.True(t, strings.HasPrefix(e.Text, "no such region"), "%T %.100v", err, err)
	testkit.Equal(t, len([]rune(e.Text)), 8000)
}

func TestReq003_7_3_ProgressReachesTheCallItBelongsTo(t *testing.T) {
	var told [5]chan struct{} // closed when the progress of that call was heard of
	for i := range told {
		told[i] = make(chan struct{})
	}

	f := &fakery{list: listOf(workflow("s", "sum", syncType))}
	f.execute = func(
		ctx context.Context, r *mcp.CallToolRequest, _ string, input json.RawMessage,
	) (*mcp.CallToolResult, error) {
		if r.Params.GetProgressToken() == nil {
			return text("nobody listens"), nil
		}
		testkit.Works(t, r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 3, Message: string(input),
		}))

		var in struct{ N int }
		testkit.Works(t, json.Unmarshal(input, &in))
		select { // only then does it go on
		case <-told[in.N]:
			return text("done"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r, w := offering(t, overHTTP(t, "web", f), "sum")
	var calls sync.WaitGroup
	for i := range told {
		calls.Go(func() {
			mine := fmt.Sprintf(`{"n":%d}`, i)
			testkit.Works(t, testkit.Get(r.Execute(t.Context(), w, json.RawMessage(mine), func(p source.Progress) {
				testkit.Equal(t, *p.Value, 1, "%+v for %s", p, mine)
				testkit.Equal(t, *p.Total, 3, "%+v for %s", p, mine)
				testkit.Equal(t, p.Message, mine, "%+v for %s", p, mine)
				close(told[i])
			})).Err())
		})
	}
	calls.Wait()
	r.gives(t, w, "", `"nobody listens"`)
}

// A source may go on to report progress when it has answered.
func TestEndlessProgressHoldsNobodyUp(t *testing.T) {
	f := &fakery{list: listOf(workflow("s", "sum", syncType))}
	reporting := make(chan struct{})
	f.execute = func(
		_ context.Context, r *mcp.CallToolRequest, _ string, _ json.RawMessage,
	) (*mcp.CallToolResult, error) {
		go func() {
			for i := 1.0; t.Context().Err() == nil; i++ {
				_ = r.Session.NotifyProgress(t.Context(),
					&mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: i})
				if i == 1000 {
					close(reporting)
				}
			}
		}()
		<-reporting
		return text("done"), nil
	}
	r, w := offering(t, overHTTP(t, "web", f), "sum")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	testkit.Works(t, errors.Join(
		testkit.Get(r.Execute(ctx, w, nil, func(source.Progress) { time.Sleep(time.Millisecond) })).Err(), ctx.Err()))
}

func TestReq003_7_1_AnAsyncWorkflowIsStartedAskedAndCancelled(t *testing.T) {
	for _, id := range []string{"e1", "task:1", "id:task:1"} { // none is a task of MCP, and the workflow is not a tool
		f := &fakery{list: listOf(workflow("tool:a", "slow"))}
		f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
			return text(`{"execution_id":"` + id + `","status":"RUNNING"}`), nil
		}
		f.status = func(id string) *mcp.CallToolResult {
			return structured(`{"status":"Running","progress":40,"message":"` + id + `"}`)
		}
		f.cancel = func(id string) *mcp.CallToolResult { return text(`{"status":"canceled"}`) }
		r, w := offering(t, overHTTP(t, "web", f), "slow")
		got, err := r.execute(t, w, `{}`)
		testkit.Need(t, err == nil, "%+v %v", got, err)
		testkit.Need(t, (got.ExecutionID == id || id != "e1"), "%+v %v", got, err)
		testkit.Need(t, got.State == source.Running, "%+v %v", got, err)
		own := got.ExecutionID
		got, err = r.Status(t.Context(), "web", w.ID, own)
		testkit.Need(t, err == nil && got.State == source.Running, "%+v %v", got, err)
		testkit.Equal(t, *got.Progress.Value, 40)
		testkit.Equal(t, *got.Progress.Total, 100)
		testkit.Equal(t, got.Progress.Message, "tool:a/"+id)
		testkit.Equal(t, testkit.Get(r.Cancel(t.Context(), "web", w.ID, own)).Must(t).State, source.Cancelled)
	}
}

func TestReq003_8_5_WhatTheSourceHasNoToolForIsNotSupported(t *testing.T) {
	r, _ := offering(t, command("local", "good"), "one", "two")
	testkit.FailsWith(t, testkit.Get(r.Status(t.Context(), "local", "1", "e")).Err(), source.ErrUnsupported)
	testkit.FailsWith(t, testkit.Get(r.Cancel(t.Context(), "local", "1", "e")).Err(), source.ErrUnsupported)
}

func TestReq003_7_5_ACancelledCallIsCancelledAtTheSource(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	f := &fakery{list: listOf(workflow("s", "slow", syncType))}
	f.execute = func(
		ctx context.Context, _ *mcp.CallToolRequest, _ string, _ json.RawMessage,
	) (*mcp.CallToolResult, error) {
		close(entered)
		<-ctx.Done()
		close(left)
		return nil, ctx.Err()
	}
	r, w := offering(t, overHTTP(t, "web", f), "slow")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody wants it any more")
	go func() {
		<-entered
		cancel(why)
	}()
	testkit.FailsWith(t, testkit.Get(r.Execute(ctx, w, nil, func(source.Progress) {})).Err(), why)
	<-left // the source was told
}

func TestASourceThatDiesInTheMiddleOfACall(t *testing.T) {
	r, _ := offering(t, command("local", "dies"), "one", "two")
	_, err := r.execute(t, &r.Snapshot().Tool("two").Workflow, "")
	testkit.FailsWith(t, err, source.ErrAway)
	testkit.FailsWith(t, err, source.ErrLost)
	testkit.Contains(t, err.Error(), "made of cheese")
	r.back(t, "one", "two")
}

func TestASourceThatHangsHoldsNobodyUp(t *testing.T) {
	f := &fakery{list: listOf(workflow("s", "slow", syncType))}
	entered := make(chan struct{}, 2)
	f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
		entered <- struct{}{}
		<-t.Context().Done() // whatever it is told
		return nil, t.Context().Err()
	}
	r, w := offering(t, overHTTP(t, "web", f), "slow")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	testkit.FailsWith(t, testkit.Get(r.Execute(ctx, w, nil, nil)).Err(), context.DeadlineExceeded)
	<-entered

	// A call in flight when the catalog is closed fails with it.
	failed := make(chan error, 1)
	go func() { failed <- testkit.Get(r.Execute(context.WithoutCancel(ctx), w, nil, nil)).Err() }()
	<-entered
	testkit.Works(t, r.Close(t.Context()))
	testkit.FailsWith(t, <-failed, source.ErrAway)
}

func TestAServerThatIsGone(t *testing.T) {
	web := listenAndServe(t, mount(t, (&fakery{list: listOf(workflow("s", "sum", syncType))}).server()))
	r, w := offering(t, named(config.WorkflowSource{Name: "web", URL: web.URL}), "sum")
	web.CloseClientConnections()
	web.Close()
	testkit.FailsWith(t, testkit.Get(r.execute(t, w, "")).Err(), source.ErrAway)
	// The call that failed makes the source be looked at, not the next interval.
	r.until(t, "the tool to be away", away)
}

// aTask is what a server answers a call with, instead of a result.
const aTask = `{"resultType":"task","taskId":"t-1","status":"working","createdAt":"2026-07-28T00:00:00Z",` +
	`"lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null}`

// A source that answers every call with a task is followed where a task may come, and is at fault elsewhere:
// an SDK takes a task that it doesn't know for an empty success, as the bare one here does.
func TestATaskIsNeverAnEmptySuccess(t *testing.T) {
	var listsTasks atomic.Bool
	var declared sync.Map // of a tool or a method -> true
	web := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		json.Unmarshal(body, &m)
		name := m.Params.Name
		if m.Method == "tasks/get" {
			name = m.Method
		}
		if strings.Contains(string(body), "io.modelcontextprotocol/tasks") {
			declared.Store(name, true)
		}
		result := aTask
		switch {
		case m.Method == "server/discover":
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},` +
				`"serverInfo":{"name":"s","version":"1"},"ttlMs":0,"cacheScope":"private"}`
		case m.Method == "tools/list":
			result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
				`"tools":[{"name":"workflows-list-tool","inputSchema":{"type":"object"}},` +
				`{"name":"workflows-execute-tool","inputSchema":{"type":"object"}},` +
				`{"name":"workflows-status-tool","inputSchema":{"type":"object"}},{"name":"plain",` +
				`"inputSchema":{"type":"object"}}]}`
		case name == "workflows-list-tool" && !listsTasks.Load():
			result = `{"resultType":"complete","content":[],"structuredContent":[{"id":"w","name":"flow",` +
				`"description":"d","executionType":"async","inputSchema":{"type":"object"}}]}`
		case m.Method == "tasks/get":
			result = strings.Replace(aTask, `"task"`, `"complete"`, 1)
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	bare := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "bare", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: web.URL}, nil)).Must(t)
	defer bare.Close()
	empty, err := bare.CallTool(t.Context(), &mcp.CallToolParams{Name: "plain"})
	testkit.Need(t, err == nil, "the SDK decodes a task by now, so that less has to be done here: %+v, %v", empty, err)
	testkit.True(t, !empty.IsError, "the SDK decodes a task by now, so that less has to be done here: %+v, %v",
		empty, err)
	testkit.Equal(t, len(empty.Content), 0, "the SDK decodes a task by now, so that less has to be done here: %+v, %v",
		empty, err)

	r := open(t, settings(named(config.WorkflowSource{Name: "s", URL: web.URL, Tools: []string{"plain"}})))
	for _, tool := range r.tools(t, "flow", "plain").Tools {
		a, err := r.Execute(t.Context(), &tool.Workflow, nil, nil)
		testkit.Need(t, err == nil, "%s: %+v, %v", tool.Name, a, err)
		testkit.Equal(t, a.State, source.Running)
		testkit.Equal(t, a.ExecutionID, "task:t-1")
	}
	testkit.Equal(t, testkit.Get(r.Status(t.Context(), "s", "w", "task:t-1")).Must(t).State, source.Running, "state")
	testkit.Fails(t, testkit.Get(r.Status(t.Context(), "s", "w", "x-1")).Err(), "it is a task, which was not asked for")

	listsTasks.Store(true)
	r.refresh(t)
	r.tools(t, "flow", "plain") // not an empty list

	for what, want := range map[string]bool{
		"workflows-list-tool":    false,
		"workflows-status-tool":  false,
		"workflows-execute-tool": true,
		"plain":                  true,
		"tasks/get":              true,
	} {
		_, ok := declared.Load(what)
		testkit.Equal(t, ok, want, "%s declares the extension", what)
	}
}
