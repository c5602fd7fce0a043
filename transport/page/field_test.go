package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// Behind a proxy that removes a path from requests, every link, form, stream, redirect and cookie of the pages has
// that path, and what the pages link to is there.
func TestField10_PagesBelowThePathOfAProxy(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightAgents})
	for name, o := range map[string]web.Options{"the proxy says the path": {}, "the option says the path": {BasePath: "/team/deep"}} {
		t.Run(name, func(t *testing.T) {
			o.TokenFile = file
			s := serve(t, root, o)
			p := begin(pagetest.Connect(t, s.url, tokens[0]))
			target := testkit.Get(url.Parse(s.url)).Must(t)
			proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.Out.Host = r.In.Host
				r.SetXForwarded()
				r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/team/deep")
				if o.BasePath == "" {
					r.Out.Header.Set("X-Forwarded-Prefix", "/team/deep")
				}
			}})
			defer proxy.Close()
			b := s.browser(t)
			b.at = proxy.URL
			b.do("GET", "/team/deep/board?q=x", nil).leads("/team/deep/login?next=%2Fboard%3Fq%3Dx")
			a := b.do("POST", "/team/deep/login", url.Values{"token": {tokens[0]}, "next": {"/board/"}}).leads("/team/deep/board/")
			testkit.Need(t, len(a.Cookies()) == 1 && a.Cookies()[0].Path == "/team/deep", "the login sets %v", a.Cookies())
			link := regexp.MustCompile(`(?:href|src|action|hx-get|hx-post|connect|data-base)="([^"#][^"]*)"`)
			for _, path := range p.paths() {
				if strings.HasPrefix(path, "/sessions/") || path == "/trust" {
					continue // of the owner
				}
				for _, found := range link.FindAllStringSubmatch(b.get("/team/deep"+path), -1) {
					testkit.True(t, strings.HasPrefix(found[1], "/team/deep/") || strings.HasPrefix(found[1], "?"), "%s links to %s", path, found[1])
				}
			}
			testkit.Contains(t, b.get("/team/deep/board/"), `src="/team/deep/static/page.js`, "a slash at the end")
			b.get("/team/deep/static/page.js")
			csrf := b.csrf("/team/deep/board")
			a = b.act("/team/deep/tasks/"+p.task+"?title=t&project_id=", csrf, "HX-Request: true", "HX-Current-URL: "+proxy.URL+"/team/deep/board")
			testkit.Equal(t, a.Header.Get("HX-Redirect"), "/team/deep/tasks/"+p.task, "the form leads to")
			a = b.act("/team/deep/logout", csrf).leads("/team/deep/login?out")
			testkit.Equal(t, a.Cookies()[0].Path, "/team/deep", "the cookie of the logout")
		})
	}
}

// What colors an agent's output at a terminal is not shown on pages, and nothing else is lost.
func TestField13_PagesHaveNoEscapeSequences(t *testing.T) {
	_, call, b := open(t)
	task := call.Task("Title \x1b[1;31mred\x1b[", "a\x1b[38;5;9mb\x1b[mc \x1b]8;;https://example.com/?q=\"1\"&r\x1b\\link\x1b]8;;\x07 \x1b[>4;1md\x1b(B\x1b7 [31m \x1bunfinished\n<b> e \x1b")
	b.do("GET", "/tasks/"+task, nil).lacks("\x1b").is(http.StatusOK, "Title red", "abc link d [31m nfinished\n&lt;b&gt; e </p>", "&lt;b&gt; e </textarea>", `value="Title red"`)
}

// A page of a job that no longer loads says which version agents get. An address with something else than an id is not
// found, in plain words, and the user is addressed as such.
func TestField18_PagesSayWhatIs(t *testing.T) {
	s, _, b := open(t)
	b.get("/jobs/trip")
	testkit.Write(t, s.root+"/.deepwork/jobs/trip/job.yml", "name: trip\nstepz: []\n")
	testkit.Until(t, "the fault", func() bool {
		return strings.Contains(b.get("/jobs/trip"), "Agents get the last good version, 1.0.0, until its job.yml is corrected or the server ends:")
	})
	testkit.Contains(t, b.get("/jobs/broken"), "Agents cannot use this job until its job.yml is corrected:", "of a job that never loaded")
	for path, want := range map[string]string{"/tasks/nope": "There is no such task.", "/attempts/nope": "There is no such attempt.", "/sessions/nope": "There is no session"} {
		b.do("GET", path, nil).is(http.StatusNotFound, want).lacks("UUID")
	}
}

// What an agent says is news for its open page at once, even its first line without another, and the page has it. A caller
// that does not see the attempt does not keep its output from one that does.
func TestField25_WhatAnAgentSaysIsOnItsPage(t *testing.T) {
	_, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann", Rights: config.RightAgents}, config.Token{Name: "bob"})
	speak := filepath.Join(t.TempDir(), "speak")
	_, id := call.Script("talk", "! until [ -e "+speak+" ]; do sleep 0.05; done; echo hello; while [ -e "+speak+" ]; do sleep 0.05; done\n")
	t.Cleanup(func() { _ = os.Remove(speak) })
	_, leave := all[1].listen("/events?at=0&on=output:"+id, "")
	defer leave()
	ann, path := all[0], "/attempts/"+id
	ids, hangUp := ann.listen(regexp.MustCompile("on=.*").ReplaceAllString(ann.stream(path), "on=output:"+id), "")
	defer hangUp()
	testkit.Write(t, speak, "")
	event(t, ids, "the agent has printed a line")
	testkit.Contains(t, ann.get(path), "hello", "the page")
}

// A page says to the user what they have not approved, and to others that the user has not.
func TestField18_TheUserIsAddressed(t *testing.T) {
	for _, name := range []string{"XDG_CONFIG_HOME", "APPDATA"} {
		t.Setenv(name, t.TempDir()) // without folders that are trusted
	}
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightAgents})
	for token, want := range map[string]string{"": "You have not approved what the project", tokens[0]: "The user has not approved what the project"} {
		s := serve(t, root, web.Options{TokenFile: map[bool]string{true: file}[token != ""]})
		task, b := pagetest.Connect(t, s.url, token).Task("t", "d"), s.browser(t)
		if token != "" {
			b.login(token)
		}
		b.act("/tasks/"+task+"/start?executor=SCRIPT", b.csrf("/board"), "HX-Request: true").is(http.StatusConflict, want)
		s.stop()
	}
}

// The page Help shows the documentation that the program has, whose links lead to each other there.
func TestHelp(t *testing.T) {
	b := serve(t, pagetest.Project(t), web.Options{}, transport.Options{Version: "1.2.3", Help: fstest.MapFS{
		"README.md":      {Data: []byte("# All of it\n\nSee [the first](howto/first.md#then).\n")},
		"howto/first.md": {Data: []byte("# The first\n\n## Then\n\n```sh\n$ <b>\n```\n\nBack to [all](../README.md).\n")},
	}}).browser(t)
	testkit.Contains(t, b.get("/"), `<footer><a href="/help/README.md">Help</a> · deepwork 1.2.3</footer>`)
	testkit.ContainsAll(t, b.get("/help/README.md"), []string{"<title>All of it · ", `<a href="howto/first.md#h-then">the first</a>`})
	testkit.ContainsAll(t, b.get("/help/howto/first.md"), []string{`<h2 id="h-then">Then</h2>`, `$ &lt;b&gt;`, `<a href="../README.md">all</a>`})
	for _, path := range []string{"/help", "/help/", "/help/none.md", "/help/howto", "/help/..%2fhelp.go"} {
		b.do("GET", path, nil).is(http.StatusNotFound)
	}
	without := serve(t, pagetest.Project(t), web.Options{}).browser(t)
	without.do("GET", "/help/README.md", nil).is(http.StatusNotFound)
	without.do("GET", "/", nil).is(http.StatusOK).lacks(`href="/help`)
}
