package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const exact = `{"zebra":12345678901234567890,"ant":[1.10,"x"],"é":null}`

const syncType = `"executionType":"sync"`

// sums answers in all the ways there are.
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
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte{1}}}}, nil
	case "nothing":
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	case "refuse":
		return failure("no such region: " + strings.Repeat("x", 10_000)), nil
	}
	return text(id), nil
}

func TestReq003_2_2_ASyncWorkflowRunsToItsEnd(t *testing.T) {
	t.Parallel()
	f := &fakery{list: listOf(workflow("s/1", "sum", syncType))}
	f.execute = sums
	for name, src := range map[string]config.WorkflowSource{"http": overHTTP(t, "web", f), "stdio": command("local", "sums")} {
		t.Run(name, func(t *testing.T) {
			r, w := offering(t, src, "sum")
			for how, want := range map[string]string{
				"structured": exact, "text": exact, "plain": `"all <done>"`, "other": `"s/1"`, "nothing": "",
				"several": `[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AQ=="}]`,
			} {
				r.gives(t, w, `{"how":"`+how+`"}`, want, how)
			}
			_, err := r.execute(t, w, `{"how":"refuse"}`)
			e, ok := errors.AsType[*source.RefusedError](err)
			testkit.True(t, ok && strings.HasPrefix(e.Text, "no such region") && len([]rune(e.Text)) == 8000, "%T %.100v", err, err)
		})
	}
}

func TestReq003_7_3_ProgressReachesTheCallItBelongsTo(t *testing.T) {
	t.Parallel()
	var told [5]chan struct{} // closed when the progress of that call was heard of
	for i := range told {
		told[i] = make(chan struct{})
	}
	f := &fakery{list: listOf(workflow("s", "sum", syncType))}
	f.execute = func(ctx context.Context, r *mcp.CallToolRequest, _ string, input json.RawMessage) (*mcp.CallToolResult, error) {
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
				testkit.True(t, *p.Value == 1 && *p.Total == 3 && p.Message == mine, "%+v for %s", p, mine)
				close(told[i])
			})).Err())
		})
	}
	calls.Wait()
	r.gives(t, w, "", `"nobody listens"`)
}

// A source may go on to report progress when it has answered.
func TestEndlessProgressHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	f := &fakery{list: listOf(workflow("s", "sum", syncType))}
	reporting := make(chan struct{})
	f.execute = func(_ context.Context, r *mcp.CallToolRequest, _ string, _ json.RawMessage) (*mcp.CallToolResult, error) {
		go func() {
			for i := 1.0; t.Context().Err() == nil; i++ {
				_ = r.Session.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: i})
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
	_, err := r.Execute(ctx, w, nil, func(source.Progress) { time.Sleep(time.Millisecond) })
	testkit.Works(t, err)
	testkit.Works(t, ctx.Err())
}

func TestReq003_7_1_AnAsyncWorkflowIsStartedAskedAndCancelled(t *testing.T) {
	t.Parallel()
	f := &fakery{list: listOf(workflow("a", "slow"))}
	f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
		return text(`{"execution_id":"e1","status":"RUNNING"}`), nil
	}
	f.status = func(id string) *mcp.CallToolResult {
		return structured(`{"status":"Running","progress":40,"message":"` + id + `"}`)
	}
	f.cancel = func(id string) *mcp.CallToolResult { return text(`{"status":"canceled"}`) }
	r, w := offering(t, overHTTP(t, "web", f), "slow")
	got, err := r.execute(t, w, `{}`)
	testkit.Need(t, err == nil && got.ExecutionID == "e1" && got.State == source.Running, "%+v %v", got, err)
	got, err = r.Status(t.Context(), "web", "a", "e1")
	testkit.True(t, err == nil && got.State == source.Running && *got.Progress.Value == 40 && *got.Progress.Total == 100 && got.Progress.Message == "a/e1", "%+v %v", got, err)
	testkit.Equal(t, testkit.Get(r.Cancel(t.Context(), "web", "a", "e1")).Must(t).State, source.Cancelled)
}

func TestReq003_8_5_WhatTheSourceHasNoToolForIsNotSupported(t *testing.T) {
	t.Parallel()
	r, _ := offering(t, command("local", "good"), "one", "two")
	testkit.FailsWith(t, testkit.Get(r.Status(t.Context(), "local", "1", "e")).Err(), source.ErrUnsupported)
	testkit.FailsWith(t, testkit.Get(r.Cancel(t.Context(), "local", "1", "e")).Err(), source.ErrUnsupported)
}

func TestReq003_7_5_ACancelledCallIsCancelledAtTheSource(t *testing.T) {
	t.Parallel()
	entered, left := make(chan struct{}), make(chan struct{})
	f := &fakery{list: listOf(workflow("s", "slow", syncType))}
	f.execute = func(ctx context.Context, _ *mcp.CallToolRequest, _ string, _ json.RawMessage) (*mcp.CallToolResult, error) {
		close(entered)
		<-ctx.Done()
		close(left)
		return nil, ctx.Err()
	}
	r, w := offering(t, overHTTP(t, "web", f), "slow")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody wants it any more")
	go func() { <-entered; cancel(why) }()
	testkit.FailsWith(t, testkit.Get(r.Execute(ctx, w, nil, func(source.Progress) {})).Err(), why)
	<-left // the source was told
}

func TestASourceThatDiesInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	r, _ := offering(t, command("local", "dies"), "one", "two")
	_, err := r.execute(t, &r.Snapshot().Tool("two").Workflow, "")
	testkit.True(t, errors.Is(err, source.ErrAway) && errors.Is(err, source.ErrLost) && strings.Contains(err.Error(), "made of cheese"), "%v", err)
	r.back(t, "one", "two")
}

func TestASourceThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
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

// A source that was restarted does not know our session: a call that meets this
// has had no effect, and is made again.
func TestAServerThatWasRestarted(t *testing.T) {
	t.Parallel()
	var current atomic.Value // of http.Handler
	f := &fakery{list: listOf(workflow("s", "sum", syncType))}
	restart := func() { current.Store(mount(t, f.server())) }
	restart()
	web := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed) // so that only the call shows it
			return
		}
		current.Load().(http.Handler).ServeHTTP(w, r)
	}))
	c := settings(named(config.WorkflowSource{Name: "web", URL: web.URL}))
	c.WorkflowTools.RefreshInterval = 0
	r := open(t, c)
	w := &r.tools(t, "sum").Tools[0].Workflow
	restart()
	r.gives(t, w, `{"a":1}`, `{"a":1}`)
}

func TestAServerThatIsGone(t *testing.T) {
	t.Parallel()
	f := &fakery{list: listOf(workflow("s", "sum", syncType))}
	web := listenAndServe(t, mount(t, f.server()))
	r, w := offering(t, named(config.WorkflowSource{Name: "web", URL: web.URL}), "sum")
	web.CloseClientConnections()
	web.Close()
	testkit.FailsWith(t, testkit.Get(r.execute(t, w, "")).Err(), source.ErrAway)
	// The call that failed makes the source be looked at, not the next interval.
	r.until(t, "the tool to be away", away)
}
