package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/attempt"
)

// The exit codes of deepwork run, beside those of every command.
const (
	exitPaused      = 3
	exitInterrupted = 130
)

// runFlags are the options of deepwork run.
type runFlags struct {
	goal, executor, context string
	parallel                int
	worktree, inPlace       bool
	maxCost                 float64
	maxUnknown              int
	maxTime                 time.Duration
	detach                  bool
}

// budgets are the flags that resume has, too.
func (f *runFlags) budgets(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&f.maxCost, "max-cost", 0, "`USD` that its agents may cost, all together")
	flags.IntVar(&f.maxUnknown, "max-unknown", 0, "`number` of its agents that may end with an unknown cost")
	flags.DurationVar(&f.maxTime, "max-time", 0, "time after which it is paused, such as 90m")
	flags.BoolVar(&f.detach, "detach", false, "return at once; the run goes on in the background")
}

// checkBudgets refuses budgets that are out of range.
func (f *runFlags) checkBudgets(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case changed("max-cost") && !(f.maxCost >= 0 && f.maxCost < math.MaxFloat64): // also refuses what is not a number
		return usagef(cmd, "--max-cost is %v; expected an amount of USD, 0 or more", f.maxCost)
	case changed("max-unknown") && f.maxUnknown < 0:
		return usagef(cmd, "--max-unknown is %d; expected a number of agents, 0 or more", f.maxUnknown)
	case changed("max-time") && (f.maxTime <= 0 || f.maxTime.Seconds() > attempt.MaxRunSeconds):
		return usagef(cmd, "--max-time is %v; expected a time such as 90m, at most %v", f.maxTime, time.Duration(attempt.MaxRunSeconds)*time.Second)
	}
	return nil
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := a.onBoardStore(a.onProject("print one event per line, as JSON", &cobra.Command{
		Use:   "run JOB/WORKFLOW --goal TEXT",
		Short: "Run agents through a workflow, one per step",
		Long: `Run agents through a workflow until it is complete: start one for each step, several at
once for the members of a concurrent group, and move on when the step is accepted. In a
git repository they work in a worktree with a branch of its own.

An agent that ends without finishing its step is sent back (run.retries in the config).
If that does not help, the run stops, and 'deepwork run resume' continues it. Ctrl-C ends
the agents; the run can be resumed. With --detach it continues in the background.

At a terminal its steps are shown with their progress. --json prints one event per line;
'deepwork schema run' prints their JSON Schema.

The exit code is 0 if the workflow is complete, 1 if the run stopped at a step, 2 for a
usage error, 3 if a budget paused it, 130 if it was interrupted.`,
		Example: `  deepwork run release_notes/write --goal "The notes of 2.0" --executor CLAUDE_CODE
  deepwork run release_notes/write --goal "The notes of 2.0" --executor CODEX --parallel 2 --max-time 2h
  deepwork run status latest
  deepwork run resume latest --max-cost 10`,
		Args: takes(1, 1, "a workflow, as JOB/WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, workflow, ok := strings.Cut(args[0], "/")
			changed := cmd.Flags().Changed
			switch {
			case !ok || job == "" || workflow == "":
				return usagef(cmd, "%q is not JOB/WORKFLOW; 'deepwork jobs' lists them", args[0])
			case strings.TrimSpace(f.goal) == "":
				return usagef(cmd, "--goal is missing; say what the run is to accomplish")
			case f.worktree && f.inPlace:
				return usagef(cmd, "--worktree and --in-place exclude each other; give one")
			}
			if err := f.checkBudgets(cmd); err != nil {
				return err
			}
			given := attempt.RunWorkflowArgs{JobName: job, WorkflowName: workflow, Goal: f.goal}
			if changed("executor") {
				given.Executor = &f.executor
			}
			if changed("parallel") {
				given.Parallel = &f.parallel
			}
			if changed("context") {
				given.Context = &f.context
			}
			if f.worktree || f.inPlace {
				given.InPlace = &f.inPlace
			}
			if changed("max-cost") {
				given.MaxCostUSD = &f.maxCost
			}
			if changed("max-unknown") {
				given.MaxUnknown = &f.maxUnknown
			}
			if changed("max-time") {
				given.MaxSeconds = new(f.maxTime.Seconds())
			}
			return a.withBoard(false, func(ctx context.Context, board *attempt.Engine) error {
				r, err := board.RunWorkflow(ctx, atTerminal, given)
				if err != nil {
					return runRefused(cmd, "starting the run", err)
				}
				return a.lead(ctx, board, r, f.detach)
			})
		},
	}))
	flags := cmd.Flags()
	flags.StringVar(&f.goal, "goal", "", "what the run is to accomplish")
	flags.StringVar(&f.executor, "executor", "", "executor of the agents, `NAME[:VARIANT]`, such as CLAUDE_CODE (default: run.executor of the config); a step may name its own")
	flags.IntVar(&f.parallel, "parallel", 0, "`number` of agents at once (default: as many as attempts.max_concurrent allows)")
	flags.BoolVar(&f.worktree, "worktree", false, "work in a git worktree (default in a git repository)")
	flags.BoolVar(&f.inPlace, "in-place", false, "work in the project's own folder")
	flags.StringVar(&f.context, "context", attempt.ContextStep, "`step|resume`: each step begins a conversation, or one goes through the steps that follow one another")
	f.budgets(cmd)
	cmd.AddCommand(a.runResumeCommand(), a.runStatusCommand(), a.runStopCommand(), a.runLeaderCommand())
	return cmd
}

// runHelp is how the help of the subcommands says what they take.
const runHelp = "ID may be the beginning of an id, or latest"

func (a *app) runResumeCommand() *cobra.Command {
	var f runFlags
	cmd := a.onBoardStore(a.onProject("print one event per line, as JSON", &cobra.Command{
		Use:   "resume ID",
		Short: "Continue a run that stopped, was paused or interrupted; " + runHelp,
		Long: `Continue a run that stopped, was paused or interrupted, or whose process is gone. No
finished step is done again. The budgets that you give replace those of the run;
--max-cost includes what the run has cost before.`,
		Example: `  deepwork run resume latest
  deepwork run resume 3f2a --max-cost 10 --detach`,
		Args: takes(1, 1, "the id of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if err := f.checkBudgets(cmd); err != nil {
				return err
			}
			return a.withBoard(false, func(ctx context.Context, board *attempt.Engine) error {
				id, err := oneRun(ctx, board, args[0])
				if err != nil {
					return err
				}
				r, err := board.ResumeRun(ctx, atTerminal, id, "", func(r *attempt.Run) {
					if changed("max-cost") {
						r.MaxCostUSD = &f.maxCost
					}
					if changed("max-unknown") {
						r.MaxUnknown = &f.maxUnknown
					}
					if changed("max-time") {
						r.MaxTime = f.maxTime
					}
				})
				if session.CodeOf(err) == "run_complete" {
					fmt.Fprintln(a.err, "deepwork: nothing was resumed: the run is complete already")
					r, err = board.GetRun(ctx, atTerminal, attempt.RunArgs{RunID: id})
				}
				if err != nil {
					return runRefused(cmd, "resuming the run "+id, err)
				}
				return a.lead(ctx, board, r, f.detach)
			})
		},
	}))
	f.budgets(cmd)
	return cmd
}

// runLeaderCommand returns the process that leads a run in the background.
func (a *app) runLeaderCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("", &cobra.Command{
		Use:    "lead ID",
		Short:  "Lead a run in the background",
		Long:   "Lead the run ID until it ends. 'deepwork run --detach' starts this command.",
		Hidden: true,
		Args:   takes(1, 1, "the id of a run"),
		RunE: func(_ *cobra.Command, args []string) error {
			if is, err := process.Detached(); !is || err != nil {
				return err
			}
			return a.withBoard(false, func(ctx context.Context, board *attempt.Engine) error {
				finished := board.ServeOnly(args[0])
				process.Answer("")
				return a.untilEnded(ctx, board, args[0], finished)
			})
		},
	}))
}

// untilEnded waits for the end of a run.
func (a *app) untilEnded(ctx context.Context, board *attempt.Engine, id string, finished <-chan struct{}) error {
	for ctx.Err() == nil {
		r, err := getRun(ctx, board, id, false)
		if err != nil || !isOpen(r.State) {
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

// runExit returns the result of the command for a run that has ended.
func runExit(r *attempt.RunReply) error {
	switch attempt.RunState(r.State) {
	case attempt.RunComplete:
		return nil
	case attempt.RunPaused:
		return &exitError{exitPaused}
	case attempt.RunInterrupted:
		return &exitError{exitInterrupted}
	}
	return &exitError{exitFailure}
}

// An exitError fails a command that has already printed why, with an exit code of its own.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
