package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	remotetools "deepwork/transport/tools/remote"
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

// BenchmarkToolsList is tools/list of the default sets over stdio, beside a server of the bare SDK that lists
// the same tools, in turns.
func BenchmarkToolsList(b *testing.B) {
	s := made(b, Options{ProjectRoot: b.TempDir(), AdditionalJobs: []string{}})
	ours := overPipes(b, func(in io.ReadCloser, out io.WriteCloser) error { return s.ServeStdio(context.Background(), in, out) })
	all := testkit.Get(ours.ListTools(b.Context(), nil)).Must(b)
	bare := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	for _, t := range all.Tools {
		bare.AddTool(t, nothing)
	}
	theirs := overPipes(b, func(in io.ReadCloser, out io.WriteCloser) error {
		return bare.Run(context.Background(), &mcp.IOTransport{Reader: in, Writer: out})
	})
	list := func(cs *mcp.ClientSession) time.Duration {
		began := time.Now()
		testkit.Get(cs.ListTools(b.Context(), nil)).Must(b)
		return time.Since(began)
	}
	var by, beside []time.Duration
	for b.Loop() {
		by, beside = append(by, list(ours)), append(beside, list(theirs))
	}
	slices.Sort(by)
	slices.Sort(beside)
	b.ReportMetric(float64(by[len(by)/2].Microseconds()), "µs")
	b.ReportMetric(float64(beside[len(by)/2].Microseconds()), "bare-µs")
	b.ReportMetric(float64(by[len(by)/2])/float64(beside[len(by)/2]), "by-bare(<=1.5)")
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

// BenchmarkGetWorkflows is a whole call with 1,000 jobs, the client's pipes
// included, its decoding not.
func BenchmarkGetWorkflows(b *testing.B) {
	s := testkit.Get(NewServer(Options{ProjectRoot: manyJobs(b, 1000)})).Must(b)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	lines := bufio.NewReader(fromServer)
	io.WriteString(toServer, hello)
	lines.ReadString('\n')
	for b.Loop() {
		io.WriteString(toServer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_workflows"}}`+"\n")
		line := testkit.Get(lines.ReadString('\n')).Must(b)
		b.SetBytes(int64(len(line)))
	}
	toServer.Close()
	testkit.Works(b, <-served)
	testkit.Works(b, s.Close(context.Background()))
}

// BenchmarkTenThousandWorkflows is the time from a source's list_changed until
// its 10,000 workflows, whose schemas are compiled one by one, are tools: at most
// 5 s. list-changed is how often a client was told of that: once.
func BenchmarkTenThousandWorkflows(b *testing.B) {
	f := newFactory()
	s, _ := withSource(b, f, "")
	flows := thousands(10_000)
	w := watching(func(o *mcp.ClientOptions) *mcp.ClientSession { return clientWith(b, s, o) })
	w.ready(b, s)
	told := int64(0)
	for b.Loop() {
		f.offer(flows...)
		until(b, s, "all of them", func(l *remotetools.Listing) bool { return len(l.Tools) == len(flows) })
		b.StopTimer()
		w.until(b, 1)
		told += w.told.Load()
		f.offer()
		until(b, s, "none", func(l *remotetools.Listing) bool { return len(l.Tools) == 0 })
		w.until(b, 2)
		w.told.Store(0)
		b.StartTimer()
	}
	b.ReportMetric(float64(told)/float64(b.N), "list-changed")
}
