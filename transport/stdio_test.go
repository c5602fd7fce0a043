package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
	"deepwork/session/remote"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/wire"
)

func finishCall(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"finished_step","arguments":{"outputs":{"a":"x"}}}}`, id)
}

// replies takes the lines of an output apart, by id as JSON.
func replies(t testing.TB, lines []string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, l := range lines {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("not JSON: %s", jsontext.Clip(l, 200))
		}
		id := testkit.Get(json.Marshal(m["id"])).Must(t)
		out[string(id)] = m
	}
	return out
}

// A client that writes a burst of calls and closes its end at once gets every reply.
func TestStdioAnswersAllAfterEOF(t *testing.T) {
	t.Parallel()
	const n = 300
	s, _ := fakeServer(t, nil)
	var in strings.Builder
	in.WriteString(hello)
	for i := range n {
		in.WriteString(finishCall(i) + "\n")
	}
	got := replies(t, overStdio(t, s, strings.TrimSuffix(in.String(), "\n"))) // the last line unterminated
	testkit.Equal(t, len(got), n+1, "replies")
	for i := range n {
		if r := got[fmt.Sprint(i)]; r == nil || r["result"] == nil {
			t.Fatalf("call %d: %v", i, r)
		}
	}
}

// Calls that take a while are waited for, too.
func TestStdioWaitsForSlowCallsAfterEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fakeServer(t, func(a *fakeAgent) {
			a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*machine.FinishReply, error) {
				select {
				case <-time.After(50 * time.Second): // a review's reply
					return fullFinish(), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		listen := `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"toolsListChanged":true}}}`
		got := replies(t, overStdio(t, s, hello+finishCall(1)+"\n"+listen+"\n"+finishCall(2)+"\n"))
		for _, id := range []string{"1", "2"} {
			if got[id]["result"] == nil {
				t.Errorf("call %s: %v", id, got[id])
			}
		}
	})
}

// serving starts ServeStdio with a call in flight that ends as told.
func serving(t *testing.T, handler func(context.Context) error) (stop func(), call func(), out *bufio.Scanner, outR *io.PipeReader, served chan error) {
	t.Helper()
	began := make(chan struct{}, 1)
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*machine.FinishReply, error) {
			began <- struct{}{}
			if err := handler(ctx); err != nil {
				return nil, err
			}
			return fullFinish(), nil
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	in, inW := io.Pipe()
	outR, outW := io.Pipe()
	served = make(chan error, 1)
	go func() { served <- s.ServeStdio(ctx, in, outW) }()
	out = bufio.NewScanner(outR)
	out.Buffer(nil, 1<<20)
	io.WriteString(inW, hello)
	out.Scan()
	return stop, func() { io.WriteString(inW, finishCall(1)+"\n"); <-began }, out, outR, served
}

// Told to stop, calls in flight have their time to end, and their replies go out.
func TestStdioGraceAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, call, out, _, served := serving(t, func(ctx context.Context) error {
			select {
			case <-time.After(stopGrace / 2):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		call()
		stop()
		if !out.Scan() || !strings.Contains(out.Text(), `"id":1,"result"`) || strings.Contains(out.Text(), "isError") {
			t.Errorf("got %q", out.Text())
		}
		testkit.Works(t, <-served, "ServeStdio")
	})
}

// With nothing in flight it stops at once.
func TestStdioStopsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, _, out, _, served := serving(t, func(context.Context) error { return nil })
		synctest.Wait()
		began := time.Now()
		stop()
		if err := <-served; err != nil || time.Since(began) != 0 {
			t.Errorf("ServeStdio: %v after %v", err, time.Since(began))
		}
		if out.Scan() {
			t.Errorf("got %s", out.Text())
		}
	})
}

// What takes longer is cut short, and says so.
func TestStdioCutsCallsShortAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, call, out, _, served := serving(t, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		call()
		began := time.Now()
		stop()
		if !out.Scan() || !strings.Contains(out.Text(), "The server is stopping") || !strings.Contains(out.Text(), `"stopping"`) {
			t.Errorf("got %q", out.Text())
		}
		testkit.Works(t, <-served, "ServeStdio")
		testkit.Equal(t, time.Since(began), stopGrace, "it took")
	})
}

// What does not even then end is given up, by name.
func TestStdioGivesUpWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stop, call, out, _, served := serving(t, func(context.Context) error { <-release; return nil })
		call()
		stop()
		err := <-served
		testkit.Fails(t, err, "1 calls did not end", "ServeStdio")
		if out.Scan() {
			t.Errorf("got %s", out.Text())
		}
		close(release)
	})
}

type discardCloser struct{ io.Writer }

func (discardCloser) Close() error { return nil }

// A session whose input ends at once may be over before ServeStdio has looked for its connection:
// that is no error.
func TestStdioSessionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	s := serverOn(t, t.TempDir(), nil)
	const in = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"short","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_workflows","arguments":{}}}
`
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for range 20 {
				noError(t, s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(in)), discardCloser{io.Discard}))
			}
		})
	}
	clients.Wait()
}

// A client that closed its end is not waited for until its runs have ended: each call
// is told which run it was, and that it goes on; the rest is answered as before.
func TestStdioDoesNotWaitForRunsAfterEOF(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	testkit.Equal(t, runGrace, 10*time.Second, "it waits for")
	began, served := time.Now(), make(chan error, 1)
	go func() { served <- s.serveStdio(t.Context(), wire.NewStdio(in, out, s.logger), time.Millisecond) }()
	go func() {
		io.WriteString(toServer, hello+toolsCallOf("1", "hang", `{}`)+toolsCallOf("2", "call_workflow_tool", `{"name":"block"}`))
		f.until(t, "both runs", func() bool { return f.looked() && contains(f.started, "w-block") })
		io.WriteString(toServer, toolsCallOf("3", "echo", `{"customer":"a"}`))
		f.until(t, "the third", func() bool { return contains(f.started, "w-echo") })
		toServer.Close()
	}()
	data := testkit.Get(io.ReadAll(fromServer)).Must(t)
	noError(t, <-served)
	if took := time.Since(began); took > eofGrace/2 {
		t.Errorf("it took %v", took)
	}
	got := replies(t, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
	for _, id := range []string{"1", "2"} {
		result, _ := json.Marshal(got[id])
		testkit.ContainsAll(t, string(result), []string{`"code":"stopping"`, "call workflow_status with execution_id"}, "call")
	}
	testkit.Equal(t, len(got), 4, "replies: %s", data)
	if r := only(t, s); r.State != remote.Running {
		t.Errorf("the run: %+v", r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.Equal(t, len(f.cancelled)+len(f.ended), 0, "cancelled %v, cut off %v", f.cancelled, f.ended)
	close(f.let)
}

// toolsCallOf is the line of a tool call.
func toolsCallOf(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + "}}\n"
}
