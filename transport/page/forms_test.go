package page_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

const askJob = `name: ask
version: 1.0.0
summary: Ask people
common_job_info_provided_to_all_steps_at_runtime: Be polite.
workflows:
  - {name: short, summary: Ask briefly, steps: [talk]}
  - name: them
    summary: Ask them
    steps: [talk]
    inputs:
      - {name: topic, description: What <about>}
      - {name: places, description: Where to ask, type: files, required: false}
      - {name: paper, description: The paper, type: file, required: false}
      - {name: tone, description: How, default: plain & simple}
steps:
  - {id: talk, name: Talk, description: Talk, instructions_file: talk.md, outputs: {}, reviews: []}
`

// Forms that use a workflow have a field for each of its inputs, and what is in them reaches the run or the
// task; they need no script.
func TestFormsHaveInputs(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/ask/job.yml": askJob,
		".deepwork/jobs/ask/talk.md": "Talk.",
	})

	s := serve(t, root, web.Options{})
	call := pagetest.Connect(t, s.url, "")
	b := s.browser(t)
	has := func(path string, want ...string) { b.do("GET", path, nil).is(http.StatusOK, want...) }
	has("/jobs/ask", "topic (string, required)", "What &lt;about&gt;", "tone (string, default: plain &amp; simple)",
		`href="/board?workflow=ask/them#new"`, `href="?run=them#run"`)
	has("/jobs/ask?run=them", `value="ask/them"`, `name="input.topic" rows="2" required>`,
		"topic (required): What &lt;about&gt;", `name="paths.places" rows="2">`, "one path per line",
		`<input id="input.paper" name="input.paper"`, "\nplain &amp; simple</textarea>")
	has("/board?workflow=ask/them", `value="ask/them"`, `name="input.topic" rows="2">`, "topic (required)")
	send := func(path string, form url.Values) (next string) {
		t.Helper()
		to := b.act(path+"?"+form.Encode(), b.csrf("/board")).is(http.StatusSeeOther).Header.Get("Location")
		to, _, _ = strings.Cut(to, "?") // a notice
		return to
	}
	inputs := func(tool string, args pagetest.Args, want string) {
		t.Helper()
		var got struct{ Inputs json.RawMessage }
		call(tool, args, &got)
		testkit.Equal(t, string(got.Inputs), want, "the inputs of %s", tool)
	}

	run := send("/runs", url.Values{
		"workflow":     {"ask/them"},
		"inputs_of":    {"ask/them"},
		"goal":         {"g"},
		"executor":     {"SCRIPT"},
		"input.topic":  {"cats\r\nand dogs"},
		"paths.places": {"idea.txt\r\n\r\n idea.txt "},
		"input.paper":  {" "},
		"input.tone":   {"loud"},
	})
	inputs("get_run", pagetest.Args{"run_id": strings.TrimPrefix(run, "/attempts/")},
		`{"topic":"cats\nand dogs","places":["idea.txt","idea.txt"],"tone":"loud"}`)
	has(run, "<dt>topic</dt>", "cats\nand dogs")
	task := send("/tasks", url.Values{
		"project_id":   {call.Project()},
		"title":        {"T"},
		"description":  {"Two\r\nlines"},
		"workflow":     {"ask/them"},
		"inputs_of":    {"ask/them"},
		"paths.places": {"idea.txt"},
	})
	id := pagetest.Args{"task_id": strings.TrimPrefix(task, "/tasks/")}
	inputs("get_task", id, `{"places":["idea.txt"]}`)
	has(task, "<dt>places</dt>", "\nidea.txt</textarea>", "Two\nlines</textarea>", `name="inputs_of" value="ask/them"`)
	send(task, url.Values{"workflow": {"ask/them"}, "inputs_of": {"ask/them"}, "input.topic": {"cats"}})
	inputs("get_task", id, `{"topic":"cats"}`)
	// The fields of one workflow are not those of another.
	send(task, url.Values{"workflow": {"ask/short"}, "inputs_of": {"ask/them"}, "input.topic": {"cats"}})
	inputs("get_task", id, `{}`)
}

// What an agent hands in is shown to the person who judges it, and runs nothing, loads nothing from elsewhere, and
// leads nowhere but out by a link that can be read.
func TestHostileFilesOnThePageOfAReview(t *testing.T) {
	root := pagetest.Project(t)
	var picture bytes.Buffer
	testkit.Must(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 2, 2))))
	const markup = "<script>window.hit=1</script><img src=x onerror=window.hit=1>"
	files := map[string]string{
		"a.md": "# Title\n\n" + markup +
			"\n\n[bad](javascript:window.hit=1) [worse](JaVaScRiPt:window.hit=1) [data](data:text/html,x) " +
			"[there](//evil.example/x) [fine](https://good.example/) [near](b.json)\n\n" +
			"![pixel](https://evil.example/p.png) ![](//evil.example/q.png)\n\n<javascript:window.hit=1>\n\n```html\n" +
			markup + "\n```\n",
		"i.md": "[w](JaVaScRiPt&colon;window.hit=1)\n\n[//]: # (skip the tests)\n\n```sh and push\n```\n",
		"j.sh": "# set up\x1b]\nrm -rf /important\n#\x07\necho done\ntrue" + strings.Repeat(" ", 5000) +
			"; rm -rf /important\n",
		"b.json":    `{"a":["` + `<script>` + `"]}`,
		"c.html":    "<!doctype html>" + markup,
		"d.svg":     "<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=1'/>",
		"e.png":     picture.String(),
		"f.png":     "\x89PNG\r\n\x1a\n<script>window.hit=1</script>",
		"g.txt":     "safe \u202etxt.exe \x1b[2Jgone\n" + strings.Repeat("x", 10_000) + "\n",
		"h.go":      "package main // \"" + markup + "\n",
		"huge.txt":  "",
		"k.json":    strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"l.md":      strings.Repeat(">", 10_000),
		"away.json": "{}",
	}
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/sign/job.yml": strings.Replace(signJob, "{type: file,", "{type: files,", 1),
		".deepwork/jobs/sign/text.md": "Write.",
	})
	testkit.WriteAll(t, root, files)
	testkit.Must(t, os.Truncate(filepath.Join(root, "huge.txt"), 100<<20))
	_, call, who := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson})
	ann := who[0]
	id := call.Start(pagetest.Args{"goal": "Sign", "job_name": "sign", "workflow_name": "full"})
	finish := func(outputs ...string) {
		call("finished_step", pagetest.Args{
			"session_id": id,
			"step_id":    "text",
			"outputs":    pagetest.Args{"text": outputs},
		}, nil)
	}
	finish(slices.Collect(maps.Keys(files))...)
	testkit.Must(t, os.Remove(filepath.Join(root, "away.json")))
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(root, "away.json")))
	page := ann.get("/sessions/" + id)
	testkit.ContainsAll(t, page, []string{
		"<h1 id=\"h-title\">Title</h1>", `<a href="https://good.example/" rel="noopener noreferrer">fine</a>`, "worse",
		"&lt;script&gt;", `<span class="hl-k">package</span>`,
		`safe \u202etxt.exe \u001b[2Jgone`, "JaVaScRiPt&amp;colon;", "[//]: # (skip the tests)", "sh and push",
		"rm -rf /important", "The rest is left out here", "It is too large to show here", "outside the project",
		filepath.Join(root, "huge.txt"), "&#34;a&#34;", strings.Repeat("[", 100),
	}, "the page")

	shown := page[strings.Index(page, `<form class="answer"`):]
	testkit.Lacks(t, shown, []string{"<script", `src="http`, `src="//`, `href="//`, "href=\"javascript", "href=\"data",
		"style=", "root:x:", strings.Repeat("<blockquote>\n", 50), "\u202e", "\x1b", strings.Repeat("x", 5000)},
		"the page")
	testkit.Equal(t, regexp.MustCompile(`(?i)<[^>]*\son[a-z]+=`).FindString(shown), "", "a handler")

	images := regexp.MustCompile(`<img [^>]*>`).FindAllString(shown, -1)
	testkit.Need(t, len(images) == 2, "images: %q", images)

	for _, tag := range images {
		src := strings.ReplaceAll(regexp.MustCompile(`src="([^"]+)"`).FindStringSubmatch(tag)[1], "&amp;", "&")
		a := ann.do("GET", src, nil).is(http.StatusOK)
		testkit.Equal(t, a.Header.Get("Content-Type")+", "+a.Header.Get("X-Content-Type-Options")+", "+
			a.Header.Get("Content-Security-Policy"), "image/png, nosniff, default-src 'none'; sandbox", "%s", src)

		for _, other := range []string{"d.svg", "c.html", "../x.png", "/etc/passwd"} {
			u := testkit.Get(url.Parse(src)).Must(t)
			q := u.Query()
			q.Set("path", other)
			testkit.Equal(t, ann.do("GET", u.Path+"?"+q.Encode(), nil).StatusCode/100, 4, "%s as an image", other)
		}
		if strings.Contains(src, "e.png") {
			testkit.WriteAll(t, root, map[string]string{"e.png": picture.String() + "more"})
			testkit.Equal(t, ann.do("GET", src, nil).StatusCode/100, 4, "another image than was handed in")
		}
	}

	// Nobody judged these, so the whole content is still shown, and what has changed since.
	testkit.WriteAll(t, root, map[string]string{"h.go": "package other\n"})
	finish("h.go")
	page = ann.get("/sessions/" + id)
	testkit.True(t,
		regexp.MustCompile(`(?s)<table class="diff code whole" data-file="h.go">.*<summary>What has changed since `+
			`the last hand-in</summary>.*<tr class="del"`).MatchString(page), "no content and changes")

	// What has changed is shown, even if files that have not leave no room for their content.
	big := strings.Repeat("a line that stays\n", 10_000)
	hand := func(text string) string {
		testkit.WriteAll(t, root, map[string]string{"big1.txt": big, "big2.txt": big, "big3.txt": big, "h.go": text})
		finish("big1.txt", "big2.txt", "big3.txt", "h.go")
		return ann.get("/sessions/" + id)
	}
	digest := find(t, digestField, hand("package last\n"))
	ann.act("/sessions/"+id+"/review?step=text&decision=fail&feedback=Rename+it&digest="+digest,
		ann.csrf("/sessions/"+id)).is(http.StatusSeeOther)
	hand("package last\n") // collects the answer
	page = hand("package renamed\n")
	testkit.True(t, regexp.MustCompile(`(?s)aria-label="changes of h.go".*<tr class="add".*renamed`).MatchString(page),
		"the change is not shown")
	testkit.Contains(t, page, "The rest is left out here")
}

// Where the page has no room for the files of a step, its links say of which step they are: it may have a
// folder of its own.
func TestLinksToFilesThatAreNotShown(t *testing.T) {
	root := pagetest.Project(t)
	steps, names := "", []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		steps += "  - {id: " + name +
			", name: N, description: D, instructions_file: text.md, outputs: {o: {type: file, description: O, " +
			"required: true}}, reviews: [{run_each: step, by: human, quality_criteria: {Good: Is it}}]}\n"
	}
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/many/text.md": "Write.",
		"o.txt":                       "o",
		".deepwork/jobs/many/job.yml": "name: many\nversion: 1.0.0\nsummary: " +
			"M\ncommon_job_info_provided_to_all_steps_at_runtime: C\nworkflows: [{name: all, summary: A, steps: [[" +
			strings.Join(names, ", ") + "]]}]\nsteps:\n" + steps,
	})

	_, call, who := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson})
	ann := who[0]
	id := call.Start(pagetest.Args{"goal": "G", "job_name": "many", "workflow_name": "all"})
	for _, name := range names {
		call("finished_step", pagetest.Args{
			"session_id": id,
			"step_id":    name,
			"outputs":    pagetest.Args{"o": "o.txt"},
		}, nil)
	}
	testkit.Contains(t, ann.get("/sessions/"+id), `/output?path=o.txt&amp;step=f"`)
}

// Behind a proxy that removes a path from requests, every link, form, stream, redirect and cookie of the pages has
// that path, and what the pages link to is there.
func TestField10_PagesBelowThePathOfAProxy(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightAgents})
	for name, o := range map[string]web.Options{
		"the proxy says the path":  {},
		"the option says the path": {BasePath: "/team/deep"},
	} {
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
			a := b.do("POST", "/team/deep/login",
				url.Values{"token": {tokens[0]}, "next": {"/board/"}}).leads("/team/deep/board/")
			testkit.Need(t, len(a.Cookies()) == 1 && a.Cookies()[0].Path == "/team/deep", "the login sets %v",
				a.Cookies())

			link := regexp.MustCompile(`(?:href|src|action|hx-get|hx-post|connect|data-base)="([^"#][^"]*)"`)
			for _, path := range p.paths() {
				if strings.HasPrefix(path, "/sessions/") || path == "/trust" {
					continue // of the owner
				}
				for _, found := range link.FindAllStringSubmatch(b.get("/team/deep"+path), -1) {
					testkit.True(t, strings.HasPrefix(found[1], "/team/deep/") || strings.HasPrefix(found[1], "?"),
						"%s links to %s", path, found[1])
				}
			}
			testkit.Contains(t, b.get("/team/deep/board/"), `src="/team/deep/static/page.js`, "a slash at the end")
			b.get("/team/deep/static/page.js")
			csrf := b.csrf("/team/deep/board")
			a = b.act("/team/deep/tasks/"+p.task+"?title=t&project_id=", csrf, "HX-Request: true",
				"HX-Current-URL: "+proxy.URL+"/team/deep/board")
			testkit.Equal(t, a.Header.Get("HX-Redirect"), "/team/deep/tasks/"+p.task, "the form leads to")
			a = b.act("/team/deep/logout", csrf).leads("/team/deep/login?out")
			testkit.Equal(t, a.Cookies()[0].Path, "/team/deep", "the cookie of the logout")
		})
	}
}

// What colors an agent's output at a terminal is not shown on pages, and nothing else is lost.
func TestField13_PagesHaveNoEscapeSequences(t *testing.T) {
	_, call, b := open(t)
	task := call.Task("Title \x1b[1;31mred\x1b[",
		"a\x1b[38;5;9mb\x1b[mc \x1b]8;;https://example.com/?q=\"1\"&r\x1b\\link\x1b]8;;\x07 \x1b[>4;1md\x1b(B\x1b7 "+
			"[31m \x1bunfinished\n<b> e \x1b")
	b.do("GET", "/tasks/"+task, nil).lacks("\x1b").is(http.StatusOK, "Title red",
		"abc link d [31m nfinished\n&lt;b&gt; e </p>", "&lt;b&gt; e </textarea>", `value="Title red"`)
}

// A page of a job that no longer loads says which version agents get. An address with something else than an id is not
// found, in plain words, and the user is addressed as such. Now says at which step a session is, and which of how many.
func TestField18_PagesSayWhatIs(t *testing.T) {
	s, call, b := open(t)
	call.Plan("see the sea")
	testkit.Until(t, "the session", func() bool {
		return strings.Contains(b.get("/"), "trip/plan · step idea, 1 of 3")
	})
	b.get("/jobs/trip")
	testkit.Write(t, s.root+"/.deepwork/jobs/trip/job.yml", "name: trip\nstepz: []\n")
	testkit.Until(t, "the fault", func() bool {
		return strings.Contains(b.get("/jobs/trip"),
			"Agents get the last good version, 1.0.0, until its job.yml is corrected or the server ends:")
	})
	testkit.Contains(t, b.get("/jobs/broken"), "Agents cannot use this job until its job.yml is corrected:",
		"of a job that never loaded")

	for path, want := range map[string]string{
		"/tasks/nope":    "There is no such task.",
		"/attempts/nope": "There is no such attempt.",
		"/sessions/nope": "There is no session",
	} {
		b.do("GET", path, nil).is(http.StatusNotFound, want).lacks("UUID")
	}
}

// What an agent says is news for its open page at once, even its first line without another, and the page has
// it. A caller that does not see the attempt does not keep its output from one that does.
func TestField25_WhatAnAgentSaysIsOnItsPage(t *testing.T) {
	_, call, all := as(t, pagetest.Project(t), config.Token{Name: "ann", Rights: config.RightAgents},
		config.Token{Name: "bob"})
	speak := filepath.Join(t.TempDir(), "speak")
	_, id := call.Script("talk",
		"! until [ -e "+speak+" ]; do sleep 0.05; done; echo hello; while [ -e "+speak+" ]; do sleep 0.05; done\n")
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
	for token, want := range map[string]string{
		"":        ">What the project",
		tokens[0]: "Ask the user to run",
	} {
		s := serve(t, root, web.Options{TokenFile: map[bool]string{true: file}[token != ""]})
		task, b := pagetest.Connect(t, s.url, token).Task("t", "d"), s.browser(t)
		if token != "" {
			b.login(token)
		}
		b.act("/tasks/"+task+"/start?executor=SCRIPT", b.csrf("/board"),
			"HX-Request: true").is(http.StatusConflict, want)
		s.stop()
	}
}

// A start names the files that its agent will not see, since they are not committed.
func TestAStartNamesWhatIsNotCommitted(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, "new.txt"), "x")
	s := serve(t, root, web.Options{})
	task, b := pagetest.Connect(t, s.url, "").Task("t", "d"), s.browser(t)
	started := b.act("/tasks/"+task+"/start?executor=SCRIPT", b.csrf("/board")).is(http.StatusSeeOther, "")
	testkit.Contains(t, b.get(started.Header.Get("Location")), "What is not committed is not in the worktree: new.txt.")
}

// The page Help shows the documentation that the program has, whose links lead to each other there.
func TestHelp(t *testing.T) {
	b := serve(t, pagetest.Project(t), web.Options{}, transport.Options{Version: "1.2.3", Help: fstest.MapFS{
		"README.md": {Data: []byte("# All of it\n\nSee [the first](howto/first.md#then).\n")},
		"howto/first.md": {Data: []byte("# The first\n\n## Then\n\n```sh\n$ <b>\n```\n\nBack to " +
			"[all](../README.md).\n")},
	}}).browser(t)
	testkit.Contains(t, b.get("/"), `<footer><a href="/help/README.md">Help</a> · deepwork 1.2.3</footer>`)
	testkit.ContainsAll(t, b.get("/help/README.md"),
		[]string{"<title>All of it · ", `<a href="howto/first.md#h-then">the first</a>`})
	testkit.ContainsAll(t, b.get("/help/howto/first.md"),
		[]string{`<h2 id="h-then">Then</h2>`, `$ &lt;b&gt;`, `<a href="../README.md">all</a>`})

	for _, path := range []string{"/help", "/help/", "/help/none.md", "/help/howto", "/help/..%2fhelp.go"} {
		b.do("GET", path, nil).is(http.StatusNotFound)
	}

	without := serve(t, pagetest.Project(t), web.Options{}).browser(t)
	without.do("GET", "/help/README.md", nil).is(http.StatusNotFound)
	without.do("GET", "/", nil).is(http.StatusOK).lacks(`href="/help`)
}

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
	p := begin(call)
	ann := all[0]
	bob := all[1]
	good, bobs := ann.csrf("/board"), bob.csrf("/board")
	number := regexp.MustCompile(`at=[0-9]+`)
	now := func() string {
		return number.ReplaceAllString(ann.get("/sessions/"+p.session)+ann.get("/tasks/"+p.task), "")
	}
	before := now()
	for _, path := range p.writes(t) {
		for _, from := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site",
			"Origin: https://evil.example", "Origin: http://127.0.0.1:1", "Origin: null", "Host: evil.example"} {
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
			testkit.Equal(t, ann.do("GET", path+"?csrf="+good+"&status=done&reason=x", nil).Header.Get("Location"), "",
				"GET %s", path)
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
			testkit.Lacks(t, strings.Replace(ann.get(path), `method="post" action="/logout"`, "", 1),
				[]string{`method="post"`}, "%s, read-only", path)
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
	p := begin(call)
	ann := all[0]
	nobody := s.browser(t)
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
		{"GET", "/tasks/00000000-0000-4000-8000-000000000000", 404, "Open the board to see"},
		{"GET", "/jobs/none", 404, "There is no job"},
		{"GET", "/sources/executions/none", 404, "Not found"},
		{"GET", "/sessions/" + p.session + "/output?path=none", 404, "has delivered no file"},
		{"GET", "/trust", 403, "The user of this server alone"},
		{"GET", "/tasks", 405, "takes POST, and no GET"},
		{"POST", "/board", 405, "takes GET, HEAD, and no POST"},
		{"DELETE", "/", 405, "Forms send to this address"},
		{"POST", "/tasks", 403, "reload the page"},
	} {
		ann.do(c.method, c.path, nil, "Accept: text/html,*/*").is(c.status, c.says, `<main id="main"`,
			`href="/board"`).lacks("<script>window", "<img src")
	}
	ann.act("/tasks?title=+", ann.csrf("/board"), "HX-Request: true").is(http.StatusBadRequest,
		`hx-target="#alert"`).lacks("<main")
	nobody.do("GET", "/none", nil, "Accept: text/html").is(http.StatusNotFound, `href="/login"`).lacks("<nav")

	// MCP clients look for metadata, and are told nothing in HTML.
	for path, want := range map[string]int{
		"/.well-known/oauth-protected-resource":       404,
		"/.well-known/oauth-authorization-server/mcp": 404,
		"/register": 404,
		"/sse":      404,
		"/mcp":      401,
		"/metrics":  401,
		"/healthz":  200,
		"/readyz":   200,
	} {
		for _, method := range []string{"GET", "POST"} {
			a := nobody.do(method, path, nil, "Accept: application/json, text/event-stream").lacks("<")
			testkit.True(t, (a.StatusCode == want || method == "POST") && a.Header.Get("Location") == "",
				"%s %s: %s %v", method, path, a.Status, a.Header)
		}
	}
}

// A login leads to the page that was asked for, and nowhere else, and a logout ends it.
func TestLoginAndLogout(t *testing.T) {
	s, _, all := as(t, pagetest.Project(t), config.Token{Name: "ann"}, config.Token{Name: "bob"})
	b := s.browser(t)
	b.do("GET", "/board?status=done", nil).leads("/login?next=%2Fboard%3Fstatus%3Ddone")
	a := b.do("GET", "/events?at=0&on=task", nil, "HX-Request: true").is(http.StatusUnauthorized)
	testkit.Equal(t, a.Header.Get("HX-Redirect"), "", "a stream without a login leads to")
	testkit.Contains(t, b.get("/login?next=%2Fboard%3Fstatus%3Ddone"), `name="next" value="/board?status=done"`,
		"the form does not know the page")

	for next, want := range map[string]string{
		"":                    "/",
		"/board?status=done":  "/board?status=done",
		"//evil.example":      "/",
		"javascript:alert(1)": "/",
	} {
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
	testkit.Equal(t, c.Name, fixed, "the cookie is %v", c)
	testkit.True(t, c.Value != "fixed", "the cookie is %v", c)
	testkit.True(t, !strings.Contains(c.Value, s.tokens[0]), "the cookie is %v", c)

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
			testkit.Equal(t, len(b.do("GET", "/login?secret=once", nil).leads("/").Cookies()), 1,
				"the secret of ui was used up")
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
	}{{b, "HEAD", http.StatusOK, 0}, {b, "GET", http.StatusSeeOther, 1}, {b, "GET", http.StatusSeeOther, 0},
		{stranger, "GET", http.StatusForbidden, 0}, {s.browser(t), "GET", http.StatusForbidden, 0}} {
		testkit.Equal(t, len(c.b.do(c.method, "/login?secret=once", nil).is(c.status).Cookies()), c.cookies,
			"request %d", i)
	}
}
