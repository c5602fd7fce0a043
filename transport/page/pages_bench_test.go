package page_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt/executors"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

func (b *browser) firstByte(path string) time.Duration {
	r := testkit.Get(http.NewRequestWithContext(b.t.Context(), "GET", b.at+path, nil)).Must(b.t)
	var sent, first time.Time
	trace := &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { sent = time.Now() },
		GotFirstResponseByte: func() { first = time.Now() },
	}
	res := testkit.Get(b.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))).Must(b.t)
	res.Body.Close()
	testkit.Need(b.t, res.StatusCode == http.StatusOK, "%s: %s", path, res.Status)
	return first.Sub(sent)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const eachJob = `name: each
version: 1.0.0
summary: Does something for each item
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: all, summary: All of them, steps: [list, {for_each: todo, steps: [port], at_once: 8, max_items: 1000}]}
  - {name: none, summary: Only the list, steps: [list]}
steps:
  - {id: list, name: List, description: d, instructions: List them., outputs: {todo: {type: file, description: t}}, ` +
	`reviews: []}
  - {id: port, name: Port it, description: d, instructions: Port it., outputs: {}, reviews: []}
`

// TestFinisher is an agent of a run, which hands in its step at once.
func TestFinisher(t *testing.T) {
	name := os.Getenv(config.StepEnv)
	if name == "" || flag.NArg() == 0 {
		t.Skip("it is for runs")
	}
	outputs := pagetest.Args{}
	if name == "list" {
		outputs["todo"] = "todo.json"
	}
	call := pagetest.Connect(t, strings.TrimSuffix(os.Getenv(config.MCPURLEnv), "/mcp"), os.Getenv(executors.TokenEnv))
	call("finished_step", pagetest.Args{"step_id": name, "outputs": outputs}, nil)
}

// complete has the server lead a run, and returns the path of its page when it is complete.
func complete(b *testing.B, call pagetest.Call, workflow string) string {
	var r struct {
		ID            string `json:"run_id"`
		State, Reason string
	}
	with := pagetest.Args{"job_name": "each", "workflow_name": workflow, "goal": "Port them", "executor": "FINISHER",
		"in_place": true}
	call("run_workflow", with, &r)
	for began := time.Now(); r.State != "completed"; time.Sleep(time.Second) {
		testkit.Need(b, time.Since(began) < 10*time.Minute && r.State != "failed", "the run is %s: %s", r.State,
			r.Reason)
		call("get_run", pagetest.Args{"run_id": r.ID}, &r)
	}
	return "/attempts/" + r.ID
}

// How long the pages of a run and of a chat over 1,000 items take to their first byte, beside those of a workflow
// without any.
func BenchmarkItems(b *testing.B) {
	root := pagetest.Project(b)
	var todo []string
	for i := range 1000 {
		todo = append(todo, fmt.Sprintf("file%d.go", i))
	}
	testkit.WriteAll(b, root, map[string]string{
		"todo.json":                   string(testkit.Get(json.Marshal(todo)).Must(b)),
		".deepwork/jobs/each/job.yml": eachJob,
		".deepwork/config.yml": fmt.Sprintf("executors:\n  FINISHER: {command: [%q, '-test.run=^TestFinisher$', go]}\n"+
			"attempts: {max_concurrent: 8}\n", testkit.Get(os.Executable()).Must(b)),
	})
	s := serve(b, root, web.Options{})
	call, pages := pagetest.Connect(b, s.url, ""), s.browser(b)
	chat := func(workflow string) string {
		id := call.Start(pagetest.Args{"goal": "Port them", "job_name": "each", "workflow_name": workflow})
		if workflow == "all" {
			call("finished_step", pagetest.Args{"session_id": id, "outputs": pagetest.Args{"todo": "todo.json"}}, nil)
		}
		for i := range 2 * len(todo) / 3 {
			if workflow == "all" {
				call("finished_step", pagetest.Args{"session_id": id, "step_id": fmt.Sprintf("port[%d]", i),
					"outputs": pagetest.Args{}}, nil)
			}
		}
		return "/sessions/" + id
	}
	for name, of := range map[string]func(workflow string) string{
		"chat": chat,
		"run":  func(workflow string) string { return complete(b, call, workflow) },
	} {
		none, all := of("none"), of("all")
		b.Run(name, func(b *testing.B) { compare(b, place{pages, all}, place{pages, none}) })
	}
}

// How long a change takes until an open page has it: from the call of a tool on, which is part of the time.
func BenchmarkNews(b *testing.B) {
	s := serve(b, pagetest.Project(b), web.Options{})
	call, page := pagetest.Connect(b, s.url, ""), s.browser(b)
	task := call.Task("Task", "")
	ids, hangUp := page.listen(page.stream("/board"), "")
	defer hangUp()
	var all []time.Duration
	for i := 0; b.Loop(); i++ {
		time.Sleep(200 * time.Millisecond) // else changes are told together, after a pause
		for len(ids) > 0 {
			<-ids
		}
		began, title := time.Now(), fmt.Sprint("Title ", i)
		call("update_task", pagetest.Args{"task_id": task, "title": title}, nil)
		for text := ""; !strings.Contains(text, title); text = page.get("/board") {
			event(b, ids, title)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(ms(all[len(all)/2]), "median-ms")
	b.ReportMetric(ms(all[len(all)-1]), "worst-ms(<=200)")
}

// A place is a page of a server.
type place struct {
	*browser
	path string
}

// compare reports how long two pages take to their first byte, in turns: the median, and that of one by the other's. A
// %d in a path is another number each time, so that what it selects is not known yet.
func compare(b *testing.B, full, empty place) {
	n := 0
	look := func(at place) time.Duration {
		n++
		return at.firstByte(strings.ReplaceAll(at.path, "%d", fmt.Sprint(1000+n)))
	}
	look(full)
	look(empty)
	var shown, nothing []time.Duration
	for b.Loop() {
		shown, nothing = append(shown, look(full)), append(nothing, look(empty))
	}
	slices.Sort(shown)
	slices.Sort(nothing)
	b.ReportMetric(ms(shown[len(shown)/2]), "median-ms")
	b.ReportMetric(ms(nothing[len(nothing)/2]), "empty-ms")
	b.ReportMetric(float64(shown[len(shown)/2])/float64(nothing[len(nothing)/2]), "by-empty(<=4)")
}

// How long pages take to their first byte with 1,000 sessions and 10,000 tasks, beside those of a project that has
// nothing to show; cold is the first request after a start.
func BenchmarkPages(b *testing.B) {
	root := pagetest.Project(b)
	s := serve(b, root, web.Options{})
	fill(pagetest.Connect(b, s.url, ""), 1000, 10_000)
	s.stop()
	full, empty := serve(b, root, web.Options{}).browser(b), serve(b, pagetest.Project(b), web.Options{}).browser(b)
	b.ReportMetric(ms(full.firstByte("/")), "cold-ms")
	for name, path := range map[string]string{
		"now":      "/",
		"history":  "/history",
		"unknown":  "/history?days=%d", // its totals are
		"filtered": "/history?state=done&q=goal",
		"board":    "/board",
		"jobs":     "/jobs",
		"job":      "/jobs/trip",
	} {
		b.Run(name, func(b *testing.B) { compare(b, place{full, path}, place{empty, path}) })
	}
}
