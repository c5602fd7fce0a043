package page_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// fill starts sessions and adds tasks, as four agents do. It returns their ids.
func (s *server) fill(t testing.TB, sessions, tasks int) (allSessions, allTasks []string) {
	const agents = 4
	allSessions, allTasks = make([]string, sessions), make([]string, tasks)
	var all sync.WaitGroup
	for agent := range agents {
		all.Go(func() {
			call := pagetest.Connect(t, s.url, "")
			for i := agent; i < sessions; i += agents {
				allSessions[i] = call.Plan(fmt.Sprint("Goal ", i))
			}
			for i := agent; i < tasks; i += agents {
				allTasks[i] = call.Task(fmt.Sprint("Task ", i), "")
			}
		})
	}
	all.Wait()
	return allSessions, allTasks
}

// How long pages take with 1,000 sessions and 10,000 tasks; those of an empty project are there to compare.
func BenchmarkPages(b *testing.B) {
	s, empty := serve(b, pagetest.Project(b), web.Options{}), serve(b, pagetest.Project(b), web.Options{}).browser(b)
	s.fill(b, 1000, 10_000)
	full := s.browser(b)
	for _, path := range []string{"/", "/history", "/history?state=done&q=goal", "/board", "/jobs", "/jobs/trip"} {
		for name, of := range map[string]*browser{"full": full, "empty": empty} {
			b.Run(name+path, func(b *testing.B) {
				for b.Loop() {
					of.get(path)
				}
			})
		}
	}
}

// maxPage is how large a page may be before it is compressed, in bytes.
const maxPage = 100 << 10

// large makes a project with many jobs, one of them with many long steps and many workflows.
func large(t testing.TB) (root string) {
	t.Helper()
	root = pagetest.Project(t)
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf(".deepwork/jobs/other%d/job.yml", i)] = fmt.Sprintf("name: other%d\nversion: 1.0.0\ncommon_job_info_provided_to_all_steps_at_runtime: x\nsummary: %s\nworkflows:\n  - {name: all, summary: %s, steps: [one]}\n"+
			"steps:\n  - {id: one, name: One, description: x, instructions_file: one.md, outputs: {}, reviews: []}\n", i, strings.Repeat("long ", 40), strings.Repeat("long ", 40))
		files[fmt.Sprintf(".deepwork/jobs/other%d/one.md", i)] = "Do it."
	}
	var ids, steps []string
	for i := range 60 {
		ids = append(ids, fmt.Sprint("step", i))
		steps = append(steps, fmt.Sprintf("  - {id: step%d, name: Step, description: x, instructions_file: long.md, outputs: {}, reviews: []}\n", i))
	}
	files[".deepwork/jobs/long/job.yml"] = "name: long\nversion: 1.0.0\ncommon_job_info_provided_to_all_steps_at_runtime: x\nsummary: Long\nworkflows:\n  - {name: all, summary: All, steps: [" + strings.Join(ids, ", ") + "]}\nsteps:\n" + strings.Join(steps, "")
	files[".deepwork/jobs/long/long.md"] = strings.Repeat("Think of <everything> & more.\n", 1000)
	testkit.WriteAll(t, root, files)
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-q", "-m", "more")
	return root
}

// Every page has a limit, and leads to what it leaves out.
func TestPagesStayUnder100KB(t *testing.T) {
	t.Parallel()
	s := serve(t, large(t), web.Options{})
	call, b := pagetest.Connect(t, s.url, ""), s.browser(t)
	sessions, tasks := s.fill(t, 120, 120)
	long := call.Start(pagetest.Args{"goal": strings.Repeat("A long <goal>. ", 300), "job_name": "long", "workflow_name": "all"})
	for range 40 {
		call("finished_step", map[string]any{"session_id": long, "outputs": map[string]any{}, "notes": strings.Repeat("A long <note>. ", 300)}, nil)
	}
	diff, talk := call.Script("A large diff", strings.Join([]string{"",
		"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo $i; done > numbers.txt",
		"mkdir many; i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo $i > many/file$i; done",
		"git add -A; git commit -qm work",
		"cat numbers.txt; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo '<warning>' " + strings.Repeat("long ", 300) + " >&2; echo $i; done", ""}, "\n! "))
	call.Await(t, talk, "completed", "failed")
	call("update_task", map[string]any{"task_id": tasks[0], "description": strings.Repeat("A long <text>. ", 6000)}, nil)
	for _, path := range []string{"/", "/?q=Goal", "/?list=needs", "/attempts/" + talk + "?path=numbers.txt&from=300", "/attempts/" + talk + "?files=200", "/?list=working", "/?list=recent", "/?list=working&from=100", "/board", "/board?status=todo", "/tasks/" + tasks[0], "/tasks/" + diff, "/sessions/" + sessions[0],
		"/sessions/" + long, "/attempts/" + talk, "/attempts/" + talk + "?tab=changes", "/attempts/" + talk + "?diff=split", "/attempts/" + talk + "?path=numbers.txt", "/attempts/" + talk + "?diff=split&path=numbers.txt", "/jobs", "/jobs/long", "/trust"} {
		text := b.get(path)
		testkit.True(t, len(text) <= maxPage, "%s has %d bytes", path, len(text))
	}
	// What a page leaves out is behind its links.
	for path, want := range map[string]struct {
		entry *regexp.Regexp
		count int
	}{
		"/history?kind=session":                   {regexp.MustCompile(`href="/sessions/([0-9a-f]{8})"`), len(sessions) + 1},
		"/?list=working":                          {regexp.MustCompile(`href="/sessions/([0-9a-f]{8})"`), len(sessions) + 1},
		"/board?status=todo":                      {regexp.MustCompile(`<a href="/tasks/([^"]+)"`), len(tasks)},
		"/attempts/" + talk + "?tab=changes":      {regexp.MustCompile(`many%2F(file[0-9]+)"|aria-label="many/(file[0-9]+)"`), 400},
		"/attempts/" + talk + "?path=numbers.txt": {regexp.MustCompile(`<td>[+]([0-9]+)</td>`), 2000},
	} {
		found := map[string]bool{}
		for at := path; at != ""; {
			text := b.get(at)
			testkit.True(t, len(text) <= maxPage, "%s has %d bytes", at, len(text))
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
	b.do("GET", "/sessions/"+long+"?step=step3", nil).is(http.StatusOK, "only step3", "<code>step3</code>", "A long &lt;note&gt;. A").lacks("<code>step4</code>")
}

var moreLink = regexp.MustCompile(`<p><a href="([^"]+)">(?:[0-9]+ more(?: lines| files)?|Older)</a></p>`)
