package page_test

import (
	"context"
	"flag"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state/statetest"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

func TestMain(m *testing.M) {
	os.Setenv(config.JobsFoldersEnv, "")
	_ = flag.Set("test.parallel", "4") // they wait for servers and git
	os.Exit(statetest.Main(m, func(o ...goleak.Option) error {
		return goleak.Find(append(o, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))...) // ends a little later
	}))
}

// A server is one in this process.
type server struct {
	url, root string
	stop      func()
}

// serve serves the project at root until the test ends or stop is called.
func serve(t testing.TB, root string, o web.Options) *server {
	t.Helper()
	return serveOf(t, transport.Options{ProjectRoot: root}, o)
}

// serveOf is serve with other options of the server.
func serveOf(t testing.TB, of transport.Options, o web.Options) *server {
	t.Helper()
	s := testkit.Get(transport.NewServer(of)).Must(t)
	h := testkit.Get(s.Listen(t.Context(), o)).Must(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		testkit.Works(t, <-served)
		testkit.Works(t, s.Close(context.Background()))
	}
	t.Cleanup(stop)
	return &server{strings.TrimSuffix(h.URL(), "/mcp"), of.ProjectRoot, stop}
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
	return &browser{t, &http.Client{Jar: jar, Transport: over, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, s.url}
}

// An answer is what came of a request.
type answer struct {
	*http.Response
	text string
}

// do sends a request. Headers are "Name: value"; a form is sent if it is not nil.
func (b *browser) do(method, path string, form url.Values, headers ...string) answer {
	b.t.Helper()
	r := testkit.Get(http.NewRequestWithContext(b.t.Context(), method, b.at+path, strings.NewReader(form.Encode()))).Must(b.t)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	res := testkit.Get(b.Do(r)).Must(b.t)
	defer res.Body.Close()
	text := testkit.Get(io.ReadAll(res.Body)).Must(b.t)
	return answer{res, string(text)}
}

// get returns a page, which must be there.
func (b *browser) get(path string) string {
	b.t.Helper()
	a := b.do("GET", path, nil)
	testkit.Need(b.t, a.StatusCode == http.StatusOK, "%s: %s\n%s", path, a.Status, a.text)
	return a.text
}

var csrfField = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// csrf returns what the forms of a page send back.
func (b *browser) csrf(path string) string {
	b.t.Helper()
	found := csrfField.FindStringSubmatch(b.get(path))
	testkit.Need(b.t, found != nil, "%s has no form", path)
	return found[1]
}

// A started is a project in which something has happened.
type started struct{ session, task string }

// begin starts a workflow and adds a task, both with a hostile text, as an agent does.
func (s *server) begin(t testing.TB, token string) started {
	t.Helper()
	call := pagetest.Connect(t, s.url, token)
	session := call.Plan(pagetest.Hostile)
	call("finished_step", map[string]any{"session_id": session, "outputs": map[string]any{"idea": "idea.txt"}, "notes": pagetest.Hostile}, nil)
	return started{session, call.Task(pagetest.Hostile, pagetest.Hostile)}
}

// paths are those of every page.
func (p started) paths() []string {
	return []string{"/", "/?q=" + url.QueryEscape("script"), "/history", "/history?who=local&q=" + url.QueryEscape("<SCRIPT>"), "/sessions/" + p.session, "/sessions/" + p.session + "/output?path=idea.txt",
		"/board", "/tasks/" + p.task, "/jobs", "/jobs/trip", "/jobs/broken", "/trust"}
}

// Whatever a project has as a text is shown as a text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	p := s.begin(t, "")
	b := s.browser(t)
	for _, path := range append(p.paths(), "/?q="+url.QueryEscape(pagetest.Hostile)) {
		text := b.get(path)
		for _, bad := range []string{"<script>window", "<img", `onerror="`, "</textarea><"} {
			testkit.True(t, !strings.Contains(text, bad), "%s has %s", path, bad)
		}
		testkit.True(t, strings.Contains(text, "window.hit") || path == "/trust" || path == "/jobs/broken", "%s does not show the text", path)
		testkit.True(t, !strings.Contains(text, "ZgotmplZ") && !strings.Contains(text, "<nil>"), "%s: the template has a fault:\n%s", path, text)
	}
	for _, path := range []string{"/sessions/ffffffff", "/tasks/none", "/attempts/none", "/jobs/none", "/none", "/sessions/" + p.session + "/output?path=../x", "/board?project=x" + url.QueryEscape(pagetest.Hostile)} {
		a := b.do("GET", path, nil)
		testkit.True(t, a.StatusCode == http.StatusNotFound && !strings.Contains(a.text, "<script>window"), "%s: %s\n%s", path, a.Status, a.text)
	}
}

// Browsers run nothing and load nothing that is not of this server.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	p := s.begin(t, "")
	b := s.browser(t)
	inline := regexp.MustCompile(`<script(>| [^>]*>[^<])|<style|<[a-z]+(\s+[a-z:-]+(="[^"]*")?)*\s+(on[a-z]+|style)=|="javascript:|(src|href)="(https?:)?//`)
	for _, path := range append(p.paths(), "/login", "/none") {
		a := b.do("GET", path, nil, "Accept: text/html")
		policy := a.Header.Get("Content-Security-Policy")
		testkit.ContainsAll(t, policy, []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"}, "%s: the policy lacks", path)
		testkit.True(t, !strings.Contains(policy, "unsafe") && a.Header.Get("X-Content-Type-Options") == "nosniff" && a.Header.Get("Referrer-Policy") == "same-origin", "%s: %v", path, a.Header)
		testkit.Equal(t, a.Header.Get("Cache-Control"), "no-store", "%s may be kept: %v", path, a.Header)
		testkit.Equal(t, inline.FindString(a.text), "", "%s", path)
	}
}

// actions are all that pages can do, with forms that are complete.
func (p started) actions() []string {
	return []string{"/sessions/" + p.session + "/abort?reason=x", "/sessions/" + p.session + "/go-to?step=idea", "/sessions/" + p.session + "/override?step=hotel&reason=x", "/sessions/" + p.session + "/review?step=hotel&decision=pass&digest=x",
		"/tasks?title=x", "/tasks/" + p.task + "?status=done", "/tasks/" + p.task + "/start?executor=SCRIPT",
		"/runs?workflow=trip/plan&goal=x&executor=SCRIPT", "/attempts/x/resume?max_cost=1", "/attempts/x/stop", "/attempts/x/follow-up?action=send&prompt=x", "/attempts/x/git/merge"}
}

// act sends an action, with its query as the form.
func (b *browser) act(action, csrf string, headers ...string) answer {
	b.t.Helper()
	path, query, _ := strings.Cut(action, "?")
	form, _ := url.ParseQuery(query)
	if csrf != "" {
		form.Set("csrf", csrf)
	}
	return b.do("POST", path, form, headers...)
}

// login logs in with a token, and returns the cookie.
func (b *browser) login(token string) *http.Cookie {
	b.t.Helper()
	a := b.do("POST", "/login", url.Values{"token": {token}})
	testkit.Need(b.t, a.StatusCode == http.StatusSeeOther && len(a.Cookies()) == 1, "the login: %s\n%s", a.Status, a.text)
	return a.Cookies()[0]
}

// A caller sees its own sessions and tasks, and does what its token allows.
func TestCallersSeeTheirOwn(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightPerson}, config.Token{Name: "bob"})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	p := s.begin(t, tokens[0])
	ann, bob := s.browser(t), s.browser(t)
	ann.login(tokens[0])
	bob.login(tokens[1])
	for _, own := range []string{"/sessions/" + p.session, "/tasks/" + p.task, "/sessions/" + p.session + "/output?path=idea.txt"} {
		ann.get(own)
		if a := bob.do("GET", own, nil); a.StatusCode != http.StatusNotFound || strings.Contains(a.text, "window.hit") {
			t.Errorf("bob sees %s: %s", own, a.Status)
		}
	}
	for _, list := range []string{"/", "/board"} {
		if text := bob.get(list); strings.Contains(text, "window.hit") {
			t.Errorf("bob sees on %s\n%s", list, text)
		}
	}
	for _, action := range p.actions() {
		if a := bob.act(action, bob.csrf("/board")); a.StatusCode == http.StatusSeeOther && !strings.HasPrefix(action, "/tasks?") {
			t.Errorf("bob may: %s", action)
		}
	}
	if a := bob.do("GET", "/trust", nil); a.StatusCode != http.StatusForbidden {
		t.Errorf("bob sees what the config asks for: %s", a.Status)
	}
	if a := ann.act("/sessions/"+p.session+"/abort?reason=enough", ann.csrf("/board")); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("ann may not abort: %s\n%s", a.Status, a.text)
	}
	testkit.Until(t, "aborted", func() bool { return strings.Contains(ann.get("/sessions/"+p.session), "Aborted: enough") })
	if a := ann.act("/sessions/"+p.session+"/abort?reason=again", ann.csrf("/board"), "HX-Request: true"); a.StatusCode != http.StatusConflict || !strings.Contains(a.text, "alert") {
		t.Errorf("a refused action: %s\n%s", a.Status, a.text)
	}
}

// What a form sends as the page to go back to never leads away.
func TestBackStaysHere(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	p := s.begin(t, "")
	b := s.browser(t)
	for back, want := range map[string]string{
		"/board?status=done": "/board?status=done", "": "/tasks/" + p.task, "//evil.example": "/tasks/" + p.task, "https://evil.example/": "/tasks/" + p.task,
		`/\evil.example`: "/tasks/" + p.task, "javascript:alert(1)": "/tasks/" + p.task, "///evil.example": "/tasks/" + p.task, "/%2f/evil.example": "/tasks/" + p.task,
	} {
		a := b.do("POST", "/tasks/"+p.task, url.Values{"csrf": {b.csrf("/board")}, "status": {"todo"}, "back": {back}})
		if got := a.Header.Get("Location"); a.StatusCode != http.StatusSeeOther || got != want && !strings.HasPrefix(got, "/%2[fF]/") {
			t.Errorf("%q: %s to %q", back, a.Status, got)
		}
	}
}

// A session that an attempt's agent has in its workspace has a page for callers that see the attempt, with
// its outputs and its actions, whichever server its agent uses.
func TestSessionsInWorkspaces(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightAgents}, config.Token{Name: "bob", Rights: config.RightAgents})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	_, id := call.Script("plan it", "! echo from the workspace > idea.txt\n")
	call.Await(t, id, "completed")
	var attempt struct {
		Repos []struct {
			Path string `json:"worktree_path"`
		}
	}
	call("get_attempt", map[string]any{"attempt_id": id}, &attempt)
	inside := pagetest.Connect(t, serve(t, attempt.Repos[0].Path, web.Options{}).url, "")
	session := inside.Plan(pagetest.Hostile)
	inside("finished_step", map[string]any{"session_id": session, "outputs": map[string]any{"idea": "idea.txt"}}, nil)

	b, bob, at := s.browser(t), s.browser(t), "/sessions/"+session
	bob.login(tokens[1])
	for _, page := range []string{at, at + "/output?path=idea.txt", "/attempts/" + id} {
		if a := bob.do("GET", page, nil); a.StatusCode != http.StatusNotFound || strings.Contains(a.text, "from the workspace") {
			t.Errorf("bob sees %s: %s\n%s", page, a.Status, a.text)
		}
	}
	b.login(tokens[0])
	text := b.get(at)
	testkit.ContainsAll(t, text, []string{"window.hit", `href="/attempts/` + id, "output?path=idea.txt", "/go-to", "/abort"}, "the page lacks")
	testkit.True(t, !strings.Contains(text, "<script>window"), "the page has a script of its goal:\n%s", text)
	testkit.Contains(t, b.get(at+"/output?path=idea.txt"), "from the workspace", "the output is another")
	for _, action := range []string{"/go-to?step=idea", "/abort?reason=x"} {
		if a := bob.act(at+action, bob.csrf("/board")); a.StatusCode != http.StatusNotFound {
			t.Errorf("bob may do %s: %s\n%s", action, a.Status, a.text)
		}
		if a := b.act(at+action, b.csrf("/board")); a.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %s\n%s", action, a.Status, a.text)
		}
	}
	testkit.Contains(t, b.get(at), "aborted", "the session goes on")
}

// The person at deepwork ui sees every step that waits for a person, also those of callers with tokens,
// who may not override, and where no board is served.
func TestStepsOfOthersNeedThePerson(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/config.yml":        "quality_gate: {override: human}\n",
		".deepwork/jobs/memo/do.md":   "Do it.\n",
		".deepwork/jobs/memo/job.yml": "name: memo\nversion: 1.0.0\nsummary: M\ncommon_job_info_provided_to_all_steps_at_runtime: I\nworkflows:\n  - {name: w, summary: W, steps: [a]}\nsteps:\n  - {id: a, name: A, description: A, instructions_file: do.md, outputs: {out: {type: file, description: Out, required: true}}, reviews: [{run_each: out, quality_criteria: {good: \"Is it good?\"}}]}\n",
	})
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"}, config.Token{Name: "bob"})
	s := serve(t, root, web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	id := call.Start(pagetest.Args{"goal": "write a memo", "job_name": "memo", "workflow_name": "w"})
	call("finished_step", map[string]any{"session_id": id, "outputs": map[string]any{"out": "idea.txt"}}, nil)
	waits := "Step a: write a memo"
	bob := s.browser(t)
	bob.login(tokens[1])
	if text := bob.get("/"); strings.Contains(text, waits) {
		t.Errorf("bob sees it:\n%s", text)
	}
	for _, sets := range [][]string{nil, {"workflows"}} {
		ui := serveOf(t, transport.Options{ProjectRoot: root, Toolsets: sets}, web.Options{Secret: "once"})
		person := ui.browser(t)
		person.do("GET", "/login?secret=once", nil)
		testkit.Contains(t, person.get("/"), waits, "with the toolsets %v", sets)
		if text := person.get("/?q=elephant"); strings.Contains(text, waits) || strings.Contains(text, "Nothing waits") || !strings.Contains(text, "matches the filter") {
			t.Errorf("a filter hides what waits, and the page does not say so:\n%s", text)
		}
	}
}

const signJob = `name: sign
version: 1.0.0
summary: Has a text signed
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: full, summary: All of it, steps: [text, send]}
steps:
  - id: text
    name: Text
    description: Write it
    instructions_file: text.md
    outputs: {text: {type: file, description: The text}}
    reviews: [{run_each: step, by: human, quality_criteria: {Sound: "Would you <sign> it?"}}]
  - {id: send, name: Send, description: Send it, instructions_file: text.md, outputs: {}, reviews: []}
`

// A person answers on the page of the session, to which Now leads, about the outputs that it shows; another caller
// sees no form, and what they send is refused.
func TestAPersonPassesAStepOnAPage(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/sign/job.yml": signJob, ".deepwork/jobs/sign/text.md": "Write.", "text.txt": "Dear all"})
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightPerson}, config.Token{Name: "ann2", Group: "ann"})
	s := serve(t, root, web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	id := call.Start(pagetest.Args{"goal": pagetest.Hostile, "job_name": "sign", "workflow_name": "full"})
	type finished struct {
		Status   string
		Feedback *string
	}
	finish := func() (r finished) {
		t.Helper()
		call("finished_step", map[string]any{"session_id": id, "step_id": "text", "outputs": map[string]any{"text": "text.txt"}, "notes": pagetest.Hostile}, &r)
		return r
	}
	if r := finish(); r.Status != "needs_work" || !strings.HasPrefix(*r.Feedback, "Waiting: ") {
		t.Fatalf("%+v", r)
	}
	ann, bob := s.browser(t), s.browser(t)
	ann.login(tokens[0])
	bob.login(tokens[1])
	digest := regexp.MustCompile(`name="digest" value="([0-9a-f]{64})"`)
	form := func(page string) string {
		t.Helper()
		found := digest.FindStringSubmatch(page)
		if found == nil || !strings.Contains(page, "Would you &lt;sign&gt; it?") || !strings.Contains(page, "text.txt") || strings.Contains(page, "<img") {
			t.Fatalf("no form, or a bad one: %s", page)
		}
		return found[1]
	}
	shown := form(ann.get("/sessions/" + id))
	testkit.Contains(t, ann.get("/"), `href="/sessions/`+id+`#step-text" aria-label="Pass… `, "the way to it on the page Now")
	testkit.Contains(t, ann.get("/sessions/"+id+"/output?path=text.txt"), "Dear all", "the output")
	csrf := ann.csrf("/sessions/" + id)
	review := func(b *browser, csrf, decision, digest, feedback string) answer {
		q := url.Values{"step": {"text"}, "decision": {decision}, "digest": {digest}, "feedback": {feedback}}
		return b.act("/sessions/"+id+"/review?"+q.Encode(), csrf)
	}
	if text := bob.get("/"); strings.Contains(text, "Pass…") {
		t.Errorf("a caller who is no person is asked: %s", text)
	}
	for name, a := range map[string]answer{
		"no person":     review(bob, bob.csrf("/board"), "pass", shown, ""),
		"no decision":   review(ann, csrf, "", shown, "Yes"),
		"no digest":     review(ann, csrf, "pass", "", ""),
		"other outputs": review(ann, csrf, "pass", strings.Repeat("0", 64), ""),
		"no feedback":   review(ann, csrf, "fail", shown, " "),
	} {
		testkit.Equal(t, a.StatusCode/100, 4, "%s: %s", name, a.Status)
	}
	if r := finish(); !strings.HasPrefix(*r.Feedback, "Waiting: ") {
		t.Fatalf("answered by what was refused: %+v", r)
	}
	if a := review(ann, csrf, "fail", shown, "Too short"); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("fail: %s %s", a.Status, a.text)
	}
	if r := finish(); r.Status != "needs_work" || !strings.Contains(*r.Feedback, ": Too short\n") {
		t.Errorf("after a fail: %+v", r)
	}
	testkit.WriteAll(t, root, map[string]string{"text.txt": "Dear all, <b>more</b>\n"})
	finish()
	var next string
	testkit.Until(t, "the other outputs on the page", func() bool {
		next = form(ann.get("/sessions/" + id))
		return next != shown
	})
	testkit.Contains(t, ann.get("/sessions/"+id), "What has changed since the last review", "the page")
	testkit.Contains(t, ann.get("/sessions/"+id), "+Dear all, &lt;b&gt;more&lt;/b&gt;</td>", "the page")
	if a := review(ann, csrf, "pass", next, "Good"); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("pass: %s %s", a.Status, a.text)
	}
	if r := finish(); r.Status != "next_step" {
		t.Errorf("after a pass: %+v", r)
	}
	testkit.Until(t, "the evidence", func() bool {
		text := ann.get("/sessions/" + id)
		return strings.Contains(text, "Passed by a person: ann over page: Good") && !strings.Contains(text, `name="digest"`)
	})
}
