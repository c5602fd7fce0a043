package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/standard"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/transport"
)

// onProject adds to cmd the --path that all commands on a project share, and --json if asJSON
// describes it.
func (a *app) onProject(asJSON string, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.path, "path", "", "project root `directory` (default: the current directory)")
	_ = cmd.MarkFlagDirname("path")
	if asJSON != "" {
		cmd.Flags().BoolVar(&a.json, "json", false, asJSON)
	}
	return cmd
}

// projectRoot returns the project's root, absolute; it must be a directory.
func (a *app) projectRoot() (string, error) {
	path := a.path
	if path == "" {
		path = "."
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the project root %q: %w", path, err)
	}
	info, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the project root %s does not exist; create it or name another with --path", root)
	case err != nil:
		return "", fmt.Errorf("looking at the project root: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("the project root %s is not a directory; name one with --path", root)
	}
	if parent, _ := parentProject(root); parent != "" && a.path == "" && !a.saidParent && fileExists(filepath.Join(parent, ".deepwork")) {
		a.saidParent = true
		fmt.Fprintf(a.err, "deepwork: note: this folder is inside the project %s; --path %s works on that one\n", inline(parent), inline(relative(root, parent)))
	}
	process.Avoid(root)
	return root, nil
}

// findFolder returns the state of the project, whose place it does not change.
func (a *app) findFolder() (*state.Folder, error) {
	root, err := a.projectRoot()
	if err != nil {
		return nil, err
	}
	return state.Find(root)
}

// display formats path for a person in the project: relative to the --path argument, with that in
// front.
func (a *app) display(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.Join(a.path, rel)
}

// withCatalog loads the project's jobs for use, as the server would see them.
func (a *app) withCatalog(ctx context.Context, use func(root string, jobs *catalog.Catalog) error) (err error) {
	root, err := a.projectRoot()
	if err != nil {
		return err
	}
	folder := state.Of(root)
	additional, _ := config.JobsFolders() // the server warns of relative ones
	jobs, err := catalog.Open(ctx, catalog.Options{
		Root:       root,
		Additional: additional,
		Standard:   standard.FS(), StandardDir: folder.StandardJobs(), MakeState: func() error { return session.MakeState(folder) },
		// The catalog would log the load errors, which are printed instead.
		Logger:  slog.New(slog.DiscardHandler),
		NoWatch: true,
	})
	if err != nil {
		return fmt.Errorf("loading the jobs of %s: %w", root, err)
	}
	defer func() { err = errors.Join(err, jobs.Close(context.WithoutCancel(ctx))) }()
	return use(root, jobs)
}

// stateOf returns the state in which the sessions of a folder are: in the workspace of an attempt, that of
// its project.
func (a *app) stateOf(ctx context.Context, root string) (*state.Folder, error) {
	folder := state.Of(root)
	w, err := transport.Workspace(ctx, transport.Options{Store: a.store, Project: a.project}, folder, os.Getenv, a.logger())
	if err != nil || w == nil {
		return folder, err
	}
	return w.State()
}

// openEngine opens the sessions of the project, those of its attempts too, without reviewers, and with or
// without jobs. The caller calls done after it. What only reads makes no database.
func (a *app) openEngine(ctx context.Context, reads bool, jobs *catalog.Catalog) (engine *workflow.Engine, done func() error, err error) {
	root, err := a.projectRoot()
	if err != nil {
		return nil, nil, err
	}
	folder, err := a.stateOf(ctx, root)
	if err != nil {
		return nil, nil, err
	}
	logger := a.logger()
	stores, err := a.stores(ctx, folder, reads, logger)
	if err != nil {
		return nil, nil, err
	}
	if engine, err = passive(ctx, folder, stores, jobs, logger); err != nil {
		return nil, nil, errors.Join(err, stores.Close(ctx))
	}
	return engine, func() (err error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if left := engine.Close(bounded); len(left) > 0 {
			err = fmt.Errorf("parts of the sessions did not stop: %s", strings.Join(left, ", "))
		}
		return errors.Join(err, stores.Close(bounded))
	}, nil
}

// passive returns the sessions in the stores of a project, for commands.
func passive(ctx context.Context, folder *state.Folder, stores *store.Stores, jobs *catalog.Catalog, logger *slog.Logger) (*workflow.Engine, error) {
	settings := approvedConfig(folder, slog.New(slog.DiscardHandler))
	engine, err := workflow.Open(ctx, workflow.Options{
		Root: folder.Root, State: folder, Stores: stores, Place: stores.Place, Catalog: jobs, Logger: logger, Reviews: true,
		Reviewing: func(ctx context.Context) (workflow.Reviewing, error) {
			c, err := settings.Current(ctx)
			if err != nil {
				return workflow.Reviewing{}, err
			}
			q := c.QualityGate
			return workflow.Reviewing{MaxAttempts: q.DefaultMaxAttempts, Override: q.Override, Pin: q.Pin}, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions of %s: %w", folder.Root, err)
	}
	return engine, nil
}

// withEngine opens the sessions of the project for use, with or without jobs, and closes them after it; see openEngine.
func (a *app) withEngine(ctx context.Context, reads bool, jobs *catalog.Catalog, use func(engine *workflow.Engine) error) (err error) {
	engine, done, err := a.openEngine(ctx, reads, jobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	return use(engine)
}
