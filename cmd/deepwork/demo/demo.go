// Package demo plays a story on an example project in a temporary folder: the calls that an agent makes, and the
// commands that a person types. The story is story.txt; the agents and reviewers in it are this program.
package demo

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/process"
	"deepwork/session/show"
	"deepwork/session/state"
)

//go:embed story.txt
var story string

// files are the jobs of the project.
//
//go:embed jobs
var files embed.FS

// indent precedes what isn't the story's words.
const indent = "   "

// A Demo is one play of the story.
type Demo struct {
	Out  *show.Screen
	Dir  string // an existing folder that gets the project, and own: a user's config and state
	Self string // this program
	Turn func() // called before each chapter

	server *exec.Cmd
	agent  *mcp.ClientSession // of the server
	reply  map[string]any     // to its last call
	said   string             // by the last command
}

// Run lays out the project, plays the story on it, and prints it. It stops at the first thing that doesn't work. When
// it returns, no process of the demo runs.
func (d *Demo) Run(ctx context.Context) (err error) {
	if err := d.layOut(ctx); err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, d.agent.Close()); err != nil { // an agent may go on after its command
			_, _ = d.run(context.WithoutCancel(ctx), d.Self, "board", "stop", "latest") // fails if none was started
		}
	}()

	chapter := 0
	for line := range strings.SplitSeq(strings.Trim(story, "\n"), "\n") {
		if title, ok := strings.CutPrefix(line, "# "); ok {
			chapter++
			d.Turn()
			d.Out.Heading("", fmt.Sprintf("%d. %s", chapter, title), "")
		} else {
			err = d.play(ctx, line)
		}
		if err = errors.Join(err, d.Out.Err(), ctx.Err()); err != nil {
			return fmt.Errorf("chapter %d: %w", chapter, err)
		}
	}

	return nil
}

// layOut makes the project, a git repository whose agents and reviewers are this program, and the config of a user who
// trusts it.
func (d *Demo) layOut(ctx context.Context) error {
	err := errors.Join(
		os.CopyFS(filepath.Join(d.project(), ".deepwork"), files),
		d.write("newsletter/.deepwork/config.yml",
			fmt.Sprintf(`quality_gate: {agent_review_command: [%[1]q, demo, reviewer]}
executors: {CODER: {command: [%[1]q, demo, coder]}, WRITER: {command: [%[1]q, demo, writer]}}
`, d.Self)),
		d.write("newsletter/greeting.txt", "Hello.\n"),
		d.write("own/deepwork/config.yml", fmt.Sprintf("trusted_folders: [%q]\n", d.project())),
		d.write("own/gitconfig", "[user]\n\tname = Demo\n\temail = demo@example.com\n"),
	)

	for _, args := range []string{"init -q -b main", "add .", "commit -q -m Newsletter"} {
		if err == nil {
			_, err = d.run(ctx, "git", strings.Fields(args)...)
		}
	}

	return err
}

func (d *Demo) project() string { return filepath.Join(d.Dir, "newsletter") }

// write writes a file below the demo's folder, and makes the folders above it.
func (d *Demo) write(name, text string) error {
	file := filepath.Join(d.Dir, filepath.FromSlash(name))
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600))
}

// run runs a program in the project and returns its output. When ctx ends, the program and what it has started are
// asked to end.
func (d *Demo) run(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // after which it hangs
	defer cancel()
	result, err := process.Run(ctx, process.Spec{
		Command: append([]string{program}, args...),
		Dir:     d.project(),
		Env:     d.environ(),
		Grace:   10 * time.Second,
	})
	return string(result.Stdout), err
}

// environ is the environment of the demo's processes. It keeps the demo and the user's own settings and state apart.
func (d *Demo) environ() []string {
	own := filepath.Join(d.Dir, "own")
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "DEEPWORK_") || strings.HasPrefix(entry, "GIT_") ||
			strings.HasPrefix(entry, "COLUMNS=")
	})
	return append(env, "XDG_CONFIG_HOME="+own, "APPDATA="+own, state.Env+"="+filepath.Join(own, "state"),
		"GIT_CONFIG_GLOBAL="+filepath.Join(own, "gitconfig"), "GIT_CONFIG_NOSYSTEM=1")
}

// serve starts a server on the project, and connects an agent whose user passes whatever they are asked.
func (d *Demo) serve(ctx context.Context) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "deepwork-demo"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			d.Out.Text(indent, strings.TrimSpace(strings.ReplaceAll(req.Params.Message, d.Dir, "…"))+"\nYou: pass")
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}, nil
		},
	})

	// ctx ends it in any case
	d.server = exec.CommandContext(ctx, d.Self, "serve", "--path", d.project(), "--log-level", "warn")
	d.server.Stderr, d.server.Env = os.Stderr, d.environ()
	transport := &mcp.CommandTransport{Command: d.server, TerminateDuration: 2 * time.Second}
	// a later one asks in another way
	agent, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return fmt.Errorf("connecting to a server: %w", err)
	}
	d.agent = agent
	return nil
}

// play plays a line: a call (->), a part of its reply with how it must begin (<-), a command ($), what some
// lines that it printed must match (|), something else that is done (@), a command to copy, after blanks, or
// a sentence.
func (d *Demo) play(ctx context.Context, line string) (err error) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "":
		d.Out.Text("", line)
	case "->":
		id, _ := d.reply["session_id"].(string)
		rest = strings.ReplaceAll(rest, "$session", id)
		d.Out.Text("", "-> "+rest)
		tool, arguments, _ := strings.Cut(rest, " ")
		d.reply, err = call(ctx, d.agent, tool, json.RawMessage(arguments))
	case "<-":
		name, want, _ := strings.Cut(rest, ": ")
		got, _ := d.reply[name].(string)
		if !strings.HasPrefix(got, want) {
			return fmt.Errorf("%s is %q, and doesn't begin with %q, in %v", name, got, want, d.reply)
		}
		d.Out.Text("", "<- "+name+": "+show.OneLine(strings.ReplaceAll(got, d.Dir, "…"), 300))
	case "$":
		d.Out.Text("", line)
		var args []string
		for _, arg := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(rest, -1)[1:] {
			args = append(args, strings.Trim(arg, `"`))
		}
		d.said, err = d.run(ctx, d.Self, args...)
	case "|":
		shown := regexp.MustCompile(`(?m)^.*(`+rest+`).*$`).FindAllString(d.said, -1)
		if len(shown) == 0 {
			return fmt.Errorf("no line matches %s:\n%s", rest, d.said)
		}
		d.Out.Text(indent, strings.Join(shown, "\n"))
	case "@show":
		text, _ := files.ReadFile(rest) // it is embedded
		d.Out.Text(indent, strings.TrimSpace(string(text)))
	case "@write":
		file, content, _ := strings.Cut(rest, " ")
		d.Out.Text(indent, fmt.Sprintf("(%s: %s)", file, content))
		err = d.write("newsletter/"+file, content+"\n")
	case "@kill":
		err = d.server.Process.Kill()
		_ = d.agent.Close() // its error says that the server was killed
	case "@serve":
		err = d.serve(ctx)
	default:
		d.Out.Prose("\n" + line)
	}

	return err
}

// Browse serves the pages of the project to the person at this terminal, until Ctrl-C or the end of ctx.
func (d *Demo) Browse(ctx context.Context) {
	cmd := exec.CommandContext(ctx, d.Self, "ui", "--path", d.project())
	cmd.Env = d.environ()
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	_ = cmd.Run() // it prints its error
}
