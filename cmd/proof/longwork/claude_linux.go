package longwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"deepwork/cmd/proof/tty"
)

const claudePackage = "@anthropic-ai/claude-code@latest"

// claude starts the real Claude Code, at a terminal of its own and with a scripted model: there it takes tasks, without
// a terminal (-p) it does not. What a person would type into a form is typed here.
func (t *trial) claude(ctx context.Context) (*client, error) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan sight)
	api := httptest.NewServer(newModel(t, seen))
	cmd, err := t.claudeCommand(ctx, api.URL)
	if err != nil {
		cancel()
		return nil, err
	}
	master, slave, err := tty.Open(120, 50)
	if err != nil {
		cancel()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = errors.Join(cmd.Start(), slave.Close())
	ended := make(chan struct{})
	go func() { // it owns seen: the model sends nothing after the context's end
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		t.person(ctx, master, seen)
	}()
	stop := func() error {
		cancel()
		api.CloseClientConnections()
		api.Close()
		<-ended
		_ = master.Close()
		<-shown
		return nil
	}
	last := make(chan sight)
	go func() { // the client's end closes what is seen
		defer close(last)
		for {
			select {
			case s := <-seen:
				last <- s
			case <-ctx.Done():
				return
			case <-ended:
				return
			}
		}
	}()
	return &client{last, func() error { time.AfterFunc(4*time.Second, cancel); return nil }, func() error { return nil }, stop}, err
}

// claudeCommand prepares a home for Claude Code, which has nothing to ask then, and returns the command.
func (t *trial) claudeCommand(ctx context.Context, model string) (*exec.Cmd, error) {
	const key = "a-key-of-the-scripted-model"
	server := map[string]any{"type": "http", "url": t.url()}
	settings := map[string]any{
		"hasCompletedOnboarding": true, "theme": "dark", "customApiKeyResponses": map[string]any{"approved": []string{key[len(key)-20:]}},
		"projects": map[string]any{t.root: map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
	}
	for name, value := range map[string]any{".claude.json": settings, "mcp.json": map[string]any{"mcpServers": map[string]any{"deepwork": server}}} {
		text, err := json.Marshal(value)
		if err = errors.Join(err, os.WriteFile(filepath.Join(t.dir, name), text, 0o600)); err != nil {
			return nil, err
		}
	}
	programs, err := filepath.Glob(filepath.Join(t.Packages, "node_modules", "@anthropic-ai", "claude-code-linux-*", "claude"))
	if err != nil || len(programs) != 1 {
		return nil, fmt.Errorf("%s has %d programs of Claude Code: %w", t.Packages, len(programs), err)
	}
	cmd := exec.CommandContext(ctx, programs[0],
		"--mcp-config", filepath.Join(t.dir, "mcp.json"), "--strict-mcp-config", "--allowedTools", "mcp__deepwork", "--", "Do the work")
	cmd.Dir = t.root
	for _, v := range t.env {
		if !strings.HasPrefix(v, "CLAUDE") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY="+key, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "TERM=xterm-256color")
	return cmd, nil
}

// person reads the screen, and fills in the form of the question: after some time to think, pass and why.
func (t *trial) person(ctx context.Context, terminal *os.File, seen chan<- sight) {
	log, err := os.Create(filepath.Join(t.dir, "screen"))
	if err != nil {
		return
	}
	defer log.Close()
	var screen strings.Builder
	asked := 0
	buffer := make([]byte, 4096)
	for {
		n, err := terminal.Read(buffer)
		_, _ = log.Write(buffer[:n])
		screen.Write(buffer[:n])
		if err != nil {
			return
		}
		if forms := strings.Count(screen.String(), "requests"); asked == 0 && forms > 0 && strings.Contains(screen.String(), "Decline") {
			asked++
			go t.fillIn(ctx, terminal, seen)
		}
	}
}

// fillIn types the answer: it opens the list of decisions, chooses the first, says why and accepts.
func (t *trial) fillIn(ctx context.Context, terminal *os.File, seen chan<- sight) {
	see := func(at string) {
		select {
		case seen <- sight{At: at}:
		case <-ctx.Done():
		}
	}
	see("asked")
	for i, key := range []string{"\x1b[C", "\r", t.token, "\x1b[B", "\r"} {
		pause := 700 * time.Millisecond
		if i == 0 {
			pause = t.takes
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if i == 4 {
			see("answered")
		}
		if _, err := fmt.Fprint(terminal, key); err != nil {
			return
		}
	}
}
