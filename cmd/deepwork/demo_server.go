package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A demoServer is `deepwork serve` as a subprocess, with an MCP client on it.
type demoServer struct {
	command *exec.Cmd
	client  *mcp.ClientSession
}

// startServer starts this binary as a server on the newsletter's project.
func (d *demo) startServer(ctx context.Context) error {
	log, err := os.OpenFile(d.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s := &demoServer{}
	// The context ends the process in any case.
	s.command = exec.CommandContext(ctx, d.self, "serve", "--path", d.newsletter(), "--log-level", "warn")
	s.command.Stderr = log
	s.command.Env = d.environ()
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo", Version: readBuild().Version}, nil)
	s.client, err = client.Connect(ctx, &mcp.CommandTransport{Command: s.command, TerminateDuration: 2 * time.Second}, nil)
	if err != nil {
		return fmt.Errorf("connecting to a server: %w", err)
	}
	d.server = s
	return nil
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
	_ = s.client.Close() // its error says that the server was killed
	if s.command.ProcessState == nil {
		return errors.New("the killed server has not ended")
	}
	return nil
}

// exchange makes the call of a scene. It returns the reply, and printable lines of the exchange.
func (d *demo) exchange(ctx context.Context, s scene) (lines string, reply json.RawMessage, err error) {
	args := s.args
	if args == nil {
		args = object{} // an empty object if there are none
	}
	sent, err := json.Marshal(args)
	if err != nil {
		return "", nil, err
	}
	sent = bytes.ReplaceAll(sent, []byte("$session"), []byte(d.session))
	lines = fmt.Sprintf("-> %s %s", s.tool, spaced(sent))
	result, err := d.server.client.CallTool(ctx, &mcp.CallToolParams{Name: s.tool, Arguments: json.RawMessage(sent)})
	if err != nil {
		return lines, nil, fmt.Errorf("calling %s: %w", s.tool, err)
	}
	said := resultText(result)
	switch {
	case result.IsError != s.refused && s.refused:
		return lines, nil, fmt.Errorf("%s was not refused: %s", s.tool, said)
	case result.IsError != s.refused:
		return lines, nil, fmt.Errorf("%s was refused: %s", s.tool, said)
	case s.refused:
		return lines + "\n<- " + oneLine(d.shortened(said), 300), json.RawMessage(said), nil
	}
	// The text is the structured content in the server's order of keys.
	reply = json.RawMessage(said)
	for _, path := range s.show {
		if value := lookup(reply, path); string(value) != "null" {
			lines += fmt.Sprintf("\n<- %s: %s", strings.ReplaceAll(path, ".*", "[]"), oneLine(spaced(value), replyWidth))
		}
	}
	return lines, reply, nil
}

// shortened names the demo's folder in a text by an ellipsis, so that lines can be wrapped.
func (d *demo) shortened(text string) string { return strings.ReplaceAll(text, d.dir, "…") }

// spaced returns JSON on one line that can be wrapped between values.
func spaced(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", ""); err != nil {
		return string(raw)
	}
	return strings.NewReplacer(",\n", ", ", "\n", "").Replace(b.String())
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

// replyWidth is the printed length of one part of a reply; it is wrapped where the terminal ends.
const replyWidth = 160

// lookup follows a path of keys into JSON and preserves the order of keys; "*" maps the rest of the
// path over an array. A missing value is null.
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
