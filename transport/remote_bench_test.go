package transport

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	remotetools "deepwork/transport/tools/remote"
)

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
