package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// many writes n jobs.
func many(tb testing.TB, n int) string {
	root := tb.TempDir()
	for i := range n {
		name := fmt.Sprintf("job_%05d", i)
		write(tb, filepath.Join(root, ".deepwork", "jobs", name, "job.yml"), source(name, "One of many."))
	}
	return root
}

func closing(tb testing.TB, c *Catalog) { must(tb, c.Close(context.Background())) }

func BenchmarkOpen10000(b *testing.B) {
	const n = 10_000
	root := many(b, n)
	b.ReportAllocs()
	for b.Loop() {
		c := testkit.Get(Open(b.Context(), Options{Root: root})).Must(b)
		testkit.Need(b, len(c.Snapshot().Jobs) == n, "%d jobs", len(c.Snapshot().Jobs))
		b.StopTimer()
		closing(b, c)
		b.StartTimer()
	}
}

// BenchmarkEdit1000 is an edit of one of 1,000 jobs until Fresh serves it, the
// 10 ms that a file must have been left alone included.
func BenchmarkEdit1000(b *testing.B) {
	root := many(b, 1000)
	c := testkit.Get(Open(b.Context(), Options{Root: root, NoWatch: true, Poll: time.Hour})).Must(b)
	defer closing(b, c)
	file := filepath.Join(root, ".deepwork", "jobs", "job_00500", "job.yml")
	for i := 0; b.Loop(); i++ {
		want := fmt.Sprintf("Edit %d.", i)
		must(b, os.WriteFile(file, []byte(source("job_00500", want)), 0o644))
		s, err := c.Fresh(b.Context())
		testkit.Need(b, err == nil && s.Job("job_00500").Summary == want, "%v %v", err, s.Job("job_00500").Summary)
	}
}
