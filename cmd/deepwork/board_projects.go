package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
)

func (a *app) boardProjectsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "projects",
		Short: "List the projects with their repositories",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.withBoard(func(ctx context.Context, board *attempt.Engine) error { return a.listProjects(ctx, board, asJSON) })
		},
	}
	a.pathFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print them as JSON, each with its repositories")
	return cmd
}

// aProject is a project with its repositories, as --json prints it.
type aProject struct {
	attempt.Project
	Repos []attempt.Repo `json:"repos"`
}

func (a *app) listProjects(ctx context.Context, board *attempt.Engine, asJSON bool) error {
	projects, err := allProjects(ctx, board)
	if err != nil {
		return err
	}
	full := make([]aProject, 0, len(projects))
	for _, p := range projects {
		repos, err := everything(func(cursor *string) ([]attempt.Repo, *string, error) {
			r, err := board.ListRepos(ctx, atTerminal, attempt.ListReposArgs{ProjectID: p.ProjectID, Limit: new(attempt.MaxLimit), Cursor: cursor})
			if err != nil {
				return nil, nil, fmt.Errorf("listing the repositories of %s: %w", p.Name, err)
			}
			return r.Repos, r.NextCursor, nil
		})
		if err != nil {
			return err
		}
		full = append(full, aProject{p, append([]attempt.Repo{}, repos...)})
	}
	if asJSON {
		return a.printJSON(full)
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROJECT\tREPO\tPATH\tPROJECT ID")
	for _, p := range full {
		if len(p.Repos) == 0 {
			fmt.Fprintf(table, "%s\t-\t-\t%s\n", oneLine(p.Name, 60), p.ProjectID)
		}
		for _, r := range p.Repos {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", oneLine(p.Name, 60), oneLine(r.Name, 60), oneLine(r.Path, 200), p.ProjectID)
		}
	}
	return table.Flush()
}
