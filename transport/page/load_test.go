package page_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// An openPage is a page in a browser: a stream of events over one connection, and requests for the page,
// which browsers make again with its ETag after each event, over another.
type openPage struct {
	path    string
	client  *http.Client
	url     string
	etag    string
	fetched *atomic.Int64
	seen    func(page []byte) // nil, or called with each page that was fetched
}

func (p *openPage) get(ctx context.Context, path string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", p.url+path, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return p.client.Do(r)
}

// fetch gets the page as after an event.
func (p *openPage) fetch(ctx context.Context) error {
	headers := []string{"HX-Request", "true", "If-None-Match", p.etag}
	if p.seen == nil {
		headers = append(headers, "Accept-Encoding", "gzip") // which is not decompressed here
	}
	res, err := p.get(ctx, p.path, headers...)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	p.etag = res.Header.Get("ETag")
	p.fetched.Add(1)
	if p.seen != nil && err == nil {
		p.seen(page)
	}
	return err
}

// follow opens the stream and fetches the page after each event until ctx ends.
func (p *openPage) follow(ctx context.Context, stream string, opened func()) error {
	res, err := p.get(ctx, stream)
	opened()
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for lines := bufio.NewReader(res.Body); ; {
		line, err := lines.ReadSlice('\n')
		if err == nil && bytes.HasPrefix(line, []byte("event: news")) {
			err = p.fetch(ctx)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// open opens pages, and returns how many were fetched and what closes them.
func (s *server) open(t testing.TB, paths []string, seen func([]byte)) (fetched *atomic.Int64, closeAll func()) {
	t.Helper()
	b := s.browser(t)
	ctx, cancel := context.WithCancel(t.Context())
	fetched = new(atomic.Int64)
	var all, opened sync.WaitGroup
	streams := map[string]string{}
	for _, path := range paths {
		if streams[path] == "" {
			streams[path] = b.stream(path)
		}
		p := &openPage{path: path, client: &http.Client{Transport: &http.Transport{}}, url: s.url, fetched: fetched, seen: seen}
		stream := streams[path]
		opened.Add(1)
		all.Go(func() {
			defer p.client.CloseIdleConnections()
			if err := p.follow(ctx, stream, opened.Done); ctx.Err() == nil {
				t.Errorf("the stream of %s ended: %v", path, err)
			}
		})
	}
	opened.Wait()
	return fetched, func() { cancel(); all.Wait() }
}

// mixed returns the URLs of open pages as people have them: lists, and pages of one session or task.
func mixed(n int, sessions, tasks []string) (paths []string) {
	for i := range n {
		paths = append(paths, []string{"/", "/board", "/", "/board", "/sessions/" + sessions[i%len(sessions)], "/tasks/" + tasks[i%len(tasks)]}[i%6])
	}
	return paths
}

// How many calls per second four agents make with no open page and with 200, in turns, and what part
// of them is lost. The pages are fetched again after each event, by clients of this process.
func BenchmarkCallsWith200Pages(b *testing.B) {
	s := serve(b, pagetest.Project(b), web.Options{})
	sessions, tasks := s.fill(b, 200, 400)
	const agents, turn = 4, 2 * time.Second
	var calls atomic.Int64
	stop := make(chan struct{})
	var working sync.WaitGroup
	for agent := range agents {
		call := pagetest.Connect(b, s.url, "")
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				session := call.Plan(fmt.Sprint("Work ", agent, i))
				call("finished_step", map[string]any{"session_id": session, "outputs": map[string]any{"idea": "idea.txt"}}, nil)
				call("abort_workflow", map[string]any{"session_id": session, "explanation": "enough"}, nil)
				call("update_task", map[string]any{"task_id": tasks[(4*i+agent)%len(tasks)], "description": fmt.Sprint("Now ", i)}, nil)
				calls.Add(4)
			}
		})
	}
	measure := func() float64 {
		began, before := time.Now(), calls.Load()
		time.Sleep(turn) // what is measured is how much happens in this time
		return float64(calls.Load()-before) / time.Since(began).Seconds()
	}
	measure() // until everything is warm
	var without, with, parts []float64
	var fetched int64
	for b.Loop() {
		alone := measure()
		pages, closeAll := s.open(b, mixed(200, sessions, tasks), nil)
		before := pages.Load()
		among := measure()
		fetched += pages.Load() - before
		closeAll()
		after := measure()
		without, with = append(without, (alone+after)/2), append(with, among)
		parts = append(parts, 100*(1-2*among/(alone+after)))
		b.Logf("%.0f, %.0f with pages, %.0f calls/s", alone, among, after)
	}
	close(stop)
	working.Wait()
	b.ReportMetric(mean(without), "calls/s-0-pages")
	b.ReportMetric(mean(with), "calls/s-200-pages")
	b.ReportMetric(mean(parts), "%lost")
	b.ReportMetric(float64(fetched)/float64(len(with))/turn.Seconds(), "fetches/s")
}

func mean(all []float64) (m float64) {
	for _, v := range all {
		m += v / float64(len(all))
	}
	return m
}

// How long it takes from the reply to a call, one per second, until an open page has what it changed, with
// one open page and with 200.
func BenchmarkVisible(b *testing.B) {
	s := serve(b, pagetest.Project(b), web.Options{})
	sessions, tasks := s.fill(b, 100, 200)
	call := pagetest.Connect(b, s.url, "")
	for _, n := range []int{1, 200} {
		b.Run(fmt.Sprint("pages=", n), func(b *testing.B) {
			arrived := make(chan string, 1000)
			_, closeSeen := s.open(b, []string{"/board"}, func(page []byte) { arrived <- string(page) })
			defer closeSeen()
			_, closeAll := s.open(b, mixed(n-1, sessions, tasks), nil)
			defer closeAll()
			var all []time.Duration
			for i := 0; b.Loop(); i++ {
				time.Sleep(time.Second) // changes come at this pace
				title := fmt.Sprintf("Title %d %d", n, time.Now().UnixNano())
				call("create_task", map[string]any{"project_id": call.Project(), "title": title}, nil)
				replied := time.Now()
				for !strings.Contains(<-arrived, title) {
				}
				all = append(all, time.Since(replied))
			}
			slices.Sort(all)
			b.ReportMetric(ms(all[len(all)/2]), "median-ms")
			b.ReportMetric(ms(all[len(all)*95/100]), "95%-ms")
			b.ReportMetric(ms(all[len(all)-1]), "slowest-ms")
		})
	}
}

// A change is on each open page that shows it.
func TestOpenPagesFollow(t *testing.T) {
	s := serve(t, pagetest.Project(t), web.Options{})
	sessions, tasks := s.fill(t, 4, 4)
	call := pagetest.Connect(t, s.url, "")
	for path, change := range map[string]func(text string){
		"/board":             func(text string) { call.Task(text, text) },
		"/tasks/" + tasks[0]: func(text string) { call("update_task", map[string]any{"task_id": tasks[0], "title": text}, nil) },
		"/":                  func(text string) { call.Plan(text) },
		"/sessions/" + sessions[0]: func(text string) {
			call("abort_workflow", map[string]any{"session_id": sessions[0], "explanation": text}, nil)
		},
	} {
		arrived := make(chan string, 1000)
		_, closeAll := s.open(t, []string{path}, func(page []byte) { arrived <- string(page) })
		change("Changed " + tasks[1])
		late := time.After(patience)
		for shown := false; !shown; {
			select {
			case page := <-arrived:
				shown = strings.Contains(page, "Changed "+tasks[1])
			case <-late:
				t.Fatalf("%s does not show the change", path)
			}
		}
		closeAll()
	}
}

// A page has everything that calls have answered before it was asked for.
func TestPagesAreNeverOld(t *testing.T) {
	s := serve(t, pagetest.Project(t), web.Options{})
	call := pagetest.Connect(t, s.url, "")
	b := s.browser(t)
	for i := range 10 {
		title := fmt.Sprintf("This is number %d.", i)
		call.Task(title, title)
		call.Plan(title)
		for _, path := range []string{"/", "/board"} {
			if !strings.Contains(b.get(path), title) {
				t.Errorf("%s has no %q", path, title)
			}
		}
	}
}

// A session's page has the workflows that begin in it.
func TestNestedWorkflowsAppear(t *testing.T) {
	s := serve(t, pagetest.Project(t), web.Options{})
	call := pagetest.Connect(t, s.url, "")
	session := call.Plan("outer")
	b := s.browser(t)
	path := "/sessions/" + session
	ids, hangUp := b.listen(b.stream(path), "")
	call("start_workflow", map[string]any{"goal": "inner", "job_name": "trip", "workflow_name": "plan", "parent_session_id": session}, nil)
	event(t, ids, "a nested workflow has begun")
	hangUp()
	testkit.Until(t, "the nested workflow", func() bool { return strings.Contains(b.get(path), "inner") })
}

// A page that was told of changes is sent again only if its content has changed.
func TestETag(t *testing.T) {
	s := serve(t, pagetest.Project(t), web.Options{})
	call, b := pagetest.Connect(t, s.url, ""), s.browser(t)
	first := call.Plan("first")
	ask := func(path, etag string) (status int, tag string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", b.at+path, nil)
		testkit.Must(t, err)
		r.Header.Set("If-None-Match", etag)
		res, err := b.Do(r)
		testkit.Must(t, err)
		res.Body.Close()
		return res.StatusCode, res.Header.Get("ETag")
	}
	path := "/sessions/" + first
	status, tag := ask(path, "")
	if status != http.StatusOK || tag == "" {
		t.Fatalf("%d, ETag %q", status, tag)
	}
	call.Task("another page", "another page") // the feed has another number now
	b.get("/board")
	if status, same := ask(path, tag); status != http.StatusNotModified || same != tag {
		t.Errorf("nothing has changed: %d, ETag %q, want %q", status, same, tag)
	}
	call("abort_workflow", map[string]any{"session_id": first, "explanation": "enough"}, nil)
	testkit.Until(t, "the change", func() bool { status, now := ask(path, tag); return status == http.StatusOK && now != tag })
}
