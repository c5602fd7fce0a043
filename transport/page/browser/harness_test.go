package browser

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rogpeppe/go-internal/txtar"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
	"deepwork/transport/page/pagetest"
)

// screenshots is the folder for pictures of every page, "" if nobody looks at them.
var screenshots = os.Getenv("DEEPWORK_TEST_SCREENSHOTS")

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == stepperWord {
		if err := stepAs(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(97)
		}
		return
	}
	os.Exit(statetest.Main(m))
}

// patience is how long the browser may take for anything, on a busy machine.
const patience = 30 * time.Second

// required skips a test that lacks something, or fails it where everything is required.
func required(t testing.TB, missing string) {
	t.Helper()
	testkit.Need(t, os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") == "", "%v", missing)
	t.Skip(missing)
}

var chromium = sync.OnceValues(func() (string, error) {
	if os.Getenv("DEEPWORK_TEST_BROWSER") == "off" {
		return "", errors.New("DEEPWORK_TEST_BROWSER is off")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("Chromium is not installed")
})

var deepwork = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "deepwork")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "deepwork/cmd/deepwork").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return program, err
})

// A server is a process of the program.
type server struct {
	t         testing.TB
	root, url string
	login     string // the URL with the secret of deepwork ui
	options   []string
	process   *exec.Cmd
}

// serve starts a server for the project at root.
func serve(t testing.TB, root string, options ...string) *server {
	t.Helper()
	s := &server{t: t, root: root, options: options}
	s.start("--port", "0")
	t.Cleanup(s.kill)
	return s
}

var printed = regexp.MustCompile(`http://127\.0\.0\.1:\d+(/login\?secret=\w+)?`)

func (s *server) start(options ...string) {
	s.t.Helper()
	program := testkit.Get(deepwork()).Must(s.t)
	args := s.options[:len(s.options):len(s.options)]
	if s.root != "" {
		args = append(args, "--path", s.root)
	}
	s.process = exec.Command(program, append(args, options...)...)
	s.process.Dir = testkit.Dir(s.t)
	said, w, err := os.Pipe()
	testkit.Must(s.t, err)
	s.process.Stdout, s.process.Stderr = w, w
	testkit.Must(s.t, s.process.Start())
	w.Close()
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if url := printed.FindString(lines.Text()); url != "" {
			s.login = url
			s.url, _, _ = strings.Cut(url, "/login")
			go func() {
				defer said.Close()
				for lines.Scan() { // so that the server is not kept waiting
				}
			}()
			return
		}
	}
	s.t.Fatal("the server does not say where it listens")
}

// kill ends the server as a crash does.
func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// restart starts it again at the same port.
func (s *server) restart() {
	s.t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.url, "http://"), ":")
	s.start("--port", port)
}

// A work is a project in which agents have worked.
type work struct{ session, task, attempt string }

// paths are those of every page, by name.
func (w work) paths() map[string]string {
	return map[string]string{"now": "/", "session": "/sessions/" + w.session, "output": "/sessions/" + w.session + "/output?path=idea.txt", "board": "/board",
		"task": "/tasks/" + w.task, "attempt": "/attempts/" + w.attempt, "changes": "/attempts/" + w.attempt + "?tab=changes", "split": "/attempts/" + w.attempt + "?diff=split", "jobs": "/jobs", "job": "/jobs/trip", "faults": "/jobs/broken", "trust": "/trust", "sources": "/sources", "column": "/board?status=inreview", "help": "/help/reference/job-file.md"}
}

// begin starts a workflow, and an agent on a task that prints and commits hostile texts, and waits for it.
func (s *server) begin(call pagetest.Call) (w work) {
	w.session = call.Plan(pagetest.Hostile)
	call("finished_step", args{"session_id": w.session, "outputs": args{"idea": "idea.txt"}, "notes": pagetest.Hostile}, nil)
	w.task, w.attempt = call.Script(pagetest.Hostile, "! cat idea.txt\n! cat idea.txt > '<b>new.txt'\n! printf 'first\\nsecond\\n' > idea.txt\n! git add -A\n! git commit -qm work\n")
	call.Await(s.t, w.attempt, "completed")
	return w
}

// A shop is a project in which agents have worked and work, as its pages show it: sessions, attempts and
// a source with an execution.
type shop struct {
	*server
	call pagetest.Call

	session, waiting                      string
	task, attempt, live, failed, conflict string
	execution                             string
}

// openShop lays out the project in testdata, serves it and lets its agents work.
func openShop(t *testing.T) *shop {
	t.Helper()
	root := filepath.Join(testkit.Dir(t), "shop")
	t.Setenv("SHOP_OPEN", testkit.Dir(t)) // an agent works until that is removed
	research := serve(t, pagetest.Project(t), append(overHTTP, "--toolsets", "workflows,source")...)

	archive := testkit.Get(txtar.ParseFile("testdata/shop.txtar")).Must(t)
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = strings.ReplaceAll(string(f.Data), "RESEARCH", research.url+"/mcp")
	}
	testkit.WriteAll(t, root, files)
	origin := testkit.Dir(t)
	testkit.Git(t, origin, "init", "-q", "--bare")
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "The shop"}, {"remote", "add", "origin", origin}} {
		testkit.Git(t, root, args...)
	}
	s := &shop{server: serve(t, root, overHTTP...)}
	s.call = pagetest.Connect(t, s.url, "")
	s.release(t)
	s.board(t)
	s.source(t)
	return s
}

// begin starts a workflow.
func (s *shop) begin(goal, job, workflow string, more ...any) string {
	args := pagetest.Args{"goal": goal, "job_name": job, "workflow_name": workflow}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return s.call.Start(args)
}

// finish hands in the outputs of a step.
func (s *shop) finish(session, step string, outputs map[string]any) (status string) {
	var done struct{ Status string }
	s.call("finished_step", map[string]any{"session_id": session, "step_id": step, "outputs": outputs}, &done)
	return done.Status
}

// release has sessions in every state: one with reviews that failed and passed, one whose review failed, one
// that is complete and one that was aborted.
func (s *shop) release(t *testing.T) {
	type out = map[string]any
	s.session = s.begin("Publish shop 2.4 with coupons, stock and a faster search", "release", "publish")
	s.finish(s.session, "collect", out{"changes": "docs/changes.md"})
	notes := filepath.Join(s.root, "docs/notes.md")
	first := testkit.Get(os.ReadFile(notes)).Must(t)
	s.finish(s.session, "notes", out{"notes": "docs/notes.md"})
	testkit.Write(t, notes, strings.ReplaceAll(string(first), "TODO: coupons", "Coupons work at checkout."))
	s.finish(s.session, "notes", out{"notes": "docs/notes.md"})
	s.finish(s.session, "screenshots", out{"pictures": []string{"docs/search.png", "docs/stock.png"}})
	s.finish(s.session, "changelog", out{"changelog": "docs/CHANGELOG.md"})

	s.waiting = s.begin("Only the notes of shop 2.3, which is already out", "release", "notes_only")
	s.finish(s.waiting, "collect", out{"changes": "docs/changes.md"})
	testkit.Write(t, notes+".old", string(first))
	s.finish(s.waiting, "notes", out{"notes": "docs/notes.md.old"})

	complete := s.begin("Check the claims of the landing page", "claims", "check")
	s.finish(complete, "list", out{})
	s.finish(complete, "verify", out{})
	aborted := s.begin("Check the claims of the old imprint", "claims", "check")
	s.call("abort_workflow", out{"session_id": aborted, "explanation": "The imprint was replaced yesterday."}, nil)
}

// board has tasks in every column, with agents that are done, work, failed and left a conflict.
func (s *shop) board(t *testing.T) {
	type args = map[string]any
	start := func(task, state string) string {
		attempt := s.call.Attempt(task, "CLAUDE_CODE")
		s.call.Await(t, attempt, state)
		return attempt
	}
	s.task = s.call.Task("Coupons at checkout", "Customers enter a coupon on the last page of the checkout.\n\nA coupon is a percentage or a fixed amount. The receipt shows what was taken off.")
	s.attempt = start(s.task, "completed")
	for line, text := range map[int]string{4: "Use the clock of the order, so that a coupon does not expire while somebody pays.", 6: "Say in the comment why it is never more than the sum."} {
		s.call("comment_attempt", args{"attempt_id": s.attempt, "comments": []any{args{"file": "src/checkout/coupon.js", "line": line, "text": text}}}, nil)
	}
	s.live = start(s.call.Task("Show the stock on the product page", "Below five pieces, say how many are left."), "running")
	s.failed = start(s.call.Task("Faster search", "Search takes two seconds with 40,000 products."), "failed")
	s.conflict = start(s.call.Task("Prices in euros", "All prices, also in mails."), "completed")
	testkit.Write(t, filepath.Join(s.root, "src/price.js"), "export const price = (cents) => `EUR ${(cents / 100).toFixed(2)}`;\n")
	testkit.Git(t, s.root, "commit", "-qam", "Show the currency")
	s.call("rebase_attempt", args{"attempt_id": s.conflict}, nil)
	merged := s.call.Task("Link the guide from the README", "")
	s.call("merge_attempt", args{"attempt_id": start(merged, "completed")}, nil)
	s.call("update_task", args{"task_id": merged, "status": "done"}, nil)
	s.call("update_task", args{"task_id": s.call.Task("Support Internet Explorer 11", ""), "status": "cancelled"}, nil)
	s.call("update_task", args{"task_id": s.call.Task("Announce coupons in the newsletter", "Once they are live."), "depends_on": []string{s.task}}, nil)
	s.call("update_task", args{"task_id": s.task, "labels": []string{"checkout"}, "priority": "high"}, nil)
	s.call("update_task", args{"task_id": s.call.Task("Dark mode for the shop", "Follow the setting of the system."), "labels": []string{"design", "good-first-issue"}, "priority": "low"}, nil)
	s.call.Task("Donaudampfschifffahrtsgesellschaftskapitänsmützenproduktdetailseite has no translation", "")
}

// source has an execution at another deepwork server.
func (s *shop) source(t *testing.T) {
	testkit.Until(t, "the workflows of research", func() bool {
		var tools struct {
			Tools []struct{ Name string }
		}
		s.call("list_workflow_tools", map[string]any{}, &tools)
		if len(tools.Tools) == 0 {
			return false
		}
		var x struct {
			ID string `json:"execution_id"`
		}
		s.call("call_workflow_tool", map[string]any{"name": tools.Tools[0].Name, "arguments": map[string]any{"goal": "Which coupons do other shops have?"}}, &x)
		s.execution = x.ID
		return true
	})
}

// paths are those of every page, by name.
func (s *shop) paths() map[string]string {
	return map[string]string{
		"now": "/", "session": "/sessions/" + s.session, "session-waiting": "/sessions/" + s.waiting,
		"output": "/sessions/" + s.session + "/output?path=docs/changes.md", "board": "/board", "column": "/board?status=todo", "task": "/tasks/" + s.task,
		"attempt": "/attempts/" + s.attempt, "attempt-changes": "/attempts/" + s.attempt + "?tab=changes", "board-new": "/board?new=1", "task-compared": "/tasks/" + s.task + "?compare=1", "attempt-split": "/attempts/" + s.attempt + "?diff=split", "attempt-live": "/attempts/" + s.live,
		"attempt-failed": "/attempts/" + s.failed, "attempt-conflict": "/attempts/" + s.conflict, "jobs": "/jobs", "job": "/jobs/release",
		"job-faults": "/jobs/onboarding", "sources": "/sources", "execution": fmt.Sprintf("/sources/executions/%s", s.execution), "trust": "/trust", "missing": "/tasks/none",
	}
}

// override has a person let the changelog pass although its review failed. Then the agent goes on to a
// step with a workflow nested in it.
func (s *shop) override(b *tab) {
	b.t.Helper()
	b.open("/sessions/" + s.session)
	b.do(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll('details')) d.open = true`),
		chromedp.SendKeys(chromedp.CSS("#why-changelog"), "The other changes are internal; I have read them."),
		chromedp.Evaluate[chromedp.Void](`document.getElementById('why-changelog').form.requestSubmit()`))
	b.until(`!document.getElementById('why-changelog')?.value`)
	if status := s.finish(s.session, "changelog", map[string]any{"changelog": "docs/CHANGELOG.md"}); status != "next_step" {
		b.t.Fatalf("after the override: %s", status)
	}
	s.begin("Check the claims of the release notes", "claims", "check", "parent_session_id", s.session)
}
