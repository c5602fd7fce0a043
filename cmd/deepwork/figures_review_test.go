package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// quickReviewer is a reviewer program that takes 50 ms and passes. It keeps count of
// how many of it run, by a file each in REVIEWER_DIR.
func quickReviewer() {
	dir := os.Getenv("REVIEWER_DIR")
	mine := filepath.Join(dir, fmt.Sprint("running_", os.Getpid()))
	os.WriteFile(mine, nil, 0o600)
	running, _ := filepath.Glob(filepath.Join(dir, "running_*"))
	os.WriteFile(filepath.Join(dir, fmt.Sprintf("peak_%03d", len(running))), nil, 0o600)
	io.Copy(io.Discard, os.Stdin)
	time.Sleep(50 * time.Millisecond)
	fmt.Println(`{"passed": true, "feedback": "fine"}`)
	os.Remove(mine)
}

// BenchmarkReviews has 200 sessions ask for a review at once, with 4 workers and
// a reviewer of 50 ms. Wanted: all done in at most 1.3 times the ideal, 200/4
// times the reviewer's own measured time, never more than 4 at once, and
// get_workflows answered meanwhile in at most 3 times its idle median.
func BenchmarkReviews(b *testing.B) {
	const sessions, workers = 200, 4
	root := b.TempDir()
	counts := b.TempDir()
	writeFiles(b, root, map[string]string{
		"report.md":                      "# Report\n",
		".deepwork/jobs/reviewed/one.md": "Do it.\n",
		".deepwork/jobs/reviewed/job.yml": `name: reviewed
version: "1.0.0"
summary: A reviewed step
common_job_info_provided_to_all_steps_at_runtime: Nothing.
steps:
  - id: s0
    name: One
    description: The step
    instructions_file: one.md
    outputs: {report: {type: file, description: The report}}
    reviews:
      - run_each: step
        quality_criteria: {good: "Is it good?"}
workflows:
  - {name: main, summary: All of it, steps: [s0]}
`,
		".deepwork/config.yml": fmt.Sprintf("version: \"1.0\"\nquality_gate:\n  agent_review_command: mcp-reviewer\n  max_concurrent_reviews: %d\n", workers),
	})
	b.Setenv("REVIEWER_DIR", counts)
	server := startProgram(b, "deepwork", "serve", "--path", root)
	list := func() time.Duration {
		begin := time.Now()
		if _, err := server.do("get_workflows", map[string]any{}); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	var own, idle, busy []time.Duration
	var ratios []float64
	for b.Loop() {
		// The reviewer's own time, with as many at once as will be.
		for range 3 {
			own = append(own, together(b, workers, 3, func(int, int) error {
				return exec.Command("mcp-reviewer").Run()
			})*workers)
		}
		ids := make([]string, sessions)
		for i := range ids {
			var err error
			if ids[i], err = server.start("reviewed"); err != nil {
				b.Fatal(err)
			}
		}
		for range 50 { // with the stack it has meanwhile, too
			idle = append(idle, list())
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() {
				if err := server.finish(id, 0); err != nil {
					b.Error(err)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
			case <-time.After(20 * time.Millisecond):
				busy = append(busy, list())
			}
		}
		ideal := median(own) * sessions / workers
		ratios = append(ratios, float64(time.Since(begin).Microseconds())/ideal)
	}
	peaks, _ := filepath.Glob(filepath.Join(counts, "peak_*"))
	slices.Sort(peaks)
	most := 0
	fmt.Sscanf(filepath.Base(peaks[len(peaks)-1]), "peak_%d", &most)
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "of-ideal(<=1.3)")
	b.ReportMetric(float64(most), "at-once(<=4)")
	b.ReportMetric(median(own)/1e3, "reviewer-ms")
	b.ReportMetric(median(idle), "idle-list-µs")
	b.ReportMetric(median(busy)/median(idle), "busy-list(<=3)")
	b.ReportMetric(0, "ns/op")
}
