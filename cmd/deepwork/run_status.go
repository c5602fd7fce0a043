package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/run"
	"deepwork/session/show"
	"deepwork/session/workflow"
)

// runsCommand is the command that lists the runs.
const runsCommand = "deepwork run status"

func (a *app) runStatusCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("print it as JSON", &cobra.Command{
		Use:   "status [ID]",
		Short: "Show a run, or list all of them; " + runHelp,
		Long: `Show a run: where it is, and its steps with how long their agents ran, what they cost and
the last line of their output. Without an id, list the runs, the newest first.`,
		Args: takes(0, 1, "the id of a run"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withBoard(true, func(ctx context.Context, engine *attempt.Engine) error {
				if len(args) == 0 {
					return a.listRuns(ctx, engine)
				}
				id, err := oneRun(ctx, engine, args[0])
				if err != nil {
					return err
				}
				r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: id})
				if err != nil {
					return err
				}
				return a.withEngine(ctx, true, func(sessions *workflow.Engine) error {
					v := run.Look(ctx, r, sessions, run.LastSaid(ctx, engine, atTerminal, r))
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
		Short: "Stop a run and its agents; " + runHelp,
		Long:  "Stop a run and its agents. 'deepwork run resume' continues it.",
		Args:  takes(1, 1, "the id of a run"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
				id, err := oneRun(ctx, engine, args[0])
				if err != nil {
					return err
				}
				before, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: id})
				if err != nil {
					return err
				}
				if !isOpen(before.State) {
					fmt.Fprintf(a.out, "%s %s\n", before.State, id)
					fmt.Fprintf(a.err, "deepwork: nothing was stopped: the run is %s already\n", before.State)
					return nil
				}
				if _, err := engine.StopAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}}); err != nil {
					return err
				}
				r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: id})
				if err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s %s\n", r.State, id)
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

func (a *app) listRuns(ctx context.Context, engine *attempt.Engine) error {
	runs, err := engine.Runs(ctx, atTerminal)
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

// oneRun returns the run that an argument names.
func oneRun(ctx context.Context, engine *attempt.Engine, given string) (string, error) {
	prefix := given
	if given == latest {
		prefix = ""
	}
	all, err := engine.FindAttempts(ctx, atTerminal, prefix)
	if err != nil {
		return "", err
	}
	var runs []candidate
	for _, at := range all {
		if at.Run != nil {
			runs = append(runs, candidate{at.ID, at.Branch, at.CreatedAt})
		}
	}
	i, err := choose("run", runsCommand, given, runs)
	if err != nil {
		return "", err
	}
	return runs[i].id, nil
}
