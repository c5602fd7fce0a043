package browser

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rogpeppe/go-internal/txtar"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// screenshots is the folder for pictures of every page, "" if nobody looks at them.
var screenshots = os.Getenv("DEEPWORK_TEST_SCREENSHOTS")

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // they wait for servers and agents
	os.Exit(pagetest.Main(m))
}

// patience is how long the browser may take for anything, on a busy machine.
const patience = 30 * time.Second

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
	env       []string // in addition to that of the test
	process   *exec.Cmd
}

// serve starts a server for the project at root. It skips the test if there is no browser to look at it.
func serve(t testing.TB, root string, options ...string) *server {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the agents are shell scripts")
	}
	if _, err := chromium(); err != nil { // it is an error where everything is required
		testkit.Need(t, os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") == "", "%v", err)
		t.Skip(err)
	}

	s := &server{t: t, root: root, options: options}
	s.start("--port", "0")
	t.Cleanup(s.kill)
	return s
}

// overHTTP are the arguments of a server with MCP and pages.
var overHTTP = []string{"serve", "--transport", "http"}

// open serves a project with more files than the common ones, to an agent and a tab. The test runs beside others.
func open(t *testing.T, more map[string]string) (*server, pagetest.Call, *tab) {
	t.Helper()
	t.Parallel()
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, more)
	s := serve(t, root, overHTTP...)
	return s, pagetest.Connect(t, s.url, ""), browse(t, s)
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
	s.process.Env = append(os.Environ(), s.env...)
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

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// begin starts a workflow, and an agent on a task that prints and commits hostile texts, and waits for it. It
// returns the paths of every page, by name.
func begin(t *testing.T, call pagetest.Call) map[string]string {
	t.Helper()
	session := call.Plan(pagetest.Hostile)
	call("finished_step", args{
		"session_id": session,
		"outputs":    args{"idea": "idea.txt"},
		"notes":      pagetest.Hostile,
	}, nil)
	task, attempt := call.Script(pagetest.Hostile,
		"! cat idea.txt\n! cat idea.txt > '<b>new.txt'\n! printf 'first\\nsecond\\n' > idea.txt\n! git add -A\n! git "+
			"commit -qm work\n")
	call.Await(t, attempt, "completed")
	return map[string]string{
		"now":     "/",
		"session": "/sessions/" + session,
		"output":  "/sessions/" + session + "/output?path=idea.txt",
		"board":   "/board",
		"task":    "/tasks/" + task,
		"attempt": "/attempts/" + attempt,
		"changes": "/attempts/" + attempt + "?tab=changes",
		"split":   "/attempts/" + attempt + "?diff=split",
		"jobs":    "/jobs",
		"job":     "/jobs/trip",
		"faults":  "/jobs/broken",
		"trust":   "/trust",
		"sources": "/sources",
		"column":  "/board?status=inreview",
		"help":    "/help/reference/job-file.md",
	}
}

// openShop lays out the project in testdata, serves it and lets its agents work: it has sessions in every
// state, tasks in every column, with agents that are done, work, failed and left a conflict, and an execution
// at another server. It returns the project's folder and the paths of its pages, by name.
func openShop(t *testing.T) (root string, paths map[string]string) {
	t.Helper()
	root = filepath.Join(testkit.Dir(t), "shop")
	t.Setenv("SHOP_OPEN", testkit.Dir(t)) // an agent works until that is removed
	research := serve(t, pagetest.Project(t), append(overHTTP, "--toolsets", "workflows,source")...)
	for _, f := range testkit.Get(txtar.ParseFile("testdata/shop.txtar")).Must(t).Files {
		testkit.Write(t, filepath.Join(root, f.Name),
			strings.ReplaceAll(string(f.Data), "RESEARCH", research.url+"/mcp"))
	}
	origin := testkit.Dir(t)
	testkit.Git(t, origin, "init", "-q", "--bare")
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "The shop"},
		{"remote", "add", "origin", origin}} {
		testkit.Git(t, root, args...)
	}
	call := pagetest.Connect(t, serve(t, root, overHTTP...).url, "")
	// The sessions of releases: reviews failed and passed, a review failed, complete, and aborted.
	start := func(goal, job, workflow string) string {
		return call.Start(args{"goal": goal, "job_name": job, "workflow_name": workflow})
	}
	finish := func(session, step string, outputs args) {
		call("finished_step", args{"session_id": session, "step_id": step, "outputs": outputs}, nil)
	}
	session := start("Publish shop 2.4 with coupons, stock and a faster search", "release", "publish")
	finish(session, "collect", args{"changes": "docs/changes.md"})
	notes := filepath.Join(root, "docs/notes.md")
	first := string(testkit.Get(os.ReadFile(notes)).Must(t))
	finish(session, "notes", args{"notes": "docs/notes.md"})
	testkit.Write(t, notes, strings.ReplaceAll(first, "TODO: coupons", "Coupons work at checkout."))
	finish(session, "notes", args{"notes": "docs/notes.md"})
	finish(session, "screenshots", args{"pictures": []string{"docs/search.png", "docs/stock.png"}})
	finish(session, "changelog", args{"changelog": "docs/CHANGELOG.md"})
	waiting := start("Only the notes of shop 2.3, which is already out", "release", "notes_only")
	finish(waiting, "collect", args{"changes": "docs/changes.md"})
	testkit.Write(t, notes+".old", first)
	finish(waiting, "notes", args{"notes": "docs/notes.md.old"})
	complete := start("Check the claims of the landing page", "claims", "check")
	finish(complete, "list", args{})
	finish(complete, "verify", args{})
	call("abort_workflow", args{
		"session_id":  start("Check the claims of the old imprint", "claims", "check"),
		"explanation": "The imprint was replaced yesterday.",
	}, nil)
	work := func(task, state string) string {
		attempt := call.Attempt(task, "CLAUDE_CODE")
		call.Await(t, attempt, state)
		return attempt
	}
	update := func(task string, with args) {
		with["task_id"] = task
		call("update_task", with, nil)
	}
	task := call.Task("Coupons at checkout",
		"Customers enter a coupon on the last page of the checkout.\n\nA coupon is a percentage or a fixed amount. "+
			"The receipt shows what was taken off.")
	attempt := work(task, "completed")
	for line, text := range map[int]string{
		4: "Use the clock of the order, so that a coupon does not expire while somebody pays.",
		6: "Say in the comment why it is never more than the sum.",
	} {
		call("comment_attempt", args{
			"attempt_id": attempt,
			"comments":   []any{args{"file": "src/checkout/coupon.js", "line": line, "text": text}},
		}, nil)
	}
	live := work(call.Task("Show the stock on the product page", "Below five pieces, say how many are left."),
		"running")
	failed := work(call.Task("Faster search", "Search takes two seconds with 40,000 products."), "failed")
	conflict := work(call.Task("Prices in euros", "All prices, also in mails."), "completed")
	testkit.Write(t, filepath.Join(root, "src/price.js"),
		"export const price = (cents) => `EUR ${(cents / 100).toFixed(2)}`;\n")
	testkit.Git(t, root, "commit", "-qam", "Show the currency")
	call("rebase_attempt", args{"attempt_id": conflict}, nil)
	merged := call.Task("Link the guide from the README", "")
	call("merge_attempt", args{"attempt_id": work(merged, "completed")}, nil)
	update(merged, args{"status": "done"})
	update(call.Task("Support Internet Explorer 11", ""), args{"status": "cancelled"})
	update(call.Task("Announce coupons in the newsletter", "Once they are live."), args{"depends_on": []string{task}})
	update(task, args{"labels": []string{"checkout"}, "priority": "high"})
	update(call.Task("Dark mode for the shop", "Follow the setting of the system."),
		args{"labels": []string{"design", "good-first-issue"}, "priority": "low"})
	call.Task("Donaudampfschifffahrtsgesellschaftskapitänsmützenproduktdetailseite has no translation", "")
	var known struct{ Tools []struct{ Name string } }
	testkit.Until(t, "the workflows of research", func() bool {
		call("list_workflow_tools", args{}, &known)
		return len(known.Tools) > 0
	})

	var x struct {
		ID string `json:"execution_id"`
	}
	call("call_workflow_tool", args{
		"name":      known.Tools[0].Name,
		"arguments": args{"goal": "Which coupons do other shops have?"},
	}, &x)
	b := person(t, root)
	b.open("/sessions/" + session)
	b.run(`document.querySelectorAll('details').forEach(d => d.open = true)`)
	why := "why-" + session + "-changelog"
	b.fill("#"+why, "The other changes are internal; I have read them.")
	b.run(`document.getElementById('` + why + `').form.requestSubmit()`)
	b.until(`!document.getElementById('` + why + `')?.value`)
	finish(session, "changelog", args{"changelog": "docs/CHANGELOG.md"})
	call.Start(args{
		"goal":              "Check the claims of the release notes",
		"job_name":          "claims",
		"workflow_name":     "check",
		"parent_session_id": session,
	})

	return root, map[string]string{
		"now":              "/",
		"session":          "/sessions/" + session,
		"session-waiting":  "/sessions/" + waiting,
		"output":           "/sessions/" + session + "/output?path=docs/changes.md",
		"board":            "/board",
		"column":           "/board?status=todo",
		"task":             "/tasks/" + task,
		"attempt":          "/attempts/" + attempt,
		"attempt-changes":  "/attempts/" + attempt + "?tab=changes",
		"board-new":        "/board?new=1",
		"task-compared":    "/tasks/" + task + "?compare=1",
		"attempt-split":    "/attempts/" + attempt + "?diff=split",
		"attempt-live":     "/attempts/" + live,
		"attempt-failed":   "/attempts/" + failed,
		"attempt-conflict": "/attempts/" + conflict,
		"jobs":             "/jobs",
		"job":              "/jobs/release",
		"job-faults":       "/jobs/onboarding",
		"sources":          "/sources",
		"execution":        "/sources/executions/" + x.ID,
		"trust":            "/trust",
		"missing":          "/tasks/none",
		"history":          "/history",
	}
}

// Every page of a project in which much happens, and of one that is new, fits its window. The
// pictures are for people to look at: DEEPWORK_TEST_SCREENSHOTS is the folder that they are
// written to; without it TestEveryPage shows that pages fit. Those of the README are in ../pictures.
func TestPictures(t *testing.T) {
	if screenshots == "" {
		t.Skip("DEEPWORK_TEST_SCREENSHOTS is not set")
	}
	root, paths := openShop(t)
	person(t, root).pictures(paths)
	t.Setenv("XDG_CONFIG_HOME", testkit.Dir(t)) // where no folder is trusted
	person(t, root).pictures(map[string]string{"trust-waiting": "/trust", "now-waiting": "/"})
	empty := testkit.Dir(t)
	testkit.Git(t, empty, "init", "-q", "-b", "main")

	person(t, empty).pictures(map[string]string{
		"now-empty":       "/",
		"board-empty":     "/board",
		"jobs-empty":      "/jobs",
		"schedules-empty": "/schedules",
		"sources-empty":   "/sources",
		"trust-empty":     "/trust",
		"login":           "/login",
	})
}

// pictures takes pictures of pages, see picture.
func (b *tab) pictures(paths map[string]string) {
	b.t.Helper()
	for name, path := range paths {
		b.open(path).picture(name)
	}
}

// picture takes pictures of the page that is open, as it is, in light and dark on screens from narrow to wide.
func (b *tab) picture(name string) {
	b.t.Helper()
	if screenshots == "" {
		return
	}
	for _, width := range []int64{320, 768, 1280, 1920} {
		b.fits(name, width)
		for as, night := range map[string]bool{"light": false, "dark": true} {
			b.do(dark(night))
			b.shoot(fmt.Sprintf("%s-%d-%s", name, width, as))
		}
	}
	b.do(dark(false), chromedp.EmulateViewport(1200, 900))
}
