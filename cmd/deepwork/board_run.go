package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/wait"
	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
)

// onDetach adds --detach to a command that starts agents.
func onDetach(cmd *cobra.Command, detach *bool) *cobra.Command {
	cmd.Flags().BoolVar(detach, "detach", false, "return once the agent runs; a run continues in the background")
	return cmd
}

// startFlags are the options of board start, some of which board add --run has too.
type startFlags struct {
	attempt.StartArgs
	target string
	repos  []string
	detach bool
}

// onExecutor adds the flag that chooses an executor to a command that starts agents; args points to the struct of a
// tool.
func onExecutor(cmd *cobra.Command, args any) {
	argumentFlags(cmd, args, "executor")
	cmd.Flags().Lookup("executor").
		Usage = "`NAME` or NAME:VARIANT of the agent (default: run.executor of the config, " +
		"else the only one there, else the only one installed)"
}

func (a *app) boardStartCommand() *cobra.Command {
	var f startFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "start ID",
		Short: "Start an agent on a task, and follow it",
		Long: `Start an agent on a task: make an attempt with its own git worktrees, run the agent
there, and print what it says and does until it ends. The exit code is 1 if it fails.

You don't need a server; if one is running, it may start the agent instead. Ctrl-C ends
the command, not the agent: 'deepwork board tail -f' follows it again, and 'deepwork
board stop' stops it.

Without --target the agent starts from the branches that are checked out, and its work is
merged into them.
'deepwork board executors' lists the agents.` + taskIDs.help(),
		Example: `  deepwork board start latest
  deepwork board start 3f2a --executor CLAUDE_CODE --prompt "Add a test, too."
  deepwork board start 3f2a --executor CODEX --target release-2 --detach`,
		Args: taskArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onTask(false, args[0], func(ctx context.Context, engine *attempt.Engine, t *board.Task) error {
				return a.start(ctx, cmd, engine, t, f)
			})
		},
	})
	flags := onDetach(cmd, &f.detach).Flags()
	flags.StringVar(&f.target, "target", "", "`branch` to start from and to merge into")
	flags.StringArrayVar(&f.repos, "repo", nil,
		"`NAME[:BRANCH]` of a repository to work on; may be repeated (default: all of the project)")
	onExecutor(cmd, &f.StartArgs)
	argumentFlags(cmd, &f.StartArgs, "prompt")
	return cmd
}

// start starts an agent on a task, and follows it.
func (a *app) start(
	ctx context.Context, cmd *cobra.Command, engine *attempt.Engine, t *board.Task, f startFlags,
) (err error) {
	defer surviveBrokenPipes()() // the agent starts although nobody reads what is printed before
	args := f.StartArgs
	args.TaskID = t.TaskID
	if len(f.repos) > 0 || f.target != "" {
		if args.Repos, err = startRepos(ctx, engine, t.ProjectID, f); err != nil {
			return err
		}
	}
	r, err := engine.StartTaskAttempt(ctx, atTerminal, args)
	if err != nil {
		if cmd.Name() == "add" { // given again, it would add another task
			fmt.Fprintf(a.err, "deepwork: note: the task is on the board; once this is corrected, '%s' starts it\n",
				a.onPath("deepwork board start "+board.Short(t.TaskID)))
		}
		return runRefused(cmd, "starting the task "+board.Short(t.TaskID), err)
	}
	a.fields("attempt", board.Short(r.AttemptID), "executor", executorText(r), "branch", r.WorkspaceBranch)
	for _, repo := range r.Repos {
		a.fields("worktree", repo.WorktreePath)
	}
	a.unseen(r.Unseen)

	fmt.Fprintln(a.out)
	return a.run(ctx, engine, r.AttemptID, -1, f.detach)
}

// unseen says which files an agent does not see, if there are any.
func (a *app) unseen(sentence string) {
	if sentence != "" {
		fmt.Fprintf(a.err, "deepwork: note: %s\n", inline(sentence))
	}
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
			branch, err = worktree.CurrentBranch(ctx, r.Path)
			if err == nil && branch == "" {
				return nil,
					fmt.Errorf("no branch is checked out in %s; name the one to start from with --target", r.Path)
			} // starting explains errors better
		}
		args = append(args, attempt.RepoArgs{RepoID: r.RepoID, TargetBranch: branch})
	}
	return args, nil
}

// run runs the agent of an attempt, unless a server does, and prints its log after an entry until the attempt has
// ended. With detach it returns as soon as the agent runs. A run through a workflow needs a process to lead it, such as
// deepwork run.
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
	return a.follow(ctx, engine, attempt.TailArgs{Target: board.Target{AttemptID: &id}, AfterIndex: &after})
}

// detach waits until the agent of an attempt runs, has ended, or has no free slot.
func (a *app) detach(ctx context.Context, engine *attempt.Engine, id string) error {
	const patience = 2 * time.Second // for slots of agents that ended without a server
	for begun := time.Now(); ; {
		r, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: board.Target{AttemptID: &id}})
		if ctx.Err() != nil {
			return a.detachedNote(id)
		}
		switch {
		case err != nil:
			return err
		case r.State == board.Queued && r.WaitsForSlot && time.Since(begun) > patience:
			fmt.Fprintf(a.out, "%s\nA server that is running will start it, or '%s'.\n", *r.Notice,
				a.onPath("deepwork board tail -f "+id[:shortID]))
			return nil
		case r.State == board.Running:
			fmt.Fprintln(a.out,
				a.here(fmt.Sprintf("The agent is running. 'deepwork board tail -f %s' follows it, 'deepwork board "+
					"stop %[1]s' stops it.", id[:shortID])))
			return nil
		case !r.Open:
			return a.ended(ctx, engine, &r.AttemptReply)
		}

		_ = wait.For(ctx, 50*time.Millisecond) // the next turn notices its end
	}
}

// follow prints a log after an entry until its attempt, or the execution, has ended, and how the attempt ended. The
// engine must serve an attempt that has not ended.
func (a *app) follow(ctx context.Context, engine *attempt.Engine, of attempt.TailArgs) error {
	of.Limit, of.Wait, of.Raw = new(attempt.MaxTail), new(1.0), &a.raw
	begun, drawn := time.Now(), 0
	for said := false; ; {
		r, err := engine.TailAttempt(ctx, atTerminal, of)
		if ctx.Err() != nil {
			return a.detachedNote(*of.AttemptID)
		}
		if err == nil {
			err = a.printMessages(r)
			if r.State == board.Queued && a.out.Err() != nil {
				err = nil // the agent starts although nobody reads this
			}
		}
		if err != nil {
			return err
		}

		open := r.State.Open()
		last := r.NextIndex == *of.AfterIndex
		if last && !open && of.ExecutionID != nil {
			return nil
		}
		if last && (!open || r.State == board.Queued && !said) {
			now, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: of.Target})
			if err != nil {
				return err
			}
			if !open {
				return a.ended(ctx, engine, &now.AttemptReply)
			}
			a.note(now.Notice)
			said = true
		}
		of.AfterIndex = &r.NextIndex
		drawn++
		if r.State == board.Running && !a.raw && !a.json {
			a.out.Draw(fmt.Sprintf("%s %s %s", spin(drawn), r.State.Words(), time.Since(begun).Round(time.Second)))
		}
	}
}

// detachedNote says what continues after the command was interrupted.
func (a *app) detachedNote(id string) error {
	fmt.Fprintln(a.err,
		a.here(fmt.Sprintf("deepwork: interrupted; if the agent has started, it keeps running. 'deepwork board tail "+
			"-f %s' follows or starts it, 'deepwork board stop %[1]s' stops it.", id[:shortID])))
	return &exitError{exitFailure}
}

// ended prints how an attempt has ended. The command fails if the agent did, whatever became of its branch.
func (a *app) ended(ctx context.Context, engine *attempt.Engine, r *attempt.AttemptReply) error {
	var failed error
	if r.Agent != task.Completed {
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

// note prints a reply's notice.
func (a *app) note(notice *string) {
	if notice != nil {
		fmt.Fprintf(a.err, "deepwork: %s\n", a.here(*notice))
	}
}

func (a *app) boardStopCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "stop ID",
		Short: "Stop the agent of an attempt",
		Long: `Stop the agent of an attempt and everything it started, or cancel an attempt that waits.
A queued message is dropped; the worktrees stay.` + attemptIDs.help(),
		Example: `  deepwork board stop latest`,
		Args:    attemptArgument,
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

// tailCommand returns the command tail of board or of run, which do the same.
func (a *app) tailCommand(under string) *cobra.Command {
	var follow bool
	var n, try int
	var step string
	cmd := a.onProject("print each message (with --raw each line) as JSON, one per line", &cobra.Command{
		Use:        "tail ID",
		SuggestFor: []string{"log", "logs", "output"},
		Short:      "Print what the agent of an attempt, or of a step of a run, said and did",
		Long: `Print what the agents of an attempt said and did: their last -n lines. With -f, go on
until the attempt ends, with the exit code of 'deepwork board start'; an attempt that
waits is started if there is room.

--step prints that of a step's agent in a run; 'deepwork run status ID' lists the steps.
--try is which of its agents, from 1; without it, it is the last one.` + attemptIDs.help(),
		Example: "  deepwork " + under + " tail latest -f\n" +
			"  deepwork " + under + " tail 3f2a --step fix --try 1",
		Args: attemptArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > attempt.MaxTail {
				return usagef(cmd, "-n %d is out of range; expected 1 to %d", n, attempt.MaxTail)
			}
			if step == "" && try != 0 {
				return usagef(cmd, "--try is for a step; name it with --step")
			}
			return a.onAttempt(args[0],
				func(ctx context.Context, engine *attempt.Engine, t board.Target) (err error) {
					of := attempt.TailArgs{Target: t, Limit: &n, Raw: &a.raw}
					if step != "" {
						of.ExecutionID, err = agentOf(ctx, engine, *t.AttemptID, step, try)
					}
					if err != nil {
						return err
					}
					return a.tail(ctx, engine, of, follow)
				})
		},
	})
	cmd.Flags().StringVar(&step, "step", "", "`id` of a step of a run, such as fix or fix[3]")
	cmd.Flags().IntVar(&try, "try", 0, "`number` of the step's agent, from 1 (default: the last one)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the attempt ends")
	cmd.Flags().BoolVar(&a.raw, "raw", false, "print each byte as the agent wrote it")
	cmd.Flags().IntVarP(&n, "lines", "n", attempt.DefaultTail, "`number` of the agent's last lines to begin with")
	return cmd
}

// agentOf returns the execution of a step's agent in a run: the try-th from 1 on or, for 0, the last one.
func agentOf(ctx context.Context, engine *attempt.Engine, run, step string, try int) (*string, error) {
	r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: run})
	if err != nil {
		return nil, err
	}
	steps := xslices.Map(r.Steps, func(x board.RunStep) string { return x.StepID })
	all := slices.DeleteFunc(r.Steps, func(x board.RunStep) bool { return x.StepID != step })
	if len(all) == 0 {
		return nil, fmt.Errorf("step %q had no agent%s", step, nearest(step, steps))
	}
	if try < 0 || try > len(all) {
		return nil, fmt.Errorf("step %q had %s", step, count(len(all), "agent"))
	}
	return &all[cmp.Or(try, len(all))-1].ExecutionID, nil
}

func (a *app) tail(ctx context.Context, engine *attempt.Engine, of attempt.TailArgs, follow bool) error {
	of.Newest = of.ExecutionID != nil
	r, err := engine.TailAttempt(ctx, atTerminal, of)
	if err == nil {
		err = a.printMessages(r)
	}
	if err != nil {
		return err
	}
	if follow {
		if r.State.Open() && of.ExecutionID == nil {
			engine.ServeOnly(*of.AttemptID)
		}
		of.AfterIndex = &r.NextIndex
		return a.follow(ctx, engine, of)
	}
	if len(r.Messages)+len(r.Entries) == 0 {
		fmt.Fprintf(a.err, "deepwork: it is %s, and its agent has written nothing\n", r.State.Words())
	}
	return nil
}

// labels are what people see for the kinds of messages.
var labels = map[string]string{
	"message":     "agent",
	"reasoning":   "thinks",
	"tool_call":   "calls",
	"tool_result": "result",
	"system":      "deepwork",
}

// labelWidth is the length of a label with the space after it.
const labelWidth = 10

// printMessages prints the messages, or raw lines, of a reply.
func (a *app) printMessages(r *attempt.TailReply) error {
	for _, x := range r.Entries {
		if err := a.printEntry(x); err != nil {
			return err
		}
	}

	width := max(cmp.Or(a.out.Width(), 100), 2*labelWidth)
	for _, m := range r.Messages {
		if a.json {
			if err := a.printLine(m); err != nil {
				return err
			}
			continue
		}

		text := strings.TrimSpace(plain(m.Text))
		label := cmp.Or(labels[m.Kind], m.Kind)
		switch m.Kind {
		case "tool_call", "tool_result", "reasoning":
			if m.Tool != "" {
				text = m.Tool + " " + text
			}
			if m.Failed {
				text = "failed: " + text
			}
			text = oneLine(text, width-labelWidth-1)
		default:
			text = indentRest(a.out.Colored(strings.TrimSpace(m.Text)), strings.Repeat(" ", labelWidth))
			if m.Cut {
				text += " …"
			}
		}
		if err := a.out.Safe(fmt.Sprintf("%-*s%s\n", labelWidth, plain(label), text)); err != nil {
			return err
		}
	}

	return nil
}

func (a *app) printEntry(x runner.Entry) error {
	if a.json {
		return a.printLine(x)
	}
	if x.Stream == runner.System {
		_, err := fmt.Fprintln(a.err, "deepwork: "+x.Text)
		return err
	}
	_, err := a.rawOut.Write(x.Bytes())
	return err
}

// printLine prints a value as JSON on one line.
func (a *app) printLine(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(a.out, "%s\n", text)
	}
	return err
}
