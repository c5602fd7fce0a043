package page_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

var connectTo = regexp.MustCompile(`hx-sse:connect="([^"]+)"`)

func (b *browser) stream(path string) string {
	b.t.Helper()
	return html.UnescapeString(find(b.t, connectTo, b.get(path)))
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
	testkit.Need(b.t, res.StatusCode == http.StatusOK, "%s: %s %v", stream, res.Status, res.Header)
	testkit.Need(b.t, res.Header.Get("Content-Type") == "text/event-stream", "%s: %s %v", stream, res.Status,
		res.Header)
	testkit.Need(b.t, res.Header.Get("Cache-Control") == "no-store", "%s: %s %v", stream, res.Status, res.Header)

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

// event waits for the next event, for as long as one may take on a busy machine.
func event(t testing.TB, ids <-chan string, what string) string {
	t.Helper()
	select {
	case id := <-ids:
		return id
	case <-time.After(20 * time.Second):
		t.Fatalf("no event: %s", what)
		return ""
	}
}

func TestEvents(t *testing.T) {
	s, call, b := open(t)
	call.Task("before", "before")
	testkit.Contains(t, b.get("/board"), "before")

	board := b.stream("/board")
	ids, hangUp := b.listen(board, "")
	call.Task("one", "one")
	last := event(t, ids, "a task was added")
	testkit.Contains(t, b.get("/board"), ">one</a>")

	hangUp()
	call.Task("while nobody listened", "while nobody listened")
	ids, hangUp = b.listen(board, last)
	next := event(t, ids, "a page that was cut off catches up")
	hangUp()
	testkit.True(t, next > last, "%s after %s", next, last)

	// A page of this server's predecessor is renewed, as anything may have changed since.
	s.stop()
	b.at = serve(t, s.root, web.Options{}).url
	ids, hangUp = b.listen(board, next)
	id := event(t, ids, "the server was started again")
	testkit.True(t, id > next, "%s after %s", id, next)
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

// An edit of the config or of a job is on the pages that show it, also on those that are open.
func TestEditsAreShown(t *testing.T) {
	s, call, b := open(t)
	shown := func(path, text string) {
		t.Helper()
		testkit.Until(t, text+" on "+path, func() bool { return strings.Contains(b.get(path), text) })
	}
	trip := s.root + "/.deepwork/jobs/trip/job.yml"
	for _, c := range []struct{ path, file, text, want string }{
		{"/jobs", s.root + "/.deepwork/jobs/broken/job.yml", "second: 1\n", "second"},
		{"/trust", s.root + "/.deepwork/config.yml", "executors:\n  OTHER:\n    command: [other]\n", "OTHER"},
		{"/trust", trip, strings.Replace(string(testkit.Get(os.ReadFile(trip)).Must(t)), "dependencies",
			"checks: [{name: tidy, run: [./tidy]}], dependencies", 1), "./tidy"},
	} {
		ids, hangUp := b.listen(b.stream(c.path), "")
		testkit.Lacks(t, b.get(c.path), []string{c.want}, "before the edit")
		testkit.Write(t, c.file, c.text)
		event(t, ids, "an edit: "+c.want)
		shown(c.path, c.want)
		hangUp()
	}
	testkit.Write(t, s.root+"/idea.txt", "first")
	output := "/sessions/" + begin(call).session + "/output?path=idea.txt"
	shown(output, "first")
	testkit.Write(t, s.root+"/idea.txt", "then")
	testkit.Contains(t, b.get(output), "then", "the output is not shown as it is now")
}

// A change is on each page that shows it as soon as it is acknowledged, and open pages are told. These keep
// their streams, so what they follow does not depend on what has begun when they are opened.
func TestOpenPagesFollow(t *testing.T) {
	_, call, b := open(t)
	sessions, tasks := fill(call, 1, 1)
	task := call.Task("first", "! true\n")
	outer := call.Plan("outer")
	nested := ""
	abort := func(session, text string) {
		call("abort_workflow", pagetest.Args{"session_id": session, "explanation": text}, nil)
	}
	for _, c := range []struct {
		path, shows string
		change      func(text string)
	}{
		{"/board", "Changed 1", func(text string) { call.Task(text, text) }},
		{"/tasks/" + tasks[0], "Changed 2", func(text string) {
			call("update_task", pagetest.Args{"task_id": tasks[0], "title": text}, nil)
		}},
		{"/", "Changed 3", func(text string) { call.Plan(text) }},
		{"/history?q=changed", "Changed 4", func(text string) { call.Plan(text) }},
		{"/sessions/" + sessions[0], "Changed 5", func(text string) { abort(sessions[0], text) }},
		{"/sessions/" + outer, "Changed 6", func(text string) {
			nested = call.Start(pagetest.Args{
				"goal":              text,
				"job_name":          "trip",
				"workflow_name":     "plan",
				"parent_session_id": outer,
			})
		}},
		{"/sessions/" + outer, "", func(text string) { abort(nested, text) }},
		{"/tasks/" + task, "", func(string) { call.Attempt(task, "SCRIPT") }},
		{"/tasks/" + task, "second", func(text string) {
			call("update_task", pagetest.Args{"task_id": task, "depends_on": []string{call.Task(text, "")}}, nil)
		}},
	} {
		stream := b.stream(c.path)
		ids, hangUp := b.listen(stream, "")
		c.change(c.shows)
		testkit.Contains(t, b.get(c.path), c.shows, "%s", c.path)
		event(t, ids, c.path+": "+c.shows)
		hangUp()
		_, before, _ := strings.Cut(stream, "&on=")
		_, after, _ := strings.Cut(b.stream(c.path), "&on=")
		testkit.Equal(t, after, before, "what %s follows", c.path)
	}
}

// A page that was told of changes is sent again only if its content has changed.
func TestETag(t *testing.T) {
	_, call, b := open(t)
	first := call.Plan("first")
	ask := func(etag string) answer { return b.do("GET", "/sessions/"+first, nil, "If-None-Match: "+etag) }
	tag := ask("").is(http.StatusOK).Header.Get("ETag")
	testkit.Need(t, tag != "", "there is no ETag")

	call.Task("another page", "another page") // the feed has another number now
	b.get("/board")
	testkit.Equal(t, ask(tag).is(http.StatusNotModified).Header.Get("ETag"), tag, "nothing has changed")
	call("abort_workflow", pagetest.Args{"session_id": first, "explanation": "enough"}, nil)
	testkit.Until(t, "the change", func() bool {
		a := ask(tag)
		return a.StatusCode == http.StatusOK && a.Header.Get("ETag") != tag
	})
}

// fill starts sessions and adds tasks. It returns their ids.
func fill(call pagetest.Call, sessions, tasks int) (allSessions, allTasks []string) {
	for i := range sessions {
		allSessions = append(allSessions, call.Plan(fmt.Sprint("Goal ", i)))
	}
	for i := range tasks {
		allTasks = append(allTasks, call.Task(fmt.Sprint("Task ", i), ""))
	}
	return allSessions, allTasks
}

// Every page has a limit, and leads to what it leaves out.
func TestPagesStayUnder100KB(t *testing.T) {
	t.Parallel()
	// There are many jobs, one of them with many long steps.
	root := pagetest.Project(t)
	job := func(name, summary, text string, steps int) {
		var ids, all []string
		for i := range steps {
			ids = append(ids, fmt.Sprint("step", i))
			all = append(all, fmt.Sprintf("  - {id: step%d, name: Step, description: x, instructions_file: text.md, "+
				"outputs: {}, reviews: []}\n", i))
		}
		testkit.WriteAll(t, root+"/.deepwork/jobs/"+name, map[string]string{
			"text.md": text,
			"job.yml": fmt.Sprintf("name: %s\nversion: 1.0.0\nsummary: "+
				"%s\ncommon_job_info_provided_to_all_steps_at_runtime: x\nworkflows:\n  - {name: all, summary: "+
				"%[2]s, steps: [%s]}\nsteps:\n%s",
				name, summary, strings.Join(ids, ", "), strings.Join(all, "")),
		})
	}
	for i := range 100 {
		job(fmt.Sprint("other", i), strings.Repeat("long ", 40), "Do it.", 1)
	}
	job("long", "Long", strings.Repeat("Think of <everything> & more.\n", 1000), 60)
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-q", "-m", "more")

	s := serve(t, root, web.Options{})
	call, b := pagetest.Connect(t, s.url, ""), s.browser(t)
	sessions, tasks := fill(call, 120, 120)
	long := call.Start(pagetest.Args{
		"goal":          strings.Repeat("A long <goal>. ", 300),
		"job_name":      "long",
		"workflow_name": "all",
	})
	for range 40 {
		call("finished_step", map[string]any{
			"session_id": long,
			"outputs":    map[string]any{},
			"notes":      strings.Repeat("A long <note>. ", 300),
		}, nil)
	}

	diff, talk := call.Script("A large diff", strings.Join([]string{"",
		"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo $i; done > numbers.txt",
		"mkdir many; i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i > many/file$i; done",
		"git add -A; git commit -qm work",
		"cat numbers.txt; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo '<warning>' " + strings.Repeat("long ", 300) +
			" >&2; echo $i; done", ""}, "\n! "))
	call.Await(t, talk, "completed", "failed")
	call("update_task", map[string]any{
		"task_id":     tasks[0],
		"description": strings.Repeat("A long <text>. ", 6000),
	}, nil)

	get := func(path string) string {
		t.Helper()
		text := b.get(path)
		testkit.True(t, len(text) <= 100<<10, "%s has %d bytes", path, len(text)) // before it is compressed
		return text
	}
	for _, path := range []string{"/", "/?q=Goal", "/?list=needs", "/attempts/" + talk + "?path=numbers.txt&from=300",
		"/attempts/" + talk + "?files=200", "/?list=working", "/?list=recent", "/?list=working&from=100", "/board",
		"/board?status=todo", "/tasks/" + tasks[0], "/tasks/" + diff, "/sessions/" + sessions[0],
		"/sessions/" + long, "/attempts/" + talk, "/attempts/" + talk + "?tab=changes",
		"/attempts/" + talk + "?diff=split", "/attempts/" + talk + "?path=numbers.txt",
		"/attempts/" + talk + "?diff=split&path=numbers.txt", "/jobs", "/jobs/long", "/trust"} {
		get(path)
	}

	// What a page leaves out is behind its links.
	for path, want := range map[string]struct {
		entry *regexp.Regexp
		count int
	}{
		"/history?kind=session": {regexp.MustCompile(`href="/sessions/([0-9a-f]{8})"`),
			len(sessions) + 1},
		"/?list=working": {regexp.MustCompile(`href="/sessions/([0-9a-f]{8})"`),
			len(sessions) + 1},
		"/board?status=todo": {regexp.MustCompile(`<a href="/tasks/([^"]+)"`), len(tasks)},
		"/attempts/" + talk +
			"?tab=changes": {regexp.MustCompile(`many%2F(file[0-9]+)"|aria-label="many/(file[0-9]+)"`), 400},
		"/attempts/" + talk + "?path=numbers.txt": {regexp.MustCompile(`<td>[+]([0-9]+)</td>`), 2000},
	} {
		found := map[string]bool{}
		for at := path; at != ""; {
			text := get(at)
			for _, m := range want.entry.FindAllStringSubmatch(text, -1) {
				found[m[len(m)-1]+m[1]] = true
			}
			at = ""
			if all := moreLink.FindAllStringSubmatch(text, -1); all != nil {
				at = html.UnescapeString(all[len(all)-1][1]) // the one of the list is the last
			}
		}
		testkit.Equal(t, len(found), want.count, "%s", path)
	}
	testkit.Contains(t, b.get("/sessions/"+long), `?step=step3"`)

	b.do("GET", "/sessions/"+long+"?step=step3", nil).is(http.StatusOK, "only step3", "<code>step3</code>",
		"A long &lt;note&gt;. A").lacks("<code>step4</code>")
}

var moreLink = regexp.MustCompile(`<p><a href="([^"]+)">(?:[0-9]+ more(?: lines| files)?|Older)</a></p>`)
