package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	remotetools "deepwork/transport/tools/remote"
)

// BenchmarkGetWorkflows is a whole call with 1,000 jobs, the client's pipes included, its decoding not.
func BenchmarkGetWorkflows(b *testing.B) {
	root, files := b.TempDir(), map[string]string{}
	for i := range 1000 {
		dir := fmt.Sprintf(".deepwork/jobs/job_%d/", i)
		files[dir+"job.yml"] = strings.Replace(tripJob, "name: trip", fmt.Sprintf("name: job_%d", i), 1)
		files[dir+"idea.md"] = "Think."
	}
	write(b, root, files)
	s := testkit.Get(NewServer(Options{ProjectRoot: root})).Must(b)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(context.Background(), in, out) }()
	lines := bufio.NewReader(fromServer)
	io.WriteString(toServer, hello)
	lines.ReadString('\n')
	for b.Loop() {
		io.WriteString(toServer, toolsCallOf("1", "get_workflows", "{}"))
		b.SetBytes(int64(len(testkit.Get(lines.ReadString('\n')).Must(b))))
	}
	toServer.Close()
	testkit.Works(b, <-served)
	testkit.Works(b, s.Close(context.Background()))
}

// BenchmarkTenThousandWorkflows is the time from a source's list_changed until its 10,000 workflows, whose schemas are
// compiled one by one, are tools: at most 5 s. list-changed is how often a client was told of that: once.
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
