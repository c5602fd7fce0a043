package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/cmd/deepwork/demo"
	"deepwork/cmd/deepwork/library"
	"deepwork/session/show"
)

// runDemo plays the demo in a folder of the test, with a program as deepwork.
func runDemo(t *testing.T, out io.Writer, program string) error {
	t.Helper()
	self := testkit.Get(exec.LookPath(program)).Must(t)
	return demo.Run(t.Context(), show.NewScreen(out, os.Getenv), t.TempDir(), self)
}

// The demo stops at what does not work, and says what that is.
func TestDemoFails(t *testing.T) {
	testkit.Fails(t, runDemo(t, t.Output(), "git"), "connecting to a server", "with a program that is no server")
}

// The demo ends if nobody reads its output any more, as after `deepwork demo | head`.
func TestDemoUnread(t *testing.T) {
	unread := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("3. Missing work")) {
			return 0, os.ErrClosed
		}
		return len(p), nil
	})
	if err := runDemo(t, unread, "deepwork"); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "Missing work") {
		t.Errorf("run = %v, want that its output is closed", err)
	}
}

// What the demo says to try next are commands, and init lays out the workflow that they run.
func TestDemoTries(t *testing.T) {
	lines := []string{demo.TryRun}
	for _, try := range demo.Tries {
		lines = append(lines, try[0])
	}
	for _, line := range lines {
		if words := shellWords(strings.TrimSpace(line)); words[0] != "claude" {
			checkCommand(t, "demo", words)
		}
	}
	if example := library.Find(library.Example); !strings.Contains(example.Say, " write of release_notes") || !strings.Contains(demo.TryRun, " release_notes/write ") {
		t.Errorf("%s is not the workflow that init lays out: %s", demo.TryRun, example.Say)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
