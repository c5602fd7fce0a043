//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state"
)

// A project is a folder with the job trip, and where its reviewer looks for a sign
// of the client.
type project struct {
	root string
	told string
}

func newProject(t *testing.T) project {
	t.Helper()
	p := project{root: t.TempDir(), told: filepath.Join(t.TempDir(), "told")}
	testkit.Must(t, os.CopyFS(filepath.Join(p.root, ".deepwork", "jobs"), os.DirFS("testdata")))
	p.configure(t, "workflow_tools: {enabled: true}\n")
	return p
}

func (p project) config() string { return filepath.Join(p.root, ".deepwork", "config.yml") }

func (p project) configure(t *testing.T, text string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(p.config(), []byte(text), 0o644))
}

// sources is a config with the source that is written with the TypeScript SDK.
func sources(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("workflow_tools:\n  status_interval: 150ms\n  sources:\n    - {name: typescript, command: [%q, %q]}\n",
		node(t), filepath.Join(packages(t), "source.mjs"))
}

// command is what serves the project, with the test binary as the reviewer. Clients pass few
// variables on to servers that they start, so env sets those of the state and of the user's config.
func (p project) command(t *testing.T, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	testkit.Must(t, err)
	reviewer := fmt.Sprintf("'%s' review '%s'", self, p.told)
	command := []string{"env"}
	for _, name := range []string{state.Env, "XDG_CONFIG_HOME"} {
		command = append(command, name+"="+os.Getenv(name))
	}
	return append(append(command, binary(t), "serve", "--path", p.root, "--quality-gate", reviewer), args...)
}

var listening = regexp.MustCompile(`msg=listening.* url=(\S+)`)

// serve starts a server of many clients on a free port, and returns its URL. When
// the test is over the server is asked to end, and has to.
func (p project) serve(t *testing.T, transport string, args ...string) string {
	t.Helper()
	argv := p.command(t, append(args, "--transport", transport, "--port", "0")...)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	log, err := cmd.StderrPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	url := make(chan string, 1) // one value; closed when the log ends
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(url)
		lines, found := bufio.NewScanner(io.TeeReader(log, t.Output())), false
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil && !found {
				found = true
				url <- m[1]
			}
		}
		io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		defer cancel()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			cmd.Process.Kill()
		}
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	at, ok := <-url
	if !ok {
		t.Fatal("the server did not start")
	}
	return at
}

// newToken makes a token, and returns it with the file that lets it in.
func newToken(t *testing.T) (token, file string) {
	t.Helper()
	var line bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary(t), "token", "new", "ann")
	cmd.Stderr = &line
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("making a token: %v\n%s", err, &line)
	}
	file = filepath.Join(t.TempDir(), "tokens")
	testkit.Must(t, os.WriteFile(file, line.Bytes(), 0o600))
	return strings.TrimSpace(string(out)), file
}

// whole has deepwork check judge what is on disk.
func (p project) whole(t *testing.T) {
	t.Helper()
	if err := command(p.root, binary(t), "check", "--path", p.root); err != nil {
		t.Error(err)
	}
}

// review is the reviewer: it passes what says that it is good. Before it says
// anything the client must have been told that a review runs.
func review(told string) {
	task, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the task:", err)
		os.Exit(1)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(told); err == nil {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "the client heard nothing of its review for 20 s")
			os.Exit(1)
		}
	}
	passed := bytes.Contains(task, []byte("this is good"))
	feedback := ""
	if !passed {
		feedback = "say that it is good"
	}
	fmt.Printf(`{"passed": %t, "feedback": %q, "criteria_results": [{"criterion": "good", "passed": %t, "feedback": null}]}`+"\n", passed, feedback, passed)
}
