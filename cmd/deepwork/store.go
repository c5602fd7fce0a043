package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
)

// storeUsage is the help of --store.
const storeUsage = "`URL` of a PostgreSQL database for the sessions and the board (default: $" + config.StoreEnv + ", else your user config, else local files)"

func (a *app) storeCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "store",
		Short: "Show, migrate and copy the store of sessions and the board",
	},
		a.onStore(a.storeStatusCommand()),
		a.onStore(a.storeMigrateCommand()),
		a.onStore(a.storeCopyCommand()),
	)
}

// onStore adds to a command on a project the flags that choose its store.
func (a *app) onStore(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.store, "store", "", storeUsage)
	cmd.Flags().StringVar(&a.project, "project", "", "`NAME` of the project in the PostgreSQL store (default: $"+config.ProjectEnv+", else that of the git remote)")
	return cmd
}

// onBoardStore is onStore for the commands of the board, some of which have another --project.
func (a *app) onBoardStore(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.store, "store", "", storeUsage+"; $"+config.ProjectEnv+" names the project there")
	return cmd
}

// choice returns the store that the flags, the environment and the user's own config choose.
func (a *app) choice(ctx context.Context, root string) (backend.Choice, error) {
	settings := config.Open(root)
	settings.Logger = slog.New(slog.DiscardHandler)
	own, err := settings.Own(ctx)
	if err != nil {
		return backend.Choice{}, err
	}
	return backend.Choose(a.store, a.project, own)
}

// stores opens the stores of a project. The caller closes them.
func (a *app) stores(ctx context.Context, folder *state.Folder, readOnly bool, logger *slog.Logger) (*store.Stores, error) {
	c, err := a.choice(ctx, folder.Root)
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, folder, c, readOnly, logger)
}
