package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
	"deepwork/session/show"
)

func (a *app) boardProjectsCommand() *cobra.Command {
	return a.onProject("print them as JSON, each with its repositories", &cobra.Command{
		Use:   "projects",
		Short: "List the projects with their repositories",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error { return a.listProjects(ctx, board) })
		},
	})
}

// aProject is a project with its repositories, as --json prints it.
type aProject struct {
	attempt.Project
	Repos []attempt.Repo `json:"repos"`
}

func (a *app) listProjects(ctx context.Context, board *attempt.Engine) error {
	projects, err := allProjects(ctx, board)
	if err != nil {
		return err
	}
	full := make([]aProject, 0, len(projects))
	for _, p := range projects {
		repos, err := allRepos(ctx, board, p.ProjectID)
		if err != nil {
			return err
		}
		full = append(full, aProject{p, append([]attempt.Repo{}, repos...)})
	}
	if a.json {
		return a.printJSON(full)
	}
	var rows [][]string
	for _, p := range full {
		if len(p.Repos) == 0 {
			rows = append(rows, []string{p.Name, "", "", p.ProjectID[:shortID]})
		}
		for _, r := range p.Repos {
			rows = append(rows, []string{p.Name, r.Name, r.Path, p.ProjectID[:shortID]})
		}
	}
	a.out.Table([]show.Column{{Title: "PROJECT", Least: 12}, {Title: "REPO", Least: 12}, {Title: "PATH", Below: true}, {Title: "ID"}}, rows)
	return nil
}

func allRepos(ctx context.Context, board *attempt.Engine, project string) ([]attempt.Repo, error) {
	return everything(func(cursor *string) ([]attempt.Repo, *string, error) {
		r, err := board.ListRepos(ctx, atTerminal, attempt.ListReposArgs{ProjectID: project, Limit: new(attempt.MaxLimit), Cursor: cursor})
		if err != nil {
			return nil, nil, fmt.Errorf("listing the repositories of project %s: %w", project, err)
		}
		return r.Repos, r.NextCursor, nil
	})
}

const (
	titleWidth = 60 // characters of a title in an error
	shortID    = 8  // characters of a task's id in the list
)

func (a *app) boardTasksCommand() *cobra.Command {
	var project, status string
	cmd := a.onProject("print them as JSON", &cobra.Command{
		Use:   "tasks",
		Short: "List the tasks of a project, newest first",
		Long: `List the tasks of a project, newest first. ATTEMPT is what the latest attempt is
doing, or how it ended, or blocked if none can start before other tasks are done;
the other commands take an ID as it is shown here.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			only := &status
			if !cmd.Flags().Changed("status") {
				only = nil
			}
			return a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
				return a.listTasks(ctx, board, project, only)
			})
		},
	})
	cmd.Flags().StringVar(&project, "project", "", "`name` or id of the project (default: the project root)")
	cmd.Flags().StringVar(&status, "status", "", "only tasks of this status: todo, inprogress, inreview, done or cancelled")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"todo", "inprogress", "inreview", "done", "cancelled"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func allTasks(ctx context.Context, board *attempt.Engine, project string, status *string) ([]attempt.Task, error) {
	return everything(func(cursor *string) ([]attempt.Task, *string, error) {
		r, err := board.ListTasks(ctx, atTerminal, attempt.ListTasksArgs{ProjectID: project, Status: status, Limit: new(attempt.MaxLimit), Cursor: cursor})
		if err != nil {
			return nil, nil, fmt.Errorf("listing the tasks: %w", err)
		}
		return r.Tasks, r.NextCursor, nil
	})
}

func (a *app) listTasks(ctx context.Context, board *attempt.Engine, project string, status *string) error {
	p, err := oneProject(ctx, board, project)
	if err != nil {
		return err
	}
	tasks, err := allTasks(ctx, board, p.ProjectID, status)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(append([]attempt.Task{}, tasks...))
	}
	if len(tasks) == 0 {
		fmt.Fprintln(a.out, "There are no tasks.")
		return nil
	}
	var rows [][]string
	for _, t := range tasks {
		rows = append(rows, []string{t.TaskID[:shortID], t.Status, attemptWord(t), optional(t.LatestWorkspaceBranch), sinceText(t.CreatedAt), t.Title})
	}
	a.out.Table([]show.Column{{Title: "ID"}, {Title: "STATUS", State: true}, {Title: "ATTEMPT", State: true}, {Title: "BRANCH", Least: 12, Optional: true}, {Title: "AGE"}, {Title: "TITLE", Least: 20}}, rows)
	return nil
}

// attemptWord summarizes a task's latest attempt for a list.
func attemptWord(t attempt.Task) string {
	switch {
	case t.HasInProgressAttempt:
		return "in progress"
	case t.LastAttemptFailed:
		return "failed"
	case t.LatestAttemptID != nil:
		return "ended"
	case len(t.BlockedBy) > 0:
		return "blocked"
	}
	return ""
}

// agoText says when a time in a reply was, or is "" if there is none.
func agoText(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return ""
	}
	return show.Ago(t)
}

// sinceText returns how long ago a time in a reply was, or "" if there is none.
func sinceText(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return ""
	}
	return show.Since(t)
}
