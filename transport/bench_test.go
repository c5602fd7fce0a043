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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// overPipes connects a client to whatever serves in and out.
func overPipes(b *testing.B, serve func(io.ReadCloser, io.WriteCloser) error) *mcp.ClientSession {
	b.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(in, out) }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
		Connect(b.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	must(b, err)
	b.Cleanup(func() {
		cs.Close()
		<-served
	})
	return cs
}

// calls makes b.N calls by as many callers.
func calls(b *testing.B, cs *mcp.ClientSession, callers int, params *mcp.CallToolParams) {
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := i; n < b.N; n += callers {
				res, err := cs.CallTool(context.Background(), params)
				if err != nil || res.IsError {
					b.Errorf("%v %v", res, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkCall is what the transport costs around an engine that costs
// nothing, beside a bare SDK tool that echoes the same arguments.
func BenchmarkCall(b *testing.B) {
	args := json.RawMessage(`{"outputs":{"report":"out/report.md"},"step_id":"step_7"}`)
	reply := &machine.FinishReply{Status: machine.NextStep, BeginStep: fullStep("step_8"), Stack: []machine.StackEntry{{Workflow: "j/w", Step: "step_8", SessionID: "0a1b2c3d"}}}
	reply.BeginStep.Instructions = strings.Repeat("Do this, then that.\n", 50)
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("finished_step/%d", callers), func(b *testing.B) {
			s, _ := fakeServer(b, func(a *fakeAgent) {
				a.finish = func(context.Context, workflow.FinishArgs) (*machine.FinishReply, error) { return reply, nil }
			})
			cs := overPipes(b, func(in io.ReadCloser, out io.WriteCloser) error { return s.ServeStdio(context.Background(), in, out) })
			calls(b, cs, callers, &mcp.CallToolParams{Name: "finished_step", Arguments: args})
		})
		b.Run(fmt.Sprintf("echo/%d", callers), func(b *testing.B) {
			s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
			s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
			})
			cs := overPipes(b, func(in io.ReadCloser, out io.WriteCloser) error {
				return s.Run(context.Background(), &mcp.IOTransport{Reader: in, Writer: out})
			})
			calls(b, cs, callers, &mcp.CallToolParams{Name: "echo", Arguments: args})
		})
	}
}

// manyJobs makes a project with n jobs.
func manyJobs(b *testing.B, n int) string {
	b.Helper()
	root := b.TempDir()
	files := map[string]string{}
	for i := range n {
		dir := fmt.Sprintf(".deepwork/jobs/job_%d/", i)
		files[dir+"job.yml"] = strings.Replace(tripJob, "name: trip", fmt.Sprintf("name: job_%d", i), 1)
		files[dir+"idea.md"] = "Think."
	}
	write(b, root, files)
	return root
}

// BenchmarkStart is what comes between the start of the process and the answer
// to initialize, with 100 jobs.
func BenchmarkStart(b *testing.B) {
	root := manyJobs(b, 100)
	for b.Loop() {
		s, err := NewServer(Options{ProjectRoot: root})
		must(b, err)
		if lines := overStdio(b, s, hello); len(lines) != 1 {
			b.Fatal(lines)
		}
		must(b, s.Close(context.Background()))
	}
}

// BenchmarkGetWorkflows is a whole call with 1,000 jobs, the client's pipes
// included, its decoding not.
func BenchmarkGetWorkflows(b *testing.B) {
	s, err := NewServer(Options{ProjectRoot: manyJobs(b, 1000)})
	must(b, err)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	lines := bufio.NewReader(fromServer)
	io.WriteString(toServer, hello)
	lines.ReadString('\n')
	for b.Loop() {
		io.WriteString(toServer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_workflows"}}`+"\n")
		line, err := lines.ReadString('\n')
		must(b, err)
		b.SetBytes(int64(len(line)))
	}
	toServer.Close()
	if err := <-served; err != nil {
		b.Error(err)
	}
	if err := s.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
