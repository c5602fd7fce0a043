package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/state"
	"deepwork/session/workflow"
)

func (a *app) adoptCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "adopt",
		Short: "Import what earlier versions kept in the project",
		Long: `Show the task board, worktrees, logs and sessions that earlier versions of deepwork
kept in the project's .deepwork, and ask at the terminal whether to take them over into
the state folder (deepwork where). Until then nothing reads them: a repository that you
cloned may contain them. Adopt only what you know the origin of.

Attempts that ran or waited are then interrupted; queued follow-ups are dropped. The
originals are moved to .deepwork/tmp/adopted-TIME. Stop all servers first. If the
command is interrupted, run it again.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withArchive(func(folder *state.Folder, archive *workflow.Archive) error {
				return a.adopt(cmd.Context(), folder, archive)
			})
		},
	})
}

func (a *app) adopt(ctx context.Context, folder *state.Folder, archive *workflow.Archive) (err error) {
	earlier, err := attempt.OpenEarlier(ctx, folder)
	if err != nil {
		return fmt.Errorf("looking at what is in .deepwork: %w", err)
	}
	defer func() { err = errors.Join(err, earlier.Close()) }()
	sessions, err := archive.Foreign(ctx)
	if err != nil {
		return err
	}
	found := folder.Earlier()
	if len(found)+len(sessions) == 0 {
		fmt.Fprintln(a.out, "There is nothing of an earlier version here.")
		return nil
	}
	for _, path := range found {
		fmt.Fprintln(a.out, inline(path))
	}
	if found != nil {
		t := earlier.Totals
		fmt.Fprintf(a.out, "  %s and %s, of which %d wait or run and become interrupted: into the task board\n", count(t.Tasks, "task"), count(t.Attempts, "attempt"), t.Open)
		fmt.Fprintf(a.out, "  worktrees of %s, and their logs: moved to %s\n", count(earlier.Worktrees, "attempt"), inline(folder.Dir))
		for _, repo := range earlier.Repos {
			fmt.Fprintf(a.out, "  repository of attempts: %s\n", oneLine(repo, 400))
		}
	}
	can := a.showForeign(sessions)
	if found == nil && len(can) == 0 {
		return errors.New("nothing can be adopted")
	}
	if err := confirm(fmt.Sprintf("\nAdopt all of this into %s, for agents to continue? Type yes: ", inline(folder.Root)), "nothing was adopted", ""); err != nil {
		return err
	}
	if found != nil {
		aside, err := earlier.Import(ctx, time.Now())
		if err != nil {
			return fmt.Errorf("not everything was adopted (deepwork board tasks shows what was; delete no task before the rest is); correct this and run deepwork adopt again: %w", err)
		}
		fmt.Fprintf(a.out, "Adopted the task board. What it was read from is in %s; remove that when you like.\n", inline(aside))
	}
	if len(can) == 0 {
		return nil
	}
	return a.sealSessions(ctx, archive, can)
}
