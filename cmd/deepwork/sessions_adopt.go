package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"deepwork/catalog/jsontext"
	"deepwork/session/state"
	"deepwork/session/workflow"
)

func (a *app) sessionsAdoptCommand() *cobra.Command {
	all := false
	cmd := a.onProject("", &cobra.Command{
		Use:   "adopt ID|--all",
		Short: "Take over sessions that this installation did not write; " + idsHelp,
		Long: `Show sessions whose files were not written by this installation for this project
(copied from elsewhere, altered, or of an earlier version), and ask at the terminal
whether to take them over. Until then nothing reads them: what they say reaches agents
as if it were their own work. Adopt what you know the origin of.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return takes(0, 0, "")(cmd, args)
			}
			return sessionID(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.withSession(cmd.Context(), args[0], func(of sessions, id string) error {
					return a.adoptSessions(cmd.Context(), of.Archive, []string{id})
				})
			}
			return a.withArchive(func(_ *state.Folder, archive *workflow.Archive) error {
				return a.adoptSessions(cmd.Context(), archive, nil)
			})
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "all of the project")
	return cmd
}

func (a *app) adoptSessions(ctx context.Context, archive *workflow.Archive, ids []string) error {
	found, err := archive.Foreign(ctx, ids...)
	if err != nil {
		return err
	}
	can := a.showForeign(found)
	switch {
	case len(found) == 0:
		fmt.Fprintln(a.out, "Every session is of this installation and project.")
		return nil
	case len(can) == 0:
		return errors.New("nothing can be adopted")
	}
	if err := confirm(fmt.Sprintf("\nMay agents resume %s? Type yes: ", count(len(can), "session")), "nothing was adopted", ""); err != nil {
		return err
	}
	return a.sealSessions(ctx, archive, can)
}

// sealSessions adopts sessions that were shown.
func (a *app) sealSessions(ctx context.Context, archive *workflow.Archive, shown []workflow.ForeignSession) error {
	if err := archive.Adopt(ctx, shown); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "Adopted %s.\n", count(len(shown), "session"))
	return nil
}

// showForeign prints sessions, and returns those that can be adopted.
func (a *app) showForeign(found []workflow.ForeignSession) (can []workflow.ForeignSession) {
	for _, f := range found {
		fmt.Fprintf(a.out, "%s  %d bytes: %s\n", f.ID, f.Size, oneLine(f.Reason, 200))
		if f.Err != nil {
			fmt.Fprintf(a.out, "  refused: %s\n", oneLine(f.Err.Error(), 400))
			continue
		}
		s := f.State
		fmt.Fprintf(a.out, "  %s %s/%s, at step %s, of %s\n", s.Status, oneLine(s.JobName, 100), oneLine(s.WorkflowName, 100),
			oneLine(s.CurrentStepID, 100), oneLine(s.Identity, 100))
		fmt.Fprintf(a.out, "  goal: %s\n", indentRest(jsontext.Clip(plain(s.Goal), 4000), "    "))
		if f.Definition > 0 {
			fmt.Fprintf(a.out, "  with the definition of its job that it began with, %d bytes\n", f.Definition)
		}
		can = append(can, f)
	}
	return can
}
