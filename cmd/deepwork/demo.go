package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// demoFiles are the jobs of the example project, and newsletter as it is edited
// in the course of the demo.
//
//go:embed demo
var demoFiles embed.FS

// demoTimeout is far more than a demo takes; past it something hangs.
const demoTimeout = time.Minute

func (a *app) demoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the server at work on an example project",
		Long: `Lay out an example project in a fresh temporary directory, start the server on
it as a subprocess and walk an MCP client through it. What is said about each
exchange is checked; where it is not so, demo fails. It removes what it made.`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := interruptible(context.Background(), 0)
			defer stop()
			return a.demo(ctx, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the example project and print where it is")
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
		err = errors.Join(err, os.RemoveAll(dir))
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
	claims int // that held

	session string // of the newsletter
}

// run plays every act in turn and stops at the first claim that does not hold.
func (d *demo) run(ctx context.Context) (err error) {
	if d.server, err = d.startServer(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.server.stop()) }()
	acts := []struct {
		title string
		play  func(context.Context) error
	}{
		{"Discovery", d.discover},
		{"A workflow begins", d.begin},
		{"A refused output", d.refuse},
		{"A nested workflow", d.nest},
		{"A concurrent group, finished in parallel", d.parallel},
		{"An edit of job.yml on the fly", d.edit},
		{"A server killed in the middle", d.kill},
		{"The session resumed and completed", d.resume},
	}
	for i, act := range acts {
		fmt.Fprintf(d.out, "\n== %d. %s ==\n", i+1, act.title)
		if err := act.play(ctx); err != nil {
			return fmt.Errorf("%q: %w", act.title, err)
		}
	}
	return nil
}

// say prints a sentence about what follows.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n"+format+"\n", args...)
}

// claim checks what the demo says.
func (d *demo) claim(holds bool, format string, args ...any) error {
	if !holds {
		return fmt.Errorf("this does not hold: "+format, args...)
	}
	d.claims++
	return nil
}

// write does an agent's work: a file of the project, by its relative path.
func (d *demo) write(path, text string) error {
	file := filepath.Join(d.dir, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "   (the agent writes %s)\n", path)
	return os.WriteFile(file, []byte(text), 0o644)
}

// editJob saves the edited newsletter as an editor does: each file by a rename,
// job.yml last, since it names the others.
func (d *demo) editJob() error {
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

// serverLog is what the server last logged, for a person to see why it failed.
func (d *demo) serverLog() string {
	if d.server == nil {
		return ""
	}
	log := strings.TrimSpace(plain(d.server.log.String()))
	if log == "" {
		return ""
	}
	return "\nthe server logged:\n" + indent(log, "  ")
}
