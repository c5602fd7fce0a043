package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/transport/web"
)

func (a *app) tokenCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "token",
		Short: "Create tokens for callers of a network server, and show your own",
	}, a.tokenNewCommand(), a.tokenShowCommand())
}

func (a *app) tokenNewCommand() *cobra.Command {
	var of, rights string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Print a new token for a caller, once",
		Long: `Print a new bearer token to stdout, for the caller, and the line
NAME:SHA256[:GROUP[:RIGHTS]] to stderr, for the file of "serve --token-file". The token
itself is not stored. NAME is the caller's identity: other identities cannot access
the workflow sessions that it has started, and the name appears in logs and session
files. To replace a token, add the line of a second one with the same
NAME, give that one to the caller, and remove the first line.

The rights are agents (start agents on the task board), merge (merge their work) and
person (act as a person); a token has those that are named, by default none.

  (umask 077; deepwork token new ann --group web --rights agents 2>>tokens)`,
		Example: `  deepwork token new alice`,
		Args:    argumentCount(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := config.CheckTokenName(args[0]); err != nil {
				return usagef(cmd, "%v", err)
			}

			parsed, err := config.ParseRights(rights)
			if err != nil {
				return usagef(cmd, "--rights: %v", err)
			}

			if of != "" {
				if err := config.CheckGroup(of); err != nil {
					return usagef(cmd, "--group: %v", err)
				}
			}
			token, line, err := web.NewToken(config.Token{Name: args[0], Group: of, Rights: parsed})
			if err != nil {
				return err
			}

			// Print the line first: a token that nobody has seen is useless.
			if _, err := fmt.Fprintln(a.err, line); err != nil {
				return fmt.Errorf("writing the line of the token file to stderr: %w", err)
			}
			_, err = fmt.Fprintln(a.out, token)
			return err
		},
	}
	cmd.Flags().StringVar(&of, "group", "", "`name` of a group, whose members share what they put on the task board")
	cmd.Flags().StringVar(&rights, "rights", "",
		"what the caller may do, a `list` of "+config.AllRights.String()+" (default: none of them)")
	return cmd
}

func (a *app) tokenShowCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "show",
		Short: "Print your own token for the project's network servers",
		Long: `Print your bearer token for the project's network servers. A server on loopback that
is started without tokens creates it on Windows and macOS, where it cannot tell which
user is connecting; on Linux you need none. It lets its bearer do everything that you
may, so keep it secret.

  claude mcp add --transport http deepwork http://127.0.0.1:8000/mcp \
    --header "Authorization: Bearer $(deepwork token show)"`,
		Example: `  deepwork token show`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := a.findFolder(cmd.Context())
			if err != nil {
				return err
			}
			token, err := folder.Token(false)
			if errors.Is(err, state.ErrMissing) {
				return errors.New("there is no token: no server of this project has needed one. A server with " +
					"--transport http or sse and without tokens makes it when it starts, if the system does not " +
					"report which user a connection belongs to")
			}
			if err != nil {
				return err
			}

			_, err = fmt.Fprintln(a.out, token)
			return err
		},
	})
}
