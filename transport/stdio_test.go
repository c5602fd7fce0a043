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

// A line that is no message is answered, and the next one is read.
func TestStdioSurvivesGarbage(t *testing.T) {
	for name, c := range map[string]struct {
		line, id string
		code     float64
	}{
		"not JSON":       {`hello`, `null`, -32700},
		"torn":           {`{"jsonrpc":"2.0","id":7,"method":"ping"`, `null`, -32700},
		"two on a line":  {`{"jsonrpc":"2.0","id":7,"method":"ping"} {}`, `null`, -32700},
		"no message":     {`{"id":7}`, `null`, -32600},
		"old version":    {`{"jsonrpc":"1.0","id":"s","method":"ping"}`, `null`, -32600},
		"a number":       {`42`, `null`, -32600},
		"object for id":  {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `null`, -32600},
		"too long":       {`{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("x", wire.MaxLine) + `"}`, `null`, -32600},
		"20 MB":          {strings.Repeat("y", 20_000_000), `null`, -32600},
		"deep":           {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_step","arguments":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + `}}`, `null`, -32600},
		"number method":  {`{"jsonrpc":"2.0","id":7,"method":8}`, `null`, -32600},
		"broken reply":   {`{"jsonrpc":"2.0","id":7,"error":8}`, `null`, -32600},
		"very deep":      {`{"jsonrpc":"2.0","id":7,"method":"ping","params":` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `}`, `null`, -32700},
		"empty batch":    {`[]`, `null`, -32600},
		"large batch":    {`[` + strings.Repeat(`1,`, wire.MaxBatch) + `1]`, `null`, -32600},
		"torn batch":     {`[{"jsonrpc"`, `null`, -32700},
		"unknown method": {`{"jsonrpc":"2.0","id":7,"method":"no/such"}`, `7`, -32601},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := fakeServer(t, nil)
			lines := overStdio(t, s, hello+"\n  \r\n"+c.line+"\n"+finishCall(1)+"\r\n")
			got := replies(t, lines)
			if len(lines) != 3 || got["1"]["result"] == nil || got[`"hello"`]["result"] == nil {
				t.Fatalf("%d lines: %s", len(lines), jsontext.Clip(strings.Join(lines, "\n"), 1000))
			}
			fault, _ := got[c.id]["error"].(map[string]any)
			if fault["code"] != c.code || fault["message"] == "" {
				t.Errorf("got %v, want id %s, code %v", jsontext.Clip(fmt.Sprint(got[c.id]), 500), c.id, c.code)
			}
		})
	}
}

func TestStdioDuplicateID(t *testing.T) {
	b := newBlocked()
	s, _ := fakeServer(t, b.agent)
	w := talking(t, s)
	if got := w.ask(t, finishCall(1)+"\n"+finishCall(1)); !strings.Contains(got, `"id":null`) || !strings.Contains(got, "still in flight") {
		t.Errorf("the second: %s", got)
	}
	close(b.free)
	testkit.Contains(t, w.next(t), `"id":1,"result"`, "the first")
	w.to.Close()
	if w.lines.Scan() {
		t.Errorf("more: %s", w.lines.Text())
	}
}

// The messages of a batch, which older versions allow, are carried out as if each had a line of its own.
func TestStdioBatch(t *testing.T) {
	s, _ := fakeServer(t, nil)
	batch := `[` + finishCall(1) + `,{"jsonrpc":"2.0","method":"notifications/none"},7, ` + finishCall(2) + `]`
	lines := overStdio(t, s, hello+batch+"\n"+`[{"jsonrpc":"2.0","method":"notifications/none"}]`+"\n"+finishCall(3)+"\n")
	got := replies(t, lines)
	if len(lines) != 5 || got["1"]["result"] == nil || got["2"]["result"] == nil || got["3"]["result"] == nil || got["null"]["error"] == nil {
		t.Errorf("%d lines:\n%s", len(lines), jsontext.Clip(strings.Join(lines, "\n"), 2000))
	}
}

// A client that has cancelled a call gets no error for it.
func TestStdioDoesNotAnswerCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fakeServer(t, newBlocked().agent)
		in, inW := io.Pipe()
		outR, outW := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.ServeStdio(t.Context(), in, outW) }()
		cancel := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id)
		}
		go func() {
			defer inW.Close()
			io.WriteString(inW, hello+finishCall(1)+"\n"+finishCall(2)+"\n"+`{"jsonrpc":"2.0","id":4,"method":"ping"}`+"\n")
			synctest.Wait() // the calls are being handled
			io.WriteString(inW, cancel(1)+cancel(2)+cancel(9)+`{"jsonrpc":"2.0","method":"notifications/cancelled","params":5}`+"\n")
		}()
		var lines []string
		for out := bufio.NewScanner(outR); out.Scan(); {
			lines = append(lines, out.Text())
		}
		testkit.Works(t, <-served, "ServeStdio")
		if len(lines) != 2 || lines[1] != `{"jsonrpc":"2.0","id":4,"result":{}}` {
			t.Errorf("got %q", lines)
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

// lineWriter fails the test for a Write that is not exactly one message.
type lineWriter struct {
	t *testing.T
	n int // under the server's own lock, which is what is tested
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.n++
	if n := strings.Count(string(p), "\n"); n != 1 || p[len(p)-1] != '\n' || !json.Valid(p) {
		w.t.Errorf("a write of %q", jsontext.Clip(string(p), 200))
	}
	return len(p), nil
}

func (w *lineWriter) Close() error { return nil }

func TestStdioWritesWholeLines(t *testing.T) {
	s, _ := fakeServer(t, nil)
	var in strings.Builder
	in.WriteString(hello)
	for i := range 100 {
		in.WriteString(finishCall(i) + "\ngarbage\n")
	}
	w := &lineWriter{t: t}
	noError(t, s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(in.String())), w))
	testkit.Equal(t, w.n, 201, "writes")
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
		if took := time.Since(began); took != stopGrace {
			t.Errorf("it took %v, want %v", took, stopGrace)
		}
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

// A client that does not read does not hold the server for ever.
func TestStdioBlockedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, call, _, _, served := serving(t, func(context.Context) error { return nil })
		call() // nobody reads the reply
		began := time.Now()
		testkit.FailsWith(t, <-served, wire.ErrStalled, "ServeStdio")
		if took := time.Since(began); took < wire.StallAfter || took > wire.StallAfter+time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A client that is gone ends the server.
func TestStdioClosedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, call, _, outR, served := serving(t, func(context.Context) error { return nil })
		outR.Close()
		call()
		testkit.FailsWith(t, <-served, io.ErrClosedPipe, "ServeStdio")
	})
}

// More calls than may be in flight wait to be read, and are all answered.
func TestStdioBoundsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		s, _ := fakeServer(t, b.agent)
		const n = wire.MaxInFlight + 50
		var in strings.Builder
		in.WriteString(hello)
		for i := range n {
			in.WriteString(finishCall(i) + "\n")
		}
		go func() {
			synctest.Wait()
			testkit.Equal(t, len(b.began), wire.MaxInFlight, "calls in flight")
			close(b.free)
		}()
		testkit.Equal(t, len(replies(t, overStdio(t, s, in.String()))), n+1, "replies")
	})
}

// A talk is a client that speaks over stdio a line at a time.
type talk struct {
	to    *io.PipeWriter
	lines *bufio.Scanner
}

func talking(t *testing.T, s *Server) *talk {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	w := &talk{to: to, lines: bufio.NewScanner(from)}
	w.lines.Buffer(nil, 16<<20)
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	t.Cleanup(func() {
		to.Close()
		for w.lines.Scan() {
		}
		noError(t, <-served)
	})
	fmt.Fprint(to, hello)
	w.next(t)
	return w
}

// next is the next line that is answered.
func (w *talk) next(t *testing.T) string {
	t.Helper()
	if !w.lines.Scan() {
		t.Fatal("the output has ended")
	}
	return w.lines.Text()
}

func (w *talk) ask(t *testing.T, line string) string {
	t.Helper()
	fmt.Fprintln(w.to, line)
	return w.next(t)
}

type discardCloser struct{ io.Writer }

func (discardCloser) Close() error { return nil }

// A session whose input ends at once may be over before ServeStdio has looked for its connection:
// that is no error.
func TestStdioSessionsThatEndAtOnce(t *testing.T) {
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
