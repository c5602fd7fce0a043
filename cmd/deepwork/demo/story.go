package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/session/show"
)

// run plays the story line by line; see play.
func (d *demo) run(ctx context.Context) (err error) {
	text, err := files.ReadFile("story.txt")
	if err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.server.stop())
		if err != nil { // an agent may go on after its command
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_ = d.deepwork(bounded, func(string) {}, "board", "stop", "latest") // fails if none was started
		}
	}()
	chapter, title := 0, ""
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if words, is := strings.CutPrefix(line, "# "); is {
			chapter, title = chapter+1, words
			fmt.Fprintln(d.out)
			d.out.Heading("", fmt.Sprintf("%d. %s", chapter, title), "")
			continue
		}
		if err := errors.Join(d.play(ctx, line, lines[i+1:]), d.out.Err(), ctx.Err()); err != nil {
			return fmt.Errorf("%q: %w", title, err)
		}
	}
	return nil
}

// play plays a line: a call (->), of whose reply the lines after it name the parts to show (<-), a command ($), of
// whose output the line after it matches the lines to show (|), something that is done unseen (@), or a sentence.
func (d *demo) play(ctx context.Context, line string, after []string) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "", "<-", "|":
		return nil
	case "->":
		var shown []string
		for _, next := range after {
			path, is := strings.CutPrefix(next, "<- ")
			if !is {
				break
			}
			shown = append(shown, path)
		}
		tool, args, _ := strings.Cut(rest, " ")
		return d.call(ctx, tool, strings.ReplaceAll(args, "$session", d.session), shown)
	case "$":
		pattern, _ := strings.CutPrefix(after[0], "| ")
		return d.command(ctx, rest, regexp.MustCompile(pattern))
	case "@write":
		file, content, _ := strings.Cut(rest, " ")
		d.out.Text("", fmt.Sprintf("   (the agent writes %s)", file))
		return write(filepath.Join(d.project(), filepath.FromSlash(file)), content+"\n")
	case "@edit":
		return errors.Join(d.copy("edited"), d.git(ctx, "add", "."), d.git(ctx, "commit", "-q", "-m", "Proofread the newsletter"))
	case "@kill":
		return d.server.kill()
	case "@serve":
		return d.serve(ctx)
	}
	d.out.Prose("\n" + line)
	return nil
}

// A server is `deepwork serve` as a subprocess, with an MCP client on it.
type server struct {
	process *exec.Cmd
	client  *mcp.ClientSession
}

// serve starts a server on the project.
func (d *demo) serve(ctx context.Context) error {
	log, err := os.OpenFile(d.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The context ends the process in any case.
	s := &server{process: exec.CommandContext(ctx, d.self, "serve", "--path", d.project(), "--log-level", "warn")}
	s.process.Stderr, s.process.Env = log, d.environ()
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo"}, nil)
	if s.client, err = client.Connect(ctx, &mcp.CommandTransport{Command: s.process, TerminateDuration: 2 * time.Second}, nil); err != nil {
		return fmt.Errorf("connecting to a server: %w", err)
	}
	d.server = s
	return nil
}

// stop ends the server as a client does, by closing its stdin, and waits for it.
func (s *server) stop() error {
	if s.process.ProcessState != nil {
		return nil // it has ended
	}
	return s.client.Close()
}

// kill ends the server as a crash does (SIGKILL), and waits for it.
func (s *server) kill() error {
	err := s.process.Process.Kill()
	_ = s.client.Close() // its error says that the server was killed
	return err
}

// call calls a tool, and prints the call and parts of the reply: those at these paths, or why it is refused.
func (d *demo) call(ctx context.Context, tool, args string, shown []string) error {
	lines := fmt.Sprintf("-> %s %s", tool, args)
	result, err := d.server.client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		return fmt.Errorf("calling %s: %w", tool, err)
	}
	said := resultText(result)
	refused := shown[0] == "refused"
	switch {
	case result.IsError != refused:
		err = fmt.Errorf("%s was answered by %s", tool, said)
	case refused:
		lines += "\n<- " + show.OneLine(strings.ReplaceAll(said, d.dir, "…"), 300)
	default:
		for _, path := range shown {
			if value := lookup([]byte(said), path); value != "null" {
				lines += fmt.Sprintf("\n<- %s: %s", strings.ReplaceAll(path, ".*", "[]"), show.OneLine(value, 160))
			}
		}
		if d.session == "" {
			d.session = strings.Trim(strings.ReplaceAll(lookup([]byte(said), "begin_step.session_id"), "null", ""), `"`)
		}
	}
	d.out.Text("", lines)
	return err
}

// resultText returns the text of a result: of a reply, its structured content in the server's order of keys.
func resultText(r *mcp.CallToolResult) (text string) {
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	return text
}

// lookup returns the value at a path of keys in JSON, on one line that can be wrapped between values; "*" maps the
// rest of the path over an array. A missing value is null.
func lookup(raw json.RawMessage, path string) string {
	key, rest, _ := strings.Cut(path, ".")
	if key == "*" {
		var all []json.RawMessage
		_ = json.Unmarshal(raw, &all) // else it has none
		return "[" + strings.Join(xslices.Map(all, func(x json.RawMessage) string { return lookup(x, rest) }), ", ") + "]"
	}
	if key != "" {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil || object[key] == nil {
			return "null"
		}
		return lookup(object[key], rest)
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "") != nil {
		return string(raw)
	}
	return strings.NewReplacer(",\n", ", ", "\n", "").Replace(b.String())
}

// indent precedes what a command prints.
const indent = "   "

var word = regexp.MustCompile(`"[^"]*"|\S+`)

// command runs a command of this program as a person does, and prints it with those of its lines that shown matches.
func (d *demo) command(ctx context.Context, line string, shown *regexp.Regexp) error {
	typed(d.out, "$ "+line)
	args := word.FindAllString(line, -1)[1:]
	for i, arg := range args {
		if text, err := strconv.Unquote(arg); err == nil {
			args[i] = text
		}
	}
	return d.deepwork(ctx, func(line string) {
		if shown.MatchString(line) {
			d.out.Text(indent, line)
		}
	}, args...)
}

// deepwork runs a command of this program in the project, and calls say with each line of its output. When ctx ends,
// the command is asked to end with what it has started.
func (d *demo) deepwork(ctx context.Context, say func(line string), args ...string) error {
	var stderr bytes.Buffer
	out := process.NewLines(1<<20, func(lines [][]byte) {
		for _, line := range lines {
			say(string(line))
		}
	})
	child, err := process.Spawn(process.Spec{Command: append([]string{d.self}, args...), Dir: d.project(), Env: d.environ()}, out, &stderr)
	if err != nil {
		return err
	}
	select {
	case <-child.Exited():
	case <-ctx.Done():
		child.Terminate()
		select {
		case <-child.Exited():
		case <-time.After(10 * time.Second):
		}
	}
	child.Close()
	out.End()
	if code, _ := child.Exit(); code != 0 {
		return fmt.Errorf("deepwork %s: exit code %d: %s", args[0], code, stderr.String())
	}
	return nil
}
