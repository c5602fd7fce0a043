package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/session"
	"deepwork/session/attempt"
)

func (a *app) boardRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a task with its attempts and worktrees; ID may be the beginning of one",
		Long: `Remove a task with its attempts, their worktrees and logs. It is refused while an
attempt waits or runs. Work that was not committed is kept first, under the git refs
that are printed; branches with commits stay.`,
		Args: taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withBoard(func(ctx context.Context, board *attempt.Engine) error {
				t, err := oneTask(ctx, board, args[0])
				if err != nil {
					return err
				}
				r, err := board.DeleteTask(ctx, atTerminal, attempt.TaskArgs{TaskID: t.TaskID})
				if refused, ok := errors.AsType[*session.Error](err); ok {
					kept, _ := refused.Details["rescued"].([]attempt.Rescue)
					a.printRescued(kept)
				}
				if err != nil {
					return fmt.Errorf("removing task %s: %w", t.TaskID, err)
				}
				fmt.Fprintf(a.out, "removed %s\n", t.TaskID)
				a.printRescued(r.Rescued)
				return nil
			})
		},
	}
	a.pathFlag(cmd)
	return cmd
}

// printRescued says where the work of removed worktrees is.
func (a *app) printRescued(all []attempt.Rescue) {
	for _, kept := range all {
		fmt.Fprintf(a.out, "kept %s in %s, from %s\n", kept.Ref, plain(kept.RepoPath), plain(kept.Worktree))
	}
}
