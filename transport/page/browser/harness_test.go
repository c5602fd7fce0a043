package browser

import (
	"bufio"
	"context"
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

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
	"deepwork/transport/page/pagetest"
)

var screenshots = flag.String("screenshots", "", "folder for pictures of every page")

func TestMain(m *testing.M) { os.Exit(statetest.Main(m)) }

// patience is how long the browser may take for anything, on a busy machine.
const patience = 30 * time.Second

// required skips a test that lacks something, or fails it where everything is required.
func required(t testing.TB, missing string) {
	t.Helper()
	if os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

var chromium = sync.OnceValues(func() (string, error) {
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
	out, err := exec.Command("go", "build", "-o", program, "deepwork/cmd/deepwork").CombinedOutput()
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
	program, err := deepwork()
	testkit.Must(s.t, err)
	args := append(s.options[:len(s.options):len(s.options)], "--path", s.root)
	s.process = exec.Command(program, append(args, options...)...)
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

// A tab is a page of a browser with cookies of its own.
type tab struct {
	t   testing.TB
	ctx context.Context
	at  string

	mu     sync.Mutex
	faults []string // what the console shows as an error
}

var browserOf = sync.OnceValues(func() (context.Context, error) {
	path, err := chromium()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(2*time.Minute))
	all, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(all) // it ends with this process
	return ctx, chromedp.Do(ctx)
})

// browse opens a tab of a browser that knows nothing of others.
func browse(t testing.TB, s *server) *tab {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the agents are shell scripts")
	}
	if _, err := chromium(); err != nil {
		required(t, err.Error())
	}
	shared, err := browserOf()
	testkit.Must(t, err)
	ctx, cancel := chromedp.NewContext(shared, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, at: s.url}
	b.do(chromedp.EmulateViewport(1200, 900))
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages { // until ctx ends
			if err != nil {
				return
			}
			if m.IsException() || m.Type == chromedp.ConsoleError && !strings.Contains(m.Text, "Failed to load resource") && !strings.Contains(m.Text, "net::ERR_") && !strings.Contains(m.Text, "htmx:sse:error") {
				b.mu.Lock()
				b.faults = append(b.faults, m.Text)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fault := range b.faults {
			t.Errorf("the console: %s", fault)
		}
	})
	return b
}

// do carries out actions.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- chromedp.Do(b.ctx, actions...) }()
	select {
	case err := <-done:
		testkit.Must(b.t, err)
	case <-time.After(2 * patience):
		b.t.Fatal("the browser does not answer")
	}
}

// open goes to a page and waits for its event stream, if it has one.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.at + path))
	b.until(`document.readyState === 'complete' && typeof ago === 'function'`)
	b.until(`!document.body.hasAttribute('hx-sse:connect') || !!document.body._htmx?.sse`)
}

// eval returns what an expression is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	testkit.Must(b.t, err)
	return value
}

// is reports whether an expression is true. While a page is left it is not.
func (b *tab) is(expression string) bool {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// until waits until an expression is true, and returns how long that took.
func (b *tab) until(expression string) time.Duration {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if b.is(expression) {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			b.t.Fatalf("not true: %s\nat %s\n%v", expression, eval[string](b, `location.href + '\n' + Object.keys(document.body._htmx ?? {}) + '\n' + document.body.innerText`), b.faults)
		}
	}
}

// has is an expression: the page shows a text.
func has(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// press types keys, such as "j" or kb.Enter.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// shoot writes a picture of the page to the folder of the flag.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	testkit.Must(b.t, err)
	testkit.Must(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644))
}

// A work is a project in which agents have worked.
type work struct{ session, task, attempt string }

// paths are those of every page, by name.
func (w work) paths() map[string]string {
	return map[string]string{"now": "/", "session": "/sessions/" + w.session, "output": "/sessions/" + w.session + "/output?path=idea.txt", "board": "/board",
		"task": "/tasks/" + w.task, "attempt": "/attempts/" + w.attempt, "split": "/attempts/" + w.attempt + "?diff=split", "jobs": "/jobs", "job": "/jobs/trip", "faults": "/jobs/broken", "trust": "/trust"}
}

// begin starts a workflow, and an agent on a task that prints and commits hostile texts, and waits for it.
func (s *server) begin(call func(tool string, args, reply any)) (w work) {
	var begun struct {
		Step struct {
			SessionID string `json:"session_id"`
		} `json:"begin_step"`
	}
	call("start_workflow", map[string]any{"goal": pagetest.Hostile, "job_name": "trip", "workflow_name": "plan"}, &begun)
	call("finished_step", map[string]any{"session_id": begun.Step.SessionID, "outputs": map[string]any{"idea": "idea.txt"}, "notes": pagetest.Hostile}, nil)
	task, attempt := s.attempt(call, pagetest.Hostile, "! cat idea.txt\n! cat idea.txt > '<b>new.txt'\n! printf 'first\\nsecond\\n' > idea.txt\n! git add -A\n! git commit -qm work\n")
	testkit.Until(s.t, "the agent has ended", func() bool {
		var now struct{ State string }
		call("get_attempt", map[string]any{"attempt_id": attempt}, &now)
		return now.State == "completed"
	})
	return work{begun.Step.SessionID, task, attempt}
}

// attempt adds a task and starts an agent on it.
func (s *server) attempt(call func(tool string, args, reply any), title, script string) (task, attempt string) {
	var projects struct {
		Projects []struct {
			ID string `json:"project_id"`
		}
	}
	call("list_projects", map[string]any{}, &projects)
	project := projects.Projects[0].ID
	var repos struct {
		Repos []struct {
			ID string `json:"repo_id"`
		}
	}
	call("list_repos", map[string]any{"project_id": project}, &repos)
	var made struct {
		ID string `json:"task_id"`
	}
	call("create_task", map[string]any{"project_id": project, "title": title, "description": script}, &made)
	var begun struct {
		ID string `json:"attempt_id"`
	}
	call("start_task_attempt", map[string]any{"task_id": made.ID, "executor": "SCRIPT", "repos": []any{map[string]any{"repo_id": repos.Repos[0].ID, "target_branch": "main"}}}, &begun)
	return made.ID, begun.ID
}
