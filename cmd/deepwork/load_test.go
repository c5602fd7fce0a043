package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A load is put on a server that runs already, with a token, and leaves nothing
// in its project but the sessions.
func TestLoadOnARunningServer(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{".deepwork/jobs/j/job.yml": jobText("j", "a"), ".deepwork/jobs/j/a.md": "Do it."})
	made := exec.CommandContext(t.Context(), "deepwork", "token", "new", "ann")
	var line strings.Builder
	made.Stderr = &line
	token, err := made.Output()
	if err != nil {
		t.Fatal(err)
	}
	secrets := t.TempDir()
	hashes, secret := filepath.Join(secrets, "hashes"), filepath.Join(secrets, "secret")
	writeFiles(t, secrets, map[string]string{"hashes": line.String(), "secret": string(token)})
	server, url, log := serveNetwork(t, root, "--transport", "http", "--no-quality-gate", "--token-file", hashes)
	var reading sync.WaitGroup // a server waits for who reads its log
	reading.Go(func() { _, _ = io.Copy(io.Discard, log) })
	defer func() { _ = server.Process.Kill(); reading.Wait() }()

	load := func(options ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "deepwork", append([]string{"load", "--url", url, "--path", root, "--duration", "30s", "--connections", "3", "--depth", "2", "--sessions", "9"}, options...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	// Twice, since what the first one left is none of the second one's business.
	for range 2 {
		if out, err := load("--token-file", secret); err != nil || !strings.Contains(out, "in 9 sessions") || !strings.Contains(out, "all is well") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := load(); err == nil || !strings.Contains(out, "WRONG: a call that failed") || !strings.Contains(out, "Unauthorized") {
		t.Errorf("without the token: %v\n%s", err, out)
	}
	for _, left := range []string{"load_outputs", ".deepwork/jobs/load_0"} {
		if _, err := os.Stat(filepath.Join(root, left)); err == nil {
			t.Errorf("%s was left behind", left)
		}
	}
}
