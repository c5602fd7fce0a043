package page_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

var connectTo = regexp.MustCompile(`hx-sse:connect="([^"]+)"`)

// stream returns the URL of a page's stream of events.
func (b *browser) stream(path string) string {
	b.t.Helper()
	found := connectTo.FindStringSubmatch(b.get(path))
	testkit.Need(b.t, found != nil, "%s has no stream", path)
	return html.UnescapeString(found[1])
}

// listen opens a stream, as after a connection was lost if last is not "". Each event's id is sent to
// the channel, which is closed when the stream ends.
func (b *browser) listen(stream, last string) (ids <-chan string, hangUp func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	r := testkit.Get(http.NewRequestWithContext(ctx, "GET", b.at+stream, nil)).Must(b.t)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	res := testkit.Get(b.Do(r)).Must(b.t)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Cache-Control") != "no-store" {
		b.t.Fatalf("%s: %s %v", stream, res.Status, res.Header)
	}
	out := make(chan string, 100)
	go func() {
		defer close(out)
		defer res.Body.Close()
		event := ""
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); {
			case name == "event":
				event = value
			case name == "id" && event == "news":
				out <- value
			}
		}
	}()
	b.t.Cleanup(cancel)
	return out, func() {
		cancel()
		for range out { // until it has ended
		}
	}
}

// patience is how long an event may take on a busy machine.
const patience = 20 * time.Second

// event waits for the next event.
func event(t testing.TB, ids <-chan string, what string) string {
	t.Helper()
	select {
	case id := <-ids:
		return id
	case <-time.After(patience):
		t.Fatalf("no event: %s", what)
		return ""
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	s := serve(t, root, web.Options{})
	call := pagetest.Connect(t, s.url, "")
	b := s.browser(t)
	call.Task("before", "before")
	testkit.Until(t, "before", func() bool { return strings.Contains(b.get("/board"), "before") })
	board := b.stream("/board")
	ids, hangUp := b.listen(board, "")
	call.Task("one", "one")
	last := event(t, ids, "a task was added")
	testkit.Until(t, "the task", func() bool { return strings.Contains(b.get("/board"), ">one</a>") })
	hangUp()

	call.Task("while nobody listened", "while nobody listened")
	ids, hangUp = b.listen(board, last)
	next := event(t, ids, "a page that was cut off catches up")
	hangUp()
	testkit.True(t, next > last, "%s after %s", next, last)

	// A page of this server's predecessor is renewed, as anything may have changed since.
	s.stop()
	s = serve(t, root, web.Options{})
	b.at = s.url
	ids, hangUp = b.listen(board, next)
	if id := event(t, ids, "the server was started again"); id <= next {
		t.Errorf("%s after %s", id, next)
	}
	hangUp()

	// The present page is as new as can be: its stream says nothing before there is a change.
	ids, hangUp = b.listen(b.stream("/board"), "")
	select {
	case id := <-ids:
		t.Errorf("event %s without a change", id)
	case <-time.After(300 * time.Millisecond):
	}
	hangUp()
}

// What does not belong to a caller's pages is no event for it.
func TestEventsNeedALogin(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	b := s.browser(t)
	if a := b.do("GET", "/events?at=0&on=task", nil, "HX-Request: true"); a.StatusCode != http.StatusUnauthorized || a.Header.Get("HX-Redirect") != "/login" {
		t.Errorf("%s %v", a.Status, a.Header)
	}
	if a := b.do("GET", "/board", nil); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/login?next=%2Fboard" {
		t.Errorf("%s %v", a.Status, a.Header)
	}
	b.login(tokens[0])
	ids, hangUp := b.listen("/events?at=0&on=task", "")
	event(t, ids, "after the login")
	hangUp()
}

// An edit of the config or of a job is on the pages that show it, also on those that are open.
func TestEditsAreShown(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	b := s.browser(t)
	jobs, _ := b.listen(b.stream("/jobs"), "")
	if text := b.get("/jobs"); strings.Contains(text, "second") {
		t.Fatal(text)
	}
	testkit.Write(t, s.root+"/.deepwork/jobs/broken/job.yml", "second: 1\n")
	event(t, jobs, "a job was edited")
	testkit.Until(t, "the edit", func() bool { return strings.Contains(b.get("/jobs"), "second") })
	trust, _ := b.listen(b.stream("/trust"), "")
	testkit.Write(t, s.root+"/.deepwork/config.yml", "executors:\n  OTHER:\n    command: [other]\n")
	testkit.Until(t, "the edit", func() bool { return strings.Contains(b.get("/trust"), "OTHER") })
	event(t, trust, "the config was edited")
	trust, _ = b.listen(b.stream("/trust"), "")
	trip := s.root + "/.deepwork/jobs/trip/job.yml"
	testkit.Write(t, trip, strings.Replace(string(testkit.Get(os.ReadFile(trip)).Must(t)), "dependencies", "checks: [{name: tidy, run: [./tidy]}], dependencies", 1))
	event(t, trust, "a job has a check, which needs approval")
	testkit.Until(t, "the check", func() bool { return strings.Contains(b.get("/trust"), "./tidy") })
	testkit.Write(t, s.root+"/idea.txt", "first")
	p := s.begin(t, "")
	output := "/sessions/" + p.session + "/output?path=idea.txt"
	testkit.Until(t, "the output", func() bool { return strings.Contains(b.get(output), "first") })
	testkit.Write(t, s.root+"/idea.txt", "then")
	testkit.Contains(t, b.get(output), "then", "the output is not shown as it is now")
}

// A caller that does not see an attempt does not keep its output from one that does.
func TestOutputIsFollowedForEachCaller(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightAgents}, config.Token{Name: "bob"})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	more := filepath.Join(t.TempDir(), "more")
	_, id := call.Script("talk", "! until [ -e "+more+" ]; do sleep 0.05; done; while [ -e "+more+" ]; do echo hello; sleep 0.1; done\n")
	t.Cleanup(func() { _ = os.Remove(more) })
	on := "/events?at=0&on=output:" + id
	ann, bob := s.browser(t), s.browser(t)
	bob.login(tokens[1])
	ann.login(tokens[0])
	_, leave := bob.listen(on, "")
	defer leave()
	stream := regexp.MustCompile("on=.*").ReplaceAllString(ann.stream("/attempts/"+id), "on=output:"+id)
	ids, hangUp := ann.listen(stream, "")
	defer hangUp()
	testkit.Write(t, more, "")
	event(t, ids, "the agent has printed")
}

// A change is on each open page that shows it.
func TestOpenPagesFollow(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	sessions, tasks := s.fill(t, 4, 4)
	call, b := pagetest.Connect(t, s.url, ""), s.browser(t)
	for path, change := range map[string]func(text string){
		"/board":             func(text string) { call.Task(text, text) },
		"/tasks/" + tasks[0]: func(text string) { call("update_task", map[string]any{"task_id": tasks[0], "title": text}, nil) },
		"/":                  func(text string) { call.Plan(text) },
		"/history?q=changed": func(text string) { call.Plan(text) },
		"/sessions/" + sessions[0]: func(text string) {
			call("abort_workflow", map[string]any{"session_id": sessions[0], "explanation": text}, nil)
		},
	} {
		ids, hangUp := b.listen(b.stream(path), "")
		change("Changed " + tasks[1])
		event(t, ids, path)
		testkit.Until(t, "the change on "+path, func() bool { return strings.Contains(b.get(path), "Changed "+tasks[1]) })
		hangUp()
	}
}

// A page has everything that calls have answered before it was asked for.
func TestPagesAreNeverOld(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	call := pagetest.Connect(t, s.url, "")
	b := s.browser(t)
	for i := range 10 {
		title := fmt.Sprintf("This is number %d.", i)
		call.Task(title, title)
		call.Plan(title)
		for _, path := range []string{"/", "/board", "/history"} {
			testkit.Contains(t, b.get(path), title, "%s has no", path)
		}
	}
}

// A session's page has the workflows that begin in it.
func TestNestedWorkflowsAppear(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	call := pagetest.Connect(t, s.url, "")
	session := call.Plan("outer")
	b := s.browser(t)
	path := "/sessions/" + session
	opened := b.stream(path)
	ids, hangUp := b.listen(opened, "")
	nested := call.Start(pagetest.Args{"goal": "inner", "job_name": "trip", "workflow_name": "plan", "parent_session_id": session})
	event(t, ids, "a nested workflow has begun")
	hangUp()
	testkit.Until(t, "the nested workflow", func() bool { return strings.Contains(b.get(path), "inner") })
	now := b.stream(path)
	ids, hangUp = b.listen(opened, now[strings.Index(now, "at=")+len("at="):strings.Index(now, "&")])
	call("abort_workflow", map[string]any{"session_id": nested, "explanation": "enough"}, nil)
	event(t, ids, "the nested workflow has ended")
	hangUp()
}

// An open page keeps its stream, so what it follows does not depend on what has begun when it is opened.
func TestPagesFollowWhatBeginsLater(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	call, b := pagetest.Connect(t, s.url, ""), s.browser(t)
	task, session := call.Task("first", "! true\n"), call.Plan("outer")
	for path, begin := range map[string]func(){
		"/tasks/" + task: func() {
			call.Attempt(task, "SCRIPT")
			call("update_task", pagetest.Args{"task_id": task, "depends_on": []string{call.Task("second", "")}}, nil)
		},
		"/sessions/" + session: func() {
			call.Start(pagetest.Args{"goal": "inner", "job_name": "trip", "workflow_name": "plan", "parent_session_id": session})
		},
	} {
		_, before, _ := strings.Cut(b.stream(path), "&on=")
		begin()
		_, after, _ := strings.Cut(b.stream(path), "&on=")
		testkit.Equal(t, after, before, "%s", path)
	}
}

// A page that was told of changes is sent again only if its content has changed.
func TestETag(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	call, b := pagetest.Connect(t, s.url, ""), s.browser(t)
	first := call.Plan("first")
	ask := func(path, etag string) (status int, tag string) {
		r := testkit.Get(http.NewRequestWithContext(t.Context(), "GET", b.at+path, nil)).Must(t)
		r.Header.Set("If-None-Match", etag)
		res := testkit.Get(b.Do(r)).Must(t)
		res.Body.Close()
		return res.StatusCode, res.Header.Get("ETag")
	}
	path := "/sessions/" + first
	status, tag := ask(path, "")
	testkit.Need(t, status == http.StatusOK && tag != "", "%d, ETag %q", status, tag)
	call.Task("another page", "another page") // the feed has another number now
	b.get("/board")
	if status, same := ask(path, tag); status != http.StatusNotModified || same != tag {
		t.Errorf("nothing has changed: %d, ETag %q, want %q", status, same, tag)
	}
	call("abort_workflow", map[string]any{"session_id": first, "explanation": "enough"}, nil)
	testkit.Until(t, "the change", func() bool { status, now := ask(path, tag); return status == http.StatusOK && now != tag })
}
