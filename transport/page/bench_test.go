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

// How long the page Now takes to its first byte with 1,000 sessions, beside that of a project that has nothing to
// show, in turns: cold is the first request after a start.
func BenchmarkNow(b *testing.B) {
	root := pagetest.Project(b)
	s := serve(b, root, web.Options{})
	s.fill(b, 1000, 0)
	s.stop()
	full, empty := serve(b, root, web.Options{}).browser(b), serve(b, pagetest.Project(b), web.Options{}).browser(b)
	b.ReportMetric(ms(full.firstByte("/")), "cold-ms")
	empty.firstByte("/")
	var shown, nothing []time.Duration
	for b.Loop() {
		shown, nothing = append(shown, full.firstByte("/")), append(nothing, empty.firstByte("/"))
	}
	slices.Sort(shown)
	slices.Sort(nothing)
	b.ReportMetric(ms(shown[len(shown)/2]), "median-ms")
	b.ReportMetric(ms(nothing[len(shown)/2]), "empty-ms")
	b.ReportMetric(float64(shown[len(shown)/2])/float64(nothing[len(shown)/2]), "by-empty(<=4)")
}
