package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
)

func (a *app) boardAddCommand() *cobra.Command {
	var project, description, job, workflow string
	cmd := &cobra.Command{
		Use:   "add TITLE",
		Short: "Put a task on the board and print its id",
		Args:  takes(1, 1, "a title"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (job == "") != (workflow == "") {
				return usagef(cmd, "--job and --workflow name a workflow together; 'deepwork jobs' lists those there are")
			}
			given := func(flag string, value *string) *string {
				if !cmd.Flags().Changed(flag) {
					return nil
				}
				return value
			}
			task := attempt.CreateTaskArgs{Title: args[0], Description: given("description", &description),
				JobName: given("job", &job), WorkflowName: given("workflow", &workflow)}
			return a.withBoard(func(ctx context.Context, board *attempt.Engine) error {
				p, err := oneProject(ctx, board, project)
				if err != nil {
					return err
				}
				task.ProjectID = p.ProjectID
				t, err := board.CreateTask(ctx, atTerminal, task)
				if err != nil {
					return fmt.Errorf("adding the task: %w", err)
				}
				fmt.Fprintln(a.out, t.TaskID)
				return nil
			})
		},
	}
	a.pathFlag(cmd)
	cmd.Flags().StringVar(&description, "description", "", "`what` is to be done, in full")
	cmd.Flags().StringVar(&project, "project", "", "`name` or id of the project (default: the project root)")
	cmd.Flags().StringVar(&job, "job", "", "`name` of the job whose workflow its attempts run, with --workflow")
	cmd.Flags().StringVar(&workflow, "workflow", "", "`name` of that workflow")
	return cmd
}
