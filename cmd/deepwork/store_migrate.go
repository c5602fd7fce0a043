package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/session/store/backend"
)

func (a *app) storeMigrateCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "migrate",
		Short: "Create or migrate the schema of the database",
		Long: `Create the schema of the database, or migrate it to the version of this deepwork, in
one transaction under a lock. Servers do the same when they start. From then on an
older deepwork refuses the schema.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, choice, err := a.chosen(cmd.Context())
			if err != nil {
				return err
			}
			if choice.URL == "" {
				return usagef(cmd, "the project is in files, which the first server migrates; choose a database with --store, DEEPWORK_STORE or store: in your own config")
			}
			where, from, to, err := backend.Migrate(cmd.Context(), folder, choice)
			switch {
			case err != nil:
				return err
			case from == to:
				fmt.Fprintf(a.out, "%s has version %d already\n", where, to)
			case from == 0:
				fmt.Fprintf(a.out, "created %s, version %d\n", where, to)
			default:
				fmt.Fprintf(a.out, "migrated %s from version %d to %d\n", where, from, to)
			}
			return nil
		},
	})
}
