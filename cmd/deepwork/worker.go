package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store/backend"
	"deepwork/transport"
)

// workerFlags are the options of deepwork worker.
type workerFlags struct {
	executors []string
	max       int
	log       logFlags
}

func (a *app) workerCommand() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run attempts of the task boards that several machines share",
		Long: `Run the attempts of task boards in a PostgreSQL store on this machine, without MCP.
The projects are those of worker.projects in your own config: their names in the
store, with the folder of each on this machine. An attempt is taken if its
repositories and the program of its executor are here and, where the project names
it, approved here (deepwork trust). The log goes to stderr.

A signal asks it to end; its agents continue, and the next worker or server on this machine
takes them over.`,
		Example: `  deepwork worker --executors CLAUDE_CODE --max 2`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("executors") && len(f.executors) == 0 {
				return usagef(cmd, "--executors is empty; name those that the worker runs, or leave it out")
			}
			if cmd.Flags().Changed("max") && f.max < 1 {
				return usagef(cmd, "--max %d lets no agent run; expected the number of agents that may run at once",
					f.max)
			}
			if err := f.log.check(cmd); err != nil {
				return err
			}
			return a.work(f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.executors, "executors", nil,
		"`names` of the executors that it runs (default: all that are here)")
	flags.IntVar(&f.max, "max", 0,
		"`number` of agents that may run at once in each project (default: attempts.max_concurrent)")
	f.log.register(cmd, "info")
	return storeFlagOn(cmd, &a.store, storeUsage)
}

// work runs a worker until a signal arrives.
func (a *app) work(f workerFlags) (err error) {
	logger, closeLog, err := f.log.open(a.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()

	ctx, stop := interruptible(context.Background(), 0)
	defer stop()
	return a.workUntil(ctx, f, logger)
}

// workUntil runs a worker until ctx ends.
func (a *app) workUntil(ctx context.Context, f workerFlags, logger *slog.Logger) (err error) {
	own, err := config.Open(string(filepath.Separator)).Own(ctx)
	if err != nil {
		return fmt.Errorf("reading your own config: %w", err)
	}

	a.traced(ctx, string(filepath.Separator), logger)
	if len(own.WorkerProjects) == 0 {
		return fmt.Errorf("a worker has no projects: set worker.projects in your own config, %s, to their names in "+
			"the store and their folders here", config.UserFile())
	}
	choice, err := backend.Choose(a.store, "", own, "")
	if err == nil && choice.URL == "" {
		err = fmt.Errorf("a worker needs the store that it shares with other machines: pass --store, set %s, or set "+
			"store in %s", config.StoreEnv, config.UserFile())
	}
	if err != nil {
		return err
	}
	if err := checkExecutors(ctx, f.executors, slices.Collect(maps.Values(own.WorkerProjects))); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(own.WorkerProjects)) {
		choice.Project = name
		leave, err := join(ctx, own.WorkerProjects[name], choice, f, logger.With("project", name))
		if err != nil {
			return fmt.Errorf("working on project %s in %s (worker.projects in %s): %w", name, own.WorkerProjects[name],
				config.UserFile(), err)
		}
		defer func() { err = errors.Join(err, leave()) }()
	}
	logger.Info("worker started", "projects", len(own.WorkerProjects), "version", readBuild().Version)
	<-ctx.Done()
	logger.Info("asked to stop; agents go on")
	return nil
}

// checkExecutors returns an error if none of the projects in these folders, approved or not, configures one of the
// wanted executors.
func checkExecutors(ctx context.Context, wanted, dirs []string) error {
	if len(wanted) == 0 {
		return nil
	}

	var names []string
	var unread error
	for _, dir := range dirs {
		settings := config.Open(dir)
		settings.Logger = slog.New(slog.DiscardHandler)
		cfg, err := settings.Current(ctx)
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("reading the config of %s: %w", dir, err))
			continue
		}
		names = append(names, executors.Names(executors.Merge(cfg.Executors))...)
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			slices.Sort(names)
			return errors.Join(fmt.Errorf("--executors: no project of worker.projects has an executor %q; there are %s",
				name, strings.Join(slices.Compact(names), ", ")), unread)
		}
	}

	return nil
}

// join works on the board of one project until leave is called.
func join(
	ctx context.Context, dir string, c backend.Choice, f workerFlags, logger *slog.Logger,
) (leave func() error, err error) {
	folder, err := state.Find(dir)
	if err != nil {
		return nil, err
	}
	process.Avoid(folder.Root)
	stores, err := backend.Open(ctx, folder, c, false, logger)
	if err != nil {
		return nil, err
	}

	closing := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), closeTimeout)
	}
	engine, err := attempt.Open(ctx, attempt.Options{Only: f.executors, Max: f.max,
		Options: board.Options{
			Root:   folder.Root,
			State:  folder,
			Stores: stores,
			Config: approvedConfig(folder, logger).Current,
			Logger: logger,
		}})
	if err != nil {
		ctx, cancel := closing()
		defer cancel()
		return nil, errors.Join(err, stores.Close(ctx))
	}
	stop := transport.MeasureBoard(ctx, engine, readBuild().Version)
	return func() error {
		defer stop()
		ctx, cancel := closing()
		defer cancel()
		if left := engine.Close(ctx); len(left) > 0 {
			logger.Error("not everything stopped in time", "parts", strings.Join(left, ", "))
		}
		return stores.Close(ctx)
	}, nil
}
