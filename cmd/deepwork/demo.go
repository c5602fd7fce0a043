package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/session/show"
)

// demoFiles are the jobs of the example projects, and newsletter as it is edited in the course of the
// demo.
//
//go:embed demo
var demoFiles embed.FS

// demoTimeout is far more than a demo takes; after it something hangs.
const demoTimeout = time.Minute

func (a *app) demoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show everything at work on example projects",
		Long: `Lay out example projects in a temporary directory, with scripted agents, and use
everything once: an MCP client goes through a workflow on a real server, an agent does a
task of the board in a git worktree, and 'deepwork run' runs agents through a workflow.
It fails if anything does not work here. It ends with what to try next. It changes nothing
outside of that directory, and removes it.`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			defer surviveBrokenPipes()() // it stops and cleans up
			ctx, stop := interruptible(context.Background(), 0)
			defer stop()
			return a.demo(ctx, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the example projects and print where they are")
	cmd.AddCommand(a.demoAgents()...)
	return cmd
}

func (a *app) demo(ctx context.Context, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "deepwork-demo-*")
	if err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return errors.Join(fmt.Errorf("finding this program, which is the server: %w", err), os.Remove(dir))
	}
	if keep {
		a.out.Prose("The example projects are kept in " + dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	d := &demo{out: a.out, dir: dir, self: self}
	if err = d.prepare(); err == nil {
		err = d.run(limited)
	}
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return errors.New("demo: interrupted")
		case limited.Err() != nil:
			err = fmt.Errorf("not done after %v: %w", demoTimeout, err)
		}
		return fmt.Errorf("demo: %w%s", err, d.serverLog())
	}
	a.out.Prose(fmt.Sprintf("\nAll of it works here. It took %.1fs.", time.Since(began).Seconds()))
	a.demoNext()
	return nil
}

// A demo is one walk through the example projects.
type demo struct {
	out    *show.Screen
	dir    string // has the projects, and own: a user's config and state
	self   string // this program
	server *demoServer

	session string // the newsletter's
}

// run plays every act in turn and stops at the first that does not work.
func (d *demo) run(ctx context.Context) (err error) {
	d.out.Prose(`deepwork runs here on example projects in a temporary folder. Scripts play the AI agents; everything else is real.
"->" is what an agent sends, "<-" is part of the reply, and "$" is a command that a person types.`)
	if err := d.startServer(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.server.stop()) }()
	for i, act := range acts {
		fmt.Fprintln(d.out)
		d.out.Heading("", fmt.Sprintf("%d. %s", i+1, act.title), "")
		for _, s := range act.scenes {
			if err := errors.Join(d.play(ctx, s), d.out.Err()); err != nil {
				return fmt.Errorf("%q: %w", act.title, err)
			}
		}
	}
	return nil
}

// play plays one scene.
func (d *demo) play(ctx context.Context, s scene) error {
	d.say(s.say)
	for _, f := range s.files {
		file := filepath.Join(d.newsletter(), filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		d.out.Text("", fmt.Sprintf("   (the agent writes %s)", f.path))
		if err := os.WriteFile(file, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	if s.do != nil {
		if err := s.do(d, ctx); err != nil {
			return err
		}
	}
	if s.tool == "" {
		return nil
	}
	lines, reply, err := d.exchange(ctx, s)
	d.out.Text("", lines)
	if err != nil {
		return err
	}
	if d.session == "" {
		d.session = strings.Trim(strings.ReplaceAll(string(lookup(reply, "begin_step.session_id")), "null", ""), `"`)
	}
	return nil
}

// say prints a sentence about what follows.
func (d *demo) say(sentence string) {
	if sentence != "" {
		d.out.Prose("\n" + sentence)
	}
}

// editJob saves the edited newsletter as an editor does: each file by a rename, job.yml last, since
// it names the others.
func (d *demo) editJob(context.Context) error {
	for _, name := range []string{"steps/proofread.md", "job.yml"} {
		data, err := fs.ReadFile(demoFiles, "demo/edited/newsletter/"+name)
		if err != nil {
			return err
		}
		file := filepath.Join(d.newsletter(), ".deepwork", "jobs", "newsletter", filepath.FromSlash(name))
		if err := replaceWith(file, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) newsletter() string { return filepath.Join(d.dir, "newsletter") }

func (d *demo) logFile() string { return filepath.Join(d.newsletter(), ".deepwork", "server.log") }

// serverLog returns the server's last log lines, to show a person why it failed.
func (d *demo) serverLog() string {
	data, _ := os.ReadFile(d.logFile())
	log := process.Tail(string(data), 8<<10)
	if log == "" {
		return ""
	}
	return "\nthe server logged:\n" + indent(log, "  ")
}

// demoTries are commands for a newcomer's own project, and what they are for.
var demoTries = [][2]string{
	{"  deepwork init", "add an example job and connect Claude Code (--client: another client)"},
	{"  claude", `ask it: "Start the workflow write of release_notes."`},
	{"  deepwork ui", "see in a browser what runs, and what waits for you"},
	{"  deepwork trust", "allow deepwork to start agents in this project, as the next command does"},
}

// demoTryRun has no room beside it.
const demoTryRun = `  deepwork run release_notes/write --goal 1.0 --executor CLAUDE_CODE`

// demoNext prints what to try after the demo.
func (a *app) demoNext() {
	a.out.Prose("\nWhat to try next, in one of your git repositories:")
	a.out.Pairs(demoTries)
	typed(a.out, demoTryRun)
	if _, err := exec.LookPath("deepwork"); err != nil {
		a.out.Prose("deepwork is not in your PATH yet; the README says how to install it.")
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
