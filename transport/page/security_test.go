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
	for _, file := range testkit.Get(filepath.Glob("*.go")).Must(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, route := range postRoute.FindAllStringSubmatch(string(testkit.Get(os.ReadFile(file)).Must(t)), -1) {
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
	root := pagetest.Project(t)
	s, call, all := as(t, root, config.Token{Name: "ann", Rights: config.AllRights}, config.Token{Name: "bob"})
	p, ann, bob := begin(call), all[0], all[1]
	good, bobs := ann.csrf("/board"), bob.csrf("/board")
	number := regexp.MustCompile(`at=[0-9]+`)
	now := func() string {
		return number.ReplaceAllString(ann.get("/sessions/"+p.session)+ann.get("/tasks/"+p.task), "")
	}
	before := now()
	for _, path := range p.writes(t) {
		for _, from := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example", "Origin: http://127.0.0.1:1", "Origin: null", "Host: evil.example"} {
			ann.act(path+"?token="+s.tokens[0], good, from).is(http.StatusForbidden)
		}
		ann.do("POST", path, nil, "Content-Type: text/plain").is(http.StatusForbidden)
		ann.do("POST", path, url.Values{}).is(http.StatusForbidden)
		ann.act(path, bobs).is(http.StatusForbidden)
		ann.do("POST", path+"?csrf="+good, url.Values{}).is(http.StatusForbidden)
		if path == "/login" {
			continue
		}
		s.browser(t).act(path, good).is(http.StatusUnauthorized)
		if path != "/logout" {
			testkit.Equal(t, ann.do("GET", path+"?csrf="+good+"&status=done&reason=x", nil).Header.Get("Location"), "", "GET %s", path)
		}
	}
	for _, action := range p.actions() { // with forms that are complete
		ann.act(action, bobs).is(http.StatusForbidden)
	}
	ann.login(s.tokens[0])
	testkit.Equal(t, now(), before, "something has changed")
	s.stop()
	ann.at = serve(t, root, web.Options{TokenFile: s.file, ReadOnly: true}).url
	ann.login(s.tokens[0])
	for _, path := range p.paths() {
		if path != "/trust" {
			testkit.Lacks(t, strings.Replace(ann.get(path), `method="post" action="/logout"`, "", 1), []string{`method="post"`}, "%s, read-only", path)
		}
	}
	for _, action := range append(p.actions(), p.writes(t)...) {
		if action != "/login" && action != "/logout" {
			ann.act(action, good, "HX-Request: true").is(http.StatusForbidden, "read-only")
		}
	}
}

// What cannot be shown is said on a page, with what to do next.
func TestErrorPages(t *testing.T) {
	s, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann"})
	p, ann, nobody := begin(call), all[0], s.browser(t)
	hostile := url.PathEscape(pagetest.Hostile)
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/" + hostile, 404, "There is no page"},
		{"GET", "/sessions/" + hostile, 404, "There is no session"},
		{"GET", "/sessions/ffffffff", 404, "belongs to another caller"},
		{"GET", "/tasks/" + hostile, 404, "Not found"},
		{"GET", "/board?project=x" + url.QueryEscape(pagetest.Hostile), 404, "Not found"},
		{"GET", "/attempts/00000000-0000-0000-0000-000000000000", 404, "Not found"},
		{"GET", "/tasks/00000000-0000-4000-8000-000000000000", 404, "The board shows those that you see"},
		{"GET", "/jobs/none", 404, "There is no job"},
		{"GET", "/sources/executions/none", 404, "Not found"},
		{"GET", "/sessions/" + p.session + "/output?path=none", 404, "has delivered no file"},
		{"GET", "/trust", 403, "The user of this server alone"},
		{"GET", "/tasks", 405, "takes POST, and no GET"},
		{"POST", "/board", 405, "takes GET, HEAD, and no POST"},
		{"DELETE", "/", 405, "Forms send to this address"},
		{"POST", "/tasks", 403, "reload the page"},
	} {
		ann.do(c.method, c.path, nil, "Accept: text/html,*/*").is(c.status, c.says, `<main id="main"`, `href="/board"`).lacks("<script>window", "<img src")
	}
	ann.act("/tasks?title=+", ann.csrf("/board"), "HX-Request: true").is(http.StatusBadRequest, `hx-target="#alert"`).lacks("<main")
	nobody.do("GET", "/none", nil, "Accept: text/html").is(http.StatusNotFound, `href="/login"`).lacks("<nav")
	// MCP clients look for metadata, and are told nothing in HTML.
	for path, want := range map[string]int{"/.well-known/oauth-protected-resource": 404, "/.well-known/oauth-authorization-server/mcp": 404, "/register": 404, "/sse": 404, "/mcp": 401, "/metrics": 401, "/healthz": 200, "/readyz": 200} {
		for _, method := range []string{"GET", "POST"} {
			a := nobody.do(method, path, nil, "Accept: application/json, text/event-stream").lacks("<")
			testkit.True(t, (a.StatusCode == want || method == "POST") && a.Header.Get("Location") == "", "%s %s: %s %v", method, path, a.Status, a.Header)
		}
	}
}

// A login leads to the page that was asked for, and nowhere else, and a logout ends it.
func TestLoginAndLogout(t *testing.T) {
	s, _, all := as(t, pagetest.Project(t), config.Token{Name: "ann"}, config.Token{Name: "bob"})
	b := s.browser(t)
	b.do("GET", "/board?status=done", nil).leads("/login?next=%2Fboard%3Fstatus%3Ddone")
	a := b.do("GET", "/events?at=0&on=task", nil, "HX-Request: true").is(http.StatusUnauthorized)
	testkit.Equal(t, a.Header.Get("HX-Redirect"), "/login", "a stream without a login")
	testkit.Contains(t, b.get("/login?next=%2Fboard%3Fstatus%3Ddone"), `name="next" value="/board?status=done"`, "the form does not know the page")
	for next, want := range map[string]string{"": "/", "/board?status=done": "/board?status=done", "//evil.example": "/", "javascript:alert(1)": "/"} {
		testkit.Lacks(t, b.get("/login?next="+url.QueryEscape(next)), []string{"evil", "alert(1)"}, "the form")
		b.do("POST", "/login", url.Values{"token": {s.tokens[0]}, "next": {next}}).leads(want)
	}
	for name, a := range map[string]answer{
		"a wrong token":    b.do("POST", "/login", url.Values{"token": {"wrong"}, "next": {"/jobs"}}),
		"no token":         b.do("POST", "/login", url.Values{}),
		"a token in a URL": s.browser(t).do("GET", "/login?secret="+s.tokens[1], nil),
		"a hostile secret": s.browser(t).do("GET", "/login?secret="+url.QueryEscape(pagetest.Hostile), nil),
	} {
		a.is(http.StatusForbidden, `role="alert"`).lacks(s.tokens[1], "window.hit")
		testkit.Equal(t, len(a.Cookies()), 0, "%s", name)
	}
	// What a browser had before its login is nothing that another one can know after it.
	fixed := s.cookie(t, b, "fixed")
	c := b.login(s.tokens[0])
	testkit.True(t, c.Name == fixed && c.Value != "fixed" && !strings.Contains(c.Value, s.tokens[0]), "the cookie is %v", c)
	b.do("GET", "/", nil).is(http.StatusOK, "ann", `action="/logout"`).lacks(`href="/trust"`)
	b.do("POST", "/logout", url.Values{}).is(http.StatusForbidden)
	a = b.act("/logout", all[0].csrf("/board")).leads("/login?out")
	testkit.True(t, len(a.Cookies()) == 1 && a.Cookies()[0].MaxAge < 0, "%v", a.Header)
	testkit.Contains(t, b.get("/login?out"), "You are logged out")
	b.do("GET", "/", nil).is(http.StatusSeeOther)
}

// cookie gives a browser the cookie of a login with another value, and returns its name.
func (s *server) cookie(t *testing.T, b *browser, value string) (name string) {
	t.Helper()
	u := testkit.Get(url.Parse(s.url)).Must(t)
	b.Jar.SetCookies(u, []*http.Cookie{{Name: "deepwork-" + u.Port(), Value: value, Path: "/"}})
	return "deepwork-" + u.Port()
}

// Without a token, a page through a proxy is nobody's, also with the cookie of deepwork ui.
func TestPagesThroughAProxy(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]web.Options{"serve": {}, "ui": {Secret: "once"}} {
		if name == "serve" && !web.CanKnowPeers() {
			continue // a login is needed in any case
		}
		b := serve(t, pagetest.Project(t), o).browser(t)
		through := "X-Forwarded-For: 203.0.113.7"
		if o.Secret != "" {
			b.do("GET", "/login?secret=once", nil, through).is(http.StatusForbidden, "ssh -L")
			testkit.Equal(t, len(b.do("GET", "/login?secret=once", nil).leads("/").Cookies()), 1, "the secret of ui was used up")
		}
		csrf := b.csrf("/board")
		for _, path := range []string{"/", "/board", "/events", "/trust"} {
			a := b.do("GET", path, nil, through).is(http.StatusSeeOther)
			testkit.True(t, strings.HasPrefix(a.Header.Get("Location"), "/login"), "%s, %s: %v", name, path, a.Header)
		}
		b.act("/tasks?title=x", csrf, through).is(http.StatusUnauthorized)
		b.get("/board")
	}
}

// A program that looks where the URL of deepwork ui leads, such as a chat, does not use it up. Once a browser has, it
// may open it again, and no other may.
func TestSecretOutlastsALook(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{Secret: "once"})
	b, stranger := s.browser(t), s.browser(t)
	s.cookie(t, stranger, "guessed")
	for i, c := range []struct {
		b               *browser
		method          string
		status, cookies int
	}{{b, "HEAD", http.StatusOK, 0}, {b, "GET", http.StatusSeeOther, 1}, {b, "GET", http.StatusSeeOther, 0}, {stranger, "GET", http.StatusForbidden, 0}, {s.browser(t), "GET", http.StatusForbidden, 0}} {
		testkit.Equal(t, len(c.b.do(c.method, "/login?secret=once", nil).is(c.status).Cookies()), c.cookies, "request %d", i)
	}
}
