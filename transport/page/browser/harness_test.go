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
	if os.Getenv("DEEPWORK_TEST_BROWSER_REQUIRED") != "" {
		t.Fatal(missing)
	}
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

// A work is a project in which agents have worked.
type work struct{ session, task, attempt string }

// paths are those of every page, by name.
func (w work) paths() map[string]string {
	return map[string]string{"now": "/", "session": "/sessions/" + w.session, "output": "/sessions/" + w.session + "/output?path=idea.txt", "board": "/board",
		"task": "/tasks/" + w.task, "attempt": "/attempts/" + w.attempt, "split": "/attempts/" + w.attempt + "?diff=split", "jobs": "/jobs", "job": "/jobs/trip", "faults": "/jobs/broken", "trust": "/trust", "sources": "/sources", "column": "/board?status=inreview"}
}

// begin starts a workflow, and an agent on a task that prints and commits hostile texts, and waits for it.
func (s *server) begin(call pagetest.Call) (w work) {
	w.session = call.Plan(pagetest.Hostile)
	call("finished_step", args{"session_id": w.session, "outputs": args{"idea": "idea.txt"}, "notes": pagetest.Hostile}, nil)
	w.task, w.attempt = call.Script(pagetest.Hostile, "! cat idea.txt\n! cat idea.txt > '<b>new.txt'\n! printf 'first\\nsecond\\n' > idea.txt\n! git add -A\n! git commit -qm work\n")
	call.Await(s.t, w.attempt, "completed")
	return w
}
