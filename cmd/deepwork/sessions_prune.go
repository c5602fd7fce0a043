package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/workflow"
)

func (a *app) sessionsPruneCommand() *cobra.Command {
	var olderThan time.Duration
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove sessions that ended long ago",
		Long: `Remove the files of sessions that were completed or aborted longer ago than
--older-than, and print their ids. Active sessions are never removed.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan < 0 {
				return usagef(cmd, "--older-than %s is negative; give how long ago sessions must have ended, such as 720h", olderThan)
			}
			cutoff := time.Now().Add(-olderThan)
			return a.withArchive(func(_ string, archive *workflow.Archive) error {
				return a.prune(cmd.Context(), archive, cutoff, dryRun)
			})
		},
	}
	a.pathFlag(cmd)
	cmd.Flags().DurationVar(&olderThan, "older-than", 720*time.Hour, "how long ago they must have ended")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be removed and remove nothing")
	return cmd
}

func (a *app) prune(ctx context.Context, archive *workflow.Archive, cutoff time.Time, dryRun bool) error {
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	ids, err := archive.Prune(ctx, cutoff, dryRun)
	for _, id := range ids {
		fmt.Fprintln(a.out, id)
	}
	if err != nil {
		return fmt.Errorf("pruning sessions: %w", err)
	}
	fmt.Fprintf(a.err, "deepwork: %s %s\n", verb, count(len(ids), "session"))
	return nil
}
