package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/xslices"
	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/workflow"
)

// A source lists what an argument or flag can be.
type source func(context.Context) ([]candidate, error)

// offer makes the commands below root complete ids, jobs, projects and executors.
func (a *app) offer(root *cobra.Command) {
	for commands, of := range map[string]source{
		"sessions show,sessions abort,sessions review,sessions " +
			"override": a.offerSessions,
		"board show,board edit,board status,board rm,board " +
			"done,board start": a.onBoard(onTheBoard, "task"),
		"board tail,board send,board stop,board diff,board comment,board path,board open,board merge,board " +
			"rebase,board push,board target": a.onBoard(onTheBoard, "attempt run task"),
		"run resume,run status,run stop,run tail": a.onBoard(onTheBoard, "run"),
		"jobs show": a.onJobs(offerJob),
		"run":       a.onJobs(offerWorkflows),
	} {
		for path := range strings.SplitSeq(commands, ",") {
			cmd, _, err := root.Find(strings.Fields(path))
			if err != nil || cmd.ValidArgsFunction != nil {
				panic("no command " + path) // every run of the program would report it
			}
			cmd.ValidArgsFunction = func(
				cmd *cobra.Command, args []string, _ string,
			) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return offered(cmd, of)
			}
		}
	}
	for _, path := range []string{"board add", "run"} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
			_ = cmd.RegisterFlagCompletionFunc("input", a.offerInputs)
		}
	}
	for flag, of := range map[string]source{
		"project":    a.onBoard(offerProjects, ""),
		"job":        a.onJobs(offerJob),
		"depends-on": a.onBoard(onTheBoard, "task"),
		"executor":   a.onBoard(offerExecutors, ""),
	} {
		for _, path := range []string{"board add", "board tasks", "board start", "run"} {
			if cmd, _, err := root.Find(strings.Fields(path)); err == nil && cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag,
					func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
						return offered(cmd, of)
					})
			}
		}
	}
}

// offered lists a source for the shell, which filters it by what is typed. On an error it offers nothing.
func offered(cmd *cobra.Command, of source) (offers []cobra.Completion, _ cobra.ShellCompDirective) {
	all, err := of(cmd.Context())
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, c := range all {
		word := c.id
		if len(word) == taskIDs.length {
			word = word[:shortID]
		}
		offers = append(offers, cobra.CompletionWithDesc(word, oneLine(c.about, titleWidth)))
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// onBoard returns a source of the candidates of some kinds in a list of the board.
func (a *app) onBoard(list func(context.Context, *attempt.Engine) ([]candidate, error), kinds string) source {
	return func(context.Context) (all []candidate, err error) {
		err = a.withBoard(true, func(ctx context.Context, board *attempt.Engine) (err error) {
			all, err = list(ctx, board)
			all = slices.DeleteFunc(all, func(c candidate) bool { return !strings.Contains(kinds, c.kind) })
			return err
		})
		return all, err
	}
}

func (a *app) offerSessions(ctx context.Context) (all []candidate, err error) {
	err = a.withEngine(ctx, true, nil, func(engine *workflow.Engine) (err error) {
		all, err = inSessions(ctx, engine, nil)
		return err
	})
	return all, err
}

func offerProjects(ctx context.Context, engine *attempt.Engine) (all []candidate, err error) {
	projects, err := allProjects(ctx, engine)
	return xslices.Map(projects, func(p board.Project) candidate { return candidate{id: p.Name, about: p.ProjectID} }),
		err
}

func offerExecutors(ctx context.Context, board *attempt.Engine) (all []candidate, err error) {
	r, err := board.ListExecutors(ctx, atTerminal)
	if err != nil {
		return nil, err
	}
	for _, e := range r.Executors {
		about := e.Program
		if !e.Available {
			about += ", which is not installed"
		}
		all = append(all, candidate{id: e.Name, about: about})
	}
	return all, nil
}

// onJobs returns a source that lists something of each job.
func (a *app) onJobs(of func(*job.Job) []candidate) source {
	return func(ctx context.Context) (all []candidate, err error) {
		err = a.withCatalog(ctx, func(_ string, jobs *catalog.Catalog) error {
			all = slices.Concat(xslices.Map(jobs.Snapshot().Jobs, of)...)
			return nil
		})
		return all, err
	}
}

func offerJob(j *job.Job) []candidate { return []candidate{{id: j.Name, about: j.Summary}} }

func offerWorkflows(j *job.Job) []candidate {
	return xslices.Map(j.Workflows, func(w job.Workflow) candidate {
		return candidate{id: j.Name + "/" + w.Name, about: w.Summary}
	})
}
