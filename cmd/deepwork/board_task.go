package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/show"
)

func (a *app) boardShowCommand() *cobra.Command {
	return a.onProject("print it as JSON", &cobra.Command{
		Use:   "show ID",
		Short: "Print a task with its attempts",
		Long:  "Print a task with its attempts." + taskIDs.help(),
		Example: `  deepwork board show latest
  deepwork board show 3f2a --json`,
		Args: taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onTask(true, args[0], a.showTask)
		},
	})
}

// aTask is a task with its attempts, as --json prints it.
type aTask struct {
	*board.Task
	Attempts []*attempt.AttemptReply `json:"attempts"`
}

func (a *app) showTask(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
	summaries, err := allPages(func(cursor *string) ([]board.AttemptSummary, *string, error) {
		r, err := engine.ListTaskAttempts(ctx, atTerminal,
			board.ListTaskAttemptsArgs{TaskID: t.TaskID, Limit: new(board.MaxLimit), Cursor: cursor})
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
		r, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: board.Target{AttemptID: &s.AttemptID}})
		if err != nil {
			return fmt.Errorf("reading attempt %s: %w", board.Short(s.AttemptID), err)
		}
		full.Attempts = append(full.Attempts, &r.AttemptReply)
	}
	if a.json {
		return a.printJSON(full)
	}

	a.printTask(t)
	for i, r := range full.Attempts {
		fmt.Fprintln(a.out)
		a.printAttempt(r)
		if i == 0 {
			a.printNext(ctx, engine, r)
		}
	}

	return nil
}

// fields prints pairs of a name and a value, which may have many lines; it leaves out empty values.
func (a *app) fields(pairs ...string) { a.out.Fields(12, pairs...) }

func (a *app) printTask(t *board.Task) {
	a.fields("task", board.Short(t.TaskID), "title", t.Title, "status", t.Status, "priority", priorityText(t), "labels",
		strings.Join(t.Labels, " "), "description", optional(t.Description))
	if t.JobName != nil && t.WorkflowName != nil {
		a.fields("workflow", *t.JobName+"/"+*t.WorkflowName)
		a.printInputs(t.Inputs)
	}

	for _, id := range t.DependsOn {
		text := board.Short(id)
		if slices.Contains(t.BlockedBy, id) {
			text += ", which is not done"
		}
		a.fields("depends on", text)
	}
	a.fields("group", t.Group, "created", agoText(t.CreatedAt), "changed", agoText(t.UpdatedAt), "project",
		board.Short(t.ProjectID))
}

func (a *app) printAttempt(r *attempt.AttemptReply) {
	a.fields("attempt", board.Short(r.AttemptID), "state", stateText(r), "executor", executorText(r), "branch",
		r.WorkspaceBranch, "runs", r.Contained,
		"started", agoText(optional(r.StartedAt)), "ended", agoText(optional(r.EndedAt)))
	a.printResult(r)
}

// stateText returns a state, with the exit code of an agent that ended by itself and not with 0.
func stateText(r *attempt.AttemptReply) string {
	if r.ExitCode != nil && *r.ExitCode > 0 {
		return fmt.Sprintf("%s (exit code %d)", r.State.Words(), *r.ExitCode)
	}
	return r.State.Words()
}

// printNext prints the commands that go on with an attempt.
func (a *app) printNext(ctx context.Context, engine *attempt.Engine, r *attempt.AttemptReply) {
	var run *board.RunReply
	if r.Lead == task.ServerLeads {
		run, _ = engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: r.AttemptID}) // without it, less is offered
	}
	budgets, err := engine.ReachedBudgets(ctx, atTerminal)
	if err == nil && !r.Open && r.State != board.Completed && r.State != board.Merged {
		for _, b := range budgets {
			a.fields("first", b.Command+" ("+b.Title+")")
		}
	}
	a.fields("next", a.next(r, run))
}

// next returns the commands that continue an attempt or a run in its present state. Each works as printed.
func (a *app) next(r *attempt.AttemptReply, run *board.RunReply) string {
	id, of := board.Short(r.AttemptID), board.Short(r.TaskID)
	has := func(is func(attempt.AttemptRepo) bool) bool { return slices.ContainsFunc(r.Repos, is) }
	var all []string
	add := func(purpose, format string, args ...any) {
		command := a.onPath("deepwork " + fmt.Sprintf(format, args...))
		if purpose != "" {
			command += " (to " + purpose + ")"
		}
		all = append(all, command)
	}
	switch {
	case r.Open && r.State != board.Interrupted, r.State == board.Merged:
	case has(func(repo attempt.AttemptRepo) bool { return repo.Merging }):
		if r.Lead == task.AgentLeads && r.LatestSessionID != nil {
			add("", "board send %s \"Resolve the conflicts of the merge in your worktree, and commit it.\"", id)
		}
		add("undo the merge", "board merge --abort %s", id)
	case has(func(repo attempt.AttemptRepo) bool { return repo.Gone }):
		add("see how to bring its worktree back", "board merge %s", id)
		add("begin again", "board start %s --executor %s", of, strings.Trim(r.Executor+":"+optional(r.Variant), ":"))
	case r.State == board.Completed, r.State == board.Conflicted:
		if has(func(repo attempt.AttemptRepo) bool { return repo.ChangedCount > 0 }) {
			add("see its changes", "board diff %s", id)
		}
		if has(func(repo attempt.AttemptRepo) bool { return repo.Loose > 0 }) {
			add("commit what it has left, and merge all", "board merge --commit %s", id)
		} else if has(func(repo attempt.AttemptRepo) bool { return repo.Ahead > 0 }) {
			add("merge what it committed", "board merge %s", id)
		} else {
			add("set its task done", "board done %s", of)
		}
		if r.Lead == task.AgentLeads && r.LatestSessionID != nil {
			add("have more done", "board send %s \"Go on: ...\"", id)
		}
	case run != nil && run.Began:
		add("continue it", "run resume %s%s", id, run.Kept.LargerBudget(run.Cost))
	default:
		if r.Lead == task.AgentLeads && r.LatestSessionID != nil {
			add("continue in its worktree", "board send %s \"Go on.\"", id)
		}
		add("begin again", "board start %s --executor %s", of, strings.Trim(r.Executor+":"+optional(r.Variant), ":"))
	}

	return strings.Join(all, "\n")
}

func executorText(r *attempt.AttemptReply) string {
	return strings.TrimSpace(r.Executor + " " + optional(r.Variant))
}

// printResult prints an attempt's result so far.
func (a *app) printResult(r *attempt.AttemptReply) {
	if r.WorkflowStatus != nil {
		a.fields("workflow", fmt.Sprintf("%s, at step %s (session %s)", *r.WorkflowStatus, optional(r.WorkflowStep),
			optional(r.WorkflowSession)))
	}
	a.fields("said", optional(r.FinalMessage), "error", a.here(r.Why), "not pushed",
		optional(r.PushError), "cost", costText(r.Cost))
	if r.QueuedFollowUp != nil {
		a.fields("queued", r.QueuedFollowUp.Prompt)
	}
	for _, repo := range r.Repos {
		where := "it has no worktree here"
		if repo.Gone {
			where = "its worktree is gone"
		} else if repo.Exists {
			where = fmt.Sprintf("%s\n%d ahead of %s, %d behind, %s changed", repo.WorktreePath, repo.Ahead,
				repo.TargetBranch, repo.Behind, count(repo.ChangedCount, "file"))
		}
		a.fields("repo", repo.RepoName+": "+where, "conflicts", strings.Join(repo.Conflicts, "\n"))
	}
	a.fields("notice", a.here(optional(r.Notice)))
}

// costText describes a cost. What is unknown is left out or called unknown.
func costText(c *board.Cost) (text string) {
	if c == nil {
		return ""
	}

	if c.USD != nil {
		text += fmt.Sprintf("%.4f USD\n", *c.USD)
	}
	if c.Unknown > 0 {
		text += fmt.Sprintf("unknown for %d of %s\n", c.Unknown, count(c.Executions, "execution"))
	}
	if c.Input != nil {
		text += fmt.Sprintf("tokens: %d input, %d cached, %d output\n", *c.Input, *c.Cached, *c.Output)
	}
	if c.Turns != nil {
		text += count(int(*c.Turns), "turn")
	}
	return text
}

func (a *app) boardAddCommand() *cobra.Command {
	var project string
	var dependsOn []string
	var task board.CreateTaskArgs
	var run bool
	var start startFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "add TITLE",
		Short: "Put a task on the board and print its id",
		Long: "Put a task on the board and print its id.\n" + inputsHelp + `
The agent can ask for what is missing. With - as TEXT the description is read from stdin.
With --run an agent starts on the task at once, as with 'deepwork board start'.`,
		Example: `  deepwork board add "Fix the login" --description "It fails on Mondays."
  deepwork board add "Fix the login" --description - --run <task.md
  deepwork board add "Write the notes of 2.0" --job release_notes/write --depends-on 3f2a`,
		Args: argumentCount(1, 1, "a title"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if !run && (start.Executor != "" || start.detach) {
				return usagef(cmd, "--executor and --detach are for --run, which is missing")
			}

			if job, workflow, both := strings.Cut(optional(task.JobName), "/"); both && task.WorkflowName == nil {
				task.JobName, task.WorkflowName = &job, &workflow
			}
			if (optional(task.JobName) == "") != (optional(task.WorkflowName) == "") {
				return usagef(cmd, "--job and --workflow name a workflow together; 'deepwork jobs' lists the workflows")
			}

			for _, id := range dependsOn {
				if err := taskIDs.check(cmd, id); err != nil {
					return err
				}
			}

			if task.Description != nil {
				if *task.Description, err = a.argumentOrStdin(*task.Description, "description"); err != nil {
					return err
				}
			}
			task.Title = args[0]
			return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
				p, err := oneProject(ctx, engine, project)
				if err != nil {
					return err
				}
				task.ProjectID = p.ProjectID
				for _, id := range dependsOn {
					other, err := a.oneTask(ctx, engine, id)
					if err != nil {
						return err
					}
					task.DependsOn = append(task.DependsOn, other.TaskID)
				}
				t, err := engine.CreateTask(ctx, atTerminal, task)
				if err != nil {
					return fmt.Errorf("adding the task: %w", err)
				}

				fmt.Fprintln(a.out, board.Short(t.TaskID))
				if run {
					return a.start(ctx, cmd, engine, t, start)
				}
				if _, _, ok := show.TerminalSize(a.rawOut); ok {
					a.fields("next", a.onPath("deepwork board start "+board.Short(t.TaskID)))
				}
				return nil
			})
		},
	})
	argumentFlags(cmd, &task, "priority", "description", "job_name=job", "workflow_name=workflow", "lead")
	onInputs(cmd, &task.Inputs)
	labelFlags(cmd, &task.Labels, "the task gets it")
	cmd.Flags().BoolVar(&run, "run", false, "start an agent on the task at once, and follow it")
	onExecutor(onDetach(cmd, &start.detach), &start.StartArgs)
	cmd.Flags().StringVar(&project, "project", "", "`name` or id of the project (default: the project root)")
	cmd.Flags().StringArrayVar(&dependsOn, "depends-on", nil,
		"`id` of a task to be done first, its beginning, or latest; may be repeated")
	return cmd
}

func (a *app) boardRmCommand() *cobra.Command {
	var force bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a task with its attempts and worktrees",
		Long: `Remove a task with its attempts, worktrees and logs. This is refused while an attempt
waits or runs. Uncommitted work is saved first, under the git refs that are printed;
unmerged branches stay. If an agent has made a git repository in a worktree, with work
that is nowhere else, this is refused, too; with --force that work is discarded.` + taskIDs.help(),
		Example: `  deepwork board rm 3f2a`,
		Args:    taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onTask(false, args[0], func(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
				r, err := engine.DeleteTask(ctx, atTerminal, attempt.DeleteArgs{TaskID: t.TaskID, Force: force})
				if refused, ok := errors.AsType[*session.Error](err); ok {
					kept, _ := refused.Details["rescued"].([]attempt.Rescue)
					a.printRescued(kept)
				}
				if err != nil {
					return fmt.Errorf("removing task %s: %w", board.Short(t.TaskID), err)
				}
				fmt.Fprintf(a.out, "removed %s\n", board.Short(t.TaskID))
				a.printRescued(r.Rescued)
				for _, what := range r.Discarded {
					fmt.Fprintf(a.out, "discarded %s\n", inline(what))
				}
				a.note(r.Notice)
				return nil
			})
		},
	})
	cmd.Flags().BoolVar(&force, "force", false,
		"discard git repositories in worktrees, even with work that is nowhere else")
	return cmd
}

// printRescued prints where the work of removed worktrees is.
func (a *app) printRescued(all []attempt.Rescue) {
	for _, kept := range all {
		fmt.Fprintf(a.out, "kept %s in %s, from %s\n", kept.Ref, inline(kept.RepoPath), inline(kept.Worktree))
	}
}

func (a *app) boardProjectsCommand() *cobra.Command {
	return a.onProject("print them as JSON, each with its repositories", &cobra.Command{
		Use:     "projects",
		Short:   "List the projects with their repositories",
		Example: `  deepwork board projects --json`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.withBoard(true, func(ctx context.Context, engine *attempt.Engine) error {
				return a.listProjects(ctx, engine)
			})
		},
	})
}

// aProject is a project with its repositories, as --json prints it.
type aProject struct {
	board.Project
	Repos []board.Repo `json:"repos"`
}

func (a *app) listProjects(ctx context.Context, engine *attempt.Engine) error {
	projects, err := allProjects(ctx, engine)
	if err != nil {
		return err
	}
	full := make([]aProject, 0, len(projects))
	for _, p := range projects {
		repos, err := allRepos(ctx, engine, p.ProjectID)
		if err != nil {
			return err
		}
		full = append(full, aProject{p, append([]board.Repo{}, repos...)})
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
	a.out.Table([]show.Column{{Title: "PROJECT", Least: 12}, {Title: "REPO", Least: 12}, {Title: "PATH", Below: true},
		{Title: "ID"}}, rows)
	return nil
}

func allRepos(ctx context.Context, engine *attempt.Engine, project string) ([]board.Repo, error) {
	return allPages(func(cursor *string) ([]board.Repo, *string, error) {
		r, err := engine.ListRepos(ctx, atTerminal,
			board.ListReposArgs{ProjectID: project, Limit: new(board.MaxLimit), Cursor: cursor})
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
	var project string
	var only board.ListTasksArgs
	cmd := a.onProject("print them as JSON", &cobra.Command{
		Use:   "tasks",
		Short: "List the tasks of a project, newest first",
		Long: `List the tasks of a project, newest first. ATTEMPT is the state of the latest attempt,
or blocked if other tasks must be done first. Other commands take the ID as it is shown.`,
		Example: `  deepwork board tasks --status todo
  deepwork board tasks --project shop --json`,
		Args: argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.withBoard(true, func(ctx context.Context, engine *attempt.Engine) error {
				return a.listTasks(ctx, engine, project, only)
			})
		},
	})
	cmd.Flags().StringVar(&project, "project", "", "`name` or id of the project (default: the project root)")
	argumentFlags(cmd, &only, "status", "priority")
	labelFlags(cmd, &only.Labels, "only tasks with it")
	return cmd
}

func labelFlags(cmd *cobra.Command, to *[]string, effect string) {
	cmd.Flags().StringArrayVar(to, "label", nil, "`word`: "+effect+"; may be repeated")
}

// allTasks returns the tasks of a project that the arguments select.
func allTasks(ctx context.Context, engine *attempt.Engine, only board.ListTasksArgs) ([]board.Task, error) {
	return allPages(func(cursor *string) ([]board.Task, *string, error) {
		only.Limit, only.Cursor = new(board.MaxLimit), cursor
		r, err := engine.ListTasks(ctx, atTerminal, only)
		if err != nil {
			return nil, nil, fmt.Errorf("listing the tasks: %w", err)
		}
		return r.Tasks, r.NextCursor, nil
	})
}

func (a *app) listTasks(ctx context.Context, engine *attempt.Engine, project string, only board.ListTasksArgs) error {
	p, err := oneProject(ctx, engine, project)
	if err != nil {
		return err
	}
	only.ProjectID = p.ProjectID
	tasks, err := allTasks(ctx, engine, only)
	if err != nil {
		return err
	}
	var review []string
	for _, t := range tasks {
		if t.Status == string(task.InReview) && t.LatestAttemptID != nil {
			review = append(review, *t.LatestAttemptID)
		}
	}
	if noticed, err := engine.NoticeMerges(ctx, atTerminal, review); err != nil {
		return err
	} else if noticed {
		if tasks, err = allTasks(ctx, engine, only); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(append([]board.Task{}, tasks...))
	}
	if len(tasks) == 0 {
		fmt.Fprintln(a.out, "There are no tasks.")
		return nil
	}

	var rows [][]string
	for _, t := range tasks {
		rows = append(rows, []string{t.TaskID[:shortID], t.Status, attemptWord(t), optional(t.LatestWorkspaceBranch),
			sinceText(t.CreatedAt), priorityText(&t), strings.Join(t.Labels, " "), t.Title})
	}
	a.out.Table([]show.Column{{Title: "ID"}, {Title: "STATUS", State: true}, {Title: "ATTEMPT", State: true}, {
		Title:    "BRANCH",
		Least:    12,
		Optional: true,
	}, {Title: "AGE"}, {Title: "PRIORITY", Optional: true}, {Title: "LABELS", Optional: true},
		{Title: "TITLE", Least: 20}}, rows)

	return nil
}

// priorityText returns the priority of a task, "" if it is normal.
func priorityText(t *board.Task) string { return strings.TrimSuffix(t.Priority, string(task.Normal)) }

// attemptWord summarizes a task's latest attempt for a list.
func attemptWord(t board.Task) string {
	switch {
	case t.LatestAttemptState != nil:
		return t.LatestAttemptState.Words()
	case len(t.BlockedBy) > 0:
		return "blocked"
	}
	return ""
}

// agoText returns a time in a reply as "… ago", or "" if there is none.
func agoText(at string) string {
	if t := timeIn(at); !t.IsZero() {
		return show.Ago(t)
	}
	return ""
}

// sinceText returns how long ago a time in a reply was, or "".
func sinceText(at string) string { return show.Since(timeIn(at)) }

func timeIn(reply string) time.Time {
	t, _ := time.Parse(time.RFC3339, reply) // this program has written it
	return t
}
