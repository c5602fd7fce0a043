package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
)

// A demoServer is `deepwork serve` as a subprocess, with an MCP client on it.
type demoServer struct {
	command *exec.Cmd
	client  *mcp.ClientSession
	log     *tail
}

// startServer starts this very binary as a server on the example project.
func (d *demo) startServer(ctx context.Context) (*demoServer, error) {
	s := &demoServer{log: &tail{}}
	// The context ends the process too, however it ends.
	s.command = exec.CommandContext(ctx, d.self, "serve", "--path", d.dir, "--log-level", "warn")
	s.command.Stderr = s.log
	s.command.Env = append(os.Environ(), config.JobsFoldersEnv+"=") // this project's jobs alone
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo", Version: readBuild().Version}, nil)
	var err error
	s.client, err = client.Connect(ctx, &mcp.CommandTransport{Command: s.command, TerminateDuration: 2 * time.Second}, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to a server: %w\n%s", err, indent(s.log.String(), "  "))
	}
	return s, nil
}

// stop ends the server as a client does, by closing its stdin, and waits for it.
func (s *demoServer) stop() error {
	if s.command.ProcessState != nil {
		return nil // ended and waited for
	}
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("stopping the server: %w", err)
	}
	return nil
}

// kill ends the server as a crash does (SIGKILL), and waits for it.
func (s *demoServer) kill() error {
	if err := s.command.Process.Kill(); err != nil {
		return fmt.Errorf("killing the server: %w", err)
	}
	_ = s.client.Close() // it says that the server was killed
	if s.command.ProcessState == nil {
		return errors.New("the killed server has not ended")
	}
	return nil
}

// A demoCall is one tool call: what is sent, and which parts of the reply are
// shown, as paths like begin_step.step_id.
type demoCall struct {
	tool string
	args map[string]any
	show []string
}

// call makes a call and decodes its reply. It prints both, but for a call that
// is printed later, beside others.
func call[R any](ctx context.Context, d *demo, c demoCall) (*R, error) {
	text, reply, err := exchange[R](ctx, d, c)
	fmt.Fprint(d.out, text)
	return reply, err
}

// exchange is call without the printing.
func exchange[R any](ctx context.Context, d *demo, c demoCall) (text string, reply *R, err error) {
	result, err := d.server.client.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: c.arguments()})
	if err != nil {
		return c.request(), nil, fmt.Errorf("calling %s: %w", c.tool, err)
	}
	if result.IsError {
		return c.request(), nil, fmt.Errorf("%s was refused: %s", c.tool, resultText(result))
	}
	// The text is the same JSON as the structured content, in the server's order.
	raw := json.RawMessage(resultText(result))
	reply = new(R)
	if err := json.Unmarshal(raw, reply); err != nil {
		return c.request(), nil, fmt.Errorf("decoding the reply of %s: %w", c.tool, err)
	}
	var b strings.Builder
	b.WriteString(c.request())
	for _, path := range c.show {
		fmt.Fprintf(&b, "<- %s: %s\n", path, oneLine(string(lookup(raw, path)), replyWidth))
	}
	return b.String(), reply, nil
}

// refused makes a call that must be refused, and returns and prints why.
func refused(ctx context.Context, d *demo, c demoCall) (string, error) {
	fmt.Fprint(d.out, c.request())
	result, err := d.server.client.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: c.arguments()})
	if err != nil {
		return "", fmt.Errorf("calling %s: %w", c.tool, err)
	}
	text := resultText(result)
	fmt.Fprintf(d.out, "<- isError: %v\n<- %s\n", result.IsError, oneLine(text, 300))
	return text, d.claim(result.IsError, "%s is refused", c.tool)
}

// arguments are never nil: a call without any has an empty object.
func (c demoCall) arguments() map[string]any {
	if c.args == nil {
		return map[string]any{}
	}
	return c.args
}

func (c demoCall) request() string {
	args, err := json.Marshal(c.arguments())
	if err != nil {
		args = []byte(err.Error())
	}
	return fmt.Sprintf("-> %s %s\n", c.tool, args)
}

func resultText(r *mcp.CallToolResult) string {
	var texts []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// replyWidth is how much of one part of a reply is printed.
const replyWidth = 160

// lookup follows a path of keys into JSON and keeps the order of what it finds;
// "*" maps the rest of the path over an array. What is not there is null.
func lookup(raw json.RawMessage, path string) json.RawMessage {
	if path == "" {
		return raw
	}
	key, rest, _ := strings.Cut(path, ".")
	if key == "*" {
		var all []json.RawMessage
		if json.Unmarshal(raw, &all) != nil || all == nil {
			return json.RawMessage("null")
		}
		parts := make([]string, len(all))
		for i := range all {
			parts[i] = string(lookup(all[i], rest))
		}
		return json.RawMessage("[" + strings.Join(parts, ", ") + "]")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object[key] == nil {
		return json.RawMessage("null")
	}
	return lookup(object[key], rest)
}

// A tail keeps the last of what a server logs.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = t.data[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}
