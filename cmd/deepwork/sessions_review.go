package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/show"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

func (a *app) sessionsReviewCommand() *cobra.Command {
	var pass, fail bool
	var feedback string
	cmd := a.onProject("", &cobra.Command{
		Use:   "review ID STEP",
		Short: "Pass or fail the outputs of a step that waits for a person; " + idsHelp,
		Long: `Show the outputs of a step that waits for a person (a review with by: human), and
record your decision once you confirm it at the terminal. When the agent hands in the
same outputs again, it continues, or gets your feedback; other outputs wait for a
person again.

Look at the files before you answer: they must still be what the agent handed in.`,
		Args: sessionIDs.first(2, 2, "a session id and a step"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := byPerson(); err != nil {
				return err
			}
			feedback = strings.TrimSpace(feedback)
			switch {
			case pass == fail:
				return usagef(cmd, "pass exactly one of --pass and --fail")
			case fail && feedback == "":
				return usagef(cmd, "--feedback is missing or blank; say what the agent should change")
			}
			return a.withSession(cmd.Context(), false, args[0], func(engine *workflow.Engine, id string) error {
				if err := a.review(cmd.Context(), engine, id, args[1], machine.Answer{Passed: pass, Feedback: feedback}); err != nil {
					return fmt.Errorf("reviewing step %s of session %s: %w", args[1], id, err)
				}
				return nil
			})
		},
	})
	cmd.Flags().BoolVar(&pass, "pass", false, "the step continues")
	cmd.Flags().BoolVar(&fail, "fail", false, "the agent works on it again")
	cmd.Flags().StringVar(&feedback, "feedback", "", "`what` the agent should know; with --fail, what to change")
	return cmd
}

// byPerson refuses the decision of a person to an agent's shell. It is no barrier to an agent that means to
// deceive, which runs as the same user: the terminal and the record of the session say who answered.
func byPerson() error {
	for _, name := range []string{config.AttemptEnv, config.StepEnv, config.MCPURLEnv} {
		if os.Getenv(name) != "" {
			return fmt.Errorf("an agent of deepwork started this shell (%s is set), and only a person decides this: run it in a terminal of your own", name)
		}
	}
	return nil
}

func (a *app) review(ctx context.Context, engine *workflow.Engine, id, stepID string, answer machine.Answer) error {
	s, info, err := readBoth(ctx, engine, id)
	if err != nil {
		return err
	}
	q, err := s.ToAnswer(stepID, "")
	if err != nil { // before it is shown
		return err
	}
	if err := workflow.AsHandedIn(ctx, info.Root, s, stepID, q.Digest); err != nil {
		return err
	}
	st, err := engine.Step(s, stepID)
	if err != nil {
		return err
	}
	a.describe(s, stepID, placeElsewhere(&info.Session, engine.Place))
	if folder := s.RootOf(info.Root, stepID); folder != info.Root {
		a.out.Fields(9, "folder", folder) // of its item
	}
	for _, r := range st.ReviewsBy(true) {
		a.criteria("judge", r)
	}
	if notes := show.Optional(q.Notes); notes != "" {
		a.line("notes of the agent: %s", show.IndentRest(notes, "  "))
	}
	for _, o := range q.Outputs {
		if o.Value.Text != nil {
			a.line("%s: %s", o.Key, show.IndentRest(*o.Value.Text, "  "))
		}
	}
	show.Hashes(a.line, "handed in", q.Files)
	decision, what := "pass", "The workflow continues when the agent hands in"
	if !answer.Passed {
		decision, what = "fail", "The agent gets your feedback when it hands in"
	}
	words := ""
	if answer.Feedback != "" {
		words = fmt.Sprintf(", saying %s", plain(fmt.Sprintf("%q", answer.Feedback)))
	}
	if err := confirm(fmt.Sprintf("\nDo you %s these outputs of step %s%s? Type yes: ", decision, plain(stepID), words), "nothing was recorded", ""); err != nil {
		return err
	}
	answer.Identity, answer.Channel = session.LocalIdentity, session.ChannelTerminal
	err = engine.ReviewFor(ctx, id, stepID, q.Digest, answer)
	if err == nil {
		fmt.Fprintf(a.out, "Recorded. %s the same outputs of %s again; in a run, at once.\n", what, plain(stepID))
	}
	return err
}

func (a *app) sessionsOverrideCommand() *cobra.Command {
	var why string
	cmd := a.onProject("", &cobra.Command{
		Use:   "override ID STEP",
		Short: "Let a step continue without its reviews and checks; " + idsHelp,
		Long: `Show a step that waits for its review, or whose checks fail, and ask at the terminal
whether it may continue without. A check with override: never is not skipped. The agent can then finish that step, once; going back to an earlier step
withdraws the decision. The session records it as a person's.

If quality_gate.override is human, this is the only way to finish a step without a
reviewer's verdict. If it is never, there is none.`,
		Args: sessionIDs.first(2, 2, "a session id and a step"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" {
				return usagef(cmd, "--reason is missing or blank; say why the step may continue")
			}
			if err := byPerson(); err != nil {
				return err
			}
			return a.withSession(cmd.Context(), false, args[0], func(engine *workflow.Engine, id string) error {
				if err := a.override(cmd.Context(), engine, id, args[1], why); err != nil {
					return fmt.Errorf("overriding the reviews of step %s of session %s: %w", args[1], id, err)
				}
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&why, "reason", "", "`REASON`, as the session records it")
	return cmd
}

func (a *app) override(ctx context.Context, engine *workflow.Engine, id, stepID, why string) error {
	if _, err := engine.Reviewing(ctx); err != nil { // before it is shown
		return err
	}
	s, info, err := readBoth(ctx, engine, id)
	if err != nil {
		return err
	}
	if s.Status != machine.Active {
		return s.Ended()
	}
	if _, err := s.Grant(stepID, machine.Override{}); err != nil { // before it is shown
		return err
	}
	st, err := engine.Step(s, stepID)
	if err != nil {
		return err
	}
	unfit := s.Progress(stepID).Unfit
	if len(st.Reviews)+len(st.Checks) == 0 && unfit == nil {
		return errors.New("the step has no reviews, no checks, and nothing was handed in that was not accepted, so there is nothing to override")
	}
	a.describe(s, stepID, placeElsewhere(&info.Session, engine.Place))
	for _, r := range st.Reviews {
		a.criteria("skipped", r)
	}
	for _, c := range st.Checks {
		what := "skipped"
		if c.Never() {
			what = "kept"
		}
		a.out.Field(9, what, fmt.Sprintf("the check %s: %s", c.Name, strings.Join(c.Run, " ")))
	}
	if unfit != nil {
		a.line("handed in %s, and not accepted:\n%s", show.Ago(unfit.At), show.Indent(unfit.Faults, "  "))
	}
	if last := s.Progress(stepID).Newest(); last != nil {
		show.Attempts(a.line, []*machine.Attempt{last})
	} else if review := filepath.Join(info.Root, ".deepwork", "tmp", "quality_review_"+id+"_"+stepID+".md"); fileExists(review) {
		fmt.Fprintf(a.out, "The agent was asked to have its outputs judged by %s.\n", inline(a.display(engine.Root, review)))
	} else {
		fmt.Fprintln(a.out, "No outputs were handed in for a review yet.")
	}
	given, files := workflow.GivenFor(s, stepID)
	show.Hashes(a.line, "handed in", files)
	if given == "" {
		fmt.Fprintln(a.out, "It would continue with whatever the agent hands in next.")
	} else {
		fmt.Fprintln(a.out, "This covers only these outputs, as they were then; others are reviewed and checked.")
	}
	what := "reviews"
	if len(st.Checks) > 0 {
		what = "reviews and checks"
	}
	if err := confirm(fmt.Sprintf("\nSkip these %s of step %s, with the reason %s? Type yes: ", what, plain(stepID), plain(fmt.Sprintf("%q", why))), "nothing was overridden", ""); err != nil {
		return err
	}
	err = engine.OverrideFor(ctx, id, stepID, machine.Override{GivenFor: given, Identity: session.LocalIdentity, Channel: session.ChannelTerminal, Reason: why})
	if err == nil {
		fmt.Fprintf(a.out, "Overridden. The agent can finish %s now.\n", plain(stepID))
	}
	return err
}

func (a *app) sessionsDropCommand() *cobra.Command {
	var why string
	cmd := a.onProject("", &cobra.Command{
		Use:   "drop ID STEP[N]",
		Short: "Leave out an item of a list; " + idsHelp,
		Long: `Leave out the item that a step is about, such as port[3], after a question at the terminal.
The other items go on. The session records it as a person's decision.`,
		Example: "deepwork sessions drop 1a2b3c4d 'port[3]' --reason \"it is obsolete\"",
		Args:    sessionIDs.first(2, 2, "a session id and a step of an item, such as port[3]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" {
				return usagef(cmd, "--reason is missing or blank; say why the item is left out")
			}
			if err := byPerson(); err != nil {
				return err
			}
			return a.withSession(cmd.Context(), false, args[0], func(engine *workflow.Engine, id string) error {
				if err := confirm(fmt.Sprintf("Leave out the item of %s, with the reason %s? Type yes: ", plain(args[1]), plain(fmt.Sprintf("%q", why))), "nothing was dropped", ""); err != nil {
					return err
				}
				err := engine.DropFor(cmd.Context(), id, args[1], machine.Override{Identity: session.LocalIdentity, Channel: session.ChannelTerminal, Reason: why})
				if err != nil {
					return fmt.Errorf("dropping the item of %s of session %s: %w", args[1], id, err)
				}
				fmt.Fprintf(a.out, "Dropped. The agent goes on with the other items; get_step shows them.\n")
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&why, "reason", "", "`REASON`, as the session records it")
	return cmd
}

// readBoth reads a session and what is known of it.
func readBoth(ctx context.Context, engine *workflow.Engine, id string) (*machine.State, *workflow.SessionInfo, error) {
	s, err := engine.Read(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	info, err := engine.Info(ctx, id)
	return s, info, err
}

// line prints a line about the step.
func (a *app) line(format string, args ...any) { a.out.Text("  ", fmt.Sprintf(format, args...)) }

// describe prints which step a person is to decide about, and its place if that is not here.
func (a *app) describe(s *machine.State, stepID, elsewhere string) {
	a.out.Fields(9, "session", fmt.Sprintf("%s (%s/%s)", s.SessionID, s.JobName, s.WorkflowName), "goal", s.Goal, "step", stepID, "place", elsewhere)
}

// criteria prints a review of the step.
func (a *app) criteria(what string, r job.Review) {
	a.out.Field(9, what, "the review of "+r.RunEach)
	for _, q := range r.Criteria {
		a.out.Text("            ", q.Name+": "+indentRest(q.Question, "  "))
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
