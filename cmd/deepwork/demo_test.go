package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/cmd/deepwork/demo"
	"deepwork/session/show"
)

// runDemo plays the demo in a folder of the test, with a program as deepwork.
func runDemo(t *testing.T, out io.Writer, program string) error {
	t.Helper()
	d := demo.Demo{Out: show.NewScreen(out, os.Getenv), Dir: t.TempDir(), Self: testkit.Get(exec.LookPath(program)).Must(t), Turn: func() {}}
	return d.Run(t.Context())
}

// The demo stops at what does not work, and says what that is.
func TestDemoFails(t *testing.T) {
	testkit.Fails(t, runDemo(t, t.Output(), "git"), "connecting to a server", "with a program that is no server")
}

// The demo ends if nobody reads its output any more, as after `deepwork demo | head`.
func TestDemoUnread(t *testing.T) {
	t.Parallel()
	unread := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("3. In your terminal")) {
			return 0, os.ErrClosed
		}
		return len(p), nil
	})
	err := runDemo(t, unread, "deepwork")
	testkit.True(t, errors.Is(err, os.ErrClosed) && strings.Contains(err.Error(), "chapter 3"), "run = %v, want that its output is closed", err)
}

// The job that README.md shows is the demo's, and its chat is what the demo prints, in this order, but for ids: each line
// that ends with … is shown in part. README.md is about one screen and a half, and each of the two is short.
func TestReadmeShowsTheDemo(t *testing.T) {
	t.Parallel()
	page := string(testkit.Get(os.ReadFile(filepath.Join("..", "..", "README.md"))).Must(t))
	if lines := strings.Count(page, "\n"); lines > 125 {
		t.Errorf("README.md has %d lines; expected at most 125", lines)
	}
	block := func(kind string) string {
		t.Helper()
		_, text, found := strings.Cut(page, "\n```"+kind+"\n")
		text, _, closed := strings.Cut(text, "```\n")
		testkit.Need(t, found && closed, "README.md has no block of %s", kind)
		return text
	}
	for kind, most := range map[string]int{"yaml job": 17, "transcript": 15} {
		lines := strings.Count(strings.ReplaceAll(block(kind), "\n\n", "\n"), "\n")
		testkit.True(t, lines <= most, "README.md has %d lines of %s; expected at most %d", lines, kind, most)
	}
	testkit.Equal(t, block("yaml job"), string(testkit.Get(os.ReadFile("demo/jobs/newsletter/job.yml")).Must(t)), "the job of README.md")
	var printed bytes.Buffer
	must(t, runDemo(t, &printed, "deepwork"))
	mask := func(text string) string { return regexp.MustCompile(`\b[0-9a-f]{8}\b`).ReplaceAllString(text, "#") }
	rest := "\n" + mask(printed.String())
	for line := range strings.Lines(mask(block("transcript"))) {
		want, shortened := strings.CutSuffix(strings.TrimSuffix(line, "\n"), "…")
		if !shortened {
			want += "\n"
		}
		_, after, found := strings.Cut(rest, "\n"+want)
		testkit.Need(t, found, "the demo does not print %q after the lines before it in README.md:\n%s", line, &printed)
		rest = "\n" + after
	}
}

// What the demo says to try next are commands, and init lays out the workflow that they run.
func TestDemoTries(t *testing.T) {
	story := string(testkit.Get(os.ReadFile("demo/story.txt")).Must(t))
	lines := regexp.MustCompile(`(?m)^  deepwork .*`).FindAllString(story, -1)
	testkit.Need(t, len(lines) >= 4 && strings.Contains(story, "\n  deepwork run release_notes/write "), "the story ends with %q", lines)
	for _, line := range lines {
		if words := shellWords(strings.TrimSpace(line)); words[0] != "claude" {
			checkCommand(t, "demo", words)
		}
	}
	root := t.TempDir()
	mustPrint(t, root, "init")
	testkit.Contains(t, string(testkit.Get(os.ReadFile(filepath.Join(root, ".deepwork/jobs/release_notes/job.yml"))).Must(t)), "- name: write\n")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
