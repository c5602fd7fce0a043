package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// fill starts sessions and adds tasks, as four agents do. It returns their ids.
func (s *server) fill(t testing.TB, sessions, tasks int) (allSessions, allTasks []string) {
	const agents = 4
	project := pagetest.Connect(t, s.url, "").Project()
	var all sync.WaitGroup
	var mu sync.Mutex
	for agent := range agents {
		all.Go(func() {
			call := pagetest.Connect(t, s.url, "")
			for i := range max(sessions, tasks) / agents {
				if i < sessions/agents {
					session := call.Plan(fmt.Sprint("Goal ", agents*i+agent))
					mu.Lock()
					allSessions = append(allSessions, session)
					mu.Unlock()
				}
				if i < tasks/agents {
					var task struct {
						ID string `json:"task_id"`
					}
					call("create_task", map[string]any{"project_id": project, "title": fmt.Sprint("Task ", agents*i+agent)}, &task)
					mu.Lock()
					allTasks = append(allTasks, task.ID)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return allSessions, allTasks
}

// firstByte returns a page's time to its first byte.
func (b *browser) firstByte(path string) time.Duration {
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", b.at+path, nil)
	testkit.Must(b.t, err)
	var sent, first time.Time
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent = time.Now() }, GotFirstResponseByte: func() { first = time.Now() }}
	res, err := b.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	testkit.Must(b.t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %s", path, res.Status)
	}
	return first.Sub(sent)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// How long pages take to their first byte with 1,000 sessions and 10,000 tasks: at the first request
// after a start (cold) and when they are made again (for / the time of the benchmark); and, in the same
// run, the smallest page, which is what a request itself takes.
func BenchmarkNow(b *testing.B) {
	root := pagetest.Project(b)
	s := serve(b, root, web.Options{})
	sessions, tasks := s.fill(b, 1000, 10_000)
	s.stop()
	s = serve(b, root, web.Options{})
	u := s.browser(b)
	figures := map[string]float64{"smallest-ms": ms(min(u.firstByte("/login"), u.firstByte("/login")))}
	figures["cold-ms"] = ms(u.firstByte("/"))
	for name, path := range map[string]string{"board": "/board", "session": "/sessions/" + sessions[0], "task": "/tasks/" + tasks[0]} {
		figures[name+"-cold-ms"], figures[name+"-ms"] = ms(u.firstByte(path)), ms(u.firstByte(path))
	}
	var all []time.Duration
	for i := 0; b.Loop(); i++ {
		all = append(all, u.firstByte(fmt.Sprintf("/?q=Goal+%d", i)))
	}
	figures["slowest-ms"], figures["median-ms"] = ms(slices.Max(all)), ms(slices.Sorted(slices.Values(all))[len(all)/2])
	for name, value := range figures {
		b.ReportMetric(value, name)
	}
}
