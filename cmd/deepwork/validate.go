package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/catalog"
	"deepwork/cmd/deepwork/validate"
)

func (a *app) validateCommand() *cobra.Command {
	var watch bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "validate [JOB|DIR...]",
		Short: "Check jobs and the config",
		Long: `Check jobs: each DIR is a job's folder or a folder of jobs, each JOB the name of a
folder in .deepwork/jobs; without them it is the project's .deepwork/jobs and .deepwork/config.yml. Errors and ` +
			`warnings are
printed one per line as file:line:col: message; your own config is not checked. A
folder without a job.yml is a warning, and so is a check, reviewer, executor or source
whose program is not installed here, or an executor that is not defined. The exit code
is 1 if there is an error; warnings do not count.

With --watch it goes on until interrupted, and prints again what an edit changed.`,
		Example: `  deepwork validate
  deepwork validate release_notes`,
		Args: argumentCount(0, -1, ""),
		RunE: func(_ *cobra.Command, args []string) error {
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			for i, given := range args {
				job, _, _ := strings.Cut(given, "/")
				dir := filepath.Join(root, ".deepwork", "jobs", job)
				if _, err := os.Stat(given); err != nil {
					if _, err := os.Stat(dir); err == nil {
						args[i] = a.display(root, dir)
					}
				}
			}

			scan := func() ([]*validate.Check, error) {
				if len(args) > 0 {
					return validate.Folders(root, args)
				}
				return validate.Project(root, func(path string) string { return a.display(root, path) })
			}
			checks, err := scan()
			if err != nil {
				return err
			}
			for _, c := range checks {
				a.printCheck(c)
			}

			summary, faults := validate.Summary(checks)
			fmt.Fprintf(a.err, "deepwork: %s\n", summary)
			if watch {
				return a.watch(root, checks, scan)
			}
			if faults > 0 {
				return &exitError{exitFailure}
			}

			return nil
		},
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and check again what changes")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}

// printCheck prints the diagnostics of one file, one per line.
func (a *app) printCheck(c *validate.Check) {
	for _, d := range c.Diagnostics {
		d.Message = strings.ReplaceAll(d.Message, "\n", " ")
		fmt.Fprintln(a.out, a.here(inline(d.String())))
	}
}

// scanEvery is how often files are scanned without an event: the catalog watches the folders of jobs, but not the
// config, folders below them, or folders named on the command line.
const scanEvery = time.Second

// watch scans until it is interrupted, after each burst of the catalog's events and at intervals, and prints what
// differs from the last checks. It compares contents, and so notices every way of saving, on every file system.
func (a *app) watch(root string, before []*validate.Check, scan func() ([]*validate.Check, error)) error {
	ctx, stop := interruptible(context.Background(), 0)
	defer stop()
	jobs, err := catalog.Open(ctx, catalog.Options{Root: root}) // faults of jobs are printed instead
	if err != nil {
		return fmt.Errorf("watching the jobs of %s: %w", root, err)
	}
	defer func() { _ = jobs.Close(context.WithoutCancel(ctx)) }()
	events := jobs.Events(ctx)

	fmt.Fprintln(a.err, "deepwork: watching; interrupt to end")
	for pause := scanEvery; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-time.After(pause):
		}

		began := time.Now()
		now, err := scan()
		if err != nil && !errors.Is(err, validate.ErrNoJobs) {
			now = nil // the folder is missing, as while switching branches
		}
		if a.printChanges(before, now) {
			summary, _ := validate.Summary(now)
			fmt.Fprintf(a.err, "deepwork: %s\n", summary)
		}
		before = now
		pause = max(scanEvery, 10*time.Since(began)) // with very many jobs, at most a tenth of a core
	}
}

// printChanges prints the checks that differ, and reports whether any does.
func (a *app) printChanges(before, now []*validate.Check) (changed bool) {
	byFile := func(all []*validate.Check) map[string]*validate.Check {
		found := map[string]*validate.Check{}
		for _, c := range all {
			found[c.File] = c
		}
		return found
	}
	beforeByFile, nowByFile := byFile(before), byFile(now)
	for _, c := range before {
		if nowByFile[c.File] == nil {
			changed = true
			fmt.Fprintf(a.out, "%s: removed\n", inline(c.File))
		}
	}
	for _, c := range now {
		if c.Same(beforeByFile[c.File]) {
			continue
		}
		changed = true
		a.printCheck(c)
		if len(c.Diagnostics) == 0 {
			fmt.Fprintf(a.out, "%s: ok\n", inline(c.File))
		}
	}
	return changed
}
