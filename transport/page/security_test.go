package page_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

var postRoute = regexp.MustCompile(`(?:post\("|"POST )(/[^"]+)"`)

// writes returns the path of every route that takes a form, as the source registers them.
func (p started) writes(t *testing.T) (paths []string) {
	t.Helper()
	files := testkit.Get(filepath.Glob("*.go")).Must(t)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source := testkit.Get(os.ReadFile(file)).Must(t)
		for _, route := range postRoute.FindAllStringSubmatch(string(source), -1) {
			id := p.session
			if strings.HasPrefix(route[1], "/tasks/") {
				id = p.task
			}
			paths = append(paths, strings.NewReplacer("{id}", id, "{what}", "merge").Replace(route[1]))
		}
	}
	testkit.Need(t, len(paths) >= 15, "found only %v", paths)
	return paths
}

// Each route that writes refuses what is not of a page of its own caller, whatever is added later, and
// nothing happens. Read-only pages offer nothing.
func TestEveryWriteIsGuarded(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.AllRights}, config.Token{Name: "bob"})
	s := serve(t, root, web.Options{TokenFile: file})
	p := s.begin(t, tokens[0])
	ann, bob := s.browser(t), s.browser(t)
	ann.login(tokens[0])
	bob.login(tokens[1])
	good, bobs := ann.csrf("/board"), bob.csrf("/board")
	number := regexp.MustCompile(`at=[0-9]+`)
	now := func() string {
		return number.ReplaceAllString(ann.get("/sessions/"+p.session)+ann.get("/tasks/"+p.task), "")
	}
	before := now()
	for _, path := range p.writes(t) {
		cases := map[string]answer{
			"from another site":       ann.do("POST", path, url.Values{"csrf": {good}, "token": {tokens[0]}}, "Sec-Fetch-Site: cross-site"),
			"from a neighbor":         ann.do("POST", path, url.Values{"csrf": {good}, "token": {tokens[0]}}, "Sec-Fetch-Site: same-site"),
			"from a foreign origin":   ann.do("POST", path, url.Values{"csrf": {good}, "token": {tokens[0]}}, "Origin: https://evil.example"),
			"from another port":       ann.do("POST", path, url.Values{"csrf": {good}, "token": {tokens[0]}}, "Origin: http://127.0.0.1:1"),
			"from an old browser":     ann.do("POST", path, url.Values{"csrf": {good}, "token": {tokens[0]}}, "Origin: null"),
			"for another host":        ann.do("POST", path, url.Values{"csrf": {good}, "token": {tokens[0]}}, "Host: evil.example"),
			"with a body of no form":  ann.do("POST", path, nil, "Content-Type: text/plain"),
			"without a token":         ann.do("POST", path, url.Values{}),
			"with another's token":    ann.do("POST", path, url.Values{"csrf": {bobs}}),
			"with the token in a URL": ann.do("POST", path+"?csrf="+good, url.Values{}),
		}
		for name, a := range cases {
			testkit.Equal(t, a.StatusCode, http.StatusForbidden, "%s %s: %s %s", path, name, a.Status, a.text)
		}
		if a := s.browser(t).do("POST", path, url.Values{"csrf": {good}}); a.StatusCode != http.StatusUnauthorized && path != "/login" {
			t.Errorf("%s without a login: %s", path, a.Status)
		}
		if path == "/logout" || path == "/login" {
			continue
		}
		if a := ann.do("GET", path+"?csrf="+good+"&status=done&reason=x", nil); a.Header.Get("Location") != "" {
			t.Errorf("GET %s: %s", path, a.Status)
		}
	}
	for _, action := range p.actions() { // with forms that are complete
		if a := ann.act(action, bobs); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s with another's token: %s\n%s", action, a.Status, a.text)
		}
	}
	ann.login(tokens[0])
	testkit.Equal(t, now(), before, "something has changed")
	s.stop()
	s = serve(t, root, web.Options{TokenFile: file, ReadOnly: true})
	ann.at = s.url
	ann.login(tokens[0])
	for _, path := range p.paths() {
		if path != "/trust" && strings.Contains(strings.Replace(ann.get(path), `method="post" action="/logout"`, "", 1), `method="post"`) {
			t.Errorf("%s offers an action although the pages are read-only", path)
		}
	}
	for _, action := range p.actions() {
		if a := ann.act(action, "x", "HX-Request: true"); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "read-only") {
			t.Errorf("%s, read-only: %s\n%s", action, a.Status, a.text)
		}
	}
	for _, path := range p.writes(t) {
		if path == "/login" || path == "/logout" {
			continue
		}
		if a := ann.do("POST", path, url.Values{"csrf": {good}}); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "read-only") {
			t.Errorf("%s, read-only: %s\n%s", path, a.Status, a.text)
		}
	}
}

// What cannot be shown is said on a page, with what to do next.
func TestErrorPages(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	p := s.begin(t, tokens[0])
	ann, nobody := s.browser(t), s.browser(t)
	ann.login(tokens[0])
	hostile := url.PathEscape(pagetest.Hostile)
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/none", 404, "There is no page"},
		{"GET", "/" + hostile, 404, "There is no page"},
		{"GET", "/sessions/" + hostile, 404, "There is no session"},
		{"GET", "/sessions/ffffffff", 404, "belongs to another caller"},
		{"GET", "/tasks/" + hostile, 404, "Not found"},
		{"GET", "/attempts/00000000-0000-0000-0000-000000000000", 404, "Not found"},
		{"GET", "/tasks/00000000-0000-4000-8000-000000000000", 404, "The board shows those that you see"},
		{"GET", "/tasks/mistyped", 404, "There is no such task."},
		{"GET", "/jobs/none", 404, "There is no job"},
		{"GET", "/sources/executions/none", 404, "Not found"},
		{"GET", "/sessions/" + p.session + "/output?path=none", 404, "has delivered no file"},
		{"GET", "/trust", 403, "The user of this server alone"},
		{"GET", "/tasks", 405, "takes POST, and no GET"},
		{"POST", "/board", 405, "takes GET, HEAD, and no POST"},
		{"DELETE", "/", 405, "Forms send to this address"},
		{"POST", "/tasks", 403, "reload the page"},
	} {
		a := ann.do(c.method, c.path, nil, "Accept: text/html,*/*")
		if a.StatusCode != c.status || !strings.Contains(a.text, c.says) || !strings.Contains(a.text, `<main id="main"`) || !strings.Contains(a.text, `href="/board"`) {
			t.Errorf("%s %s: %s\n%s", c.method, c.path, a.Status, a.text)
		}
		testkit.True(t, !strings.Contains(a.text, "<script>window") && !strings.Contains(a.text, "<img src"), "%s %s is not escaped", c.method, c.path)
	}
	a := ann.do("POST", "/tasks", url.Values{"csrf": {ann.csrf("/board")}, "title": {" "}}, "HX-Request: true")
	if a.StatusCode != http.StatusBadRequest || !strings.Contains(a.text, `hx-target="#alert"`) || strings.Contains(a.text, "<main") {
		t.Errorf("a message on a page: %s\n%s", a.Status, a.text)
	}
	if a := nobody.do("GET", "/none", nil, "Accept: text/html"); a.StatusCode != 404 || !strings.Contains(a.text, `href="/login"`) || strings.Contains(a.text, "<nav") {
		t.Errorf("without a login: %s\n%s", a.Status, a.text)
	}
	// MCP clients look for metadata, and are told nothing in HTML.
	for path, want := range map[string]int{"/.well-known/oauth-protected-resource": 404, "/.well-known/oauth-authorization-server/mcp": 404, "/register": 404, "/sse": 404, "/mcp": 401, "/metrics": 401, "/healthz": 200, "/readyz": 200} {
		for _, method := range []string{"GET", "POST"} {
			if a := nobody.do(method, path, nil, "Accept: application/json, text/event-stream"); strings.Contains(a.text, "<") || a.StatusCode != want && method == "GET" || a.Header.Get("Location") != "" {
				t.Errorf("%s %s: %s %s\n%s", method, path, a.Status, a.Header.Get("Location"), a.text)
			}
		}
	}
}

// A login leads to the page that was asked for, and nowhere else, and a logout ends it.
func TestLoginAndLogout(t *testing.T) {
	t.Parallel()
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"}, config.Token{Name: "bob"})
	s := serve(t, pagetest.Project(t), web.Options{TokenFile: file})
	b := s.browser(t)
	if a := b.do("GET", "/board?status=done", nil); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/login?next=%2Fboard%3Fstatus%3Ddone" {
		t.Errorf("%s to %s", a.Status, a.Header.Get("Location"))
	}
	testkit.Contains(t, b.get("/login?next=%2Fboard%3Fstatus%3Ddone"), `name="next" value="/board?status=done"`, "the form does not know the page")
	for next, want := range map[string]string{"": "/", "/board?status=done": "/board?status=done", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/",
		"javascript:alert(1)": "/", "///evil.example": "/", "/%2f/evil.example": "/", "\t//evil.example": "/", "board": "/"} {
		if text := b.get("/login?next=" + url.QueryEscape(next)); strings.Contains(text, "evil") || strings.Contains(text, "alert(1)") {
			t.Errorf("the form leads to %q:\n%s", next, text)
		}
		if a := b.do("POST", "/login", url.Values{"token": {tokens[0]}, "next": {next}}); a.Header.Get("Location") != want {
			t.Errorf("%q leads to %q", next, a.Header.Get("Location"))
		}
	}
	for name, a := range map[string]answer{
		"a wrong token":    b.do("POST", "/login", url.Values{"token": {"wrong"}, "next": {"/jobs"}}),
		"no token":         b.do("POST", "/login", url.Values{}),
		"a token in a URL": s.browser(t).do("GET", "/login?secret="+tokens[1], nil),
		"a hostile secret": s.browser(t).do("GET", "/login?secret="+url.QueryEscape(pagetest.Hostile), nil),
	} {
		if a.StatusCode != http.StatusForbidden || len(a.Cookies()) > 0 || !strings.Contains(a.text, `role="alert"`) || strings.Contains(a.text, tokens[1]) || strings.Contains(a.text, "window.hit") {
			t.Errorf("%s: %s %v\n%s", name, a.Status, a.Cookies(), a.text)
		}
	}
	// What a browser had before its login is nothing that another one can know after it.
	before := &http.Cookie{Name: "deepwork-" + port(t, s.url), Value: "fixed", Path: "/"}
	u, _ := url.Parse(s.url) // it is good
	b.Jar.SetCookies(u, []*http.Cookie{before})
	if c := b.login(tokens[0]); c.Name != before.Name || c.Value == "fixed" || strings.Contains(c.Value, tokens[0]) {
		t.Errorf("the cookie is %v", c)
	}
	if text := b.get("/"); !strings.Contains(text, "ann") || !strings.Contains(text, `action="/logout"`) || strings.Contains(text, `href="/trust"`) {
		t.Errorf("the page does not say who is logged in, or offers what ann may not see:\n%s", text)
	}
	if a := b.do("POST", "/logout", url.Values{}); a.StatusCode != http.StatusForbidden {
		t.Errorf("a logout by another site: %s", a.Status)
	}
	a := b.do("POST", "/logout", url.Values{"csrf": {b.csrf("/board")}})
	testkit.True(t, a.StatusCode == http.StatusSeeOther && a.Header.Get("Location") == "/login?out" && len(a.Cookies()) == 1 && a.Cookies()[0].MaxAge < 0, "%s %v", a.Status, a.Header)
	testkit.Contains(t, b.get("/login?out"), "You are logged out")
	if a := b.do("GET", "/", nil); a.StatusCode != http.StatusSeeOther {
		t.Errorf("after the logout: %s", a.Status)
	}
}

func port(t *testing.T, address string) string {
	t.Helper()
	u := testkit.Get(url.Parse(address)).Must(t)
	return u.Port()
}

// Texts that are odd or long neither break a page nor pass for a part of it.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	s := serve(t, root, web.Options{})
	call := pagetest.Connect(t, s.url, "")
	b := s.browser(t)
	for name, text := range map[string]string{
		"a link":          "javascript:alert(1)",
		"markup of htmx":  `<hx-partial hx-target="#main"></hx-partial>" hx-get="/x`,
		"right to left":   "\u202egnp.exe \u2066 \u200f",
		"colors":          "\x1b[31mred\x1b]0;title\x07",
		"a template":      "{{.CSRF}}",
		"an event stream": "\n\nevent: news\ndata: x\n\n",
		"the longest":     strings.Repeat("<b>&é ", 12_000),
	} {
		session := call.Plan(text)
		testkit.Write(t, filepath.Join(root, "odd.txt"), text+"\n") // an agent's file
		call("finished_step", map[string]any{"session_id": session, "outputs": map[string]any{"idea": "odd.txt"}, "notes": text}, nil)
		for _, path := range []string{"/", "/sessions/" + session, "/sessions/" + session + "/output?path=odd.txt"} {
			page := b.get(path)
			if strings.Contains(page, "<hx-partial hx-target=\"#main") || strings.Contains(page, `href="javascript`) || strings.Contains(page, "<b>") || !strings.HasSuffix(strings.TrimSpace(page), "</html>") {
				t.Errorf("%s on %s:\n%s", name, path, page[:min(len(page), 5000)])
			}
			testkit.True(t, path != "/" || len(page) <= 100<<10, "%s: the list has %d bytes", name, len(page))
		}
		call("abort_workflow", map[string]any{"session_id": session, "explanation": "enough"}, nil)
	}
}

// Without a token, a page through a proxy is nobody's, also with the cookie of deepwork ui.
func TestPagesThroughAProxy(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]web.Options{"serve": {}, "ui": {Secret: "once"}} {
		s := serve(t, pagetest.Project(t), o)
		b := s.browser(t)
		through := "X-Forwarded-For: 203.0.113.7"
		if o.Secret != "" {
			if a := b.do("GET", "/login?secret=once", nil, through); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "ssh -L") {
				t.Errorf("the secret of ui: %s\n%s", a.Status, a.text)
			}
			if a := b.do("GET", "/login?secret=once", nil); a.StatusCode != http.StatusSeeOther || len(a.Cookies()) != 1 {
				t.Errorf("the secret of ui was used up: %s\n%s", a.Status, a.text)
			}
		} else if !web.CanKnowPeers() {
			continue // a login is needed in any case
		}
		form := url.Values{"csrf": {b.csrf("/board")}, "title": {"x"}}
		for _, path := range []string{"/", "/board", "/events", "/trust"} {
			if a := b.do("GET", path, nil, through); a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/login") {
				t.Errorf("%s, %s: %s %s", name, path, a.Status, a.Header.Get("Location"))
			}
		}
		if a := b.do("POST", "/tasks", form, through); a.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s, a form: %s\n%s", name, a.Status, a.text)
		}
		b.get("/board")
	}
}

// A program that looks where the URL of deepwork ui leads, such as a chat, does not use it up. Once a browser has, it
// may open it again, and no other may.
func TestSecretOutlastsALook(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{Secret: "once"})
	b := s.browser(t)
	if a := b.do("HEAD", "/login?secret=once", nil); len(a.Cookies()) != 0 {
		t.Errorf("%s %v", a.Status, a.Cookies())
	}
	stranger := s.browser(t)
	stranger.Jar.SetCookies(testkit.Get(url.Parse(s.url)).Must(t), []*http.Cookie{{Name: "deepwork-" + port(t, s.url), Value: "guessed", Path: "/"}})
	for i, c := range []struct {
		b               *browser
		status, cookies int
	}{{b, http.StatusSeeOther, 1}, {b, http.StatusSeeOther, 0}, {stranger, http.StatusForbidden, 0}, {s.browser(t), http.StatusForbidden, 0}} {
		if a := c.b.do("GET", "/login?secret=once", nil); a.StatusCode != c.status || len(a.Cookies()) != c.cookies {
			t.Errorf("opened %d times before: %s %v\n%s", i, a.Status, a.Cookies(), a.text)
		}
	}
}
