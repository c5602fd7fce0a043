// Package backend opens the stores of a project: the one place that knows which there are.
package backend

import (
	"context"
	"log/slog"

	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
)

// Options choose the stores of a project. The zero value is for files.
type Options struct {
	ReadOnly bool // nothing is created or changed
	Logger   *slog.Logger
}

// Open opens the stores of a project, which the caller closes.
func Open(_ context.Context, f *state.Folder, o Options) (*store.Stores, error) {
	return local.Stores(f, o.ReadOnly, o.Logger), nil
}
