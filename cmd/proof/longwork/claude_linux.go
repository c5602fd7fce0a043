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

// claude starts the real Claude Code with a scripted model. Over HTTP it has a terminal of its own, where it accepts
// tasks (with -p it does not) and where a person's answers are typed into its forms. It takes up to two minutes to give
// up a call whose reply was lost with the server. Over stdio it runs with -p, and with --continue each time that the
// server is gone.
func (t *trial) claude(ctx context.Context) (*client, error) {
	ctx, cancel := context.WithCancel(ctx)
	seen, ended := make(chan sight), make(chan struct{}) // ended is closed when all is over
	m := newModel(t, seen)
	api := httptest.NewServer(m)
	start := t.interactive
	if t.Over == "stdio" {
		start = t.prompted
	}
	stop := func() error {
		cancel()
		api.CloseClientConnections()
		api.Close()
		return nil
	}
	if err := start(ctx, m, api.URL, ended); err != nil {
		return nil, errors.Join(err, stop())
	}

	last := make(chan sight) // what is seen, until the end
	go func() {
		defer close(last)
		for {
			select {
			case s := <-seen:
				select {
				case last <- s:
				case <-ctx.Done():
				}
			case <-ctx.Done():
				return
			case <-ended:
				return
			}
		}
	}()

	// A second result would come within some seconds.
	again := func() error {
		time.AfterFunc(4*time.Second, cancel)
		return nil
	}
	return &client{last, again, func() error { return nil }, func() error {
		defer func() { <-ended }()
		return stop()
	}}, nil
}

// interactive starts Claude Code at a terminal.
func (t *trial) interactive(ctx context.Context, m *model, api string, ended chan struct{}) error {
	cmd, err := t.claudeCommand(ctx, api, "--", "Do the work")
	if err != nil {
		return err
	}

	master, slave, err := tty.Open(120, 50)
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), slave.Close()); err != nil {
		return errors.Join(err, master.Close())
	}
	go func() {
		defer close(ended)
		t.person(ctx, master, m.seen) // until the terminal is closed
		_ = cmd.Wait()                // it was killed
		_ = master.Close()
	}()

	return nil
}

// prompted runs Claude Code with a prompt, and continues it until it knows the result.
func (t *trial) prompted(ctx context.Context, m *model, api string, ended chan struct{}) error {
	first, err := t.claudeCommand(ctx, api, "-p", "Do the work")
	if err != nil {
		return err
	}
	go func() {
		defer close(ended)
		for cmd := first; ; {
			said, err := cmd.CombinedOutput()
			_ = note(filepath.Join(t.dir, "claude.log"), fmt.Sprint(err), string(said))
			if m.ended() || ctx.Err() != nil {
				return
			}
			if cmd, err = t.claudeCommand(ctx, api, "--continue", "-p", "Go on"); err != nil {
				return
			}
		}
	}()

	return nil
}

// claudeCommand prepares a home in which Claude Code asks nothing, and returns the command.
func (t *trial) claudeCommand(ctx context.Context, model string, args ...string) (*exec.Cmd, error) {
	const key = "a-key-of-the-scripted-model"
	server := map[string]any{"type": "http", "url": t.url()}
	if t.Over == "stdio" {
		server = map[string]any{
			"command": "sh",
			"args":    append([]string{"-c", `echo $$ >"$0" && exec "$@"`, t.serverPID()}, t.command()...),
		}
	}

	settings := map[string]any{
		"hasCompletedOnboarding": true,
		"theme":                  "dark",
		"customApiKeyResponses":  map[string]any{"approved": []string{key[len(key)-20:]}},
		"projects": map[string]any{t.root: map[string]any{
			"hasTrustDialogAccepted":        true,
			"hasCompletedProjectOnboarding": true,
		}},
	}
	files := map[string]any{
		"mcp.json":     map[string]any{"mcpServers": map[string]any{"deepwork": server}},
		".claude.json": settings,
	}
	if args[0] == "--continue" {
		delete(files, ".claude.json")
	}
	for name, value := range files {
		text, err := json.Marshal(value)
		if err = errors.Join(err, os.WriteFile(filepath.Join(t.dir, name), text, 0o600)); err != nil {
			return nil, err
		}
	}

	programs, err := filepath.Glob(
		filepath.Join(t.Packages, "node_modules", "@anthropic-ai", "claude-code-linux-*", "claude"))
	if err != nil || len(programs) != 1 {
		return nil, fmt.Errorf("%s has %d programs of Claude Code: %w", t.Packages, len(programs), err)
	}
	cmd := exec.CommandContext(ctx, programs[0],
		append([]string{"--mcp-config", filepath.Join(t.dir, "mcp.json"), "--strict-mcp-config", "--allowedTools",
			"mcp__deepwork"}, args...)...)
	cmd.Dir, cmd.WaitDelay = t.root, time.Second
	for _, v := range t.env {
		if !strings.HasPrefix(v, "CLAUDE") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY="+key,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "TERM=xterm-256color",
		"MCP_PROTOCOL_NEGOTIATION="+map[string]string{Eras[0]: "auto", Eras[1]: "legacy"}[t.Era],
		"MCP_CONNECTION_NONBLOCKING=0")
	return cmd, nil
}

// person reads the screen, and fills in the question's form each time it is shown, which is again if the server was
// killed before it had the answer. The person only thinks the first time.
func (t *trial) person(ctx context.Context, terminal *os.File, seen chan<- sight) {
	log, err := os.Create(filepath.Join(t.dir, "screen"))
	if err != nil {
		return
	}
	defer log.Close()

	var filled chan struct{} // closed when the form is all but sent; nil means none is shown
	var screen strings.Builder
	thinks := t.takes
	buffer := make([]byte, 4096)
	for {
		n, err := terminal.Read(buffer)
		if err != nil {
			return
		}
		_, _ = log.Write(buffer[:n])

		select {
		case <-filled:
			filled = nil
			screen.Reset()
		default:
		}
		screen.Write(buffer[:n])
		if filled == nil && strings.Contains(screen.String(), "requests") &&
			strings.Contains(screen.String(), "Decline") {
			filled = make(chan struct{})
			go t.fillIn(ctx, terminal, seen, thinks, filled)
			thinks = time.Second
		}
	}
}

// fillIn types the answer: it opens the list of decisions, chooses the first, says why and accepts.
func (t *trial) fillIn(
	ctx context.Context, terminal *os.File, seen chan<- sight, pause time.Duration, filled chan<- struct{},
) {
	see := func(at string) {
		select {
		case seen <- sight{At: at}:
		case <-ctx.Done():
		}
	}
	see("asked")

	keys := []string{"\x1b[C", "\r", t.token, "\x1b[B", "\r"}
	for i, key := range keys {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = 700 * time.Millisecond

		if i == len(keys)-1 {
			close(filled)
			see("answered")
		}

		_, _ = fmt.Fprint(terminal, key) // a terminal that is closed ends the reader, too
	}
}
