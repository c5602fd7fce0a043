package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session"
	"deepwork/session/attempt"
)

func (a *app) boardShowCommand() *cobra.Command {
	return a.onProject("print it as JSON", &cobra.Command{
		Use:   "show ID",
		Short: "Print a task with its attempts; " + idsHelp,
		Args:  taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withBoard(true, func(ctx context.Context, board *attempt.Engine) error {
				t, err := oneTask(ctx, board, args[0])
				if err != nil {
					return err
				}
				return a.showTask(ctx, board, t)
			})
		},
	})
}

// aTask is a task with its attempts, as --json prints it.
type aTask struct {
	*attempt.Task
	Attempts []*attempt.AttemptReply `json:"attempts"`
}

func (a *app) showTask(ctx context.Context, board *attempt.Engine, t *attempt.Task) error {
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
		full.Attempts = append(full.Attempts, &r.AttemptReply)
	}
	if a.json {
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
func (a *app) field(name, value string) { a.out.Field(12, name, value) }

func (a *app) printTask(t *attempt.Task) {
	a.field("task", t.TaskID)
	a.field("title", t.Title)
	a.field("status", t.Status)
	a.field("description", optional(t.Description))
	if t.JobName != nil && t.WorkflowName != nil {
		a.field("workflow", *t.JobName+"/"+*t.WorkflowName)
	}
	for _, id := range t.DependsOn {
		if slices.Contains(t.BlockedBy, id) {
			id += ", which is not done"
		}
		a.field("depends on", id)
	}
	a.field("created", agoText(t.CreatedAt))
	a.field("changed", agoText(t.UpdatedAt))
	a.field("project", t.ProjectID)
}

func (a *app) printAttempt(r *attempt.AttemptReply) {
	a.field("attempt", r.AttemptID)
	a.field("state", stateText(r))
	a.field("executor", executorText(r))
	a.field("branch", r.WorkspaceBranch)
	a.field("started", agoText(optional(r.StartedAt)))
	a.field("ended", agoText(optional(r.EndedAt)))
	a.printResult(r)
}

func stateText(r *attempt.AttemptReply) string {
	if r.ExitCode != nil {
		return fmt.Sprintf("%s (exit code %d)", r.State, *r.ExitCode)
	}
	return r.State
}

func executorText(r *attempt.AttemptReply) string {
	return strings.TrimSpace(r.Executor + " " + optional(r.Variant))
}

// printResult prints what came of an attempt so far.
func (a *app) printResult(r *attempt.AttemptReply) {
	if r.WorkflowStatus != nil {
		a.field("workflow", fmt.Sprintf("%s, at step %s (session %s)", *r.WorkflowStatus, optional(r.WorkflowStep), optional(r.WorkflowSession)))
	}
	a.field("said", optional(r.FinalMessage))
	a.field("error", optional(r.Error))
	a.field("not pushed", optional(r.PushError))
	a.field("cost", costText(r.Cost))
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
	a.field("notice", inCommands(optional(r.Notice)))
}

// costText describes a cost; what is not known is left out or called so.
func costText(c *attempt.Cost) string {
	if c == nil {
		return ""
	}
	var parts []string
	if c.USD != nil {
		parts = append(parts, fmt.Sprintf("%.4f USD", *c.USD))
	}
	if c.Unknown > 0 {
		parts = append(parts, fmt.Sprintf("unknown for %d of %s", c.Unknown, count(c.Executions, "execution")))
	}
	if c.Input != nil {
		parts = append(parts, fmt.Sprintf("tokens: %d input, %d cached, %d output", *c.Input, *c.Cached, *c.Output))
	}
	if c.Turns != nil {
		parts = append(parts, count(int(*c.Turns), "turn"))
	}
	return strings.Join(parts, "\n")
}

func (a *app) boardAddCommand() *cobra.Command {
	var project, description, job, workflow string
	var dependsOn []string
	cmd := a.onProject("", &cobra.Command{
		Use:   "add TITLE",
		Short: "Put a task on the board and print its id",
		Args:  takes(1, 1, "a title"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (job == "") != (workflow == "") {
				return usagef(cmd, "--job and --workflow name a workflow together; 'deepwork jobs' lists the workflows")
			}
			for _, id := range dependsOn {
				if err := idArgument(cmd, "a task", tasksCommand, id, 36); err != nil {
					return err
				}
			}
			given := func(flag string, value *string) *string {
				if !cmd.Flags().Changed(flag) {
					return nil
				}
				return value
			}
			task := attempt.CreateTaskArgs{Title: args[0], Description: given("description", &description),
				JobName: given("job", &job), WorkflowName: given("workflow", &workflow)}
			return a.withBoard(false, func(ctx context.Context, board *attempt.Engine) error {
				p, err := oneProject(ctx, board, project)
				if err != nil {
					return err
				}
				task.ProjectID = p.ProjectID
				for _, id := range dependsOn {
					other, err := oneTask(ctx, board, id)
					if err != nil {
						return err
					}
					task.DependsOn = append(task.DependsOn, other.TaskID)
				}
				t, err := board.CreateTask(ctx, atTerminal, task)
				if err != nil {
					return fmt.Errorf("adding the task: %w", err)
				}
				fmt.Fprintln(a.out, t.TaskID)
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&description, "description", "", "what to do, in full, as `TEXT`")
	cmd.Flags().StringVar(&project, "project", "", "`name` or id of the project (default: the project root)")
	cmd.Flags().StringArrayVar(&dependsOn, "depends-on", nil, "`id` of a task that must be done first, or its beginning, or latest; may be repeated")
	cmd.Flags().StringVar(&job, "job", "", "`name` of the job whose workflow its attempts run, with --workflow")
	cmd.Flags().StringVar(&workflow, "workflow", "", "`name` of that workflow")
	return cmd
}

func (a *app) boardRmCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a task with its attempts and worktrees; " + idsHelp,
		Long: `Remove a task with its attempts, their worktrees and logs. It is refused while an
attempt waits or runs. Work that was not committed is kept first, under the git refs
that are printed; branches with commits stay.`,
		Args: taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withBoard(false, func(ctx context.Context, board *attempt.Engine) error {
				t, err := oneTask(ctx, board, args[0])
				if err != nil {
					return err
				}
				r, err := board.DeleteTask(ctx, atTerminal, attempt.TaskArgs{TaskID: t.TaskID})
				if refused, ok := errors.AsType[*session.Error](err); ok {
					kept, _ := refused.Details["rescued"].([]attempt.Rescue)
					a.printRescued(kept)
				}
				if err != nil {
					return fmt.Errorf("removing task %s: %w", t.TaskID, err)
				}
				fmt.Fprintf(a.out, "removed %s\n", t.TaskID)
				a.printRescued(r.Rescued)
				return nil
			})
		},
	})
}

// printRescued prints where the work of removed worktrees is.
func (a *app) printRescued(all []attempt.Rescue) {
	for _, kept := range all {
		fmt.Fprintf(a.out, "kept %s in %s, from %s\n", kept.Ref, inline(kept.RepoPath), inline(kept.Worktree))
	}
}
