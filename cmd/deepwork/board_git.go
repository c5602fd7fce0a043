package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/git"
	"deepwork/session/merge"
	"deepwork/session/show"
)

func (a *app) boardDiffCommand() *cobra.Command {
	var stat, text bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "diff ID [PATH...]",
		Short: "Print the changes of an attempt",
		Long: `Print the changes of an attempt since the commit it started from, uncommitted ones
included, as git diff does. With PATH, print only those of these files and folders in
its worktrees.` + attemptIDs.help(),
		Example: `  deepwork board diff latest --stat
  deepwork board diff 3f2a src/login.go
  deepwork board diff 3f2a >login.patch`,
		Args: attemptIDs.first(1, -1, "the id of an attempt or a task"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.onAttempt(args[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
				return a.diff(ctx, engine, merge.DiffArgs{
					Target:   t,
					Paths:    args[1:],
					MaxBytes: new(merge.MaxDiff),
					Text:     &text,
				}, stat)
			})
		},
	})
	cmd.Flags().BoolVar(&stat, "stat", false, "print the changed files with the number of changed lines")
	cmd.Flags().BoolVar(&text, "text", false, "print binary files, and those that .gitattributes calls so, as text")
	return cmd
}

func (a *app) diff(ctx context.Context, engine *attempt.Engine, args merge.DiffArgs, stat bool) error {
	tooLong := errors.New("the diff is too long and was cut; name files or folders after the id")
	r, err := merge.Diff(ctx, engine, atTerminal, args)
	if err == nil && stat && r.Truncated {
		err = tooLong
	}
	if err != nil {
		return err
	}
	now, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: args.Target})
	if err != nil {
		return err
	}
	for i, d := range r.Diffs {
		text := d.Diff
		if stat {
			if text, err = diffStat(ctx, now.Repos[i].WorktreePath, text); err != nil {
				return err
			}
		}
		if len(r.Diffs) > 1 && text != "" {
			text = "# repository " + inline(d.RepoName) + "\n" + text
		}

		to := a.rawOut // unchanged, so that git can apply it
		if _, _, ok := show.TerminalSize(to); ok {
			to, text = a.out, show.Exact(text)
		}
		if _, err := io.WriteString(to, text); err != nil {
			return fmt.Errorf("writing to stdout: %w", err)
		}
	}
	a.note(r.Notice)
	if r.Truncated {
		return tooLong
	}

	return nil
}

// diffStat counts the changed lines of a diff for each file. It runs git in a worktree, if that is on this machine.
func diffStat(ctx context.Context, dir, diff string) (string, error) {
	if diff == "" {
		return "", nil
	}

	if !attempt.Exists(dir) {
		dir = string(filepath.Separator) // git reads nothing there
	}
	out, err := git.Output(ctx, git.Command{Dir: dir, Args: []string{"apply", "--stat"}, Stdin: []byte(diff)})
	if err != nil {
		return "", fmt.Errorf("counting the changed lines: %w", err)
	}
	return out, nil
}

// onBranches completes a command that acts on the branches of an attempt, and prints what was done.
func (a *app) onBranches(
	cmd *cobra.Command, do func(ctx context.Context, engine *attempt.Engine, t board.Target, repo *string,
		args []string) (*merge.Reply, error),
) *cobra.Command {
	var name string
	if cmd.Args == nil {
		cmd.Args = attemptArgument
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.onAttempt(args[0], func(ctx context.Context, engine *attempt.Engine, t board.Target) error {
			now, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: t})
			if err != nil {
				return err
			}

			var repo *string
			for _, r := range now.Repos {
				if r.RepoName == name {
					repo = &r.RepoID
				}
			}
			if name != "" && repo == nil {
				return fmt.Errorf("the attempt has no repository %q; 'deepwork board show %s' lists them", name,
					now.TaskID[:shortID])
			}
			r, err := do(ctx, engine, t, repo, args[1:])

			var done []merge.Repo
			if refused, ok := errors.AsType[*session.Error](err); ok {
				done, _ = refused.Details["done"].([]merge.Repo)
			} else if err == nil {
				done = r.Repos
			}
			failed := a.printMerged(cmd, &now.AttemptReply, done)
			if err != nil {
				return err
			}

			if slices.ContainsFunc(done, func(m merge.Repo) bool { return m.Status == merge.Conflicts }) {
				if now, err = engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: t}); err != nil {
					return err
				}
				a.printNext(ctx, engine, &now.AttemptReply)
			}
			if failed == nil && slices.ContainsFunc(done, func(m merge.Repo) bool { return m.Status == merge.Merged }) {
				t, err := engine.GetTask(ctx, atTerminal, board.TaskArgs{TaskID: now.TaskID})
				if r != nil && r.TaskDone {
					fmt.Fprintln(a.out, "the task is done")
				} else if err == nil && t.Status != "done" {
					a.out.Prose(a.here(fmt.Sprintf("'deepwork board done %s' sets the task done",
						now.TaskID[:shortID])))
				}
			}

			return failed
		})
	}
	cmd.Flags().StringVar(&name, "repo", "", "`name` of one of its repositories (default: all)")
	return a.onProject("", cmd)
}

// printMerged prints what became of the branches of an attempt. It fails if the command has not done what it should.
func (a *app) printMerged(cmd *cobra.Command, now *attempt.AttemptReply, done []merge.Repo) (failed error) {
	id, branch := now.AttemptID[:shortID], inline(now.WorkspaceBranch)
	for _, m := range done {
		i := slices.IndexFunc(now.Repos, func(r attempt.AttemptRepo) bool { return r.RepoID == m.RepoID })
		path := inline(now.Repos[i].WorktreePath)
		target := inline(m.TargetBranch)
		commit := optional(m.Commit)
		commit = commit[:min(len(commit), 12)]
		for _, remark := range m.Remarks {
			a.note(&remark)
		}
		if len(now.Repos) > 1 {
			fmt.Fprintf(a.out, "%s: ", inline(m.RepoName))
		}
		switch m.Status {
		case merge.Merged:
			a.out.Text("", fmt.Sprintf("merged %s into %s, now at %s", branch, target, commit))
		case merge.Rebased:
			a.out.Text("", fmt.Sprintf("rebased %s onto %s, now at %s", branch, target, commit))
		case merge.Pushed:
			a.out.Text("", fmt.Sprintf("pushed %s, now at %s", branch, commit))
		case merge.Aborted:
			fmt.Fprintf(a.out, "undid the merge in %s\n", path)
		case merge.Retargeted:
			fmt.Fprintf(a.out, "the target of %s is now %s\n", branch, target)
		case merge.Unchanged:
			fmt.Fprintln(a.out, "nothing to do")
		case merge.Updated:
			failed = &exitError{exitFailure}
			fmt.Fprintf(a.out, "the commits of %s can't be rebased onto %s one by one, so %[2]s was merged into it; "+
				"now run '%s', with --squash if you like\n", branch, target, a.onPath("deepwork board merge "+id))
		case merge.Conflicts:
			failed = &exitError{exitFailure}
			fmt.Fprintf(a.out, "%s has conflicts with %s, which was merged into it in %s:\n", branch, target, path)
			for _, file := range m.Conflicts {
				fmt.Fprintf(a.out, "  %s\n", inline(file))
			}
			fmt.Fprintf(a.out, "Resolve them there and commit; then run '%s' again.\n",
				a.onPath(cmd.CommandPath()+" "+id))
		default:
			fmt.Fprintln(a.out, m.Status)
		}
		if len(m.Untracked) > 0 && m.Status != merge.Conflicts { // --commit is refused while there are conflicts
			fmt.Fprintf(a.out, "not committed, so not merged: %s\n'%s' commits and merges them, too\n",
				oneLine(strings.Join(m.Untracked, ", "), 500), a.onPath("deepwork board merge --commit "+id))
		}
		if m.Rescue != nil {
			a.printRescued([]attempt.Rescue{*m.Rescue})
		}
	}
	return failed
}

func (a *app) boardMergeCommand() *cobra.Command {
	var squash, rebase, abort bool
	var given merge.MergeArgs
	cmd := &cobra.Command{
		Use:   "merge ID",
		Short: "Merge the commits of an attempt into its target branches",
		Long: `Merge the commits of an attempt into its target branches: with a merge commit, as one
commit (--squash), or one by one (--rebase). A target that is checked out must have no
changed files. If there are conflicts, nothing is merged: the target is merged into the
attempt's branch instead, and you resolve them in its worktree. Once nothing is left to
merge, the task is set done, unless you pass --keep-open or attempts.done_when_merged is
false.` + attemptIDs.help(),
		Example: `  deepwork board merge latest
  deepwork board merge 3f2a --squash --message "Fix the login"
  deepwork board merge 3f2a --abort`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case squash && rebase:
				return usagef(cmd, "--squash and --rebase exclude each other; pass one of them")
			case abort && (squash || rebase || given.Message != nil):
				return usagef(cmd, "--abort undoes a merge; it takes no --squash, --rebase or --message")
			}
			return attemptArgument(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&squash, "squash", false, "merge as one commit")
	cmd.Flags().BoolVar(&rebase, "rebase", false, "rebase the commits onto the target, without a merge commit")
	cmd.Flags().BoolVar(&abort, "abort", false, "undo a merge that has left conflicts in the worktree")
	argumentFlags(cmd, &given, "message", "commit", "force", "keep_open")
	return a.onBranches(cmd, func(
		ctx context.Context, engine *attempt.Engine, t board.Target, repo *string, _ []string,
	) (*merge.Reply, error) {
		if abort {
			return merge.Abort(ctx, engine, atTerminal, merge.BranchArgs{Target: t, RepoID: repo})
		}

		given.Target, given.RepoID = t, repo
		if squash {
			given.Way = new("squash")
		} else if rebase {
			given.Way = new("rebase")
		}
		return merge.Merge(ctx, engine, atTerminal, given)
	})
}

func (a *app) boardRebaseCommand() *cobra.Command {
	return a.onBranches(&cobra.Command{
		Use:   "rebase ID",
		Short: "Rebase the commits of an attempt onto its target branches",
		Long: `Rebase the commits of an attempt onto its current target branches. If they have
conflicts, the target is merged into the attempt's branch instead.` + attemptIDs.help(),
		Example: `  deepwork board rebase latest`,
	}, func(
		ctx context.Context, engine *attempt.Engine, t board.Target, repo *string, _ []string,
	) (*merge.Reply, error) {
		return merge.Rebase(ctx, engine, atTerminal, merge.BranchArgs{Target: t, RepoID: repo})
	})
}

func (a *app) boardPushCommand() *cobra.Command {
	var push merge.PushArgs
	cmd := &cobra.Command{
		Use:   "push ID",
		Short: "Push the branch of an attempt to a remote",
		Long: `Push the branch of an attempt to the same branch of a remote, with your own credentials.` +
			attemptIDs.help(),
		Example: `  deepwork board push 3f2a --remote origin`,
	}
	argumentFlags(cmd, &push, "remote", "force")
	return a.onBranches(cmd, func(
		ctx context.Context, engine *attempt.Engine, t board.Target, repo *string, _ []string,
	) (*merge.Reply, error) {
		push.Target, push.RepoID = t, repo
		return merge.Push(ctx, engine, atTerminal, push)
	})
}

func (a *app) boardTargetCommand() *cobra.Command {
	return a.onBranches(&cobra.Command{
		Use:   "target ID BRANCH",
		Short: "Change the target branch of an attempt",
		Long: `Change the branch that an attempt is compared with and merged into. Its own branch stays
as it is: see 'deepwork board rebase'.` + attemptIDs.help(),
		Example: `  deepwork board target 3f2a release-2`,
		Args:    attemptIDs.first(2, 2, "an id and a branch"),
	}, func(
		ctx context.Context, engine *attempt.Engine, t board.Target, repo *string, args []string,
	) (*merge.Reply, error) {
		return merge.ChangeTarget(ctx, engine, atTerminal,
			merge.TargetArgs{Target: t, RepoID: repo, TargetBranch: args[0]})
	})
}
