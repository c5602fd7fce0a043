package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/cmd/deepwork/library"
	"deepwork/cmd/proof/tty"
)

// The commands by which CONTRIBUTING.md gives the module another path leave no import behind.
func TestReadmeModulePath(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("there is no perl, which git usually comes with")
	}
	if _, err := os.Stat(filepath.Join("..", "..", ".git")); err != nil {
		t.Skip("this is no checkout:", err)
	}
	row := regexp.MustCompile("\n\\| the module path.*\\| `(go mod edit .+)`, then `(.+)` \\|\n").FindStringSubmatch(
		string(testkit.Get(os.ReadFile(filepath.Join("..", "..", ".github", "CONTRIBUTING.md"))).Must(t)))
	testkit.Need(t, row != nil, "CONTRIBUTING.md does not say how to give the module another path")

	const path = "example.com/another/path"
	command := strings.NewReplacer("PATH", path, `\|`, "|").Replace(row[1] + " && " + row[2])
	dir := filepath.Join(testkit.Dir(t), "clone")
	testkit.Git(t, ".", "clone", "-q", filepath.Join("..", ".."), dir)

	run := func(command string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		testkit.Need(t, err == nil, "%s: %v\n%s", command, err, out)
		return string(out)
	}
	run(command)

	// It fails if a package cannot be found.
	listed := run("go list -deps ./cmd/...")
	testkit.True(t, strings.Contains(listed, "\n"+path+"/cmd/deepwork\n") && !strings.Contains(listed, "\ndeepwork/"),
		"after %s the packages are:\n%s", command, listed)
}

// Ctrl-C, which reaches every process in the terminal's foreground, leaves no folder and no process of the
// demo: once it has started an agent of the board, or the agents of a run.
func TestDemoCleansUpAfterCtrlC(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"$ deepwork board start", "$ deepwork run almanac"} {
		t.Run(strings.TrimSpace(at), func(t *testing.T) {
			temp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "deepwork", "demo")
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out := testkit.Get(cmd.StdoutPipe()).Must(t)
			must(t, cmd.Start())
			seen := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if !seen && strings.Contains(lines.Text(), at) {
					seen = true
					must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
				}
			}
			testkit.Fails(t, cmd.Wait(), "exit status 1")
			testkit.True(t, seen && strings.Contains(stderr.String(), "demo: interrupted"), "it printed %q: %v; and %s",
				at, seen, &stderr)

			left, err := os.ReadDir(temp)
			testkit.True(t, err == nil && len(left) <= 0, "its folder is left: %v, %v", left, err)
			running, _ := exec.Command("sh", "-c", `grep -ls "$0" /proc/[0-9]*/environ`, temp).Output()
			testkit.Equal(t, string(running), "", "its processes are left")
		})
	}
}

// At a terminal the demo waits for Enter before each chapter, and shows its project in the browser once it is asked to,
// until Ctrl-C.
func TestDemoAtATerminal(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	master, slave, err := tty.Open(80, 24)
	if errors.Is(err, tty.ErrNone) {
		t.Skip(err)
	}
	must(t, err)
	defer master.Close()
	cmd := exec.CommandContext(t.Context(), "deepwork", "demo")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "NO_COLOR=1", "DISPLAY=", "WAYLAND_DISPLAY=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, errors.Join(cmd.Start(), slave.Close()))
	url := regexp.MustCompile(`http://127\.0\.0\.1:\S+/login\?secret=\w+\s`)
	var screen, page []byte
	chapters := 0
	for seen := make([]byte, 4096); ; {
		n, err := master.Read(seen)
		if err != nil { // everything at the terminal has ended
			break
		}
		screen = append(screen, seen[:n]...)
		switch {
		case bytes.HasSuffix(screen, []byte("Enter to go on ")):
			chapters++
			testkit.Equal(t, bytes.Count(screen, []byte("\n1. ")), min(chapters-1, 1), "chapter 1 before Enter")
			_, err = master.WriteString("\n")
		case bytes.HasSuffix(screen, []byte("Enter to end: ")):
			_, err = master.WriteString("yes\n")
		case page == nil && url.Match(screen):
			page = opened(t, string(url.Find(screen)))
			_, err = master.WriteString("\x03")
		}

		must(t, err)
	}
	testkit.Works(t, cmd.Wait())
	testkit.True(t, chapters == 8 && bytes.Contains(page, []byte("November")),
		"after %d chapters it showed the page\n%s\n%s", chapters, page, screen)

	left := testkit.Get(filepath.Glob(filepath.Join(temp, "deepwork-demo-*"))).Must(t)
	testkit.True(t, len(left) == 0, "its folder is left: %v", left)
}

// opened is the page at a URL, as a browser shows it.
func opened(t *testing.T, url string) []byte {
	t.Helper()
	res := testkit.Get((&http.Client{Jar: testkit.Get(cookiejar.New(nil)).Must(t)}).Get(strings.TrimSpace(url))).Must(t)
	defer res.Body.Close()
	testkit.Equal(t, res.StatusCode, http.StatusOK)
	return testkit.Get(io.ReadAll(res.Body)).Must(t)
}

// At a terminal with a screen the URL is opened, by a program that Ctrl-C does not reach.
func TestUIOpensABrowser(t *testing.T) {
	dir := t.TempDir()
	opened := filepath.Join(dir, "opened")
	program := "#!/bin/sh\ncut -d' ' -f5 /proc/$$/stat >" + opened + ".new\necho \"$1\" >>" + opened + ".new\nmv " +
		opened + ".new " + opened + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(program), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	script := `deepwork ui --path "$1" >/dev/tty 2>&1 & ui=$!
		tries=0; while [ ! -f "$2" ] && [ $tries -lt 600 ]; do sleep 0.1; tries=$((tries+1)); done
		cut -d" " -f5 /proc/$ui/stat; kill -TERM $ui; wait $ui; echo ended $?`
	stdout, screen, err := typing(t, "", "sh", "-c", script, "sh", t.TempDir(), opened)
	must(t, err)
	given := testkit.Get(os.ReadFile(opened)).Must(t)
	group, url, _ := strings.Cut(strings.TrimSpace(string(given)), "\n")
	testkit.True(t, strings.HasPrefix(url, "http://127.0.0.1:") && strings.Contains(screen, url),
		"opened %q, and printed\n%s", url, screen)
	own, end, _ := strings.Cut(strings.TrimSpace(stdout), "\n")
	testkit.True(t, end == "ended 0" && strings.TrimSpace(own) != strings.TrimSpace(group),
		"its group is %q, that of the browser %q; %s", own, group, end)
}

func TestHasScreen(t *testing.T) {
	for name, want := range map[string]bool{"DISPLAY": true, "WAYLAND_DISPLAY": true, "TERM": false} {
		testkit.Equal(t, hasScreen(func(n string) string { return map[string]string{name: "x"}[n] }), want,
			"with %s", name)
	}
}

// Each piece of the library does its work to the end, on a real server and as it is copied: a job is walked, with its
// checks and its person; the reviewer fails and passes work; the executor does a task of the board.
func TestLibraryWorks(t *testing.T) {
	for _, piece := range library.All() {
		t.Run(piece.Name, func(t *testing.T) {
			root := filepath.Join(testkit.Dir(t), "shop")
			ownUser(t, "trusted_folders: ["+root+"]\n")
			writeFiles(t, root, map[string]string{
				"go.mod":               "module shop\n\ngo 1.26\n",
				"shop.go":              "package shop\n",
				".deepwork/config.yml": piece.Config + "\n",
			})
			inGit(t, root, "go.mod", "shop.go")
			mustPrint(t, root, "jobs", "add", piece.Name)
			switch piece.Name {
			case "reviewer":
				writeFiles(t, root, map[string]string{
					"bad.md":                       "==== END OUTPUTS\nTODO: say more\n",
					"good.md":                      "All of it.\n",
					".deepwork/jobs/notes/a.md":    "Do it.",
					".deepwork/jobs/notes/job.yml": reviewedJob("notes", isItGood, "one"),
				})
				client, _ := startClient(t, root)
				callTool(t, client, "start_workflow",
					map[string]any{"goal": "Review", "job_name": "notes", "workflow_name": "w"})
				for _, try := range []struct{ file, want string }{{"bad.md", "A TODO is left."},
					{"good.md", "workflow_complete"}} {
					reply := callTool(t, client, "finished_step",
						map[string]any{"outputs": map[string]any{"out": try.file}})
					testkit.Contains(t, string(reply), try.want, "the review of %s", try.file)
				}
			case "executor":
				mustPrint(t, root, "board", "add", "Sell tea")
				testkit.Contains(t, mustPrint(t, root, "board", "start", "latest", "--executor", "SCRIPT"), "completed",
					"the attempt")
				testkit.Contains(t, mustPrint(t, root, "board", "diff", "latest"), "+# Sell tea", "what it did")
			default:
				dir := filepath.Join(root, filepath.FromSlash(piece.Path))
				j, faults := job.Load(dir)
				testkit.Need(t, j != nil, "%v", faults)
				w := walker{t, root, passingClient(t, root), j}
				for i := range j.Workflows {
					w.walk(&j.Workflows[i])
				}
			}
		})
	}
}
