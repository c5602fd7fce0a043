package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
	"deepwork/transport/page/pagetest"
)

// Everything can be done without a mouse.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), overHTTP...)
	b := browse(t, s)
	call := pagetest.Connect(t, s.url, "")
	w := s.begin(call)
	b.open("/")
	b.press("j")
	b.until(`document.activeElement.pathname === '/attempts/` + w.attempt + `'`)
	b.press("j")
	b.until(`document.activeElement.pathname === '/sessions/` + w.session + `'`)
	b.press("j") // the last one stays
	b.press("k")
	b.until(`document.activeElement.pathname === '/attempts/` + w.attempt + `'`)
	testkit.True(t, eval[bool](b, `getComputedStyle(document.activeElement).outlineStyle !== 'none'`), "the focus cannot be seen")
	b.press("/")
	b.until(`document.activeElement.id === 'q'`)
	b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.value = ''`)) // the driver types the slash, too
	b.press("active")
	b.until(`document.querySelectorAll('.entry').length === 1 && location.search === '?q=active'`)
	testkit.Equal(t, eval[string](b, `document.activeElement.id + document.activeElement.value`), "qactive", "the filter lost the focus or its text")
	b.press(kb.Escape, "j", kb.Enter)
	b.until(`location.pathname === '/sessions/` + w.session + `' && document.readyState === 'complete' && typeof walk === 'function'`)
	b.do(chromedp.Evaluate[chromedp.Void](`setTimeout(() => history.back())`))
	b.until(at("/") + ` && location.search === '?q=active' && document.getElementById('q').value === 'active' && document.querySelectorAll('.entry').length === 1`)
	call.Plan("Another")
	b.until(has("Another") + ` && location.search === '?q=active'`) // it follows changes again
	b.press("g", "n")
	b.until(at("/") + ` && !location.search`)

	b.press("?")
	b.until(`document.getElementById('keys').open`)
	for _, keys := range []string{"?", "/", "j k", "x", "Esc", "g n", "g b"} {
		testkit.True(t, b.is(fmt.Sprintf(`[...document.querySelectorAll('#keys dt')].some(e => e.innerText.trim() === %q)`, keys)), "%s is not in the list of keys", keys)
	}
	b.check("keys")
	b.press(kb.Escape)
	b.until(`!document.getElementById('keys').open`)

	b.press("g", "b")
	b.until(`location.pathname === '/board' && document.readyState === 'complete' && typeof walk === 'function'`)
	b.press("j", "x")
	b.until(`document.activeElement.closest('details.menu')?.open`)
	b.press(kb.Tab, kb.Enter)
	b.until(`!!document.querySelector('section[aria-labelledby=col-todo] .entry')`)
	b.press("g", "n")
	b.until(`location.pathname === '/' && document.readyState === 'complete' && typeof walk === 'function'`)

	// A skip link is the first thing that Tab reaches.
	b.press(kb.Tab)
	testkit.Equal(t, eval[string](b, `document.activeElement.textContent`), "Skip to the content", "Tab reaches")
	b.press(kb.Enter)
	b.until(`document.activeElement.id === 'main'`)
}

// Tab reaches everything that can be used, and the focus is visible at each.
func TestTab(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), overHTTP...)
	b := browse(t, s)
	w := s.begin(pagetest.Connect(t, s.url, ""))
	for _, name := range []string{"now", "board", "task", "attempt", "session", "job"} {
		b.open(w.paths()[name])
		b.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll('details').forEach(d => d.open = true);
			window.usable = () => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')].filter(e => e.checkVisibility() && !e.disabled && !e.reached);
			document.addEventListener('focusin', e => { e.target.reached = true; const s = getComputedStyle(e.target); if (s.outlineStyle === 'none' || s.outlineWidth === '0px') (window.unseen ??= []).push(e.target.outerHTML.slice(0, 200)); })`))
		for range eval[int](b, `usable().length`) {
			b.press(kb.Tab)
		}
		if left := eval[[]string](b, `usable().map(e => e.outerHTML.slice(0, 200))`); len(left) > 0 {
			t.Errorf("%s: Tab does not reach %s", name, left)
		}
		if unseen := eval[[]string](b, `window.unseen ?? []`); len(unseen) > 0 {
			t.Errorf("%s: the focus is not visible at %s", name, unseen)
		}
	}
}

// Times are relative, with the exact time at hand; a page without anything says what to do first.
func TestTimesAndEmptyPages(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	for path, first := range map[string]string{"/": "add a task to the board", "/board": "Add a task, and start an agent on it.", "/sources": "workflow_tools.sources"} {
		b.open(path)
		b.until(has(first))
	}
	pagetest.Connect(t, s.url, "").Script("Timed", "! true\n")
	b.open("/board")
	b.until(`(() => { const e = document.querySelector('.entry time'); return e && / ago$/.test(e.textContent) && e.title === new Date(e.dateTime).toLocaleString(); })()`)
	testkit.Must(t, os.RemoveAll(filepath.Join(root, ".deepwork/jobs")))
	b.open("/jobs")
	b.until(has("deepwork init"))
}

// A change that one person makes is on the page of another, without a reload.
func TestTwoBrowsers(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), overHTTP...)
	ann, bob := browse(t, s), browse(t, s)
	call := pagetest.Connect(t, s.url, "")
	ann.open("/board")
	bob.open("/board")
	bob.do(chromedp.Evaluate[chromedp.Void](`window.same = true; document.getElementById('new').showModal(); document.getElementById('title').value = 'half a title'`))
	ann.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('new').showModal()`),
		chromedp.SendKeys(chromedp.CSS("#title"), "Made by Ann"), chromedp.Click(chromedp.CSS("form[action='/tasks'] button:not([name]):not([type])")))
	ann.until(`location.pathname.startsWith('/tasks/') && ` + has("Made by Ann"))
	bob.until(has("Made by Ann"))
	testkit.True(t, eval[bool](bob, `window.same && document.getElementById('new').open && document.getElementById('title').value === 'half a title'`), "the update took what Bob was writing")

	// What an agent prints appears while it works.
	root := testkit.Dir(t)
	_, attempt := call.Script("Slow", fmt.Sprintf("! echo hello; until test -e %s/go; do sleep 0.05; done; echo all done\n", root))
	bob.open("/attempts/" + attempt)
	bob.until(has("hello"))
	bob.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	testkit.Write(t, root+"/go", "")
	bob.until(has("all done") + " && " + has("completed") + " && window.same")
}

// A page stays open while its server is killed: it says so, and is renewed when there is a server again.
func TestRestartUnderAPage(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), overHTTP...)
	b := browse(t, s)
	call := pagetest.Connect(t, s.url, "")
	b.open("/board")
	b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	s.kill()
	b.until(`!document.getElementById('link').hidden`)
	_ = call // its connection is gone
	s.restart()
	call = pagetest.Connect(t, s.url, "")
	call.Script("After the restart", "! true\n")
	b.until(has("After the restart") + " && document.getElementById('link').hidden && window.same")
	// Its forms work at the new server.
	b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('new').showModal()`),
		chromedp.SendKeys(chromedp.CSS("#title"), "From the old page"), chromedp.Click(chromedp.CSS("form[action='/tasks'] button:not([name]):not([type])")))
	b.until(`location.pathname.startsWith('/tasks/') && ` + has("From the old page"))
}

// A stream whose first request fails is asked for again, and so is a page that could not be fetched.
func TestRequestsThatFail(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), overHTTP...)
	behind := testkit.Get(url.Parse(s.url)).Must(t)
	var streams, pages atomic.Int64
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { // without X-Forwarded-For, which needs a token
		r.SetURL(behind)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" && streams.Add(1) == 1 || r.Header.Get("HX-Request") != "" && r.URL.Path == "/board" && pages.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	b := browse(t, s)
	defer b.do(chromedp.Navigate("about:blank")) // whose stream keeps the proxy open
	b.do(chromedp.Navigate(front.URL + "/board"))
	b.until(`document.readyState === 'complete' && typeof walk === 'function' && !document.getElementById('link').hidden`)
	b.until(`!!document.body._htmx?.sse && document.getElementById('link').hidden`)
	pagetest.Connect(t, s.url, "").Script("Seen at the second attempt", "! true\n")
	b.until(has("Seen at the second attempt"))
	if streams.Load() < 2 || pages.Load() < 2 {
		t.Errorf("%d streams, %d pages", streams.Load(), pages.Load())
	}
	testkit.Equal(t, eval[int](b, `htmx.config.sse.reconnectMaxDelay`), 5000, "ms that a page may wait before it reconnects")
}

// The URL of deepwork ui lets one browser in, as a person, who can override a review.
func TestDeepworkUI(t *testing.T) {
	t.Parallel()
	s := serve(t, pagetest.Project(t), "ui", "--no-open")
	b, other := browse(t, s), browse(t, s)
	secret := testkit.Get(url.Parse(s.login)).Must(t)
	other.open("/")
	other.until(`location.pathname === '/login'`)
	b.open(secret.RequestURI())
	b.until(`location.pathname === '/' && !location.search`)
	other.open(secret.RequestURI())
	other.until(has("run deepwork ui again"))
	b.open("/board")
	b.until(`!!document.querySelector('form[action="/tasks"]')`)
	res := testkit.Get(http.Post(s.url+"/mcp", "application/json", strings.NewReader(`{}`))).Must(t)
	res.Body.Close()
	testkit.True(t, res.StatusCode/100 != 2, "there is MCP: %s", res.Status)
}

// Outside of a project a person chooses one, and works with its pages.
func TestProjects(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	pagetest.Connect(t, serve(t, root, overHTTP...).url, "").Plan("Sail around the world")
	s := serve(t, "", "ui", "--no-open")
	b := browse(t, s)
	b.open(testkit.Get(url.Parse(s.login)).Must(t).RequestURI())
	b.until(has(root))
	b.check("projects")
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`[...document.querySelectorAll('main li')].find(l => l.innerText.includes(%q)).querySelector('a').click()`, root)))
	b.until(has("Sail around the world") + ` && location.origin === "` + s.url + `"`)
	b.click("Board")
	b.until(`location.pathname.endsWith("/board")`)
	b.click("New task")
	b.fill("#title", "Buy a boat")
	b.click("Add the task")
	b.until(`location.pathname.includes("/tasks/") && ` + has("Buy a boat"))
	b.click("Move")
	b.click("In review")
	b.until(state("in review"))
	b.check("project")
	b.click("All projects")
	b.until(has(root) + ` && location.pathname === "/"`)
}

// source serves a system whose workflows run until they are cancelled. It offers those that offers has.
func source(t *testing.T, offers *atomic.Pointer[string]) (url string) {
	t.Helper()
	var cancelled atomic.Bool
	replies := map[string]func() string{
		"workflows-list-tool":    func() string { return *offers.Load() },
		"workflows-execute-tool": func() string { return `{"execution_id":"e-1","status":"running"}` },
		"workflows-status-tool": func() string {
			if cancelled.Load() {
				return `{"status":"cancelled"}`
			}
			return `{"status":"running","progress":{"progress":2,"total":3,"message":"two of three"}}`
		},
		"workflows-cancel-tool": func() string { cancelled.Store(true); return `{"status":"cancelled"}` },
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "factory", Version: "1"}, nil)
	for name, reply := range replies {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: reply()}}}, nil
		})
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			session.Close()
		}
		h.CloseClientConnections()
		h.Close()
	})
	return h.URL
}

// Sources say how they are and what they offer; their executions are followed and cancelled.
func TestSources(t *testing.T) {
	t.Parallel()
	var offers atomic.Pointer[string]
	offer := func(names ...string) {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"id":%[1]q,"name":%[1]q,"description":%[2]q,"executionType":"async"}`, n, "does "+pagetest.Hostile))
		}
		list := "[" + strings.Join(all, ",") + "]"
		offers.Store(&list)
	}
	offer("assemble")
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), fmt.Sprintf(`workflow_tools:
  refresh_interval: 0
  reply_within: 1ms
  status_interval: 100ms
  sources:
    - {name: factory, url: %q}
    - {name: away, command: [sh, -c, 'echo the line is dead >&2; exit 1']}
`, source(t, &offers)))
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	b.open("/sources")
	b.until(`document.querySelector('#source-factory').innerText.includes('connected') && ` + has("assemble"))
	b.until(`document.querySelector('[aria-labelledby=source-away] .alert')`)
	offer("assemble", "paint")
	b.click("Ask all for their workflows now")
	b.until(said("New (1): paint") + ` && document.querySelector('#source-factory').innerText.includes('2 workflows')`)
	b.click("Ask all for their workflows now")
	b.until(said("Nothing has changed."))

	call := pagetest.Connect(t, s.url, "")
	call("call_workflow_tool", args{"name": "assemble", "arguments": args{}}, nil)
	b.until(`document.querySelector('#executions ~ ul .status.running') && ` + has("2 of 3") + " && " + has("two of three"))
	b.shoot("sources-running")
	b.open("/")
	b.until(`document.querySelector('[aria-labelledby=working]').innerText.includes('assemble')`)
	b.open("/sources")
	b.click("assemble")
	b.until(at("/sources/executions/") + " && " + state("running"))
	b.check("execution")
	b.open("/sources")
	b.click("Cancel")
	b.click("Cancel the execution")
	b.until(said("assemble: cancelled") + ` && !document.querySelector('#executions ~ ul .status.running')`)
	b.clickOn("#executions ~ ul a", "assemble")
	b.until(at("/sources/executions/") + " && " + state("cancelled") + " && " + has("It has no result."))
}

// What a project asks for and nobody has approved is shown in full, with the command that approves it.
func TestTrust(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), variants+"quality_gate:\n  agent_review_command: [./review.sh, --strict]\n")
	env, err := statetest.Write(testkit.Dir(t)) // which trusts no folder
	testkit.Must(t, err)
	for name, value := range env {
		t.Setenv(name, value)
	}
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	b.open("/")
	b.until(`document.querySelector('[aria-labelledby=needs]').innerText.includes('Not approved')`)
	b.clickOn("[aria-labelledby=needs] .entry a", "")
	b.until(at("/trust"))
	for _, text := range []string{"Until you do, none of it happens", "deepwork trust", "echo LOUD", "./review.sh", "--strict", "config.yml:2", "config.yml:8"} {
		b.until(has(text))
	}
	testkit.True(t, !eval[bool](b, `!!document.querySelector('main form, main button')`), "the page approves")
	b.check("trust-waiting")
}
