package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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
	_, call, b := open(t, nil)
	w := begin(t, call)
	focused := func(path string) string { return `document.activeElement.pathname === '` + path + `'` }
	b.open("/").press("j").until(focused("/attempts/" + w.attempt))
	b.press("j").until(focused("/sessions/" + w.session))
	b.press("j") // the last one stays
	b.press("k").until(focused("/attempts/" + w.attempt))
	b.press("/").until(`document.activeElement.id === 'q'`)
	b.run(`document.activeElement.value = ''`) // the driver types the slash, too
	b.press("active").until(`document.querySelectorAll('.entry').length === 1 && location.search === '?q=active'`)
	testkit.Equal(t, eval[string](b, `document.activeElement.id + document.activeElement.value`), "qactive", "the filter lost the focus or its text")
	b.press(kb.Escape, "j", kb.Enter).until(at("/sessions/" + w.session))
	b.run(`setTimeout(() => history.back())`)
	b.until(`location.pathname === "/" && ` + at("/") + ` && location.search === '?q=active' && document.getElementById('q').value === 'active' && document.querySelectorAll('.entry').length === 1`)
	call.Plan("Another")
	b.until(has("Another") + ` && location.search === '?q=active'`) // it follows changes again
	b.press("g", "n").until(at("/") + ` && !location.search`)

	b.press("?").until(`document.getElementById('keys').open`)
	testkit.Equal(t, eval[string](b, `[...document.querySelectorAll('#keys dt')].map(e => e.innerText.trim()).filter(k => ['?', '/', 'j k', 'x', 'Esc', 'g n', 'g b'].includes(k)).length + ' keys'`), "7 keys")
	b.check("keys")
	b.press(kb.Escape).until(`!document.getElementById('keys').open`)

	b.press("g", "b").until(at("/board"))
	b.press("j", "x").until(`document.activeElement.closest('details.menu')?.open`)
	b.press(kb.Tab, kb.Enter).until(`!!document.querySelector('section[aria-labelledby=col-todo] .entry')`)
	b.press("g", "n").until(`location.pathname === '/' && ` + at("/"))

	// A skip link is the first thing that Tab reaches.
	b.press(kb.Tab)
	testkit.Equal(t, eval[string](b, `document.activeElement.textContent`), "Skip to the content", "Tab reaches")
	b.press(kb.Enter).until(`document.activeElement.id === 'main'`)

	// Tab reaches everything that can be used, and the focus is visible at each.
	for _, name := range []string{"now", "board", "task", "attempt", "session", "job"} {
		b.open(w.paths()[name])
		b.run(`document.querySelectorAll('details').forEach(d => d.open = true);
			window.usable = () => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')].filter(e => e.checkVisibility() && !e.disabled && !e.reached);
			document.addEventListener('focusin', e => { e.target.reached = true; const s = getComputedStyle(e.target); if (s.outlineStyle === 'none' || s.outlineWidth === '0px') (window.unseen ??= []).push(e.target.outerHTML.slice(0, 200)); })`)
		for range eval[int](b, `usable().length`) {
			b.press(kb.Tab)
		}
		testkit.Same(t, eval[[]string](b, `usable().map(e => e.outerHTML.slice(0, 200))`), nil, "%s: Tab does not reach", name)
		testkit.Same(t, eval[[]string](b, `window.unseen ?? []`), nil, "%s: the focus is not visible", name)
	}
}

// A page stays open while its server is killed: it says so, and is renewed when there is a server again. A change that one person
// makes is on the page of another, without a reload.
func TestOpenPages(t *testing.T) {
	s, _, ann := open(t, nil)
	bob := browse(t, s)
	ann.open("/board")
	bob.open("/board").run(`window.same = true`)
	s.kill()
	bob.until(`!document.getElementById('link').hidden`)
	s.restart()
	call := pagetest.Connect(t, s.url, "")
	call.Script("After the restart", "! true\n")
	bob.until(has("After the restart") + " && document.getElementById('link').hidden && window.same")
	bob.run(`document.getElementById('new').showModal(); document.getElementById('title').value = 'half a title'`)
	// Forms of the old page work at the new server.
	ann.run(`document.getElementById('new').showModal()`)
	ann.do(chromedp.SendKeys(chromedp.CSS("#title"), "Made by Ann"), chromedp.Click(chromedp.CSS("form[action='/tasks'] button:not([name]):not([type])")))
	ann.until(at("/tasks/") + " && " + has("Made by Ann"))
	bob.shows("Made by Ann")
	testkit.True(t, eval[bool](bob, `window.same && document.getElementById('new').open && document.getElementById('title').value === 'half a title'`), "the update took what Bob was writing")

	// What an agent prints appears while it works.
	gate := testkit.Dir(t) + "/go"
	_, attempt := call.Script("Slow", "! echo hello; until test -e "+gate+"; do sleep 0.05; done; echo all done\n")
	bob.open("/attempts/" + attempt).shows("hello").run(`window.same = true`)
	testkit.Write(t, gate, "")
	bob.until(has("all done") + " && " + has("completed") + " && window.same")
}

// A stream whose first request fails is asked for again, and so is a page that could not be fetched.
func TestRequestsThatFail(t *testing.T) {
	s, call, b := open(t, nil)
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
	defer b.do(chromedp.Navigate("about:blank")) // whose stream keeps the proxy open
	b.do(chromedp.Navigate(front.URL + "/board"))
	b.until(at("/board")+` && !document.getElementById('link').hidden`, `!!document.body._htmx?.sse && document.getElementById('link').hidden`)
	call.Script("Seen at the second attempt", "! true\n")
	b.shows("Seen at the second attempt")
	testkit.True(t, streams.Load() >= 2 && pages.Load() >= 2, "%d streams, %d pages", streams.Load(), pages.Load())
	testkit.Equal(t, eval[int](b, `htmx.config.sse.reconnectMaxDelay`), 5000, "ms that a page may wait before it reconnects")
}

// Outside of a project a person chooses one, and works with its pages.
func TestProjects(t *testing.T) {
	s, call, _ := open(t, nil)
	call.Plan("Sail around the world")
	b := person(t, "")
	b.shows(s.root)
	b.check("projects")
	b.run(fmt.Sprintf(`[...document.querySelectorAll('main li')].find(l => l.innerText.includes(%q)).querySelector('a').click()`, s.root))
	b.until(has("Sail around the world") + ` && location.origin === "` + b.at + `"`)
	b.click("Board").until(`location.pathname.endsWith("/board")`)
	b.click("New task").fill("#title", "Buy a boat").click("Add the task").until(`location.pathname.includes("/tasks/") && ` + has("Buy a boat"))
	b.click("Move").click("In review").until(state("in review"))
	b.check("project")
	b.click("All projects").until(has(s.root) + ` && location.pathname === "/"`)
}

// source serves a system whose workflows run until they are cancelled. It offers those that offers has.
func source(t *testing.T, offers *atomic.Pointer[string]) (url string) {
	t.Helper()
	var status atomic.Value
	status.Store(`{"status":"running","progress":{"progress":2,"total":3,"message":"two of three"}}`)
	replies := map[string]func() string{
		"workflows-list-tool":    func() string { return *offers.Load() },
		"workflows-execute-tool": func() string { return `{"execution_id":"e-1","status":"running"}` },
		"workflows-status-tool":  func() string { return status.Load().(string) },
		"workflows-cancel-tool":  func() string { status.Store(`{"status":"cancelled"}`); return `{"status":"cancelled"}` },
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
	var offers atomic.Pointer[string]
	offer := func(names ...string) {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"id":%[1]q,"name":%[1]q,"description":%[2]q,"executionType":"async"}`, n, "does "+pagetest.Hostile))
		}
		offers.Store(new("[" + strings.Join(all, ",") + "]"))
	}
	offer("assemble")
	_, call, b := open(t, map[string]string{".deepwork/config.yml": fmt.Sprintf(`workflow_tools:
  refresh_interval: 0
  reply_within: 1ms
  status_interval: 100ms
  sources:
    - {name: factory, url: %q}
    - {name: away, command: [sh, -c, 'echo the line is dead >&2; exit 1']}
`, source(t, &offers))})
	b.open("/sources")
	b.until(in("#source-factory", "connected")+" && "+has("assemble"), `document.querySelector('[aria-labelledby=source-away] .alert')`)
	offer("assemble", "paint")
	b.click("Ask all for their workflows now").until(said("New (1): paint") + " && " + in("#source-factory", "2 workflows"))
	b.click("Ask all for their workflows now").until(said("Nothing has changed."))

	call("call_workflow_tool", args{"name": "assemble", "arguments": args{}}, nil)
	b.until(`document.querySelector('#executions ~ ul .status.running') && ` + has("2 of 3") + " && " + has("two of three"))
	b.open("/").until(in("[aria-labelledby=working]", "assemble"))
	b.open("/sources").click("assemble").until(at("/sources/executions/") + " && " + state("running"))
	b.check("execution")
	b.open("/sources").click("Cancel").click("Cancel the execution")
	b.until(said("assemble: cancelled") + ` && !document.querySelector('#executions ~ ul .status.running')`)
	b.clickOn("#executions ~ ul a", "assemble").until(at("/sources/executions/") + " && " + state("cancelled") + " && " + has("It has no result."))
}

// What a project asks for and nobody has approved is shown in full, with the command that approves it.
func TestTrust(t *testing.T) {
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), variants+"quality_gate:\n  agent_review_command: [./review.sh, --strict]\n")
	for name, value := range testkit.Get(statetest.Write(testkit.Dir(t))).Must(t) { // which trusts no folder
		t.Setenv(name, value)
	}
	b := browse(t, serve(t, root, overHTTP...))
	b.open("/").until(in("[aria-labelledby=needs]", "Not approved"))
	b.clickOn("[aria-labelledby=needs] .entry a", "").until(at("/trust"))
	b.shows("Until you do, none of it happens", "deepwork trust", "echo LOUD", "./review.sh", "--strict", "config.yml:2", "config.yml:6")
	testkit.True(t, !eval[bool](b, `!!document.querySelector('main form, main button')`), "the page approves")
	b.check("trust-waiting")
}
