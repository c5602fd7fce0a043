package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
)

// storeUsage is the help of --store.
const storeUsage = "`URL` of the PostgreSQL database that they share (default: $" + config.StoreEnv +
	", else store in your own config, else files on this machine)"

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
	cmd.Flags().StringVar(&a.project, "project", "",
		"`NAME` of the project in that database (default: $"+config.ProjectEnv+", else that of the git remote)")
	_ = cmd.Flags().SetAnnotation("project", storeFlag, nil)
	return storeFlagOn(cmd, &a.store, storeUsage)
}

// storeFlagOn adds --store.
func storeFlagOn(cmd *cobra.Command, url *string, usage string) *cobra.Command {
	cmd.Flags().StringVar(url, "store", "", usage)
	_ = cmd.Flags().SetAnnotation("store", storeFlag, nil)
	return cmd
}

// onBoardStore is onStore for board commands, some of which have a --project of their own.
func (a *app) onBoardStore(cmd *cobra.Command) *cobra.Command {
	return storeFlagOn(cmd, &a.store, storeUsage+"; $"+config.ProjectEnv+" names the project in it")
}

// choice returns the store that the flags, the environment and the user's own config choose.
func (a *app) choice(ctx context.Context, root string) (backend.Choice, error) {
	settings := config.Open(root)
	settings.Logger = slog.New(slog.DiscardHandler)
	own, err := settings.Own(ctx)
	if err != nil {
		return backend.Choice{}, err
	}
	return backend.Choose(a.store, a.project, own, root)
}

// stores opens the stores of a project. The caller closes them.
func (a *app) stores(
	ctx context.Context, folder *state.Folder, readOnly bool, logger *slog.Logger,
) (*store.Stores, error) {
	c, err := a.choice(ctx, folder.Root)
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, folder, c, readOnly, logger)
}

func (a *app) storeStatusCommand() *cobra.Command {
	return a.onProject("print it as JSON", &cobra.Command{
		Use:     "status",
		Short:   "Show which store the project is in, what it has, and who uses it",
		Example: `  deepwork store status`,
		Long: `Show the store of the project: a file, or a database with its schema, the name of the
project there and the repository to which it is bound; how many sessions, tasks,
attempts and remote runs it has; and the servers that use it. It changes nothing.
Exit 1 if the store cannot be used.`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, choice, err := a.chosen(cmd.Context())
			if err != nil {
				return err
			}
			s, err := backend.Look(cmd.Context(), folder, choice)
			if err != nil {
				return err
			}

			if a.json {
				err = a.printJSON(s)
			} else {
				a.describeStatus(s)
			}

			if err == nil && s.Problem != "" {
				err = &exitError{exitFailure}
			}
			return err
		},
	})
}

// chosen returns the project's state (in the workspace of an attempt, that of its project) and its chosen store.
func (a *app) chosen(ctx context.Context) (*state.Folder, backend.Choice, error) {
	_, folder, err := a.boardFolder(ctx)
	if err != nil {
		return nil, backend.Choice{}, err
	}
	choice, err := a.choice(ctx, folder.Root)
	return folder, choice, err
}

func (a *app) describeStatus(s backend.Status) {
	a.out.Prose(s.Where)
	if s.Project != "" {
		bound := ""
		if s.Repository != "" {
			bound = ", bound to " + s.Repository
		}
		a.out.Field(9, "project", oneLine(s.Project+bound, 700))
		if s.Schema > 0 {
			a.out.Field(9, "schema", fmt.Sprintf("version %d; this deepwork knows version %d", s.Schema, s.Knows))
		}
	}

	if s.Problem != "" {
		a.out.Field(9, "problem", oneLine(a.here(s.Problem), 2000))
	}
	if len(s.Counts) > 0 {
		all := xslices.Map([]string{"active sessions", "ended sessions", "tasks", "attempts", "remote runs"},
			func(what string) string {
				return count(s.Counts[what], strings.TrimSuffix(what, "s"))
			})
		a.out.Field(9, "contents", strings.Join(all, ", "))
	}

	for _, m := range s.Servers {
		text := m.Text
		if m.Machine != "" {
			text = fmt.Sprintf("on %s (machine %s)", text, m.Machine)
		}
		a.out.Field(9, "server", oneLine(text, 1000))
	}
	if len(s.Servers) == 0 && s.Problem == "" {
		a.out.Field(9, "server", "none")
	}
}

func (a *app) storeMigrateCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:     "migrate",
		Short:   "Create or migrate the schema of the database",
		Example: `  deepwork store migrate`,
		Long: `Create the schema of the database, or migrate it to the version of this deepwork, in
one transaction under a lock. Servers do the same when they start. From then on an
older deepwork refuses the schema.`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, choice, err := a.chosen(cmd.Context())
			if err != nil {
				return err
			}
			if choice.URL == "" {
				return usagef(cmd, "the project is in files, which the first server migrates; choose a database with "+
					"--store, DEEPWORK_STORE or store: in your own config")
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

func (a *app) storeCopyCommand() *cobra.Command {
	var from, to string
	cmd := a.onProject("", &cobra.Command{
		Use:   "copy",
		Short: "Copy the project from one store to another",
		Long: `Copy the project's sessions with their definitions and request ids, the board and the
executions to another store, or to a file as a backup: all of it, or nothing, however
the command ends. The target must have nothing of the project, and no server may run on
either store; none can start meanwhile. Both are read again and compared at the end.
The source is not changed. files is the database in the state folder; a name that ends
in .db is that of a backup, from which the project is restored in the same way.

It refuses to start while an agent is working. Waiting attempts are copied, and the next
server continues with remote runs at other systems.`,
		Example: `  deepwork store copy --from files --to ` +
			`postgres://deepwork@db.example.com/deepwork?sslmode=verify-full
  deepwork store copy --from postgres://deepwork@db.example.com/deepwork?sslmode=verify-full --to files
  deepwork store copy --to backup.db`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			project := a.project // without --store, it belongs to the URLs
			a.project = ""
			folder, here, err := a.chosen(cmd.Context())
			if err != nil {
				return err
			}
			here.Project = cmp.Or(project, here.Project)
			if here.URL == "" {
				project, here = here.Project, backend.Choice{}
			} else {
				project = here.Project
			}
			source, target := chosenStore(from, project, here), chosenStore(to, project, here)
			for i, s := range []backend.Choice{source, target} {
				if s.URL != "" && !strings.Contains(s.URL, "://") { // it may have a password, so it is not printed
					return usagef(cmd, "--%s is not a store; expected files, the URL of a database such as "+
						"postgres://user@host/database, or a file that ends in .db", []string{"from", "to"}[i])
				}
			}
			if source == target {
				return usagef(cmd, "--from and --to name the same store; give --from or --to as files, as the URL of "+
					"a database or as a file that ends in .db")
			}
			counts, err := backend.Copy(cmd.Context(), folder, source, target)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "copied and verified: %v\n", counts)
			if target.File != "" {
				a.out.Prose(fmt.Sprintf("%s is a backup. `%s` restores the project from it, where the state folder "+
					"has nothing of the project.", target.File,
					a.onPath("deepwork store copy --from "+session.InShell(target.File)+" --to files")))
				return nil
			}

			stores, err := backend.Open(cmd.Context(), folder, target, true, nil)
			if err == nil {
				err = errors.Join(attempt.Claim(cmd.Context(), folder, stores), stores.Close(cmd.Context()))
			}
			if err != nil {
				fmt.Fprintf(a.err, "deepwork: worktrees on this machine still belong to the source, until a server is "+
					"started on the copy: %v\n", err)
			}

			next := "servers find it with --store, DEEPWORK_STORE, or store: in your own config, and the same --project"
			if target.URL == "" {
				next = "servers find it without --store, DEEPWORK_STORE and store: in your own config"
			}
			fmt.Fprintf(a.out, "%s. %s\n", strings.ToUpper(next[:1])+next[1:], sourceOfCopy(source))
			return nil
		},
	})
	cmd.Flags().StringVar(&from, "from", "",
		"`URL` of the database that has the project, files, or a backup (default: the project's store)")
	cmd.Flags().StringVar(&to, "to", "",
		"`URL` of the database that it is copied to, files, or a backup (default: the project's store)")
	return cmd
}

// chosenStore returns the store that --from or --to names; "" is that of the project.
func chosenStore(url, project string, here backend.Choice) backend.Choice {
	switch {
	case url == "":
		return here
	case url == backend.FilesURL:
		return backend.Choice{}
	case strings.HasSuffix(url, ".db") && !strings.Contains(url, "://"):
		file, err := filepath.Abs(url)
		if err != nil {
			file = url // which is refused
		}
		return backend.Choice{File: file}
	}
	return backend.Choice{URL: url, Project: project}
}

// sourceOfCopy says what happens to the source of a copy.
func sourceOfCopy(c backend.Choice) string {
	if c.File != "" {
		return "The backup is as it was."
	}
	return "The source is as it was: keep it until you trust the copy, start no server on it, and remove it then."
}

func (a *app) whereCommand() *cobra.Command {
	var adopt string
	cmd := &cobra.Command{
		Use:   "where",
		Short: "Print where the state of a project is",
		Example: `  deepwork where
  deepwork where --adopt /home/me/old-folder`,
		Long: `Print the folder with the state of a project: its board, worktrees, logs, locks.
It is outside of the project; DEEPWORK_STATE_DIR moves the state of all projects. To
stderr it prints the file of your own config, and the store, if that is a database.

A project that was moved to another folder finds its state again after
"deepwork where --adopt OLDPATH" in the new one. In a PostgreSQL database, attempts
still belong to the old folder.`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.saidElsewhere = cmd.Flags().Changed("adopt")
			folder, err := a.findFolder(cmd.Context())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("adopt") {
				old, err := filepath.Abs(adopt)
				if err != nil {
					return fmt.Errorf("finding %q: %w", adopt, err)
				}

				// the state names a project without links
				if dir, err := state.Canonical(filepath.Dir(old)); err == nil {
					old = filepath.Join(dir, filepath.Base(old))
				}

				empty := func() bool {
					s, err := backend.Look(cmd.Context(), folder, backend.Choice{})
					return err == nil && s.Problem == "" && len(s.Servers) == 0 && !fileExists(folder.Worktrees()) &&
						slices.Max(slices.Collect(maps.Values(s.Counts))) == 0
				}
				err = folder.Adopt(old, empty, func() error {
					if alive, _ := session.NewMember(folder, nil).Others(); len(alive) > 0 {
						return fmt.Errorf("a server runs on this project, which holds %s: stop it first", alive[0])
					}
					return attempt.Relocate(context.Background(), folder, old)
				})
				if err != nil {
					return err
				}

				// other machines may have a folder of that path
				if c, err := a.choice(cmd.Context(), folder.Root); err == nil && c.URL != "" {
					if err := backend.Bind(cmd.Context(), folder, c); err != nil {
						return err
					}
					fmt.Fprintf(a.err, "deepwork: note: in the database, attempts that were begun in %s still belong "+
						"to that folder, and only there they can be merged or continued, and their worktrees "+
						"removed: move the project back for that; what they have committed is on their branches\n",
						inline(old))
				}
			}
			fmt.Fprintln(a.out, folder.Dir)
			fmt.Fprintln(a.err, "your own config:", config.UserFile())
			return a.whereStore(cmd.Context(), folder)
		},
	}
	a.onProject("", cmd)
	cmd.Flags().StringVar(&adopt, "adopt", "",
		"use the state that belonged to the project at `OLDPATH`, from where it was moved")
	return cmd
}

// whereStore prints which database, if any, has the sessions and the board.
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
