package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/session/show"
)

// newDemo lays out the demo's project in the test's directory. The demo prints to out.
func newDemo(t *testing.T, out io.Writer) *demo {
	t.Helper()
	self, err := exec.LookPath("deepwork")
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{out: show.NewScreen(out, os.Getenv), dir: t.TempDir(), self: self}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDemoFails breaks a job that the demo is about to use: it does not go on.
func TestDemoFails(t *testing.T) {
	d := newDemo(t, t.Output())
	if err := os.WriteFile(filepath.Join(d.newsletter(), ".deepwork", "jobs", "fact_check", "job.yml"), []byte("name: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := d.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "fact_check") {
		t.Errorf("run = %v, want that a job cannot be started", err)
	}
	if d.server.command.ProcessState == nil {
		t.Error("the server was left running")
	}
}

// TestDemoInterrupted interrupts the demo halfway: no server is left.
func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := newDemo(t, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("5. Two steps")) {
			cancel()
		}
		return len(p), nil
	}))
	if err := d.run(ctx); err == nil {
		t.Error("run succeeded though it was interrupted")
	}
	if d.server.command.ProcessState == nil {
		t.Error("the server was left running")
	}
}

// The demo ends if nobody reads its output any more, as after `deepwork demo | head`.
func TestDemoUnread(t *testing.T) {
	d := newDemo(t, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("3. Missing work")) {
			return 0, os.ErrClosed
		}
		return len(p), nil
	}))
	if err := d.run(t.Context()); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "Missing work") {
		t.Errorf("run = %v, want that its output is closed", err)
	}
}

// Without git the demo leaves the task out, and says so.
func TestDemoWithoutGit(t *testing.T) {
	var out bytes.Buffer
	d := newDemo(t, &out)
	t.Setenv("PATH", t.TempDir())
	if err := d.workOnTask(t.Context()); err != nil || !strings.Contains(out.String(), "git is not installed here") {
		t.Errorf("%v, and it printed %q", err, &out)
	}
}

// What the demo says to try next are commands, and init lays out the workflow that they run.
func TestDemoTries(t *testing.T) {
	lines := []string{demoTryRun}
	for _, try := range demoTries {
		lines = append(lines, try[0])
	}
	for _, line := range lines {
		if words := shellWords(strings.TrimSpace(line)); words[0] != "claude" {
			checkCommand(t, "demo", words)
		}
	}
	text, err := templates.ReadFile("template/jobs/release_notes/job.yml")
	if err != nil || !strings.Contains(string(text), "- name: write\n") || !strings.Contains(demoTryRun, " release_notes/write ") {
		t.Errorf("%s is not a workflow that init lays out: %v", demoTryRun, err)
	}
}

// A command that the screen is too narrow for can be copied all the same.
func TestACommandOnANarrowScreen(t *testing.T) {
	for columns, want := range map[string]string{
		"80": demoTryRun + "\n",
		"60": "  deepwork run release_notes/write \\\n      --goal 1.0 \\\n      --executor CLAUDE_CODE\n",
	} {
		var out bytes.Buffer
		typed(show.NewScreen(&out, func(name string) string { return map[string]string{"COLUMNS": columns}[name] }), demoTryRun)
		if out.String() != want {
			t.Errorf("in %s columns it is %q, not %q", columns, &out, want)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
