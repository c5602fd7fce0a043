package main

import (
	"encoding/hex"

	"github.com/spf13/cobra"
)

func (a *app) sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show, abort and prune the sessions of a project",
		Args:  unknownCommand,
		RunE:  needsSubcommand,
	}
	cmd.AddCommand(
		a.sessionsListCommand(),
		a.sessionsShowCommand(),
		a.sessionsAbortCommand(),
		a.sessionsPruneCommand(),
	)
	return cmd
}

// sessionID checks that the one argument is a session's id.
func sessionID(cmd *cobra.Command, args []string) error {
	if err := takes(1, 1, "a session id")(cmd, args); err != nil {
		return err
	}
	if _, err := hex.DecodeString(args[0]); err != nil || len(args[0]) != 8 {
		return usagef(cmd, "%q is not a session id, which is 8 hexadecimal characters; 'deepwork sessions list' prints them", args[0])
	}
	return nil
}
