package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/store/backend"
	"deepwork/session/workflow"
)

func (a *app) storeCopyCommand() *cobra.Command {
	var from, to string
	cmd := a.onProject("", &cobra.Command{
		Use:   "copy",
		Short: "Copy the project from one store to another",
		Long: `Copy the project's sessions with their definitions and request ids, the board, the
requests between servers and the executions to another store: all of it, or nothing,
however the command ends. The target must have nothing of the project, and no server
may run on either store; none can start meanwhile. Both are read again and compared
at the end. The source is not changed.

It refuses to start while an agent is working. Waiting attempts are copied, and the next
server continues with executions at other systems.`,
		Example: `  deepwork store copy --from files --to postgres://deepwork@db.example.com/deepwork?sslmode=verify-full
  deepwork store copy --from postgres://deepwork@db.example.com/deepwork?sslmode=verify-full --to files`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			project := a.project // without a store, it is that of the URLs
			a.project = ""
			folder, here, err := a.chosen(cmd.Context())
			if err != nil {
				return err
			}
			if here.Project = cmp.Or(project, here.Project); here.URL == "" {
				project, here = here.Project, backend.Choice{}
			} else {
				project = here.Project
			}
			side := func(flag string) backend.Choice {
				switch url := cmd.Flag(flag).Value.String(); url {
				case "":
					return here
				case backend.FilesURL:
					return backend.Choice{}
				default:
					return backend.Choice{URL: url, Project: project}
				}
			}
			source, target := side("from"), side("to")
			if source == target {
				return usagef(cmd, "--from and --to name the same store; give --from or --to as files or as the URL of a database")
			}
			counts, err := backend.Copy(cmd.Context(), folder, source, target, workflow.RecordOptions(true, nil))
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "copied and verified: %v\n", counts)
			stores, err := backend.Open(cmd.Context(), folder, target, true, nil)
			if err == nil {
				err = errors.Join(attempt.Claim(cmd.Context(), folder, stores), stores.Close(cmd.Context()))
			}
			if err != nil {
				fmt.Fprintf(a.err, "deepwork: worktrees on this machine still belong to the source, until a server is started on the copy: %v\n", err)
			}
			next := "servers find it with --store, DEEPWORK_STORE, or store: in your own config, and the same --project"
			if target.URL == "" {
				next = "servers find it without --store, DEEPWORK_STORE and store: in your own config"
			}
			fmt.Fprintf(a.out, "%s. The source is as it was: keep it until you trust the copy, start no server on it, and remove it then.\n", strings.ToUpper(next[:1])+next[1:])
			return nil
		},
	})
	cmd.Flags().StringVar(&from, "from", "", "`URL` of the database that has the project, or files (default: the project's store)")
	cmd.Flags().StringVar(&to, "to", "", "`URL` of the database that it is copied to, or files (default: the project's store)")
	return cmd
}
