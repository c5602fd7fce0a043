package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepwork/actor/process"
	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/run"
	"deepwork/session/show"
	"deepwork/session/workflow"
	"deepwork/transport/page"
)

// The exit codes of deepwork run, beside those of every command.
const (
	exitPaused      = 3
	exitInterrupted = 130
)

// budgets are the arguments of run_workflow that run resume takes, too.
var budgets = []string{"max_cost_usd=max-cost", "max_unknown", "max_seconds=max-time"}

func (a *app) runCommand() *cobra.Command {
	var given attempt.RunWorkflowArgs
	var worktree, detach bool
	cmd := a.onBoardStore(a.onProject("print one event per line, as JSON", &cobra.Command{
		Use:   "run JOB/WORKFLOW --goal TEXT",
		Short: "Run agents through a workflow, one per step",
		Long: `Run agents through a workflow until it is complete: one for each step, several at once
for concurrent steps. The run moves on when a step is accepted. In a git repository the
agents work in a worktree, on a branch of its own.

An agent that ends without finishing its step is sent back (run.retries in the config).
If that doesn't help, the run stops, and 'deepwork run resume' continues it. Ctrl-C ends
the agents; you can resume the run. With --detach it continues in the background.
` + inputsHelp + `

At a terminal the last line shows the progress. --json prints one event per line;
'deepwork schema run' prints their JSON Schema.

The exit code is 0 if the workflow is complete, 1 if the run stopped at a step, 2 for a
usage error, 3 if a budget paused it, 130 if it was interrupted.`,
		Example: `  deepwork run release_notes/write --goal "The notes of 2.0" --executor CLAUDE_CODE
  deepwork run release_notes/write --goal "The notes of 2.0" --executor CODEX --parallel 2 --max-time 2h
  deepwork run status latest
  deepwork run resume latest --max-cost 10`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !strings.Contains(strings.Trim(args[0], "/"), "/") {
				return usagef(cmd, "%q is not JOB/WORKFLOW; 'deepwork jobs' lists them%s", args[0],
					didYouMean(cmd, args[0]))
			}
			return argumentCount(1, 1, "a workflow, as JOB/WORKFLOW")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			job, workflow, _ := strings.Cut(args[0], "/")
			switch {
			case strings.TrimSpace(given.Goal) == "":
				return usagef(cmd, "--goal is missing; say what the run should accomplish")
			case worktree && given.InPlace != nil && *given.InPlace:
				return usagef(cmd, "--worktree and --in-place exclude each other; pass one of them")
			}
			given.JobName, given.WorkflowName = job, workflow
			if worktree {
				given.InPlace = new(false)
			}
			return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
				if wf, err := engine.CheckWorkflow(ctx, &job, &workflow); err == nil {
					if flags := neededInputs(wf, given.Inputs); flags != "" {
						return usagef(cmd, "%s needs more; add %s", args[0], flags)
					}
				}
				r, err := engine.RunWorkflow(ctx, atTerminal, given)
				if err != nil {
					return runRefused(cmd, "starting the run", err)
				}
				a.unseen(r.Unseen)
				return a.lead(ctx, engine, r, detach)
			})
		},
	}))
	argumentFlags(cmd, &given, append([]string{"goal", "parallel", "in_place", "context"}, budgets...)...)
	onExecutor(cmd, &given)
	onInputs(cmd, &given.Inputs)
	cmd.Flags().BoolVar(&worktree, "worktree", false, "work in a git worktree (default in a git repository)")
	onDetach(cmd, &detach)
	cmd.AddCommand(a.runResumeCommand(), a.runStatusCommand(), a.runExportCommand(), a.runStopCommand(),
		a.runLeaderCommand(), a.runListCommand(), a.onBoardStore(a.tailCommand("run")))
	return cmd
}

func (a *app) runResumeCommand() *cobra.Command {
	var given attempt.RunWorkflowArgs
	var detach bool
	cmd := a.onBoardStore(a.onProject("print one event per line, as JSON", &cobra.Command{
		Use:   "resume ID",
		Short: "Continue a run that stopped, was paused or interrupted",
		Long: `Continue a run that stopped, was paused or interrupted, or whose process is gone. Finished
steps aren't repeated. The budgets you give replace those of the run; --max-cost includes
what the run has cost so far.` + runIDs.help(),
		Example: `  deepwork run resume latest
  deepwork run resume 3f2a --max-cost 10 --detach`,
		Args: runArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onRun(false, args[0], func(ctx context.Context, engine *attempt.Engine, r *board.RunReply) error {
				resumed, err := engine.ResumeRun(ctx, atTerminal, r.RunID, "", func(r *board.Run) {
					r.MaxCostUSD, r.MaxUnknown = cmp.Or(given.MaxCostUSD, r.MaxCostUSD),
						cmp.Or(given.MaxUnknown, r.MaxUnknown)
					if given.MaxSeconds != nil {
						r.MaxTime = time.Duration(*given.MaxSeconds * float64(time.Second))
					}
				})
				if session.CodeOf(err) == codes.RunComplete {
					fmt.Fprintln(a.err, "deepwork: nothing was resumed: the run is completed already")
					resumed, err = r, nil
				}
				if err != nil {
					return runRefused(cmd, "resuming the run "+board.Short(r.RunID), err)
				}
				return a.lead(ctx, engine, resumed, detach)
			})
		},
	}))
	argumentFlags(cmd, &given, budgets...)
	onDetach(cmd, &detach)
	return cmd
}

// runLeaderCommand returns the process that leads a run in the background.
func (a *app) runLeaderCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("", &cobra.Command{
		Use:    "lead ID",
		Short:  "Lead a run in the background",
		Long:   "Lead the run ID until it ends. 'deepwork run --detach' starts this command.",
		Hidden: true,
		Args:   argumentCount(1, 1, "the id of a run"),
		RunE: func(_ *cobra.Command, args []string) error {
			process.Detached()
			return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
				finished := engine.ServeOnly(args[0])
				process.Answer("")
				return a.untilEnded(ctx, engine, args[0], finished)
			})
		},
	}))
}

// untilEnded waits for the end of a run.
func (a *app) untilEnded(ctx context.Context, engine *attempt.Engine, id string, finished <-chan struct{}) error {
	for ctx.Err() == nil {
		r, err := getRun(ctx, engine, id, false)
		if err != nil || !r.Open {
			return err
		}
		_ = wait.Until(ctx, time.Second, finished) // the next look notices that ctx has ended
	}
	return nil
}

// inBackground starts the process that leads a run.
func (a *app) inBackground(ctx context.Context, id string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	root, err := a.projectRoot()
	if err != nil {
		return err
	}
	command := []string{self, "run", "lead", id, "--path", root}
	for flag, value := range map[string]string{"--store": a.store, "--project": a.project} {
		if value != "" {
			command = append(command, flag, value)
		}
	}
	_, life, err := process.Detach(ctx, command, os.Environ())
	if err != nil {
		return err
	}
	return life.Close()
}

// runExit returns the command's result for a run that has ended.
func runExit(r *board.RunReply) error {
	switch r.State {
	case board.Completed, board.Merged:
		return nil
	case board.Paused:
		return &exitError{exitPaused}
	case board.Interrupted:
		return &exitError{exitInterrupted}
	}
	return &exitError{exitFailure}
}

// runRefused returns the error of a run that was not started or resumed. It is a usage error if other arguments would
// help, so that exit code 1 still means a run that stopped.
func runRefused(cmd *cobra.Command, doing string, err error) error {
	refused, ok := errors.AsType[*session.Error](err)
	if !ok || refused.Kind != session.ToolError {
		return fmt.Errorf("%s: %w", doing, forPeople(err))
	}

	argument, _ := refused.Details["argument"].(string)
	flag := flagOf(cmd, argument)
	text := strings.TrimSuffix(refused.For(session.Audience{Value: func(value string) string {
		if value == argument && flag != "" {
			return flag
		}
		return show.People.Value(value)
	}, Step: show.People.Step}), ".")
	if flag == "" || !strings.HasPrefix(text, flag) {
		text = doing + ": " + text
	}
	return usagef(cmd, "%s", text)
}

func (a *app) runStatusCommand() *cobra.Command {
	var items string
	cmd := a.onBoardStore(a.onProject("print it as JSON", &cobra.Command{
		Use:   "status [ID]",
		Short: "Show a run, or list all of them",
		Long: `Show a run: its state, and for each step how long its agents ran, what they cost, and
their last line of output. Of steps that are done for each item of a list, it shows how
far the items are, and ten that are not done; --items shows all of them, or those in a
state. Without an id, list the runs, as 'deepwork run list' does.` + runIDs.help(),
		Example: `  deepwork run status
  deepwork run status latest
  deepwork run status latest --items failed`,
		Args: argumentCount(0, 1, "the id of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := append([]board.State{"all"}, run.ItemStates...)
			if items != "" && (len(args) == 0 || !slices.Contains(all, board.State(items))) {
				return usagef(cmd, "--items %s: expected the id of a run, and one of %s", items,
					strings.Trim(fmt.Sprint(all), "[]"))
			}
			if len(args) == 0 {
				return a.withBoard(true, func(ctx context.Context, engine *attempt.Engine) error {
					return a.printHistory(ctx, engine, task.HistoryQuery{Kind: task.HistoryRun, Limit: 1000})
				})
			}
			return a.onRun(true, args[0], func(ctx context.Context, engine *attempt.Engine, r *board.RunReply) error {
				return a.withEngine(ctx, true, nil, func(sessions *workflow.Engine) error {
					v := run.Look(ctx, r, sessions, run.LastSaid(ctx, engine, atTerminal, r))
					if a.json {
						return a.printJSON(v.RunReply)
					}
					a.printRun(ctx, engine, v, items)
					return nil
				})
			})
		},
	}))
	cmd.Flags().StringVar(&items, "items", "", "show the items in a `state`, such as failed, or all of them")
	cmd.MarkFlagsMutuallyExclusive("items", "json")
	return cmd
}

// maxItems is how many items are shown of which the command line does not ask for.
const maxItems = 10

// printSteps prints the steps of a run with their agents, and items: those in a state, all, or "" for those that are
// not done.
func (a *app) printSteps(v *run.View, items string) {
	var rows [][]string
	v.Tree.Rows(func(s *run.Step, depth int) {
		name := strings.Repeat("> ", depth) + s.ID
		executor := ""
		cost := ""
		if len(s.Agents) > 1 {
			name += fmt.Sprintf(" (%d agents)", len(s.Agents))
		}
		if x := s.Agent(); x != nil {
			executor = x.Executor
		}
		if s.USD != nil {
			cost = fmt.Sprintf("%.2f USD", *s.USD)
		}
		rows = append(rows, []string{name, executor, s.State.Words(), ranFor(s), cost, a.stepNote(s)})
		if s.List == nil {
			return
		}
		for n, i := range s.List.Find(strings.TrimPrefix(items, "all"), "") {
			if items != "" || n < maxItems && i.State != board.Completed {
				name := fmt.Sprintf("%s> %d %s", strings.Repeat("> ", depth), i.Number, show.OneLine(i.Value, 80))
				rows = append(rows, []string{name, "", i.State.Words(), "", "", i.Said})
			}
		}
	})
	if len(rows) > 0 {
		fmt.Fprintln(a.out)
		a.out.Table([]show.Column{{Title: "STEP", Least: 12}, {Title: "AGENT", Least: 8, Optional: true}, {
			Title: "STATE",
			State: true,
		}, {Title: "TIME", Optional: true}, {Title: "COST", Optional: true}, {Title: "LAST", Least: 20, Below: true}},
			rows)
		fmt.Fprintln(a.out)
	}
}

func (a *app) runExportCommand() *cobra.Command {
	var files bool
	cmd := a.onBoardStore(a.onProject("", &cobra.Command{
		Use:   "export ID",
		Short: "Print a run as one HTML file, to hand on",
		Long: `Print a run as one HTML file: its goal, its steps with their verdicts and evidence, and its
diff. It has no scripts, and loads nothing. With --files it has the content of outputs, too:
read it before you hand it on.` + runIDs.help(),
		Example: `  deepwork run export latest > run.html
  deepwork run export 3f2a --files > run.html`,
		Args: runArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, ok := show.TerminalSize(a.rawOut); ok {
				return usagef(cmd, "stdout is a terminal; send the file elsewhere, with > run.html")
			}
			return a.onRun(true, args[0], func(ctx context.Context, engine *attempt.Engine, r *board.RunReply) error {
				return a.withEngine(ctx, true, nil, func(sessions *workflow.Engine) error {
					v := run.Look(ctx, r, sessions, run.LastSaid(ctx, engine, atTerminal, r))
					return page.Export(ctx, a.rawOut, engine, atTerminal, v, files)
				})
			})
		},
	}))
	cmd.Flags().BoolVar(&files, "files", false, "with the content of outputs, as it is now")
	return cmd
}

func (a *app) runStopCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("", &cobra.Command{
		Use:     "stop ID",
		Short:   "Stop a run and its agents",
		Long:    "Stop a run and its agents. 'deepwork run resume' continues it." + runIDs.help(),
		Example: `  deepwork run stop latest`,
		Args:    runArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onRun(false, args[0],
				func(ctx context.Context, engine *attempt.Engine, r *board.RunReply) (err error) {
					if r.Open {
						if _, err := engine.StopAttempt(ctx, atTerminal,
							attempt.AttemptArgs{Target: board.Target{AttemptID: &r.RunID}}); err != nil {
							return err
						}
						if r, err = engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: r.RunID}); err != nil {
							return err
						}
					} else {
						fmt.Fprintf(a.err, "deepwork: nothing was stopped: the run is %s already\n", r.State.Words())
					}
					fmt.Fprintf(a.out, "%s %s\n", r.State.Words(), board.Short(r.RunID))
					return nil
				})
		},
	}))
}

func (a *app) runListCommand() *cobra.Command {
	q := task.HistoryQuery{Kind: task.HistoryRun, Limit: 100}
	cmd := a.onBoardStore(a.onProject("print them as JSON, with the totals", &cobra.Command{
		Use:        "list",
		SuggestFor: []string{"ls", "history"},
		Short:      "List the runs, or what else has run, and add them up",
		Long: `List the runs or, with --kind, the sessions or the attempts, the newest first, and the
totals of all that the flags select: how many of those of a workflow that have ended are
complete without a check or a review that failed, how long the median one took, and what
all have cost, as far as that is known.`,
		Example: `  deepwork run list --since 2026-11-30 --state stopped
  deepwork run list --kind session --job release_notes`,
		Args: argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			q.Job, q.Workflow, _ = strings.Cut(q.Job, "/")
			return a.withBoard(true, func(ctx context.Context, engine *attempt.Engine) error {
				return a.printHistory(ctx, engine, q)
			})
		},
	}))
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		cmd.Flags().TimeVar(at, name, time.Time{}, []string{time.DateOnly, time.RFC3339},
			"only those started "+name+" this `DATE`, in UTC")
	}
	until := cmd.Flags().Lookup("until")
	until.Value = lastDay{until.Value, &q.Until}
	until.Usage += "; a day counts to its end"
	argumentFlags(cmd, &q, "kind", "state", "job", "limit")
	return cmd
}

// lastDay is the flag of a time before which something began. A day counts to its end.
type lastDay struct {
	pflag.Value
	at *time.Time
}

// Set implements pflag.Value.
func (d lastDay) Set(text string) error {
	err := d.Value.Set(text)
	if _, other := time.Parse(time.DateOnly, strings.TrimSpace(text)); other == nil {
		*d.at = d.at.AddDate(0, 0, 1)
	}
	return err
}

// printHistory lists what a query selects, with the totals.
func (a *app) printHistory(ctx context.Context, engine *attempt.Engine, q task.HistoryQuery) error {
	records, _, err := engine.View(ctx, atTerminal)
	if err != nil {
		return err
	}
	rows, err := records.History(ctx, q)
	totals, failed := records.HistoryTotals(ctx, q)
	if err = errors.Join(err, failed); err != nil {
		return board.Fault("listing what has run", err)
	}

	var cells [][]string
	for i := range rows {
		r := &rows[i]
		r.Status = cmp.Or(r.Status, string(engine.StateOf(&r.Situation)))
		cells = append(cells, []string{board.Short(r.ID), board.State(r.Status).Words(),
			strings.Trim(r.Job+"/"+r.Workflow, "/"), show.Since(r.StartedAt), r.Title})
	}
	if a.json {
		return a.printJSON(map[string]any{"runs": board.NonNil(rows), "totals": totals})
	}
	a.out.Table([]show.Column{{Title: "ID"}, {Title: "STATE", State: true}, {Title: "WORKFLOW", Least: 12},
		{Title: "AGE"}, {Title: "GOAL", Least: 20}}, cells)
	fmt.Fprintln(a.out, show.Totals(totals))
	return nil
}
