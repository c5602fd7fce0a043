package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// How long / takes to its first byte with 1,000 sessions and 10,000 tasks, when it has changed, and how
// large it is.
func BenchmarkNow(b *testing.B) {
	s := serve(b, pagetest.Project(b), web.Options{})
	var projects struct {
		Projects []struct {
			ID string `json:"project_id"`
		}
	}
	first := pagetest.Connect(b, s.url, "")
	first("list_projects", map[string]any{}, &projects)
	var agents sync.WaitGroup
	for range 4 {
		call := pagetest.Connect(b, s.url, "")
		agents.Go(func() {
			for i := range 2500 {
				call("create_task", map[string]any{"project_id": projects.Projects[0].ID, "title": fmt.Sprint("Task ", i)}, nil)
				if i%10 == 0 {
					call("start_workflow", map[string]any{"goal": fmt.Sprint("Goal ", i), "job_name": "trip", "workflow_name": "plan"}, nil)
				}
			}
		})
	}
	agents.Wait()
	u := s.browser(b)
	b.ReportMetric(float64(len(u.get("/"))), "bytes")
	var slowest time.Duration
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		r, err := http.NewRequestWithContext(b.Context(), "GET", fmt.Sprintf("%s/?q=Goal+%d", s.url, i), nil) // no page that is kept
		testkit.Must(b, err)
		var sent time.Time
		trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent = time.Now() }, GotFirstResponseByte: func() { slowest = max(slowest, time.Since(sent)) }}
		res, err := u.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		testkit.Must(b, err)
		res.Body.Close()
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}
