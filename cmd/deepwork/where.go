package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/state"
	"deepwork/session/store/backend"
)

func (a *app) whereCommand() *cobra.Command {
	var adopt string
	cmd := &cobra.Command{
		Use:   "where",
		Short: "Print where the state of a project is",
		Long: `Print the folder with the state of a project: its board, worktrees, logs, locks.
It is outside of the project; DEEPWORK_STATE_DIR moves the state of all projects. To
stderr it prints the file of your own config, and the store, if that is a database.

A project that was moved to another folder finds its state again after
"deepwork where --adopt OLDPATH" in the new one.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := a.findFolder()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("adopt") {
				if err := a.adoptMoved(context.Background(), folder, adopt); err != nil {
					return err
				}
			}
			fmt.Fprintln(a.out, folder.Dir)
			fmt.Fprintln(a.err, "your own config:", config.UserFile())
			return a.whereStore(cmd.Context(), folder)
		},
	}
	a.onProject("", cmd)
	cmd.Flags().StringVar(&adopt, "adopt", "", "use the state that belonged to the project at `OLDPATH`, from where it was moved")
	return cmd
}

// whereStore prints which database has the sessions and the board, if one has.
func (a *app) whereStore(ctx context.Context, folder *state.Folder) error {
	c, err := a.choice(ctx, folder.Root)
	if err != nil || c.URL == "" {
		return err
	}
	stores, err := backend.Open(ctx, folder, c, true, slog.New(slog.NewTextHandler(a.err, nil)))
	if err != nil {
		return fmt.Errorf("the store of the sessions and the board: %w", err)
	}
	fmt.Fprintf(a.err, "its sessions and its board: project %s in %s\n", stores.Project, stores.Database.Where())
	return stores.Close(ctx)
}

// adoptMoved takes over the project's state from its old place, with the paths in it.
func (a *app) adoptMoved(ctx context.Context, folder *state.Folder, old string) error {
	old, err := filepath.Abs(old)
	if err != nil {
		return fmt.Errorf("finding %q: %w", old, err)
	}
	return folder.Adopt(old, func() error {
		if alive, _ := session.NewMember(folder, nil).Others(); len(alive) > 0 {
			return fmt.Errorf("a server runs on this project, which holds %s: stop it first", alive[0])
		}
		return attempt.Relocate(ctx, folder, old)
	})
}
