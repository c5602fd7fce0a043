package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/show"
)

// onDetach adds the flag of the commands that start agents.
func onDetach(cmd *cobra.Command, detach *bool) *cobra.Command {
	cmd.Flags().BoolVar(detach, "detach", false, "return as soon as the agent runs; a run goes on in the background")
	return cmd
}

// startFlags are the options of board start.
type startFlags struct {
	attempt.StartArgs
	executor, target string
	repos            []string
	detach           bool
}

func (a *app) boardStartCommand() *cobra.Command {
	var f startFlags
	cmd := onDetach(a.onProject("", &cobra.Command{
		Use:   "start ID",
		Short: "Start an agent on a task, and follow it; " + idsHelp,
		Long: `Start an agent on a task: make an attempt with its own git worktrees, run the agent
there, and print what it says and does until it ends. The exit code is 1 if it fails.

No server is needed; if one runs, it may start the agent instead. Ctrl-C ends
the command, not the agent: 'deepwork board tail -f' follows it again, and 'deepwork
board stop' stops it.

Without --executor it is run.executor of the config, or else the only one that the config
names, or else the only one that is installed. Without --target the work is for the branches that are checked out now.`,
		Args: taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onTask(false, args[0], func(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
				return a.start(ctx, engine, t, f)
			})
		},
	}), &f.detach)
	flags := cmd.Flags()
	flags.StringVar(&f.executor, "executor", "", "`NAME[:VARIANT]` of the agent, such as CLAUDE_CODE")
	flags.StringVar(&f.target, "target", "", "`branch` to start from and to merge into")
	flags.StringArrayVar(&f.repos, "repo", nil, "`NAME[:BRANCH]` of a repository to work on; may be repeated (default: all of the project)")
	argumentFlags(cmd, &f.StartArgs, "prompt")
	return cmd
}

func (a *app) start(ctx context.Context, engine *attempt.Engine, t *board.Task, f startFlags) (err error) {
	args := f.StartArgs
	args.TaskID = t.TaskID
	if name, variant, named := strings.Cut(f.executor, ":"); named {
		args.Executor, args.Variant = name, &variant
	} else {
		args.Executor = name
	}
	if len(f.repos) > 0 || f.target != "" {
		if args.Repos, err = startRepos(ctx, engine, t.ProjectID, f); err != nil {
			return err
		}
	}
	r, err := engine.StartTaskAttempt(ctx, atTerminal, args)
	if err != nil {
		return fmt.Errorf("starting an attempt of task %s: %w", t.TaskID, err)
	}
	a.fields("attempt", board.Short(r.AttemptID), "executor", executorText(r), "branch", r.WorkspaceBranch)
	for _, repo := range r.Repos {
		a.fields("worktree", repo.WorktreePath)
	}
	fmt.Fprintln(a.out)
	return a.run(ctx, engine, r.AttemptID, -1, f.detach)
}

// startRepos returns the repositories of an attempt with their target branches.
func startRepos(ctx context.Context, engine *attempt.Engine, project string, f startFlags) ([]attempt.RepoArgs, error) {
	all, err := allRepos(ctx, engine, project)
	if err != nil {
		return nil, err
	}
	branches := map[string]string{} // of the chosen repositories, by name
	for _, chosen := range f.repos {
		name, branch, _ := strings.Cut(chosen, ":")
		if !slices.ContainsFunc(all, func(r board.Repo) bool { return r.Name == name }) {
			return nil, fmt.Errorf("the project has no repository %q; 'deepwork board projects' lists them", name)
		}
		branches[name] = branch
	}
	var args []attempt.RepoArgs
	for _, r := range all {
		branch, chosen := branches[r.Name]
		if len(branches) > 0 && !chosen {
			continue
		}
		if branch == "" {
			branch = f.target
		}
		if branch == "" && r.Path != "" {
			if branch, err = worktree.CurrentBranch(ctx, r.Path); err == nil && branch == "" {
				return nil, fmt.Errorf("no branch is checked out in %s; name the one that the work is for with --target", r.Path)
			} // an error is one that starting explains
		}
		args = append(args, attempt.RepoArgs{RepoID: r.RepoID, TargetBranch: branch})
	}
	return args, nil
}

func (a *app) boardSendCommand() *cobra.Command {
	var queue, detach bool
	var follow attempt.FollowUpArgs
	cmd := onDetach(a.onProject("", &cobra.Command{
		Use:   "send ID TEXT...",
		Short: "Send the agent of an attempt another message, and follow it",
		Long: `Send the agent of an attempt another message, in the same worktrees and, if it can, the
same conversation, and follow it as 'deepwork board start' does. With - as TEXT the
message is read from stdin.` + attemptsHelp,
		Args: attemptIDs.first(2, -1, "an id and a message"),
		RunE: func(_ *cobra.Command, args []string) error {
			text := strings.Join(args[1:], " ")
			return a.onAttempt(args[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
				if text == "-" {
					if _, _, is := show.TerminalSize(a.in); is {
						fmt.Fprintln(a.err, "Type the message, and end it with Ctrl-D on a line of its own:")
					}
					all, err := io.ReadAll(a.in)
					if err != nil {
						return fmt.Errorf("reading the message from stdin: %w", err)
					}
					text = string(all)
				}
				follow.Target, follow.Action, follow.Prompt = t, attempt.ActionSend, &text
				if queue {
					follow.Action = attempt.ActionQueue
				}
				return a.send(ctx, engine, follow, detach)
			})
		},
	}), &detach)
	cmd.Flags().BoolVar(&queue, "queue", false, "if the agent is running, send it when the agent ends")
	argumentFlags(cmd, &follow, "variant")
	return cmd
}

func (a *app) send(ctx context.Context, engine *attempt.Engine, f attempt.FollowUpArgs, detach bool) error {
	id := *f.AttemptID
	before, err := engine.TailAttempt(ctx, atTerminal, attempt.TailArgs{Target: f.Target, Limit: new(1), Raw: new(true)})
	if err != nil {
		return err
	}
	r, err := engine.FollowUp(ctx, atTerminal, f)
	if err != nil {
		return fmt.Errorf("sending to attempt %s: %w", id, err)
	}
	a.note(r.Notice)
	if r.Status == attempt.FollowUpQueued && detach {
		fmt.Fprintf(a.out, "queued: it is sent when the agent ends, by a running server or by 'deepwork board tail -f %s'\n", id[:shortID])
		return nil
	}
	return a.run(ctx, engine, id, before.NextIndex, detach)
}

// run makes the agent of an attempt run, unless a server does, and prints what is written after an
// entry until the attempt has ended. With detach it returns when the agent runs. A run needs a process that
// leads it, as of deepwork run.
func (a *app) run(ctx context.Context, engine *attempt.Engine, id string, after int64, detach bool) error {
	at, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}})
	if err != nil {
		return err
	}
	if at.Lead == task.ServerLeads {
		r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: id})
		if err != nil {
			return err
		}
		return a.lead(ctx, engine, r, detach)
	}
	engine.ServeOnly(id)
	if detach {
		return a.detach(ctx, engine, id)
	}
	return a.follow(ctx, engine, id, after)
}

// detach waits until the agent of an attempt runs or has ended, or there is no room for it.
func (a *app) detach(ctx context.Context, engine *attempt.Engine, id string) error {
	const patience = 2 * time.Second // for slots of agents that ended without a server
	for begun := time.Now(); ; {
		r, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}})
		if ctx.Err() != nil {
			return a.left(id)
		}
		full := err == nil && r.State == board.Queued && strings.HasPrefix(optional(r.Notice), attempt.WaitsForSlot) && time.Since(begun) > patience
		switch {
		case err != nil:
			return err
		case full:
			fmt.Fprintf(a.out, "%s\nA running server starts it when it can, or 'deepwork board tail -f %s'.\n", *r.Notice, id[:shortID])
			return nil
		case r.State == board.Running:
			fmt.Fprintf(a.out, "The agent runs. 'deepwork board tail -f %s' follows it, 'deepwork board stop %[1]s' stops it.\n", id[:shortID])
			return nil
		case !r.Open:
			return a.ended(ctx, engine, &r.AttemptReply)
		}
		_ = wait.For(ctx, 50*time.Millisecond) // the next turn notices its end
	}
}

// follow prints what is written after an entry until the attempt has ended, and how. The engine must
// serve unless the attempt has ended.
func (a *app) follow(ctx context.Context, engine *attempt.Engine, id string, after int64) error {
	target := board.Target{AttemptID: &id}
	for said := false; ; {
		r, err := engine.TailAttempt(ctx, atTerminal, attempt.TailArgs{Target: target, AfterIndex: &after, Limit: new(attempt.MaxTail), Wait: new(1.0), Raw: new(a.raw)})
		if ctx.Err() != nil {
			return a.left(id)
		}
		if err == nil {
			err = a.printMessages(r)
		}
		if err != nil {
			return err
		}
		open := r.State.Open()
		if last := r.NextIndex == after; last && (!open || r.State == board.Queued && !said) {
			now, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: target})
			if err != nil {
				return err
			}
			if !open {
				return a.ended(ctx, engine, &now.AttemptReply)
			}
			a.note(now.Notice)
			said = true
		}
		after = r.NextIndex
	}
}

// left says what goes on after the command was interrupted.
func (a *app) left(id string) error {
	fmt.Fprintf(a.err, "deepwork: interrupted; the agent goes on if it was started. 'deepwork board tail -f %s' follows or starts it, 'deepwork board stop %[1]s' stops it.\n", id[:shortID])
	return &exitError{exitFailure}
}

// ended prints how an attempt has ended, which is the result of the command.
func (a *app) ended(ctx context.Context, engine *attempt.Engine, r *attempt.AttemptReply) error {
	var failed error
	if r.State != board.Completed {
		failed = &exitError{exitFailure}
	}
	if a.json {
		return failed
	}
	fmt.Fprintln(a.out)
	a.fields("state", stateText(r))
	r.FinalMessage = nil // it was printed
	a.printResult(r)
	a.printNext(ctx, engine, r)
	return failed
}

// note prints a notice of a reply, which is for people here.
func (a *app) note(notice *string) {
	if notice != nil {
		fmt.Fprintf(a.err, "deepwork: %s\n", inCommands(*notice))
	}
}

func (a *app) boardStopCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "stop ID",
		Short: "Stop the agent of an attempt",
		Long: `Stop the agent of an attempt and all that it started, or cancel an attempt that waits. A
queued message is dropped; the worktrees stay.` + attemptsHelp,
		Args: attemptArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onAttempt(args[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
				r, err := engine.StopAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: t})
				if err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%s %s\n", r.State.Words(), board.Short(r.AttemptID))
				a.note(r.Notice)
				return nil
			})
		},
	})
}

func (a *app) boardDoneCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "done ID",
		Short: "Set a task done; " + idsHelp,
		Long: `Set a task done. It is refused while an attempt waits or runs. The worktrees stay until
'deepwork board rm' removes the task.`,
		Args: taskArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onTask(false, args[0], func(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
				if t.HasInProgressAttempt {
					return fmt.Errorf("an attempt of task %s waits or runs; wait until it ends, or run 'deepwork board stop %[1]s' first", t.TaskID[:shortID])
				}
				if _, err := engine.UpdateTask(ctx, atTerminal, board.UpdateTaskArgs{TaskID: t.TaskID, Status: new("done")}); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "done %s\n", board.Short(t.TaskID))
				return nil
			})
		},
	})
}
