package page_test

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/transport"
	"deepwork/transport/page"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

func TestMain(m *testing.M) {
	os.Setenv(config.JobsFoldersEnv, "")
	_ = flag.Set("test.parallel", "4") // they wait for servers and git
	os.Exit(pagetest.Main(m, func(o ...goleak.Option) error {
		// ends a little later
		return goleak.Find(append(o, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))...)
	}))
}

// A server is one in this process.
type server struct {
	url, root, file string
	tokens          []string
	stop            func()
}

// serve serves the project at root until the test ends or stop is called, perhaps with other options of the server.
func serve(t testing.TB, root string, o web.Options, of ...transport.Options) *server {
	t.Helper()
	options := append(of, transport.Options{})[0]
	options.ProjectRoot = root
	s := testkit.Get(transport.NewServer(options)).Must(t)
	return listen(t, testkit.Get(s.Listen(t.Context(), o)).Must(t), server{root: root, file: o.TokenFile}, s.Close)
}

// listen has a server listen until the test ends or stop is called, and then closes what it serves.
func listen(t testing.TB, h *web.Server, s server, closes func(context.Context) error) *server {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Works(t, <-served)
		testkit.Works(t, closes(context.Background()))
	})
	t.Cleanup(s.stop)
	s.url = strings.TrimSuffix(h.URL(), "/mcp")
	return &s
}

// open serves a new project to the user, with an agent and a browser. The test runs beside others.
func open(t *testing.T) (*server, pagetest.Call, *browser) {
	t.Helper()
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	return s, pagetest.Connect(t, s.url, ""), s.browser(t)
}

// as is open for callers with tokens: the first has an agent, and each a browser that is logged in.
func as(t *testing.T, root string, callers ...config.Token) (s *server, call pagetest.Call, all []*browser) {
	t.Helper()
	t.Parallel()
	file, tokens := pagetest.Tokens(t, callers...)
	s = serve(t, root, web.Options{TokenFile: file})
	s.tokens = tokens
	for _, token := range tokens {
		b := s.browser(t)
		b.login(token)
		all = append(all, b)
	}
	return s, pagetest.Connect(t, s.url, tokens[0]), all
}

// A browser keeps cookies and follows no redirect.
type browser struct {
	t testing.TB
	*http.Client
	at string
}

func (s *server) browser(t testing.TB) *browser {
	jar, _ := cookiejar.New(nil) // without options it does not fail
	over := &http.Transport{}
	t.Cleanup(over.CloseIdleConnections)
	return &browser{t, &http.Client{
		Jar:           jar,
		Transport:     over,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, s.url}
}

// An answer is what came of a request.
type answer struct {
	*http.Response
	t    testing.TB
	text string
}

// is checks an answer's status and what its text has.
func (a answer) is(status int, wants ...string) answer {
	a.t.Helper()
	testkit.Equal(a.t, a.StatusCode, status, "%s %s: %.3000s", a.Request.Method, a.Request.URL, a.text)
	testkit.ContainsAll(a.t, a.text, wants, "%s %s", a.Request.Method, a.Request.URL)
	return a
}

func (a answer) lacks(bad ...string) answer {
	a.t.Helper()
	testkit.Lacks(a.t, a.text, bad, "%s %s", a.Request.Method, a.Request.URL)
	return a
}

func (a answer) leads(to string) answer {
	a.t.Helper()
	testkit.Equal(a.t, a.Header.Get("Location"), to, "%s %s leads to", a.Request.Method, a.Request.URL)
	return a.is(http.StatusSeeOther)
}

// do sends a request. Headers are "Name: value"; a form is sent if it is not nil.
func (b *browser) do(method, path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	r := testkit.Get(http.NewRequestWithContext(b.t.Context(), method, b.at+path, strings.NewReader(form.Encode()))).
		Must(b.t)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	r.Host = r.Header.Get("Host")
	res := testkit.Get(b.Do(r)).Must(b.t)
	defer res.Body.Close()
	return answer{res, b.t, string(testkit.Get(io.ReadAll(res.Body)).Must(b.t))}
}

func (b *browser) get(path string) string {
	b.t.Helper()
	a := b.do("GET", path, nil)
	testkit.Need(b.t, a.StatusCode == http.StatusOK, "%s: %s\n%s", path, a.Status, a.text)
	return a.text
}

// act sends an action, with its query as the form.
func (b *browser) act(action, csrf string, headers ...string) answer {
	b.t.Helper()
	path, query, _ := strings.Cut(action, "?")
	form, _ := url.ParseQuery(query)
	form.Set("csrf", csrf)
	return b.do("POST", path, form, headers...)
}

func (b *browser) login(token string) *http.Cookie {
	b.t.Helper()
	a := b.do("POST", "/login", url.Values{"token": {token}}).leads("/")
	testkit.Need(b.t, len(a.Cookies()) == 1, "the login: %s", a.text)
	return a.Cookies()[0]
}

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// csrf returns what the forms of a page send back.
func (b *browser) csrf(path string) string {
	b.t.Helper()
	return find(b.t, csrfField, b.get(path))
}

func find(t testing.TB, pattern *regexp.Regexp, text string) string {
	t.Helper()
	found := pattern.FindStringSubmatch(text)
	testkit.Need(t, found != nil, "no %s in %s", pattern, text)
	return found[1]
}

// A started is a project in which something has happened.
type started struct{ session, task string }

// begin starts a workflow and adds a task, both with a hostile text.
func begin(call pagetest.Call) started {
	session := call.Plan(pagetest.Hostile)
	call("finished_step", pagetest.Args{
		"session_id": session,
		"outputs":    pagetest.Args{"idea": "idea.txt"},
		"notes":      pagetest.Hostile,
	}, nil)
	return started{session, call.Task(pagetest.Hostile, pagetest.Hostile)}
}

func (p started) paths() []string {
	return []string{"/", "/?q=" + url.QueryEscape("script"), "/history", "/history?who=local&q=" +
		url.QueryEscape("<SCRIPT>"), "/sessions/" + p.session, "/sessions/" + p.session + "/output?path=idea.txt",
		"/board", "/tasks/" + p.task, "/jobs", "/jobs/trip", "/jobs/broken", "/trust"}
}

// actions are all that pages can do, with forms that are complete.
func (p started) actions() []string {
	return []string{"/sessions/" + p.session + "/abort?reason=x", "/sessions/" + p.session + "/go-to?step=idea",
		"/sessions/" + p.session + "/override?step=hotel&reason=x",
		"/sessions/" + p.session + "/review?step=hotel&decision=pass&digest=x",
		"/tasks?title=x", "/tasks/" + p.task + "?status=done", "/tasks/" + p.task + "/start?executor=SCRIPT",
		"/runs?workflow=trip/plan&goal=x&executor=SCRIPT", "/attempts/x/resume?max_cost=1", "/attempts/x/stop",
		"/attempts/x/follow-up?action=send&prompt=x", "/attempts/x/git/merge"}
}

// Whatever a project has as a text is shown as a text. Browsers run nothing and load nothing that is not of
// this server, and the page that a form goes back to is one of it.
func TestHostileTexts(t *testing.T) {
	_, call, b := open(t)
	p := begin(call)
	inline := regexp.MustCompile(`<script(>| [^>]*>[^<])|<style|<[a-z]+(\s+[a-z:-]+(="[^"]*")?)*\s+(on[a-z]+|style)=|` +
		`="javascript:|(src|href)="(https?:)?//`)
	for _, path := range append(p.paths(), "/?q="+url.QueryEscape(pagetest.Hostile), "/login", "/none") {
		a := b.do("GET", path, nil, "Accept: text/html").lacks("<script>window", "<img", `onerror="`, "</textarea><",
			"ZgotmplZ", "<nil>")
		testkit.Equal(t, a.StatusCode == http.StatusOK, path != "/none", "%s: %s", path, a.Status)
		testkit.Equal(t, strings.Contains(a.text, "window.hit"),
			!slices.Contains([]string{"/trust", "/login", "/none"}, path), "%s shows the text", path)
		testkit.Equal(t, inline.FindString(a.text), "", "%s", path)

		policy := a.Header.Get("Content-Security-Policy")
		testkit.ContainsAll(t, policy,
			[]string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'",
				"base-uri 'none'", "frame-ancestors 'none'"}, "%s: the policy lacks", path)
		testkit.True(t, !strings.Contains(policy, "unsafe"), "%s: %v", path, a.Header)
		testkit.Equal(t, a.Header.Get("X-Content-Type-Options"), "nosniff")
		testkit.Equal(t, a.Header.Get("Referrer-Policy"), "same-origin")
		testkit.Equal(t, a.Header.Get("Cache-Control"), "no-store", "%s may be kept", path)
	}

	// Texts that are odd or long neither break a page nor pass for a part of it.
	odd := call.Plan("javascript:alert(1) <hx-partial hx-target=\"#main\"></hx-partial>\" hx-get=\"/x \u202egnp.exe " +
		"\u2066 {{.CSRF}}\n\nevent: news\ndata: x\n\n" + strings.Repeat("<b>&é ", 12_000))
	for path, most := range map[string]int{"/": 100 << 10, "/sessions/" + odd: 1 << 20} {
		page := b.do("GET", path, nil).is(http.StatusOK).lacks("<hx-partial hx-target=\"#main", `href="javascript`,
			"<b>").text
		testkit.True(t, strings.HasSuffix(strings.TrimSpace(page), "</html>") && len(page) <= most, "%s has %d bytes",
			path, len(page))
	}

	for back, want := range map[string]string{
		"/board?status=done": "/board?status=done",
		"//evil.example":     "/tasks/" + p.task,
	} {
		b.act("/tasks/"+p.task+"?status=todo&back="+url.QueryEscape(back), b.csrf("/board")).leads(want)
	}
}

// A caller sees its own sessions and tasks, and does what its token allows.
func TestCallersSeeTheirOwn(t *testing.T) {
	_, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann", Rights: config.RightPerson},
		config.Token{Name: "bob"})
	p := begin(call)
	ann := all[0]
	bob := all[1]
	for _, own := range []string{"/sessions/" + p.session, "/tasks/" + p.task,
		"/sessions/" + p.session + "/output?path=idea.txt"} {
		ann.get(own)
		bob.do("GET", own, nil).is(http.StatusNotFound).lacks("window.hit")
	}
	testkit.Lacks(t, bob.get("/")+bob.get("/board"), []string{"window.hit"}, "bob's lists")
	for _, action := range p.actions() {
		a := bob.act(action, bob.csrf("/board"))
		testkit.True(t, a.StatusCode != http.StatusSeeOther || strings.HasPrefix(action, "/tasks?"),
			"bob may: %s", action)
	}
	bob.do("GET", "/trust", nil).is(http.StatusForbidden)
	ann.act("/sessions/"+p.session+"/abort?reason=enough", ann.csrf("/board")).is(http.StatusSeeOther)
	testkit.Until(t, "aborted", func() bool {
		return strings.Contains(ann.get("/sessions/"+p.session), "Aborted: enough")
	})
	ann.act("/sessions/"+p.session+"/abort?reason=again", ann.csrf("/board"),
		"HX-Request: true").is(http.StatusConflict, "alert")
}

// What the rights of a token do not allow is not offered, and refused with the name of the right.
func TestRights(t *testing.T) {
	_, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann", Group: "web", Rights: config.AllRights},
		config.Token{Name: "bob", Group: "web"})
	task, id := call.Script("work", "! echo more >> idea.txt\n! git commit -qam work\n")
	call.Await(t, id, "completed")
	pages := func(b *browser) string {
		return b.get("/tasks/"+task) + b.get("/attempts/"+id) + b.get("/attempts/"+id+"?tab=changes") +
			b.get("/jobs/trip")
	}
	anns := pages(all[0])
	bobs := pages(all[1])
	csrf := all[1].csrf("/tasks/" + task)
	testkit.ContainsAll(t, bobs, []string{id, "idea.txt"}, "bob does not see the work of the group")

	for path, c := range map[string]struct {
		right   string
		offered bool // always to who has the right
	}{
		"/runs":                              {"agents", true},
		"/tasks/" + task + "/start":          {"agents", true},
		"/attempts/" + id + "/follow-up":     {"agents", true},
		"/attempts/" + id + "/git/merge":     {"merge", true},
		"/attempts/" + id + "/resume":        {"agents", false},
		"/attempts/" + id + "/comments":      {"agents", false},
		"/attempts/" + id + "/comments/send": {"agents", false},
		"/attempts/" + id + "/git/rebase":    {"merge", false},
		"/attempts/" + id + "/git/push":      {"merge", false},
		"/attempts/" + id + "/git/target":    {"merge", false},
	} {
		testkit.True(t, !c.offered || strings.Contains(anns, `action="`+path+`"`), "ann is not offered %s", path)
		testkit.Lacks(t, bobs, []string{`action="` + path + `"`}, "bob is offered")
		all[1].act(path+"?executor=SCRIPT&workflow=trip/"+
			"plan&goal=x&action=send&prompt=x&remote=origin&branch=main&file=idea.txt&line=1&text=x",
			csrf).is(http.StatusForbidden, "the right "+c.right)
	}
}

// A session that an attempt's agent has in its workspace has a page for callers that see the attempt, with
// its outputs and its actions, whichever server its agent uses.
func TestSessionsInWorkspaces(t *testing.T) {
	_, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann", Rights: config.RightAgents},
		config.Token{Name: "bob", Rights: config.RightAgents})
	_, id := call.Script("plan it", "! echo from the workspace > idea.txt\n")
	call.Await(t, id, "completed")
	var attempt struct {
		Repos []struct {
			Path string `json:"worktree_path"`
		}
	}
	call("get_attempt", pagetest.Args{"attempt_id": id}, &attempt)
	inside := pagetest.Connect(t, serve(t, attempt.Repos[0].Path, web.Options{}).url, "")
	session := inside.Plan(pagetest.Hostile)
	inside("finished_step", pagetest.Args{"session_id": session, "outputs": pagetest.Args{"idea": "idea.txt"}}, nil)
	ann := all[0]
	bob := all[1]
	at := "/sessions/" + session
	for _, page := range []string{at, at + "/output?path=idea.txt", "/attempts/" + id} {
		bob.do("GET", page, nil).is(http.StatusNotFound).lacks("from the workspace")
	}
	ann.do("GET", at, nil).leads("/attempts/" + id)
	ann.do("GET", "/attempts/"+id, nil).is(http.StatusOK, "window.hit", "output?path=idea.txt", "/go-to",
		"/abort").lacks("<script>window")
	ann.do("GET", at+"/output?path=idea.txt", nil).is(http.StatusOK, "from the workspace")
	back := "/go-to?step=idea&revision=" + find(t, regexp.MustCompile(`name="revision" value="([0-9]+)"`),
		ann.get("/attempts/"+id))
	// the second one is of a page that shows what was before
	for i, action := range []string{back, back, "/abort?reason=x"} {
		bob.act(at+action, bob.csrf("/board")).is(http.StatusNotFound)
		ann.act(at+action, ann.csrf("/board")).
			is([]int{http.StatusSeeOther, http.StatusConflict, http.StatusSeeOther}[i])
	}
	testkit.Contains(t, ann.get("/attempts/"+id), "aborted", "the session goes on")
}

// The person at deepwork ui sees every step that waits for a person, also those of callers with tokens,
// who may not override, and where no board is served.
func TestStepsOfOthersNeedThePerson(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/config.yml":      "quality_gate: {override: human}\n",
		".deepwork/jobs/memo/do.md": "Do it.\n",
		".deepwork/jobs/memo/job.yml": "name: memo\nversion: 1.0.0\nsummary: " +
			"M\ncommon_job_info_provided_to_all_steps_at_runtime: I\nworkflows:\n  - {name: w, summary: W, steps: " +
			"[a]}\nsteps:\n  - {id: a, name: A, description: A, instructions_file: do.md, outputs: {out: {type: " +
			"file, description: Out, required: true}}, reviews: [{run_each: out, quality_criteria: {good: \"Is it " +
			"good?\"}}]}\n",
	})

	_, call, all := as(t, root, config.Token{Name: "ann"}, config.Token{Name: "bob"})
	id := call.Start(pagetest.Args{"goal": "write a memo", "job_name": "memo", "workflow_name": "w"})
	call("finished_step", pagetest.Args{"session_id": id, "outputs": pagetest.Args{"out": "idea.txt"}}, nil)
	waits := "Step a: write a memo"
	testkit.Lacks(t, all[1].get("/"), []string{waits}, "bob sees it")

	for _, sets := range [][]string{nil, {"workflows"}} {
		person := serve(t, root, web.Options{Secret: "once"}, transport.Options{Toolsets: sets}).browser(t)
		person.do("GET", "/login?secret=once", nil)
		testkit.Contains(t, person.get("/"), waits, "with the toolsets %v", sets)
		person.do("GET", "/?q=elephant", nil).is(http.StatusOK, "matches the filter").lacks(waits, "Nothing waits")
	}
}

const signJob = `name: sign
version: 1.0.0
summary: Has a text signed
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows: [{name: full, summary: All of it, steps: [text, send]}]
steps:
  - {id: text, name: Text, description: Write it, instructions_file: text.md, outputs: {text: {type: file, ` +
	`description: The text}}, reviews: [{run_each: step, by: human, quality_criteria: {Sound: "Would you <sign> it?"}}]}
  - {id: send, name: Send, description: Send it, instructions_file: text.md, outputs: {}, reviews: []}
`

// A person answers on the page of the session, to which Now leads, about the outputs that it shows; another caller
// sees no form, and what they send is refused.
func TestAPersonPassesAStepOnAPage(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/sign/job.yml": signJob,
		".deepwork/jobs/sign/text.md": "Write.",
		"text.txt":                    "Dear all",
	})

	_, call, all := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson},
		config.Token{Name: "ann2", Group: "ann"})
	ann, bob := all[0], all[1]
	id := call.Start(pagetest.Args{"goal": pagetest.Hostile, "job_name": "sign", "workflow_name": "full"})
	finish := func(status, feedback string) {
		t.Helper()
		var r struct{ Status, Feedback string }
		call("finished_step", pagetest.Args{
			"session_id": id,
			"step_id":    "text",
			"outputs":    pagetest.Args{"text": "text.txt"},
			"notes":      pagetest.Hostile,
		}, &r)
		testkit.Equal(t, r.Status, status, "%s", r.Feedback)
		testkit.Contains(t, r.Feedback, feedback)
	}
	finish("needs_work", "Waiting: ")
	at := "/sessions/" + id
	form := func() string {
		t.Helper()
		return find(t, digestField, ann.do("GET", at, nil).is(http.StatusOK, "Would you &lt;sign&gt; it?",
			"text.txt").lacks("<img").text)
	}
	shown, csrf := form(), ann.csrf(at)
	testkit.Contains(t, ann.get("/"), `href="`+at+`?decide=text#decide-`+id+`-text" aria-label="Pass… `,
		"the way to it on the page Now")
	testkit.Contains(t, ann.get(at+"/output?path=text.txt"), "Dear all", "the output")

	review := func(b *browser, csrf, decision, digest, feedback string) answer {
		return b.act(at+"/review?"+url.Values{
			"step":     {"text"},
			"decision": {decision},
			"digest":   {digest},
			"feedback": {feedback},
		}.Encode(), csrf)
	}
	testkit.Lacks(t, bob.get("/"), []string{"Pass…"}, "a caller who is no person is asked")

	for name, a := range map[string]answer{
		"no person":     review(bob, bob.csrf("/board"), "pass", shown, ""),
		"no decision":   review(ann, csrf, "", shown, "Yes"),
		"no digest":     review(ann, csrf, "pass", "", ""),
		"other outputs": review(ann, csrf, "pass", strings.Repeat("0", 64), ""),
		"no feedback":   review(ann, csrf, "fail", shown, " "),
	} {
		testkit.Equal(t, a.StatusCode/100, 4, "%s: %s", name, a.Status)
	}

	finish("needs_work", "Waiting: ") // what was refused has answered nothing
	review(ann, csrf, "fail", shown, "Too short").is(http.StatusSeeOther)
	finish("needs_work", ": Too short\n")
	testkit.WriteAll(t, root, map[string]string{"text.txt": "Dear all, <b>more</b>\n"})
	finish("needs_work", "")
	testkit.Until(t, "the other outputs on the page", func() bool { return form() != shown })
	testkit.ContainsAll(t, ann.get(at),
		[]string{"What has changed since the last review", "+Dear all, &lt;b&gt;more&lt;/b&gt;</td>"}, "the page")
	review(ann, csrf, "pass", form(), "Good").is(http.StatusSeeOther)
	finish("next_step", "")
	testkit.Until(t, "the evidence", func() bool {
		text := ann.get(at)
		return strings.Contains(text, "Passed by a person: ann over page: Good") &&
			!strings.Contains(text, `name="digest"`)
	})
}

// A person says on the session's page, to which Now leads, how it goes on after the last round.
func TestAPersonSaysOnAPageHowRoundsGoOn(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/tries/job.yml": `name: tries
version: 1.0.0
summary: Tries it
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows: [{name: full, summary: All, steps: [{repeat: {steps: [try], until: {output: said, is: done}, at_most: 1}}]}]
steps:
  - id: try
    name: Try
    description: Try it
    instructions: Try.
    outputs: {said: {type: string, description: S}}
    reviews: []
`})
	_, call, all := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson},
		config.Token{Name: "ann2", Group: "ann"})
	ann, bob := all[0], all[1]
	id := call.Start(pagetest.Args{"goal": "Try", "job_name": "tries", "workflow_name": "full"})
	at := "/sessions/" + id
	finish := func(status, feedback string) {
		t.Helper()
		var r struct{ Status, Feedback string }
		call("finished_step", pagetest.Args{
			"session_id": id,
			"step_id":    "try",
			"outputs":    pagetest.Args{"said": "<no>"},
		}, &r)
		testkit.Equal(t, r.Status, status, "%s", r.Feedback)
		testkit.Contains(t, r.Feedback, feedback)
	}
	decide := func(b *browser, decision, feedback string) answer {
		return b.act(at+"/review?"+url.Values{
			"step":     {"try"},
			"decision": {decision},
			"digest":   {find(t, digestField, ann.get(at))},
			"feedback": {feedback},
		}.Encode(), b.csrf("/board"))
	}

	finish("needs_work", "Waiting: a person must say how to go on")
	testkit.ContainsAll(t, ann.get("/"), []string{
		`href="` + at + `?decide=try#decide-` + id + `-try" aria-label="Decide… `,
		"its rounds are used up, and a person has to say how it goes on: "})
	testkit.ContainsAll(t, ann.get(at), []string{"round 1 of 1 is over", "&lt;no&gt;", `value="more"`, `value="stop"`})
	testkit.Lacks(t, ann.get(at), []string{`value="fail"`})
	for name, a := range map[string]answer{
		"no person":          decide(bob, "more", ""),
		"no person stops it": decide(bob, "stop", "Enough"),
		"no decision":        decide(ann, "", "Enough"),
		"no reason":          decide(ann, "pass", " "),
		"no reason to stop":  decide(ann, "stop", ""),
	} {
		testkit.Equal(t, a.StatusCode/100, 4, "%s: %s", name, a.Status)
	}

	decide(ann, "more", "").is(http.StatusSeeOther)
	testkit.Contains(t, ann.get(at), "One more round by ann over page")
	finish("next_step", "Round 2 of 2 begins")
	finish("needs_work", "round 2 of 2 is over")
	decide(ann, "pass", "Good enough").is(http.StatusSeeOther)
	finish("workflow_complete", "")
	testkit.Contains(t, ann.get(at), "Overridden by ann over page")

	id = call.Start(pagetest.Args{"goal": "Try", "job_name": "tries", "workflow_name": "full"})
	at = "/sessions/" + id
	finish("needs_work", "Waiting: ")
	decide(ann, "stop", "Enough").is(http.StatusSeeOther)
	testkit.Contains(t, ann.get(at), "aborted")
}

var digestField = regexp.MustCompile(`name="digest" value="([0-9a-f]{64})"`)

// Outside of a project the pages list those there are, for one browser, and the pages of each are below a path.
func TestProjectsToChooseFrom(t *testing.T) {
	t.Parallel()
	root, here := testkit.Dir(t), testkit.Dir(t)
	c := page.Chooser{
		Here: here,
		List: func() (all []state.Project, gone int, err error) {
			if _, missing := os.Stat(root); missing == nil {
				all = append(all, state.Project{Root: root})
			}
			return all, 2, nil
		},
		Watch: watcher(t),
		Open: func(root string, _ *web.Login) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, root+r.URL.Path)
			}), nil
		},
	}

	s := listen(t, testkit.Get(transport.ListenProjects(t.Context(), slog.New(slog.DiscardHandler), c,
		web.Options{Secret: "secret"})).Must(t), server{}, func(
		context.Context,
	) error {
		return nil
	})

	b := s.browser(t)
	b.do("GET", "/", nil).leads("/login")
	b.do("GET", "/login?secret=secret", nil).leads("/")
	link := find(t, regexp.MustCompile(`<a href="(/projects/[0-9a-f]{12})">`+filepath.Base(root)+`</a>`), b.get("/"))
	start := find(t, regexp.MustCompile(filepath.Base(here)+
		`</code> is not a project yet. <a href="(/projects/[0-9a-f]{12})"`), b.get("/"))
	testkit.Equal(t, b.get(link+"/board")+b.get(start+"/board"), root+"/board"+here+"/board")
	b.do("GET", link+"/projects", nil).leads("/")
	b.do("GET", link+"/login?out", nil).leads("/login?out")
	s.browser(t).do("GET", link+"/board", nil).leads("/login?next=" + url.QueryEscape(link+"/board"))
	b.do("GET", "/projects/0123456789ab", nil).is(http.StatusNotFound, "There is no such project")
	testkit.Must(t, os.Remove(root))
	b.do("GET", link, nil).is(http.StatusNotFound, "There is no such project")
}
