package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session/store/local/sqlite"
	"deepwork/session/workflow"
)

// defaultAbortReason is recorded if the person gives no reason.
const defaultAbortReason = "aborted from the command line"

func (a *app) sessionsAbortCommand() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "abort ID",
		Short: "Abort an active session",
		Args:  sessionID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" {
				return usagef(cmd, "--reason is blank; say why, or leave it out")
			}
			return a.withArchive(func(root string, archive *workflow.Archive) error {
				db := sqlite.New(sqlite.Options{Path: sqlite.Path(root)})
				err := archive.Abort(cmd.Context(), args[0], why, db.Requests())
				if err := errors.Join(err, db.Close()); err != nil {
					return fmt.Errorf("aborting session %s: %w", args[0], err)
				}
				fmt.Fprintf(a.out, "aborted %s\n", args[0])
				return nil
			})
		},
	}
	a.pathFlag(cmd)
	cmd.Flags().StringVar(&why, "reason", defaultAbortReason, "`why`, as the session records it")
	return cmd
}
