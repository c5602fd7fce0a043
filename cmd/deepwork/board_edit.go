package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/show"
)

// argumentOrStdin returns an argument, or stdin's content if it is "-": shells limit the length of arguments.
func (a *app) argumentOrStdin(argument, what string) (string, error) {
	if argument != "-" {
		return argument, nil
	}

	if _, _, ok := show.TerminalSize(a.in); ok {
		fmt.Fprintf(a.err, "Type the %s, and end it with Ctrl-D on a line of its own:\n", what)
	}
	text, err := io.ReadAll(a.in)
	if err != nil {
		return "", fmt.Errorf("reading the %s from stdin: %w", what, err)
	}
	return string(text), nil
}

func (a *app) boardEditCommand() *cobra.Command {
	var change board.UpdateTaskArgs
	var group string
	cmd := a.onProject("", &cobra.Command{
		Use:   "edit ID",
		Short: "Change the title, the description and the group of a task",
		Long: `Change the title and the description of a task. At a terminal, without flags, they are
edited in $VISUAL or $EDITOR: the first line is the title. With - as TEXT the
description is read from stdin. An agent that is already at work isn't told.

--group gives the task, with its attempts, to a group of tokens ('deepwork token new
--group'): its members see and change it, and agents that work on it see what the group
sees. --group "" takes it back: then only you see it.` + taskIDs.help(),
		Example: `  deepwork board edit 3f2a
  deepwork board edit 3f2a --title "Fix the login on Mondays"
  deepwork board edit latest --description - <task.md
  deepwork board edit 3f2a --group web`,
		Args: taskArgument,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cmd.Flags().Changed("group") {
				change.Group = &group
			}
			edits := change.Title == nil && change.Description == nil && change.Group == nil
			if _, _, ok := show.TerminalSize(a.in); !ok && edits {
				return usagef(cmd, "--title, --description or --group is missing; without a terminal there is no "+
					"editor")
			}
			return a.onTask(false, args[0], func(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
				file := ""
				change.TaskID = t.TaskID
				if edits {
					file, err = a.editTask(t, &change)
				} else if change.Description != nil {
					*change.Description, err = a.argumentOrStdin(*change.Description, "description")
				}
				if err != nil {
					return err
				}
				_, err = engine.UpdateTask(ctx, atTerminal, change)
				if err != nil && file != "" {
					return fmt.Errorf("%w\nYour text is in %s", err, file)
				} else if err != nil {
					return err
				}

				_ = os.Remove(file) // a copy may stay
				fmt.Fprintf(a.out, "changed %s\n", board.Short(t.TaskID))
				return nil
			})
		},
	})
	argumentFlags(cmd, &change, "title", "description")
	cmd.Flags().StringVar(&group, "group", "", "`name` of the group of tokens to which it is given; \"\" takes it back")
	return cmd
}

// editTask has the user edit the title and the description of a task in a file, which it returns.
func (a *app) editTask(t *board.Task, change *board.UpdateTaskArgs) (file string, err error) {
	f, err := os.CreateTemp("", "deepwork-task-*.md")
	if err != nil {
		return "", fmt.Errorf("making a file to edit: %w", durable.ExplainTemp(err))
	}

	before := t.Title + "\n\n" + optional(t.Description)
	_, err = f.WriteString(before)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("writing the file to edit: %w", err)
	}
	if err := a.inEditor(f.Name()); err != nil {
		return "", fmt.Errorf("%w; what you have written is in %s", err, f.Name())
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return "", fmt.Errorf("reading the edited file: %w", err)
	}
	if string(text) == before {
		return "",
			fmt.Errorf("nothing was changed when the editor had ended; if it is still open, as code is without "+
				"--wait, your text is in %s", f.Name())
	}

	title, description, _ := strings.Cut(string(text), "\n")
	if title = strings.TrimSpace(title); title != t.Title {
		change.Title = &title
	}
	if description = strings.TrimSpace(description); description != strings.TrimSpace(optional(t.Description)) {
		change.Description = &description
	}
	return f.Name(), nil
}

// inEditor opens a file or a folder in the user's editor, and waits until that has ended.
func (a *app) inEditor(path string) error {
	editor, err := config.SplitCommand(
		cmp.Or(strings.TrimSpace(os.Getenv("VISUAL")), strings.TrimSpace(os.Getenv("EDITOR"))))
	if err == nil && len(editor) == 0 {
		err = errors.New("neither VISUAL nor EDITOR is set")
	}
	if err != nil {
		return fmt.Errorf(`no editor: %w; set EDITOR to the command of yours, such as EDITOR="code --wait"`, err)
	}

	cmd := exec.Command(editor[0], append(editor[1:], path)...)
	cmd.Stdin = a.in
	cmd.Stdout = a.rawOut
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %s failed: %w", editor[0], err)
	}

	return nil
}

func (a *app) boardStatusCommand() *cobra.Command {
	states := []string{"todo", "inprogress", "inreview", "done", "cancelled"}
	return a.onProject("", &cobra.Command{
		Use:   "status ID STATUS",
		Short: "Set the status of a task",
		Long: "Set the status of a task: " + choices(states) +
			". done and cancelled are refused while an\nattempt waits or runs." + taskIDs.help(),
		Example: `  deepwork board status 3f2a cancelled
  deepwork board status latest todo`,
		Args: taskIDs.first(2, 2, "a task's id and a status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(states, args[1]) {
				return usagef(cmd, "%q is not a status; expected %s", args[1], choices(states))
			}
			return a.setStatus(args[0], args[1])
		},
	})
}

func (a *app) boardDoneCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "done ID",
		Short: "Set a task done",
		Long: `Set a task done. It is refused while an attempt waits or runs. The worktrees stay until
'deepwork board rm' removes the task.` + taskIDs.help(),
		Example: `  deepwork board done latest`,
		Args:    taskArgument,
		RunE:    func(_ *cobra.Command, args []string) error { return a.setStatus(args[0], "done") },
	})
}

// setStatus sets the status of a task that an argument names.
func (a *app) setStatus(given, status string) error {
	return a.onTask(false, given, func(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
		if t.HasInProgressAttempt && (status == "done" || status == "cancelled") {
			return fmt.Errorf("an attempt of task %s waits or runs; wait until it ends, or run 'deepwork board stop "+
				"%[1]s' first", t.TaskID[:shortID])
		}
		_, err := engine.UpdateTask(ctx, atTerminal, board.UpdateTaskArgs{TaskID: t.TaskID, Status: &status})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s %s\n", status, board.Short(t.TaskID))
		return nil
	})
}

func (a *app) boardCommentCommand() *cobra.Command {
	var one merge.CommentArg
	var args merge.CommentArgs
	var detach bool
	cmd := a.onProject("print the comments as JSON", &cobra.Command{
		Use:   "comment ID [FILE:LINE TEXT...]",
		Short: "Comment on a line of an attempt's changes, and send the comments to its agent",
		Long: `Comment on a line of an attempt's changes, as 'deepwork board diff' prints them. Comments
are collected until --send sends them all to the agent in one message, and follows it.
Without FILE:LINE, print those that wait. With - as TEXT it is read from stdin.` + attemptIDs.help(),
		Example: `  deepwork board comment 3f2a src/login.go:42 "This needs a test."
  deepwork board comment 3f2a --send
  deepwork board comment 3f2a --remove all`,
		Args: attemptIDs.first(1, -1, "the id of an attempt or a task"),
		RunE: func(cmd *cobra.Command, given []string) (err error) {
			if len(given) > 1 {
				at := strings.LastIndexByte(given[1], ':')
				one.Line, err = strconv.Atoi(given[1][at+1:])
				if at < 1 || err != nil || len(given) < 3 {
					return usagef(cmd, "a comment needs FILE:LINE and a text, such as README.md:7 \"Say why.\"")
				}
				one.File = given[1][:at]
				if one.Text, err = a.argumentOrStdin(strings.Join(given[2:], " "), "comment"); err != nil {
					return err
				}
				args.Comments = []merge.CommentArg{one}
			}
			return a.onAttempt(given[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
				args.Target = t
				return a.comment(ctx, engine, args, detach)
			})
		},
	})
	argumentFlags(cmd, &one, "side", "repo")
	argumentFlags(cmd, &args, "send")
	cmd.Flags().Lookup("send").Usage = "send all comments to the agent, and follow it"
	cmd.Flags().StringArrayVar(&args.Remove, "remove", nil,
		"`id` of a comment to remove, or its beginning, or all; may be repeated")
	return onDetach(cmd, &detach)
}

// comment changes, prints or sends the comments on an attempt.
func (a *app) comment(ctx context.Context, engine *attempt.Engine, args merge.CommentArgs, detach bool) error {
	now, err := merge.CommentAttempt(ctx, engine, atTerminal, merge.CommentArgs{Target: args.Target})
	if err != nil {
		return err
	}
	for i, given := range args.Remove {
		for _, c := range now.Comments {
			if len(given) >= 4 && strings.HasPrefix(c.CommentID, given) {
				args.Remove[i] = c.CommentID
			}
		}
	}
	if args.Send {
		return a.sending(ctx, engine, *args.AttemptID, detach, func() (queued bool, err error) {
			r, err := merge.CommentAttempt(ctx, engine, atTerminal, args)
			if err != nil {
				return false, err
			}
			a.note(r.Notice)
			if r.Sent == nil {
				return false, &exitError{exitFailure}
			}
			return *r.Sent == attempt.FollowUpQueued, nil
		})
	}
	if now, err = merge.CommentAttempt(ctx, engine, atTerminal, args); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(now.Comments)
	}
	a.note(now.Notice)
	if len(now.Comments) == 0 {
		fmt.Fprintln(a.out, "No comments wait to be sent.")
		return nil
	}
	for _, c := range now.Comments {
		a.out.Text("", fmt.Sprintf("%s  %s:%d  %s", board.Short(c.CommentID), c.File, c.Line, c.Text))
	}

	return nil
}

func (a *app) boardExecutorsCommand() *cobra.Command {
	return a.onProject("print them as JSON", &cobra.Command{
		Use:   "executors",
		Short: "List the agents that can work on tasks, and which of them are installed",
		Long: `List the agents that can work on tasks: the ones that are known, and those of the config
(executors) that you have approved. INSTALLED says whether the program is on this machine.`,
		Example: `  deepwork board executors --json`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.withBoard(true, func(ctx context.Context, engine *attempt.Engine) error {
				r, err := engine.ListExecutors(ctx, atTerminal)
				if err != nil {
					return err
				}

				if cfg, err := engine.Config(ctx); err == nil && cfg.Approval != nil {
					if _, ok := cfg.Approval.Withheld.Of("executors."); ok {
						fmt.Fprintf(a.err, "deepwork: note: .deepwork/config.yml has executors that you have not "+
							"approved; '%s' shows them, and asks\n", a.onPath("deepwork trust"))
					}
				}
				if a.json {
					return a.printJSON(r.Executors)
				}

				var rows [][]string
				for _, x := range r.Executors {
					installed := "no"
					if x.Available {
						installed = "yes"
					}
					rows = append(rows, []string{x.Name, installed, x.Program, strings.Join(x.Variants, ", ")})
				}
				a.out.Table([]show.Column{{Title: "NAME"}, {Title: "INSTALLED"}, {Title: "PROGRAM", Least: 8},
					{Title: "VARIANTS", Least: 8, Optional: true}}, rows)
				return nil
			})
		},
	})
}

func (a *app) boardPathCommand() *cobra.Command {
	return a.folderCommand("path", "Print the folder in which the agent of an attempt works",
		`cd "$(deepwork board path latest)"`, func(path string) error {
			_, err := fmt.Fprintln(a.out, path)
			return err
		})
}

func (a *app) boardOpenCommand() *cobra.Command {
	return a.folderCommand("open", "Open the folder in which the agent of an attempt works in $VISUAL or $EDITOR",
		"EDITOR=code deepwork board open latest", a.inEditor)
}

// folderCommand returns a command that does something with the folder in which an attempt's agent works.
func (a *app) folderCommand(name, short, example string, do func(path string) error) *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:     name + " ID",
		Short:   short,
		Long:    short + ":\nits worktree, or the folder around several." + attemptIDs.help(),
		Example: "  " + example,
		Args:    attemptArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := a.workspace(args[0])
			if err != nil {
				return err
			}
			return do(path)
		},
	})
}

// workspace returns the folder in which the agent works, of the attempt that an argument names.
func (a *app) workspace(given string) (path string, err error) {
	err = a.onAttempt(given, func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
		at, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: t})
		if err != nil {
			return err
		}
		path = at.Workspace
		if _, err := os.Stat(path); path == "" || err != nil {
			return fmt.Errorf("the folder of attempt %s is not on this machine; its commits are on the branch %s",
				board.Short(at.AttemptID), at.WorkspaceBranch)
		}
		return nil
	})
	return path, err
}

func (a *app) boardSendCommand() *cobra.Command {
	var queue, detach bool
	var follow attempt.FollowUpArgs
	cmd := onDetach(a.onProject("", &cobra.Command{
		Use:   "send ID TEXT...",
		Short: "Send the agent of an attempt another message, and follow it",
		Long: `Send another message to the agent of an attempt, and follow it as 'deepwork board start'
does. It works in the same worktrees and, if it can, in the same conversation. With - as
TEXT the message is read from stdin.` + attemptIDs.help(),
		Example: `  deepwork board send latest "The button is still grey. Make it blue."
  deepwork board send 3f2a - <notes.txt`,
		Args: attemptIDs.first(2, -1, "an id and a message"),
		RunE: func(_ *cobra.Command, args []string) error {
			text := strings.Join(args[1:], " ")
			return a.onAttempt(args[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) (err error) {
				if text, err = a.argumentOrStdin(text, "message"); err != nil {
					return err
				}
				follow.Target = t
				follow.Action = attempt.ActionSend
				follow.Prompt = &text
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
	return a.sending(ctx, engine, *f.AttemptID, detach, func() (queued bool, err error) {
		r, err := engine.FollowUp(ctx, atTerminal, f)
		if err != nil {
			return false, fmt.Errorf("sending to attempt %s: %w", board.Short(*f.AttemptID), err)
		}
		a.note(r.Notice)
		return r.Status == attempt.FollowUpQueued, nil
	})
}

// sending calls do, which sends something to an attempt, and follows the attempt.
func (a *app) sending(
	ctx context.Context, engine *attempt.Engine, id string, detach bool, do func() (queued bool, err error),
) error {
	defer surviveBrokenPipes()() // as in start
	before, err := engine.TailAttempt(ctx, atTerminal,
		attempt.TailArgs{Target: board.Target{AttemptID: &id}, Limit: new(1), Raw: new(true)})
	if err != nil {
		return err
	}

	queued, err := do()
	if err != nil {
		return err
	}
	if queued && detach {
		fmt.Fprintf(a.out, "queued: a running server sends it when the agent ends, or '%s'\n",
			a.onPath("deepwork board tail -f "+id[:shortID]))
		return nil
	}
	return a.run(ctx, engine, id, before.NextIndex, detach)
}
