package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) validateCommand() *cobra.Command {
	var watch bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "validate [DIR...]",
		Short: "Check jobs and the config",
		Long: `Check jobs: each DIR is a job's folder or a folder of jobs; without DIR it is the
project's .deepwork/jobs and .deepwork/config.yml. Faults and warnings are
printed one per line as file:line:col: message; your own config is not checked. A
folder without a job.yml is a warning, and so is a reviewer, executor or source whose
program is not installed here. The exit code is 1 if there is a fault; warnings do
not count.

With --watch it goes on until interrupted, prints again what an edit changed, and
reports which active sessions of the project the edit strands.`,
		Args: takes(0, -1, ""),
		RunE: func(_ *cobra.Command, args []string) error {
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			v := &validator{app: a, root: root, dirs: args}
			if watch {
				ctx, stop := interruptible(context.Background(), 0)
				defer stop()
				return v.watch(ctx)
			}
			return v.once()
		},
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and check again what changes")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}

// A validator checks the targets of one `deepwork validate`.
type validator struct {
	app  *app
	root string
	dirs []string // as given; empty means the project
}

// once prints every diagnostic, then a summary; a fault is a reportedError.
func (v *validator) once() error {
	checks, err := v.scan()
	if err != nil {
		return err
	}
	for _, c := range checks {
		v.print(c)
	}
	total := summarize(slices.Values(checks))
	fmt.Fprintf(v.app.err, "deepwork: %s\n", total)
	if total.faults > 0 {
		return &reportedError{}
	}
	return nil
}

// print prints the diagnostics of one file, one per line.
func (v *validator) print(c *check) {
	for _, d := range c.diagnostics {
		d.Message = strings.ReplaceAll(d.Message, "\n", " ")
		fmt.Fprintln(v.app.out, inline(d.String()))
	}
}

// A summary counts what was checked and found.
type summary struct {
	jobs, configs, faults, warnings int
}

func summarize(checks iter.Seq[*check]) summary {
	var s summary
	for c := range checks {
		switch {
		case c.isJob:
			s.jobs++
		case !c.isFolder:
			s.configs++
		}
		for _, d := range c.diagnostics {
			if d.Warning {
				s.warnings++
			} else {
				s.faults++
			}
		}
	}
	return s
}

func (s summary) String() string {
	what := count(s.jobs, "job")
	if s.configs > 0 {
		what += " and config.yml"
	}
	return fmt.Sprintf("%s checked: %s, %s", what, count(s.faults, "fault"), count(s.warnings, "warning"))
}

// count returns "1 job", "2 jobs".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

var errNoJobs = errors.New("no jobs found")
