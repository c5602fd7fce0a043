package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/transport/web"
)

func (a *app) tokenCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "token",
		Short: "Make tokens for callers of a network server",
	}, a.tokenNewCommand())
}

func (a *app) tokenNewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new NAME",
		Short: "Print a fresh token for a caller, once",
		Long: `Print a fresh bearer token to stdout, for the caller, and the line NAME:SHA256
to stderr, for the file of "serve --token-file". The token itself is kept nowhere.
NAME is the caller's identity: workflow sessions that one identity has started are
out of the reach of the others, and the name stands in logs and session files.

  deepwork token new ann 2>>tokens`,
		Args: takes(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := config.CheckTokenName(args[0]); err != nil {
				return usagef(cmd, "%v", err)
			}
			token, line, err := web.NewToken(args[0])
			if err != nil {
				return err
			}
			// Print the line first: a token without a line for it is useless.
			if _, err := fmt.Fprintln(a.err, line); err != nil {
				return fmt.Errorf("writing the line of the token file to stderr: %w", err)
			}
			_, err = fmt.Fprintln(a.out, token)
			return err
		},
	}
}
