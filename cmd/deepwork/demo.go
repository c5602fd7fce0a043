package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/session/state"
)

// demoFiles are the jobs of the example project, and newsletter as it is edited
// in the course of the demo.
//
//go:embed demo
var demoFiles embed.FS

// demoTimeout is far more than a demo takes; after it something hangs.
const demoTimeout = time.Minute

func (a *app) demoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the server at work on an example project",
		Long: `Lay out an example project in a fresh temporary directory, start the server on
it as a subprocess and walk an MCP client through it; then have 'deepwork run' lead
three writers, which are this program, through a workflow. What is said about each
exchange is checked; where it is not so, demo fails. It removes what it made.`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := interruptible(context.Background(), 0)
			defer stop()
			return a.demo(ctx, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the example project and print where it is")
	cmd.AddCommand(a.demoAgents()...)
	return cmd
}

func (a *app) demo(ctx context.Context, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "deepwork-demo-*")
	if err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	defer func() {
		if keep {
			fmt.Fprintf(a.out, "The project is kept in %s\n", dir)
			return
		}
		err = errors.Join(err, state.Of(dir).Remove(), os.RemoveAll(dir))
	}()
	if err := copyTree(demoFiles, "demo/jobs", filepath.Join(dir, ".deepwork", "jobs")); err != nil {
		return fmt.Errorf("laying out the project of the demo: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, which is the server: %w", err)
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	d := &demo{out: a.out, dir: dir, self: self}
	if err := d.run(limited); err != nil {
		switch {
		case ctx.Err() != nil:
			return errors.New("demo: interrupted")
		case limited.Err() != nil:
			err = fmt.Errorf("not done after %v: %w", demoTimeout, err)
		}
		return fmt.Errorf("demo: %w%s", err, d.serverLog())
	}
	fmt.Fprintf(a.out, "\n%s hold. It took %v.\n", count(d.claims, "claim"), time.Since(began).Round(time.Millisecond))
	return nil
}

// A demo is one walk through the example project.
type demo struct {
	out    io.Writer
	dir    string // the project's root
	self   string // this program
	server *demoServer
	claims int // claims that held

	session string // the newsletter's
}

// run plays every act in turn and stops at the first claim that does not hold.
func (d *demo) run(ctx context.Context) (err error) {
	if err := d.startServer(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.server.stop()) }()
	for i, act := range acts {
		fmt.Fprintf(d.out, "\n== %d. %s ==\n", i+1, act.title)
		for _, s := range act.scenes {
			if err := d.play(ctx, s); err != nil {
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
		file := filepath.Join(d.dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		fmt.Fprintf(d.out, "   (the agent writes %s)\n", f.path)
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
	text, reply, err := d.exchange(ctx, s)
	fmt.Fprint(d.out, text)
	if err != nil {
		return err
	}
	if d.session == "" {
		d.session = strings.Trim(strings.ReplaceAll(string(lookup(reply, "begin_step.session_id")), "null", ""), `"`)
	}
	for _, c := range s.claims {
		if err := d.check(reply, c); err != nil {
			return err
		}
	}
	return nil
}

// say prints a sentence about what follows.
func (d *demo) say(sentence string) {
	if sentence != "" {
		fmt.Fprintf(d.out, "\n%s\n", sentence)
	}
}

// check checks a claim about a reply.
func (d *demo) check(reply json.RawMessage, c claim) error {
	got, want := string(lookup(reply, c.path)), strings.ReplaceAll(c.want, "$session", d.session)
	part, contains := strings.CutPrefix(want, "~")
	if contains && !strings.Contains(got, part) || !contains && got != want {
		return fmt.Errorf("this does not hold: %s: %s is %s", c.what, cmp.Or(c.path, "the reply"), got)
	}
	d.claims++
	return nil
}

// editJob saves the edited newsletter as an editor does: each file by a rename, job.yml last, since
// it names the others.
func (d *demo) editJob(context.Context) error {
	for _, name := range []string{"steps/proofread.md", "job.yml"} {
		data, err := fs.ReadFile(demoFiles, "demo/edited/newsletter/"+name)
		if err != nil {
			return err
		}
		file := filepath.Join(d.dir, ".deepwork", "jobs", "newsletter", filepath.FromSlash(name))
		if err := replaceWith(file, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) logFile() string { return filepath.Join(d.dir, ".deepwork", "server.log") }

// serverLog returns the server's last log lines, to show a person why it failed.
func (d *demo) serverLog() string {
	data, _ := os.ReadFile(d.logFile())
	log := process.Tail(string(data), 8<<10)
	if log == "" {
		return ""
	}
	return "\nthe server logged:\n" + indent(log, "  ")
}
