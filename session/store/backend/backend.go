// Package backend opens the stores of a project. Only this package knows all kinds of stores.
package backend

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
)

// A Choice names the stores of a project. The zero value is for files.
type Choice struct {
	URL     string // a PostgreSQL database; may contain a password
	Project string // the name that all machines use for the project there; "" means that of the repository
	File    string // absolute path of a backup, which can only be copied from and to
}

// Choose returns the choice made by flags, which may be empty, else by the environment, else by the user's
// own config, for the project at root, a path without links.
func Choose(url, project string, own *config.User, root string) (Choice, error) {
	c := Choice{
		URL:     cmp.Or(url, os.Getenv(config.StoreEnv), own.Store),
		Project: cmp.Or(project, os.Getenv(config.ProjectEnv)),
	}
	for _, name := range slices.Sorted(maps.Keys(own.WorkerProjects)) {
		if c.Project == "" && process.Resolved(own.WorkerProjects[name]) == root {
			c.Project = name
		}
	}
	if c.URL == "" && project != "" {
		return c,
			fmt.Errorf("--project names a project in a database, and none is chosen: pass --store, set %s, or set "+
				"store in %s", config.StoreEnv, config.UserFile())
	}
	return c, nil
}

// SetAside is local.SetAside: only a database in a file of this machine can be set aside.
func SetAside(ctx context.Context, f *state.Folder, now time.Time) (to string, err error) {
	return local.SetAside(ctx, f, now)
}

// Files returns the database of a project in its state folder, whatever store the project uses now. The
// caller closes it.
func Files(f *state.Folder) *local.Database { return local.Open(f) }

// Local returns the stores of a project in its state folder, which the caller closes.
func Local(f *state.Folder, logger *slog.Logger) *store.Stores { return local.Stores(f, false, logger) }

// Open opens the stores of a project, which the caller closes. It does not wait for a database: while that
// cannot be reached, calls fail. With readOnly nothing is created or changed. A nil logger discards.
func Open(ctx context.Context, f *state.Folder, c Choice, readOnly bool, logger *slog.Logger) (*store.Stores, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if c.URL == "" {
		return local.Stores(f, readOnly, logger), nil
	}
	return shared(ctx, f, c, readOnly, logger)
}
