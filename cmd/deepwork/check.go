package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/cmd/deepwork/validate"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/contain"
	"deepwork/session/remote"
	"deepwork/session/state"
	"deepwork/session/store/backend"
)

// checkPauses are the waits before each further inspection while a server runs: a server that takes over from another
// may need half a second.
var checkPauses = []time.Duration{100 * time.Millisecond, time.Second}

func (a *app) checkCommand() *cobra.Command {
	aside := false
	cmd := a.onProject("", &cobra.Command{
		Use:   "check",
		Short: "Verify what a project has in its database and on disk",
		Long: `Read the whole database of a project, and what belongs to it on disk, and print what
is wrong, where, and what can be done: the pages and rows of the database, sessions
with their references, definitions and replies, nested sessions, files of sessions that
differ from them; schedules with their due times; open executions, worktrees, what was left half-done, and rescue refs;
the remote runs of other systems' workflows.

It changes nothing and may run beside servers: work in progress is not reported.
A line that begins with "note:" is not a problem either: it says what a killed server
has left, which the next one cleans up. Exit 0: all is well. Exit 1: there are
problems, or the check could not finish.

With --set-aside, a database that is damaged, or of another version of deepwork, is
renamed, so that the next command begins an empty one. No server may run.`,
		Example: `  deepwork check`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			if aside {
				return a.setAside(cmd.Context(), root)
			}
			report, err := confirmed(cmd.Context(), func(ctx context.Context) (session.Report, error) {
				return a.inspect(ctx, root)
			})
			if err != nil {
				return fmt.Errorf("checking %s: %w", root, err)
			}
			return a.printReport(root, report)
		},
	})
	cmd.Flags().BoolVar(&aside, "set-aside", false, "rename a damaged database, and say where it is")
	return cmd
}

// containCommand has what concerns containment.
func (a *app) containCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "contain",
		Short: "See whether programs can be contained on this machine",
	}, &cobra.Command{
		Use:   "check",
		Short: "Try to contain a program, and say what it gets or why that fails",
		Long: `Contain a program that does nothing, by bubblewrap, in the way that is meant for
agents: with an empty home, no network and none of your files. Print what such a
program gets or, if it cannot be contained here, why not and what to do.

This version only tries it: agents run with all your rights.

Exit 0: programs can be contained. Exit 1: they cannot.`,
		Example: `  deepwork contain check`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := contain.Check(cmd.Context())
			if err != nil {
				return err
			}
			a.out.Prose(fmt.Sprintf("Programs can be contained here, by bubblewrap %s (%s). Such a program gets:",
				plan.Version, plan.Bwrap))
			a.out.Pairs(plan.Describe())
			return nil
		},
	})
}

// setAside renames the project's database if it is damaged.
func (a *app) setAside(ctx context.Context, root string) error {
	choice, err := a.choice(ctx, root)
	if err != nil {
		return err
	}
	if choice.URL != "" {
		return errors.New("--set-aside is for the database in the user's state folder: of a PostgreSQL database, " +
			"which its administrator restores, choose another schema with ?schema=NAME in its URL")
	}
	folder, err := a.stateOf(ctx, root)
	if err != nil {
		return err
	}
	to, err := backend.SetAside(ctx, folder, time.Now())
	if err != nil {
		return err
	}
	a.out.Prose("The database was set aside: " + to)
	a.out.Prose(a.here("The next command begins an empty one. `deepwork sessions import --all` makes sessions of the " +
		"files in .deepwork/tmp; tasks and attempts are only in the database that was set aside. The next server, or " +
		"command that starts an agent, removes the worktrees of those attempts: it keeps what is not committed, " +
		"under refs/deepwork/rescue, and branches with commits of their own, but not what git ignores, so copy that " +
		"before."))
	return nil
}

// confirmed calls look. If that finds an error while a server runs, it looks again later, and returns only the errors
// that persist.
func confirmed(ctx context.Context, look func(context.Context) (session.Report, error)) (session.Report, error) {
	report, err := look(ctx)
	for _, pause := range checkPauses {
		if err != nil || !report.Live || len(faults(report)) == 0 {
			break
		}
		if err := wait.For(ctx, pause); err != nil {
			return report, err
		}

		var later session.Report
		if later, err = look(ctx); err == nil {
			report = report.Confirmed(later)
		}
	}
	return report, err
}

func faults(r session.Report) []session.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f session.Finding) bool { return f.Note })
}

// inspect inspects everything once.
func (a *app) inspect(ctx context.Context, root string) (session.Report, error) {
	var all session.Report
	folder, err := a.stateOf(ctx, root)
	if err != nil {
		return all, err
	}

	quiet := slog.New(slog.DiscardHandler) // their log messages would repeat the findings
	file := filepath.Join(root, ".deepwork", "config.yml")
	cfg, err := validate.Config(file)
	if err == nil {
		cfg, err = approvedConfig(folder, quiet).Current(ctx)
	}
	if err != nil {
		// This only misses worktrees outside of the default folder.
		all.Fault(file, "the config cannot be read: "+validate.Reason(err),
			"run `deepwork validate`, which lists every error in it")
		cfg = config.Default()
	}
	if dir, _ := folder.Elsewhere(); dir != "" {
		all.Fault(dir, "it has another state of the project, which was not checked", "set "+state.Env+" to "+
			filepath.Dir(filepath.Dir(dir))+" and run `deepwork check` again; remove what is not needed")
	}
	if err := folder.OwnTmp(); err != nil {
		all.Fault(folder.Tmp(), err.Error(), "remove the link: calls that write are refused while it is there")
	}
	stores, err := a.stores(ctx, folder, true, quiet)
	if err != nil {
		return all, err
	}
	defer stores.Close(ctx) // read-only
	engine, err := passive(ctx, folder, stores, nil, quiet)
	if err != nil {
		return all, err
	}
	defer engine.Close(ctx)
	for _, part := range []func() (session.Report, error){
		func() (session.Report, error) {
			r, err := engine.Inspect(ctx)
			for i, f := range r.Findings {
				if !filepath.IsAbs(f.Where) { // it is in the database
					r.Findings[i].Where = engine.Stores.Database.Where() + ": " + f.Where
				}
			}
			return r, err
		},
		func() (session.Report, error) { return attempt.Inspect(ctx, folder, stores, cfg, quiet) },
		func() (session.Report, error) { return remote.Inspect(ctx, stores.Database) },
	} {
		r, err := part()
		if errors.Is(err, task.ErrDamaged) || errors.Is(err, task.ErrVersion) {
			continue // the board's inspection reports it
		}
		if err != nil {
			return all, err
		}
		all.Counts = append(all.Counts, r.Counts...)
		all.Findings = append(all.Findings, r.Findings...)
		all.Live = all.Live || r.Live
	}
	return all, nil
}

// printReport prints the findings. It returns an error if one of them is an error.
func (a *app) printReport(root string, r session.Report) error {
	kind := func(f session.Finding) string {
		if f.Note {
			return "note: "
		}
		return "" // which goes first
	}
	slices.SortStableFunc(r.Findings, func(x, y session.Finding) int {
		return cmp.Or(strings.Compare(kind(x), kind(y)), strings.Compare(x.Where, y.Where),
			strings.Compare(x.What, y.What))
	})

	const width = 2000 // of a line: files may contain anything
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "%s%s: %s\n    %s\n", kind(f), oneLine(a.display(root, f.Where), width),
			oneLine(a.here(f.What), width), oneLine(a.here(f.Do), width))
	}

	var counts []string
	for _, c := range r.Counts {
		text := count(c.N, c.What)
		if c.N > 0 && c.Of != "" {
			text += " (" + c.Of + ")"
		}
		counts = append(counts, text)
	}

	verdict := "all is well"
	n := len(faults(r))
	if n > 0 {
		verdict = count(n, "problem")
	}
	a.out.Judge(strings.Join(counts, ", ")+": ", n == 0, verdict)
	if n > 0 {
		return &exitError{exitFailure}
	}
	return nil
}
