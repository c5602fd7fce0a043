package page_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/transport"
	"deepwork/transport/page"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

const bothJob = `name: both
version: 1.0.0
summary: Has two texts signed
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows: [{name: full, summary: All of it, steps: [[first, second]]}]
steps:
  - {id: first, name: First, description: Write it, instructions: Write., outputs: {text: {type: file, description: ` +
	`The text}}, reviews: [{run_each: step, by: human, quality_criteria: {Sound: "Is it?"}}]}
  - {id: second, name: Second, description: Write it, instructions: Write., outputs: {text: {type: file, ` +
	`description: The text}}, reviews: [{run_each: step, by: human, quality_criteria: {Sound: "Is it?"}}]}
`

// sections returns the lists of the page Now or of the inbox, by their names.
func sections(page string) map[string]string {
	all := map[string]string{}
	for _, part := range strings.Split(page, `<section class="list `)[1:] {
		name, text, _ := strings.Cut(part, `"`)
		all[name], _, _ = strings.Cut(text, "</section>")
	}
	return all
}

// A chat with several steps that wait for a person, and a session nested in it, is one row, which counts. The tab's
// title says how many rows need a person.
func TestNowHasARowForAPieceOfWork(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, root+"/.deepwork/jobs/both/job.yml", bothJob)
	_, call, all := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson})
	id := call.Start(pagetest.Args{"goal": "Two texts", "job_name": "both", "workflow_name": "full"})
	nested := call.Start(pagetest.Args{
		"goal":              "A detour",
		"job_name":          "trip",
		"workflow_name":     "plan",
		"parent_session_id": id,
	})
	now := all[0].do("GET", "/", nil).is(http.StatusOK, "<title>Now · ").lacks(nested)
	testkit.Equal(t, strings.Count(sections(now.text)["working"], "<li"), 1, "rows that work")

	for _, step := range []string{"first", "second"} {
		call("finished_step", pagetest.Args{
			"session_id": id,
			"step_id":    step,
			"outputs":    pagetest.Args{"text": "idea.txt"},
		}, nil)
	}
	var needs string
	testkit.Until(t, "both steps wait", func() bool {
		now = all[0].do("GET", "/", nil)
		needs = sections(now.text)["needs"]
		return strings.Contains(needs, " · and 1 more")
	})
	testkit.Equal(t, strings.Count(needs, "<li"), 1, "rows that need a person: %s", needs)
	testkit.Contains(t, needs, "Two texts")
	now.is(http.StatusOK, "<title>(1) Now · ", "No session or agent is at work.")
}

// A chat whose server is gone is idle, with what to say to an agent, and open pages are told of it.
func TestChatsWhoseServerIsGoneAreIdle(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	alone := testkit.Get(transport.NewServer(transport.Options{ProjectRoot: root})).Must(t)
	here, there := mcp.NewInMemoryTransports()
	user := session.WithCaller(t.Context(), session.LocalCaller(session.ChannelStdio))
	testkit.Get(alone.MCP().Connect(user, there, nil)).Must(t)
	id := pagetest.Over(t, here).Plan("Sail away")
	b := serve(t, root, web.Options{}).browser(t)
	ids, hangUp := b.listen(b.stream("/"), "")
	defer hangUp()
	before := sections(b.get("/"))
	testkit.Contains(t, before["working"], "Sail away")
	testkit.Equal(t, before["idle"], "", "nothing is idle")

	testkit.Must(t, alone.Close(t.Context()))
	event(t, ids, "the server of a chat has ended")
	after := sections(b.get("/"))
	testkit.ContainsAll(t, after["idle"], []string{"Sail away", "trip/plan · step idea, 1 of 3",
		"say to your agent:", "Go on with session " + id, `class="status idle"`})
	testkit.Lacks(t, after["working"], []string{"Sail away"}, "it is at work, too")
}

// Work that has changed nothing is offered as done.
func TestWorkWithoutChangesIsOfferedAsDone(t *testing.T) {
	_, call, b := open(t)
	task, id := call.Script("Look around", "! true\n")
	call.Await(t, id, "completed")
	testkit.Until(t, "the changes are counted", func() bool {
		return strings.Contains(b.get("/"), "no changes: done?")
	})
	b.act("/tasks/"+task+"?status=done&back=/", b.csrf("/")).leads("/")
	testkit.Lacks(t, sections(b.get("/"))["needs"], []string{"Look around"}, "it still waits")
}

// The history has totals of what its filters select.
func TestTheHistoryHasTotals(t *testing.T) {
	_, call, b := open(t)
	b.do("GET", "/history", nil).is(http.StatusOK, "Nothing has run here yet.").lacks("Passed at the first try")
	_, failed := call.Script("Break it", "! false\n")
	call.Await(t, failed, "failed")
	for _, goal := range []string{"Sail away", "Sail back", "Stay"} {
		id := call.Plan(goal)
		if goal == "Stay" {
			call("abort_workflow", pagetest.Args{"session_id": id, "explanation": "enough"}, nil)
			continue
		}
		for _, outputs := range []pagetest.Args{{"idea": "idea.txt"}, {}, {}} {
			call("finished_step", pagetest.Args{"session_id": id, "outputs": outputs}, nil)
		}
	}

	totals := func(path string) string {
		t.Helper()
		return find(t, regexp.MustCompile(`(?s)<dl class="facts totals">(.*?)</dl>`), b.get(path))
	}
	testkit.ContainsAll(t, totals("/history"), []string{"<dd>4</dd>", "<dd>2 of 3, 66%</dd>", "Median time"}, "of all")
	testkit.ContainsAll(t, totals("/history?q=sail&days=1"), []string{"<dd>2</dd>", "<dd>2 of 2, 100%</dd>"},
		"filtered")
	testkit.Lacks(t, totals("/history?q=break"), []string{"first try"}, "of what has no workflow")
	b.do("GET", "/history?until=2020-01-01&workflow=trip/gone", nil).is(http.StatusOK,
		"Nothing here matches the filter.", `<option selected>trip/gone</option>`, "<option>trip/plan</option>").
		lacks("facts totals")
}

// A caller with a token who has nothing yet is told how to connect, at the address that they see.
func TestANewTokenIsToldHowToConnect(t *testing.T) {
	_, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann"}, config.Token{Name: "bob"})
	call.Plan("Sail away")
	mine := strings.TrimPrefix(all[1].at, "http://")
	add := `claude mcp add --transport http deepwork %s/mcp --header "Authorization: Bearer TOKEN"`
	all[1].do("GET", "/", nil).is(http.StatusOK, strings.Replace(add, "%s", "http://"+mine, 1)).lacks("deepwork init")
	all[1].do("GET", "/", nil, "X-Forwarded-Proto: https", "X-Forwarded-Prefix: /work").is(http.StatusOK,
		strings.Replace(add, "%s", "https://"+mine+"/work", 1))
	all[0].do("GET", "/", nil).is(http.StatusOK, "Sail away").lacks("claude mcp add")
}

// The inbox has what needs the person in all projects, the most urgent first, and is told of changes in each. What
// cannot be read is said, and hides nothing else.
func TestInbox(t *testing.T) {
	one, call, _ := open(t)
	two := serve(t, pagetest.Project(t), web.Options{})
	other := pagetest.Connect(t, two.url, "")
	c := page.Chooser{
		List: func() ([]state.Project, int, error) {
			return []state.Project{{Root: one.root}, {Root: two.root}, {Root: "/lost"}}, 0, nil
		},
		Open:  func(string, *web.Login) (http.Handler, error) { return nil, http.ErrNotSupported },
		Watch: watcher(t),
	}
	s := listen(t, testkit.Get(transport.ListenProjects(t.Context(), slog.New(slog.DiscardHandler), c,
		web.Options{Secret: "secret"})).Must(t), server{}, func(context.Context) error { return nil })
	b := s.browser(t)
	b.do("GET", "/login?secret=secret", nil).leads("/")
	b.do("GET", "/", nil).is(http.StatusOK, "<title>Inbox · ", "Nothing waits for you.",
		"What needs you here is not known: lost is lost")

	ids, hangUp := b.listen(b.stream("/"), "")
	defer hangUp()
	event(t, ids, "the stream begins")
	_, failed := call.Script("Break it", "! false\n")
	call.Await(t, failed, "failed")
	_, done := other.Script("Add a line", "! echo more >> idea.txt\n! git commit -qam work\n")
	other.Await(t, done, "completed")
	order := regexp.MustCompile(`(?s)<title>\(2\) Inbox · .*Stopped.*<a href="/projects/[0-9a-f]{12}/attempts/` +
		failed + `">Break it</a>.*To review.*<a href="/projects/[0-9a-f]{12}/attempts/` + done +
		`">Add a line</a>.*1 needs you.*1 needs you`)
	for !order.MatchString(b.get("/")) {
		event(t, ids, "the inbox is told of what it lacks: "+sections(b.get("/"))["needs"])
	}
}

// watcher returns a Chooser.Watch for projects in files, whose boards are closed with the test.
func watcher(t *testing.T) func(root string) (*board.Board, error) {
	var mu sync.Mutex
	known := map[string]*board.Board{}
	return func(root string) (*board.Board, error) {
		mu.Lock()
		defer mu.Unlock()
		if root == "/lost" {
			return nil, errors.New("lost is lost")
		}
		if known[root] == nil {
			b := board.New(board.Options{Root: root})
			known[root] = b
			t.Cleanup(func() { testkit.Works(t, b.Close(context.Background())) })
		}
		return known[root], nil
	}
}
