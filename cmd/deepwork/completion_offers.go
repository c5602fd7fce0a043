package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/catalog"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/workflow"
)

// A source lists what an argument or flag can be, with a description of each.
type source func(context.Context) ([]cobra.Completion, error)

// offer makes the commands below root complete ids, jobs, projects and executors.
func (a *app) offer(root *cobra.Command) {
	for _, c := range []struct {
		of       source
		commands string
	}{
		{a.offerSessions, "sessions show,sessions abort,sessions review,sessions override"},
		{a.offerTasks, "board show,board rm,board done,board start"},
		{a.offerAttempts, "board tail,board send,board stop,board diff,board merge,board rebase,board push,board target"},
		{a.offerRuns, "run resume,run status,run stop"},
		{a.offerJobs, "jobs show"},
		{a.offerWorkflows, "run"},
	} {
		for path := range strings.SplitSeq(c.commands, ",") {
			cmd, _, err := root.Find(strings.Fields(path))
			if err != nil || cmd.ValidArgsFunction != nil {
				panic("no command " + path) // every run of the program would report it
			}
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return offered(cmd, c.of)
			}
		}
	}
	for flag, of := range map[string]source{"project": a.offerProjects, "job": a.offerJobs, "depends-on": a.offerTasks, "executor": a.offerExecutors} {
		for _, path := range []string{"board add", "board tasks", "board start", "run"} {
			if cmd, _, err := root.Find(strings.Fields(path)); err == nil && cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
					return offered(cmd, of)
				})
			}
		}
	}
}

// offered lists a source for a shell, which filters it by what is typed. Errors offer nothing.
func offered(cmd *cobra.Command, of source) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := of(cmd.Context())
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// offering is an entry with what people see of it.
func offering(word, about string) cobra.Completion {
	return cobra.CompletionWithDesc(word, oneLine(about, titleWidth))
}

func (a *app) offerSessions(ctx context.Context) (offers []cobra.Completion, err error) {
	err = a.withEngine(ctx, true, func(engine *workflow.Engine) error {
		listed, err := engine.List(ctx)
		for _, s := range listed {
			offers = append(offers, offering(s.ID, s.Status+": "+s.Goal))
		}
		return err
	})
	return offers, err
}

func (a *app) offerTasks(context.Context) (offers []cobra.Completion, err error) {
	err = a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
		tasks, err := tasksOfAll(ctx, board)
		for _, t := range tasks {
			offers = append(offers, offering(t.TaskID[:shortID], t.Status+": "+t.Title))
		}
		return err
	})
	return offers, err
}

func (a *app) offerAttempts(ctx context.Context) ([]cobra.Completion, error) {
	tasks, err := a.offerTasks(ctx)
	if err != nil {
		return nil, err
	}
	attempts, err := a.attemptsThat(func(task.Attempt) bool { return true })
	return append(tasks, attempts...), err
}

func (a *app) offerRuns(context.Context) ([]cobra.Completion, error) {
	return a.attemptsThat(func(at task.Attempt) bool { return at.Run != nil })
}

func (a *app) attemptsThat(are func(task.Attempt) bool) (offers []cobra.Completion, err error) {
	err = a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
		all, err := board.FindAttempts(ctx, atTerminal, "")
		for _, at := range all {
			if are(at) {
				offers = append(offers, offering(at.ID[:shortID], at.Branch))
			}
		}
		return err
	})
	return offers, err
}

func (a *app) offerProjects(context.Context) (offers []cobra.Completion, err error) {
	err = a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
		all, err := allProjects(ctx, board)
		for _, p := range all {
			offers = append(offers, offering(p.Name, p.ProjectID))
		}
		return err
	})
	return offers, err
}

func (a *app) offerExecutors(context.Context) (offers []cobra.Completion, err error) {
	err = a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
		all, err := board.ListExecutors(ctx, atTerminal)
		if err != nil {
			return err
		}
		for _, e := range all.Executors {
			about := e.Program
			if !e.Available {
				about += ", which is not installed"
			}
			offers = append(offers, offering(e.Name, about))
		}
		return nil
	})
	return offers, err
}

func (a *app) offerJobs(ctx context.Context) (offers []cobra.Completion, err error) {
	err = a.withCatalog(ctx, func(_ string, jobs *catalog.Catalog) error {
		for _, j := range jobs.Snapshot().Jobs {
			offers = append(offers, offering(j.Name, j.Summary))
		}
		return nil
	})
	return offers, err
}

func (a *app) offerWorkflows(ctx context.Context) (offers []cobra.Completion, err error) {
	err = a.withCatalog(ctx, func(_ string, jobs *catalog.Catalog) error {
		for _, j := range jobs.Snapshot().Jobs {
			for _, w := range j.Workflows {
				offers = append(offers, offering(j.Name+"/"+w.Name, w.Summary))
			}
		}
		return nil
	})
	return offers, err
}
