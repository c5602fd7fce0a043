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

	"deepwork/actor/process"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/catalog/trust"
	"deepwork/cmd/deepwork/validate"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
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
		Short: "Contain agents, and see what they may reach",
	}, a.containCheckCommand(), a.containLoginCommand(), a.onBoardStore(a.containLogCommand()))
}

func (a *app) containCheckCommand() *cobra.Command {
	run := false
	cmd := a.onProject("", &cobra.Command{
		Use:   "check [EXECUTOR]",
		Short: "Try to contain a program, and say what it gets or why that fails",
		Long: `Contain a program that does nothing, by bubblewrap, in the way in which agents are
contained: with a new home, and none of your files. Print what such a program gets or,
if it cannot be contained here, why not and what to do. With the name of an executor,
print what its agents would get in this project by contain in the config.

Exit 0: programs can be contained. Exit 1: they cannot.`,
		Example: `  deepwork contain check
  deepwork contain check CLAUDE_CODE`,
		Args: argumentCount(0, 1, "EXECUTOR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			plan, err := contain.Check(ctx)
			if err != nil {
				return err
			}
			about := fmt.Sprintf("Programs can be contained here, by bubblewrap %s (%s).", plan.Version, plan.Bwrap)
			if len(args) == 0 {
				a.out.Prose(about + " Such a program gets:")
				a.out.Pairs(plan.Describe())
				return nil
			}

			agent, err := a.contained(ctx, args[0], run, contain.HomeOf)
			if err != nil {
				return err
			}
			a.out.Prose(about + fmt.Sprintf(map[config.ContainMode]string{
				config.ContainOff: " But contain is off for %s: its agents have all your rights. With " +
					"contain: required they would get:",
				config.ContainOuter: " But contain is outer for %s: its agents have all your rights on this machine. " +
					"With contain: required they would get:",
				config.ContainRequired: " Agents of %s are contained. They get:",
			}[agent.mode], args[0]))
			kept := "nothing"
			if agent.home != "" {
				kept = "the agent's login and settings, in " + agent.home
			}
			a.out.Pairs(append(agent.plan.Describe(), [2]string{"keeps", kept},
				[2]string{"also writes", "its worktree, and a git folder of its own"}))
			return nil
		},
	})
	cmd.Flags().BoolVar(&run, "run", false, "what the agents of runs get, instead of those of the board")
	return cmd
}

// A containedAgent is an executor's agent as it is contained in a project, apart from its worktree.
type containedAgent struct {
	mode    config.ContainMode
	program string
	plan    *contain.Plan
	home    string // what it keeps, "" if nothing
}

// contained returns how the agents of an executor are contained, whatever the mode. homeOf returns the home that they
// keep.
func (a *app) contained(
	ctx context.Context, name string, run bool, homeOf func(state, executor string) string,
) (*containedAgent, error) {
	folder, err := a.findFolder(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := approvedConfig(folder, a.logger()).Current(ctx)
	if err != nil {
		return nil, err
	}
	recipe, err := executors.Resolve(executors.Merge(cfg.Executors), name, "")
	if err != nil {
		return nil, err
	}
	program, err := trust.Program(folder.Root, cfg.Approval, recipe.Command[:1])
	if err != nil {
		return nil, fmt.Errorf("the program of %s: %w", name, err)
	}

	c := cfg.Contained(name, run)
	agent := &containedAgent{mode: c.Mode}
	c.Mode = config.ContainRequired
	if agent.plan, err = executors.Plan(ctx, c, process.Home(), folder.Dir, folder.Root); err != nil {
		return nil, err
	}
	agent.program = agent.plan.Program(program)
	if c.Home == config.HomeKeep {
		agent.home = homeOf(folder.Dir, name)
		err = agent.plan.UseHome(agent.home)
	}
	return agent, errors.Join(err, agent.plan.UseCache(contain.CacheOf(folder.Dir)))
}

func (a *app) containLoginCommand() *cobra.Command {
	homeOf, reviewer := contain.HomeOf, false
	cmd := a.onProject("", &cobra.Command{
		Use:   "login EXECUTOR [-- ARGUMENT...]",
		Short: "Log an agent in, in the home that its contained agents get",
		Long: `Start the agent's own program at the terminal, contained, in the home that the
executor's contained agents get in this project. Log in there as the program asks you
to, and leave it: the login is kept. Your own home is not used.

Arguments after -- are the program's own. A program that opens a browser and waits for
it at a port of this machine waits in vain: use its way to log in by a code.`,
		Example: `  deepwork contain login CLAUDE_CODE
  deepwork contain login CODEX -- login --device-auth`,
		Args: argumentCount(1, -1, "EXECUTOR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reviewer {
				homeOf = contain.ReviewerHomeOf
			}
			agent, err := a.contained(cmd.Context(), args[0], true, homeOf)
			if err != nil {
				return err
			}
			if agent.home == "" {
				return fmt.Errorf("agents of %s keep no login, since contain has home: new. Give them a key by "+
					"pass_env in %s, or set home: keep", args[0], config.UserFile())
			}
			fmt.Fprintf(a.err, "deepwork: starting %s in the home of %s, %s\n", inline(agent.program), args[0],
				inline(agent.home))
			err = agent.plan.Attach(cmd.Context(), append([]string{agent.program}, args[1:]...),
				contain.Once(func(r contain.Refusal) { fmt.Fprintln(a.err, "deepwork: "+inline(r.Note())) }))
			if err != nil {
				return fmt.Errorf("%s failed: %w", inline(agent.program), err)
			}
			return nil
		},
	})
	cmd.Flags().BoolVar(&reviewer, "reviewer", false, "in the home of the executor as a reviewer, which has its own")
	return cmd
}

func (a *app) containLogCommand() *cobra.Command {
	return a.onProject("print each as JSON, one per line", &cobra.Command{
		Use:   "log [ID]",
		Short: "List the connections that contained agents were refused",
		Long: `List the connections that the contained agents of an attempt or a run were refused, and
what would allow each. Without ID, it is latest.` + attemptIDs.help(),
		Example: `  deepwork contain log
  deepwork contain log 3f2a`,
		Args: argumentCount(0, 1, "ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onAttempt(append(args, latest)[0], a.printRefused)
		},
	})
}

func (a *app) printRefused(ctx context.Context, engine *attempt.Engine, t board.Target) error {
	entries, err := engine.Refused(ctx, atTerminal, t)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if a.json {
			if err := a.printLine(x); err != nil {
				return err
			}
			continue
		}
		a.out.Pairs([][2]string{{x.Time.Local().Format(time.DateTime), inline(x.Text)}})
	}
	if len(entries) == 0 && !a.json {
		fmt.Fprintln(a.out, "No connection of a contained agent was refused.")
	}
	return nil
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
