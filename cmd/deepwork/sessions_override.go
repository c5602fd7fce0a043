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
	"deepwork/session/show"
	"deepwork/session/workflow/machine"
)

func (a *app) sessionsOverrideCommand() *cobra.Command {
	var why string
	cmd := a.onProject("", &cobra.Command{
		Use:   "override ID STEP",
		Short: "Let a step continue without its review; " + idsHelp,
		Long: `Show a step that waits for its review, and ask at the terminal whether it may continue
without. The agent can then finish that step, once; going back to an earlier step
withdraws the decision. The session records it as a person's.

If quality_gate.override is human, this is the only way to finish a step without a
reviewer's verdict. If it is never, there is none.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := takes(2, 2, "a session id and a step")(cmd, args); err != nil {
				return err
			}
			return sessionID(cmd, args[:1])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" {
				return usagef(cmd, "--reason is missing or blank; say why the step may continue")
			}
			if err := byPerson(); err != nil {
				return err
			}
			return a.withSession(cmd.Context(), args[0], func(of sessions, id string) error {
				if err := a.override(cmd.Context(), of, id, args[1], why); err != nil {
					return fmt.Errorf("overriding the reviews of step %s of session %s: %w", args[1], id, err)
				}
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&why, "reason", "", "`REASON`, as the session records it")
	return cmd
}

func (a *app) override(ctx context.Context, archive sessions, id, stepID, why string) error {
	c, err := config.Open(archive.folder.Root).Current(ctx)
	if err != nil {
		return err
	}
	s, err := archive.Read(id)
	if err != nil {
		return err
	}
	if s.Status != machine.Active {
		return s.Ended()
	}
	if _, err := s.Grant(stepID, machine.Override{}); err != nil { // before it is shown
		return err
	}
	st, err := archive.Step(s, stepID)
	if err != nil {
		return err
	}
	if len(st.Reviews) == 0 {
		return errors.New("the step has no reviews, so there is nothing to override")
	}
	a.describe(s, stepID)
	for _, r := range st.Reviews {
		a.criteria("skipped", r)
	}
	line := func(format string, args ...any) {
		a.out.Text("  ", fmt.Sprintf(format, args...))
	}
	if last := s.Progress(stepID).Newest(); last != nil {
		show.Attempts(line, []*machine.Attempt{last})
	} else if review := filepath.Join(archive.tmp, "quality_review_"+id+"_"+stepID+".md"); fileExists(review) {
		fmt.Fprintf(a.out, "The agent was asked to have its outputs judged by %s.\n", inline(a.display(archive.folder.Root, review)))
	} else {
		fmt.Fprintln(a.out, "No outputs were handed in for a review yet.")
	}
	given, files := archive.GivenFor(s, stepID)
	show.Hashes(line, "handed in", files)
	if given == "" {
		fmt.Fprintln(a.out, "It would continue with whatever the agent hands in next.")
	} else {
		fmt.Fprintln(a.out, "This covers only these outputs, as they were then; others are reviewed.")
	}
	yes, err := confirm(fmt.Sprintf("\nSkip these reviews of step %s, with the reason %s? Type yes: ", plain(stepID), plain(fmt.Sprintf("%q", why))), "")
	if err != nil {
		return err
	}
	if !yes {
		return errors.New("nothing was overridden")
	}
	err = archive.Override(ctx, id, stepID, given, why, c.QualityGate.Override, archive.Requests())
	if err == nil {
		fmt.Fprintf(a.out, "Overridden. The agent can finish %s now.\n", plain(stepID))
	}
	return err
}

// describe prints which step a person is to decide about.
func (a *app) describe(s *machine.State, stepID string) {
	a.out.Field(9, "session", fmt.Sprintf("%s (%s/%s)", s.SessionID, s.JobName, s.WorkflowName))
	a.out.Field(9, "goal", s.Goal)
	a.out.Field(9, "step", stepID)
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
