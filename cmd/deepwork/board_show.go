package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session/attempt"
)

func (a *app) boardShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a task with its attempts; ID may be the beginning of one",
		Args:  taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withBoard(func(ctx context.Context, board *attempt.Engine) error {
				t, err := oneTask(ctx, board, args[0])
				if err != nil {
					return err
				}
				return a.showTask(ctx, board, t, asJSON)
			})
		},
	}
	a.pathFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// aTask is a task with its attempts, as --json prints it.
type aTask struct {
	*attempt.Task
	Attempts []*attempt.AttemptReply `json:"attempts"`
}

func (a *app) showTask(ctx context.Context, board *attempt.Engine, t *attempt.Task, asJSON bool) error {
	summaries, err := everything(func(cursor *string) ([]attempt.AttemptSummary, *string, error) {
		r, err := board.ListTaskAttempts(ctx, atTerminal, attempt.ListTaskAttemptsArgs{TaskID: t.TaskID, Limit: new(attempt.MaxLimit), Cursor: cursor})
		if err != nil {
			return nil, nil, fmt.Errorf("listing the attempts: %w", err)
		}
		return r.Attempts, r.NextCursor, nil
	})
	if err != nil {
		return err
	}
	full := aTask{t, []*attempt.AttemptReply{}}
	for _, s := range summaries {
		r, err := board.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: attempt.Target{AttemptID: &s.AttemptID}})
		if err != nil {
			return fmt.Errorf("reading attempt %s: %w", s.AttemptID, err)
		}
		full.Attempts = append(full.Attempts, r)
	}
	if asJSON {
		return a.printJSON(full)
	}
	a.printTask(t)
	for _, r := range full.Attempts {
		fmt.Fprintln(a.out)
		a.printAttempt(r)
	}
	return nil
}

// field prints a name and a value of any number of lines, unless it is empty.
func (a *app) field(name, value string) {
	const width = 13
	if value = strings.TrimSpace(plain(value)); value != "" {
		fmt.Fprintf(a.out, "%-*s %s\n", width-1, name+":", strings.TrimLeft(indent(value, strings.Repeat(" ", width)), " "))
	}
}

func (a *app) printTask(t *attempt.Task) {
	a.field("task", t.TaskID)
	a.field("title", t.Title)
	a.field("status", t.Status)
	a.field("description", optional(t.Description))
	if t.JobName != nil && t.WorkflowName != nil {
		a.field("workflow", *t.JobName+"/"+*t.WorkflowName)
	}
	a.field("created", t.CreatedAt)
	a.field("changed", t.UpdatedAt)
	a.field("project", t.ProjectID)
}

func (a *app) printAttempt(r *attempt.AttemptReply) {
	a.field("attempt", r.AttemptID)
	state := r.State
	if r.ExitCode != nil {
		state += fmt.Sprintf(" (exit code %d)", *r.ExitCode)
	}
	a.field("state", state)
	executor := r.Executor
	if r.Variant != nil {
		executor += " " + *r.Variant
	}
	a.field("executor", executor)
	a.field("branch", r.WorkspaceBranch)
	a.field("started", optional(r.StartedAt))
	a.field("ended", optional(r.EndedAt))
	if r.WorkflowStatus != nil {
		a.field("workflow", fmt.Sprintf("%s, at step %s (session %s)", *r.WorkflowStatus, optional(r.WorkflowStep), optional(r.WorkflowSession)))
	}
	a.field("said", optional(r.FinalMessage))
	a.field("error", optional(r.Error))
	if r.QueuedFollowUp != nil {
		a.field("queued", r.QueuedFollowUp.Prompt)
	}
	for _, repo := range r.Repos {
		where := "not there"
		if repo.Exists {
			where = fmt.Sprintf("%s\n%d ahead of %s, %d behind, %s changed", repo.WorktreePath, repo.Ahead, repo.TargetBranch, repo.Behind, count(repo.ChangedCount, "file"))
		}
		a.field("repo", repo.RepoName+": "+where)
	}
	a.field("notice", optional(r.Notice))
}
