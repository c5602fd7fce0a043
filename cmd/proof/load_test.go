package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMain makes this test binary the command proof for the echo servers that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "echo" || os.Args[1] == "source") {
		main()
	}
	os.Exit(m.Run())
}

// What the subcommand load prints and how it ends: with two servers on one project, an
// editor at work and replies that get lost; with the newest protocol; with connections
// that do nothing; and if it is called wrongly.
func TestLoad(t *testing.T) {
	taken := t.TempDir()
	mine := filepath.Join(taken, "load_outputs", "mine.md")
	if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	free := t.TempDir()
	const nowhere = "--url http://127.0.0.1:1/mcp "
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--duration 3s --connections 8 --depth 3 --edit --servers 2 --lose 0.05", 0, []string{
			`(?m)^8 connections, stacks 3 deep, groups of 4, 2 servers`, `(?m)^finished_step +[0-9]+ `,
			`(?m)^all is well: no call failed, and every file tells what was acknowledged`}},
		{"--duration 30s --connections 4 --depth 2 --group 1 --sessions 12 --stateless --lose 0.05", 0, []string{
			`(?m)^[0-9]+ transitions acknowledged in 12 sessions`, `(?m)^all is well`}},
		{"--idle 20", 0, []string{`(?m)^20 idle connections: .* KB each with deepwork, .* KB with the bare SDK`, `(?m)^so few tell little`}},
		{"--servers 3", 2, []string{`^proof: --servers 3: 1 to 2 is possible`}},
		{"--lose 0.9", 2, []string{`--lose 0.9: 0 to 0.5 is possible`}},
		{"--token-file tokens", 2, []string{`--token-file and --path go with --url`}},
		{nowhere + "--servers 2", 2, []string{`--url and --servers 2 do not go together`}},
		{"--stateless --servers 2", 2, []string{`--stateless and --servers 2 do not go together`}},
		{"now", 2, []string{`takes no arguments, found "now"`}},
		{nowhere + "--path " + taken, 1, []string{`load_outputs is there already`}},
		{nowhere + "--duration 1s --connections 1 --path " + free, 1, []string{`WRONG: a call that failed`}},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"load"}, strings.Fields(c.args)...), &out, &out); code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, code, c.code)
		}
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("%s: no %s in\n%s", c.args, want, out.String())
			}
		}
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(free, "load_outputs")); err != nil || len(left) > 0 {
		t.Errorf("%v was left behind (%v)", left, err)
	}
}

// A load is put on a server that runs already, with a token, and leaves nothing
// in its project but the sessions.
func TestLoadOnARunningServer(t *testing.T) {
	root, temp := t.TempDir(), t.TempDir()
	program, err := build(t.Context(), temp)
	if err != nil {
		t.Fatal(err)
	}
	made := exec.CommandContext(t.Context(), program, "token", "new", "ann")
	var line strings.Builder
	made.Stderr = &line
	token, err := made.Output()
	if err != nil {
		t.Fatal(err)
	}
	hashes, secret, log := filepath.Join(temp, "hashes"), filepath.Join(temp, "secret"), filepath.Join(temp, "log")
	for path, text := range map[string]string{hashes: line.String(), secret: string(token)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := exec.CommandContext(t.Context(), program, "serve", "--path", root, "--port", "0", "--transport", "http", "--no-quality-gate", "--token-file", hashes, "--log-file", log)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	url := ""
	listening := regexp.MustCompile(`msg=listening url=(\S+)`)
	for began := time.Now(); url == "" && time.Since(began) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(log)
		if m := listening.FindSubmatch(text); m != nil {
			url = string(m[1])
		}
	}
	load := func(options ...string) (int, string) {
		var out bytes.Buffer
		code := run(context.WithoutCancel(t.Context()), append([]string{"load", "--url", url, "--path", root, "--duration", "30s", "--connections", "3", "--depth", "2", "--sessions", "9"}, options...), &out, &out)
		return code, out.String()
	}
	// Twice, since what the first one left is none of the second one's business.
	for range 2 {
		if code, out := load("--token-file", secret); code != 0 || !strings.Contains(out, "in 9 sessions") || !strings.Contains(out, "all is well") {
			t.Fatalf("exit code %d\n%s", code, out)
		}
	}
	if code, out := load(); code != 1 || !strings.Contains(out, "WRONG: a call that failed") || !strings.Contains(out, "Unauthorized") {
		t.Errorf("without the token: exit code %d\n%s", code, out)
	}
	for _, left := range []string{"load_outputs", ".deepwork/jobs/load_0"} {
		if _, err := os.Stat(filepath.Join(root, left)); err == nil {
			t.Errorf("%s was left behind", left)
		}
	}
}
