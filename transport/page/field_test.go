package page_test

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"net/http/httptest"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// Behind a proxy that removes a path from requests, every link, form, stream, redirect and cookie of the pages has
// that path, and what the pages link to is there.
func TestField10_PagesBelowThePathOfAProxy(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: session.RightAgents})
	for name, o := range map[string]web.Options{
		"the proxy says the path":  {},
		"the option says the path": {BasePath: "/team/deep"},
	} {
		t.Run(name, func(t *testing.T) {
			o.TokenFile = file
			s := serve(t, root, o)
			p := s.begin(t, tokens[0])
			target, err := url.Parse(s.url)
			testkit.Must(t, err)
			inner := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.Out.Host = r.In.Host
				r.SetXForwarded()
				r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/team/deep")
				if o.BasePath == "" {
					r.Out.Header.Set("X-Forwarded-Prefix", "/team/deep")
				}
			}}
			proxy := httptest.NewServer(inner)
			defer proxy.Close()
			b := s.browser(t)
			b.at = proxy.URL
			a := b.do("GET", "/team/deep/board?q=x", nil)
			if to := a.Header.Get("Location"); a.StatusCode != http.StatusSeeOther || to != "/team/deep/login?next=%2Fboard%3Fq%3Dx" {
				t.Fatalf("without a login: %s, to %q", a.Status, to)
			}
			a = b.do("POST", "/team/deep/login", url.Values{"token": {tokens[0]}, "next": {"/board/"}})
			if to := a.Header.Get("Location"); to != "/team/deep/board/" || len(a.Cookies()) != 1 || a.Cookies()[0].Path != "/team/deep" {
				t.Fatalf("the login leads to %q with %v", to, a.Cookies())
			}
			link := regexp.MustCompile(`(?:href|src|action|hx-get|hx-post|connect|data-base)="([^"#][^"]*)"`)
			for _, path := range p.paths() {
				if strings.HasPrefix(path, "/sessions/") || path == "/trust" {
					continue // of the owner
				}
				for _, found := range link.FindAllStringSubmatch(b.get("/team/deep"+path), -1) {
					to := strings.ReplaceAll(found[1], "&amp;", "&")
					testkit.True(t, strings.HasPrefix(to, "/team/deep/") || strings.HasPrefix(to, "?"), "%s links to %s", path, to)
				}
			}
			if got := b.get("/team/deep/board/"); !strings.Contains(got, `src="/team/deep/static/page.js`) {
				t.Error("a slash at the end leads elsewhere")
			}
			b.get("/team/deep/static/page.js")
			form := url.Values{"csrf": {b.csrf("/team/deep/board")}, "title": {"t"}, "project_id": {""}}
			a = b.do("POST", "/team/deep/tasks/"+p.task, form, "HX-Request: true", "HX-Current-URL: "+proxy.URL+"/team/deep/board")
			if to := a.Header.Get("HX-Redirect"); to != "/team/deep/tasks/"+p.task {
				t.Errorf("the form leads to %q: %s", to, a.Status)
			}
			a = b.do("POST", "/team/deep/logout", form)
			if to := a.Header.Get("Location"); to != "/team/deep/login?out" || a.Cookies()[0].Path != "/team/deep" {
				t.Errorf("the logout leads to %q with %v", to, a.Cookies())
			}
		})
	}
}

// What colors an agent's output at a terminal is not shown on pages, and nothing else is lost.
func TestField13_PagesHaveNoEscapeSequences(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: session.RightAgents})
	s := serve(t, root, web.Options{TokenFile: file})
	task := pagetest.Connect(t, s.url, tokens[0]).Task("Title \x1b[1;31mred\x1b[", "a\x1b[38;5;9mb\x1b[mc \x1b]8;;https://example.com/?q=\"1\"&r\x1b\\link\x1b]8;;\x07 \x1b[>4;1md\x1b(B\x1b7 [31m \x1bunfinished\n<b> e \x1b")
	b := s.browser(t)
	b.login(tokens[0])
	page := b.get("/tasks/" + task)
	testkit.True(t, !strings.ContainsRune(page, '\x1b'), "an escape is left: %q", page)
	for _, want := range []string{"Title red", "abc link d [31m nfinished\n&lt;b&gt; e </p>", "&lt;b&gt; e </textarea>", `value="Title red"`} {
		testkit.True(t, strings.Contains(page, want), "the page lacks %q:\n%s", want, page)
	}
}

// A page of a job that no longer loads says which version agents get. An address with something else than an id is not
// found, in plain words, and the user is addressed as such.
func TestField18_PagesSayWhatIs(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	b := s.browser(t)
	b.get("/jobs/trip")
	testkit.Write(t, s.root+"/.deepwork/jobs/trip/job.yml", "name: trip\nstepz: []\n")
	testkit.Until(t, "the fault", func() bool {
		return strings.Contains(b.get("/jobs/trip"), "Agents get the last good version, 1.0.0, until its job.yml is corrected or the server ends:")
	})
	testkit.Contains(t, b.get("/jobs/broken"), "Agents cannot use this job until its job.yml is corrected:", "of a job that never loaded")
	for path, want := range map[string]string{"/tasks/nope": "There is no such task.", "/attempts/nope": "There is no such attempt.", "/sessions/nope": "There is no session"} {
		if a := b.do("GET", path, nil); a.StatusCode != http.StatusNotFound || !strings.Contains(a.text, want) || strings.Contains(a.text, "UUID") {
			t.Errorf("%s: %s %s", path, a.Status, a.text)
		}
	}
}

// What an agent says is news for its open page at once, even its first line without another, and the page has it.
func TestField25_WhatAnAgentSaysIsOnItsPage(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), web.Options{})
	speak := filepath.Join(t.TempDir(), "speak")
	_, id := pagetest.Connect(t, s.url, "").Script("talk", "! until [ -e "+speak+" ]; do sleep 0.05; done; echo hello; while [ -e "+speak+" ]; do sleep 0.05; done\n")
	t.Cleanup(func() { _ = os.Remove(speak) })
	b := s.browser(t)
	path := "/attempts/" + id
	ids, hangUp := b.listen(regexp.MustCompile("on=.*").ReplaceAllString(b.stream(path), "on=output:"+id), "")
	defer hangUp()
	testkit.Write(t, speak, "")
	event(t, ids, "the agent has printed a line")
	testkit.Contains(t, b.get(path), "hello", "the page")
}

// A page says to the user what they have not approved, and to others that the user has not.
func TestField18_TheUserIsAddressed(t *testing.T) {
	for _, name := range []string{"XDG_CONFIG_HOME", "APPDATA"} {
		t.Setenv(name, t.TempDir()) // without folders that are trusted
	}
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: session.RightAgents})
	for token, want := range map[string]string{"": "You have not approved what the project", tokens[0]: "The user has not approved what the project"} {
		o := web.Options{}
		if token != "" {
			o.TokenFile = file
		}
		s := serve(t, root, o)
		task := pagetest.Connect(t, s.url, token).Task("t", "d")
		b := s.browser(t)
		if token != "" {
			b.login(token)
		}
		a := b.do("POST", "/tasks/"+task+"/start", url.Values{"csrf": {b.csrf("/tasks/" + task)}, "executor": {"SCRIPT"}}, "HX-Request: true")
		testkit.Contains(t, a.text, want, "the refusal")
		s.stop()
	}
}
