package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/remote"
	"deepwork/session/replies"
	"deepwork/session/workflow"
	"deepwork/transport/web"
	"deepwork/transport/wire"
)

func finishCall(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"finished_step",`+
		`"arguments":{"outputs":{"a":"x"}}}}`, id)
}

// repliesIn takes the lines of an output apart, by id as JSON.
func repliesIn(t testing.TB, lines []string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, l := range lines {
		var m map[string]any
		must(t, json.Unmarshal([]byte(l), &m))
		out[string(testkit.Get(json.Marshal(m["id"])).Must(t))] = m
	}
	return out
}

// A client that writes a burst of calls and closes its end at once, in the middle of a line, gets every
// reply, also of calls that take a while.
func TestStdioAnswersAllAfterEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fakeServer(t, func(a *fakeAgent) {
			a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*replies.Finish, error) {
				return fullFinish(), sleep(ctx, 50*time.Second) // a review's reply
			}
		})
		in := hello + `{"jsonrpc":"2.0","id":"listen","method":"subscriptions/listen","params":{` + newestMeta(`{}`) +
			`,"notifications":{"toolsListChanged":true}}}`
		for i := range 300 {
			in += "\n" + finishCall(i)
		}
		got := repliesIn(t, overStdio(t, s, in))
		for i := range 300 {
			testkit.Need(t, got[fmt.Sprint(i)]["result"] != nil, "call %d: %v", i, got[fmt.Sprint(i)])
		}
	})
}

// Told to stop, a server stops at once with nothing in flight. Calls in flight have their time to end, and
// their replies go out; what takes longer is cut short, and says so; what does not even then end is given up,
// by name.
func TestStdioStops(t *testing.T) {
	for name, c := range map[string]struct {
		call        func(ctx context.Context, released chan struct{}) error // nil for no call
		answer, err string
		takes       time.Duration
	}{
		"nothing in flight": {nil, "", "", 0},
		"in its time": {func(ctx context.Context, _ chan struct{}) error {
			return sleep(ctx, stopGrace/2)
		}, `"id":1,"result"`, "", stopGrace / 2},
		"cut short": {func(ctx context.Context, _ chan struct{}) error {
			return sleep(ctx, time.Hour)
		}, "The server is stopping", "", stopGrace},
		"given up": {func(_ context.Context, released chan struct{}) error {
			<-released
			return nil
		}, "", "1 calls did not end", stopGrace + 2*cutGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, released := make(chan struct{}, 1), make(chan struct{})
				s, _ := fakeServer(t, func(a *fakeAgent) {
					a.finish = func(ctx context.Context, _ workflow.FinishArgs) (*replies.Finish, error) {
						began <- struct{}{}
						return fullFinish(), c.call(ctx, released)
					}
				})

				ctx, stop := context.WithCancel(t.Context())
				in, inW := io.Pipe()
				outR, outW := io.Pipe()
				served := make(chan error, 1)
				go func() { served <- s.ServeStdio(ctx, in, outW) }()
				out := bufio.NewScanner(outR)
				out.Buffer(nil, 1<<20)
				io.WriteString(inW, hello)
				out.Scan()
				if c.call != nil {
					io.WriteString(inW, finishCall(1)+"\n")
					<-began
				}

				synctest.Wait()
				asked := time.Now()
				stop()
				testkit.Equal(t, out.Scan(), c.answer != "", "it is answered: %s", out.Text())
				testkit.Contains(t, out.Text(), c.answer)
				testkit.Equal(t, strings.Contains(out.Text(), "isError"), name == "cut short", "it is an error: %s",
					out.Text())

				err := <-served
				testkit.True(t, err == nil && c.err == "" ||
					err != nil && c.err != "" && strings.Contains(err.Error(), c.err), "ServeStdio: %v", err)
				testkit.Equal(t, time.Since(asked), c.takes, "it took")
				close(released)
			})
		})
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// A session whose input ends at once may be over before ServeStdio has looked for its connection: that is not an error.
func TestStdioSessionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	s := serverOn(t, t.TempDir(), nil)
	in := hello + toolsCallOf("2", "get_workflows", `{}`)
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for range 20 {
				testkit.Works(t, s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(in)), nopCloser{io.Discard}))
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
		io.WriteString(toServer, hello+toolsCallOf("1", "hang", `{}`)+toolsCallOf("2", "call_workflow_tool",
			`{"name":"block"}`))
		f.until(t, "both runs", func() bool { return f.looked() && slices.Contains(f.started, "w-block") })
		io.WriteString(toServer, toolsCallOf("3", "echo", `{"customer":"a"}`))
		f.until(t, "the third", func() bool { return slices.Contains(f.started, "w-echo") })
		toServer.Close()
	}()

	data := testkit.Get(io.ReadAll(fromServer)).Must(t)
	testkit.Works(t, <-served)
	testkit.True(t, time.Since(began) <= eofGrace/2, "it took %v", time.Since(began))

	got := repliesIn(t, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
	for _, id := range []string{"1", "2"} {
		result, _ := json.Marshal(got[id])
		testkit.ContainsAll(t, string(result),
			[]string{`"code":"stopping"`, "call workflow_status with execution_id"}, "call")
	}
	testkit.Equal(t, len(got), 4, "replies: %s", data)
	testkit.Equal(t, only(t, s).State, remote.Running, "the run")

	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.Equal(t, len(f.cancelled)+len(f.ended), 0, "cancelled %v, cut off %v", f.cancelled, f.ended)
	close(f.let)
}

func toolsCallOf(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` +
		arguments + "}}\n"
}

// A client that sends initialize again, as some do after a pause, gets the same answer, and its stack is kept.
func TestField10_InitializeTwice(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	again := strings.Replace(strings.Replace(initialize, `"id":0`, `"id":7.0`, 1), "2025-06-18", "2024-11-05", 1)
	lines := overStdio(t, s, hello+again+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"_meta":{"progressToken":1.0},`+
		`"name":"get_workflows","arguments":{}}}`+"\n")
	all := strings.Join(lines, "\n")
	testkit.True(t, !strings.Contains(all, `"error":{`), "stdio: %s", all)
	testkit.Equal(t, strings.Count(all, `"protocolVersion":"2025-06-18"`), 2, "stdio: %s", all)
	testkit.Equal(t, strings.Count(all, `"instructions"`), 2, "stdio: %s", all)
	testkit.Contains(t, all, `"id":8`, "stdio: %s", all)

	h := overHTTP(t, s, web.Options{})
	c, id := opened(t, h)
	send(t, c, "POST", h.URL(), again, id).is(t, 200, `"protocolVersion":"2025-06-18"`)
}
