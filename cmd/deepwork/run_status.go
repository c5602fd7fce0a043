package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/run"
	"deepwork/session/show"
	"deepwork/session/workflow"
)

func (a *app) runStatusCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("print it as JSON", &cobra.Command{
		Use:   "status [ID]",
		Short: "Show a run, or list all of them; " + idsHelp,
		Long: `Show a run: where it is, and its steps with how long their agents ran, what they cost and
the last line of their output. Without an id, list the runs, the newest first.`,
		Args: takes(0, 1, "the id of a run"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.withBoard(true, a.printRuns)
			}
			return a.onRun(true, args[0], func(ctx context.Context, board *attempt.Engine, r *attempt.RunReply) error {
				return a.withEngine(ctx, true, func(engine *workflow.Engine) error {
					v := run.Look(ctx, r, engine, run.LastSaid(ctx, board, atTerminal, r))
					if a.json {
						return a.printJSON(v.RunReply)
					}
					a.printRun(v)
					return nil
				})
			})
		},
	}))
}

func (a *app) runStopCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("", &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a run and its agents; " + idsHelp,
		Long:  "Stop a run and its agents. 'deepwork run resume' continues it.",
		Args:  runArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onRun(false, args[0], func(ctx context.Context, board *attempt.Engine, r *attempt.RunReply) (err error) {
				if isOpen(r.State) {
					if _, err := board.StopAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: attempt.Target{AttemptID: &r.RunID}}); err != nil {
						return err
					}
					if r, err = board.GetRun(ctx, atTerminal, attempt.RunArgs{RunID: r.RunID}); err != nil {
						return err
					}
				} else {
					fmt.Fprintf(a.err, "deepwork: nothing was stopped: the run is %s already\n", r.State)
				}
				fmt.Fprintf(a.out, "%s %s\n", r.State, r.RunID)
				return nil
			})
		},
	}))
}

// A listedRun is a run in the list, as --json prints it.
type listedRun struct {
	RunID     string  `json:"run_id"`
	State     string  `json:"state"`
	Workflow  string  `json:"workflow"` // JOB/WORKFLOW
	Goal      string  `json:"goal"`
	Branch    *string `json:"branch"`
	CreatedAt string  `json:"created_at"` // RFC 3339 in UTC
}

func (a *app) printRuns(ctx context.Context, board *attempt.Engine) error {
	runs, err := board.Runs(ctx, atTerminal)
	if err != nil {
		return fmt.Errorf("listing the runs: %w", err)
	}
	listed, cells := []listedRun{}, [][]string{}
	for _, r := range runs {
		listed = append(listed, listedRun{r.RunID, r.State, r.Workflow, r.Goal, r.Branch, r.CreatedAt})
		cells = append(cells, []string{r.RunID[:shortID], r.State, r.Workflow, sinceText(r.CreatedAt), r.Goal})
	}
	switch {
	case a.json:
		return a.printJSON(listed)
	case len(listed) == 0:
		fmt.Fprintln(a.out, "There are no runs.")
	default:
		a.out.Table([]show.Column{{Title: "ID"}, {Title: "STATE", State: true}, {Title: "WORKFLOW", Least: 12}, {Title: "AGE"}, {Title: "GOAL", Least: 20}}, cells)
	}
	return nil
}
