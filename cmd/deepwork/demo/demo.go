// Package demo plays a story on an example project in a temporary folder: the calls that an agent makes, and the
// commands that a person types. The story is story.txt; the agents and reviewers in it are this program.
package demo

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/process"
	"deepwork/session/show"
	"deepwork/session/state"
)

// files are the story, the jobs of the project, and one of them as it is edited in the course of the story.
//
//go:embed story.txt jobs edited
var files embed.FS

// Timeout is far more than a demo takes; after it something hangs.
const Timeout = time.Minute

// Run lays out the project in a new folder dir and plays the story on it, with self as the program, and prints it
// to out. It stops at the first thing that does not work. When it returns, no process of the demo runs.
func Run(ctx context.Context, out *show.Screen, dir, self string) error {
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	d := &demo{out: out, dir: dir, self: self}
	err := d.layOut(limited)
	if err == nil {
		err = d.run(limited)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case limited.Err() != nil:
		err = fmt.Errorf("not done after %v: %w", Timeout, err)
	}
	return fmt.Errorf("%w%s", err, d.serverLog())
}

// A demo is one play of the story.
type demo struct {
	out     *show.Screen
	dir     string // has the project, and own: a user's config and state
	self    string // this program
	server  *server
	session string // the id of the first session that was started
}

// layOut makes the project, a git repository whose agents and reviewers are this program, and the config of its
// user, who trusts it.
func (d *demo) layOut(ctx context.Context) error {
	if _, err := exec.LookPath("git"); err != nil {
		return errors.New("the demo needs git, which is not installed here")
	}
	command := func(agent string) string {
		text, _ := json.Marshal([]string{d.self, "demo", agent}) // strings
		return string(text)
	}
	trusted, _ := json.Marshal([]string{d.project()})
	return errors.Join(
		d.copy("jobs"),
		write(filepath.Join(d.project(), ".deepwork", "config.yml"), fmt.Sprintf(`quality_gate: {agent_review_command: %q}
executors: {CODER: {command: %s}, WRITER: {command: %s}}
`, "'"+d.self+"' demo reviewer", command("coder"), command("writer"))),
		write(filepath.Join(d.project(), "greeting.txt"), "Hello.\n"),
		write(filepath.Join(d.own(), "deepwork", "config.yml"), fmt.Sprintf("trusted_folders: %s\n", trusted)),
		write(filepath.Join(d.own(), "gitconfig"), "[user]\n\tname = Demo\n\temail = demo@example.com\n"),
		d.git(ctx, "init", "-q", "-b", "main"), d.git(ctx, "add", "."), d.git(ctx, "commit", "-q", "-m", "A newsletter"),
	)
}

// copy copies an embedded folder of jobs into the project: each file by a rename, as an editor saves it, job.yml after
// those that it names.
func (d *demo) copy(folder string) error {
	var names []string
	err := fs.WalkDir(files, folder, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, name)
		}
		return err
	})
	slices.Reverse(names)
	for _, name := range names {
		data, rerr := files.ReadFile(name)
		file := filepath.Join(d.project(), ".deepwork", "jobs", filepath.FromSlash(strings.TrimPrefix(name, folder)))
		if err = errors.Join(err, rerr, write(file+".new", string(data))); err == nil {
			err = os.Rename(file+".new", file)
		}
	}
	return err
}

// write writes a file in a folder that may not exist.
func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

func (d *demo) git(ctx context.Context, args ...string) error {
	_, err := process.Run(ctx, process.Spec{Command: append([]string{"git"}, args...), Dir: d.project(), Env: d.environ()})
	return err
}

func (d *demo) project() string { return filepath.Join(d.dir, "newsletter") }

// own is the folder of the demo's user.
func (d *demo) own() string { return filepath.Join(d.dir, "own") }

// environ is the environment of the demo's processes: nothing of the real user's settings and state changes what it
// shows, and it changes none of them.
func (d *demo) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "DEEPWORK_") || strings.HasPrefix(entry, "GIT_")
	})
	env = append(env, "XDG_CONFIG_HOME="+d.own(), "APPDATA="+d.own(), state.Env+"="+filepath.Join(d.own(), "state"),
		"GIT_CONFIG_GLOBAL="+filepath.Join(d.own(), "gitconfig"), "GIT_CONFIG_NOSYSTEM=1")
	if width := d.out.Width(); width > 0 {
		env = append(env, "COLUMNS="+strconv.Itoa(max(width-len(indent)-1, 1)))
	}
	return env
}

func (d *demo) logFile() string { return filepath.Join(d.dir, "server.log") }

// serverLog returns the server's last log lines, to show a person why it failed.
func (d *demo) serverLog() string {
	data, _ := os.ReadFile(d.logFile())
	log := process.Tail(string(data), 8<<10)
	if log == "" {
		return ""
	}
	return "\nthe server logged:\n" + show.Indent(log, "  ")
}

// Tries are commands for a newcomer's own project, and what they are for.
var Tries = [][2]string{
	{"  deepwork init", "add an example job and connect Claude Code (--client: another client)"},
	{"  claude", `ask it: "Start the workflow write of release_notes."`},
	{"  deepwork ui", "see in a browser what runs, and what waits for you"},
	{"  deepwork trust", "allow deepwork to start agents in this project, as the next command does"},
}

// TryRun has no room beside it.
const TryRun = `  deepwork run release_notes/write --goal 1.0 --executor CLAUDE_CODE`

// Next prints what to try after the demo.
func Next(out *show.Screen) {
	out.Prose("\nWhat to try next, in one of your git repositories:")
	out.Pairs(Tries)
	typed(out, TryRun)
	if _, err := exec.LookPath("deepwork"); err != nil {
		out.Prose("deepwork is not in your PATH yet; the README says how to install it.")
	}
}

// typed prints a command that can be copied: if the screen is too narrow, options are on lines of their own,
// after a backslash, which the shells of Windows do not know.
func typed(to *show.Screen, command string) {
	if width := to.Width(); width > 0 && runtime.GOOS != "windows" && show.Columns(command) > width {
		blanks := command[:len(command)-len(strings.TrimLeft(command, " "))]
		command = strings.ReplaceAll(command, " --", " \\\n"+blanks+"    --")
	}
	to.Text("", command)
}
