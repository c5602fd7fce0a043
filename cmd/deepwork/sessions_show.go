package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/session/show"
	"deepwork/session/workflow"
)

func (a *app) sessionsShowCommand() *cobra.Command {
	return a.onProject("print the record as it is on disk", &cobra.Command{
		Use:   "show ID",
		Short: "Print a session: its steps, outputs, review attempts, verdicts and overrides; " + idsHelp,
		Args:  sessionID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd.Context(), args[0], func(of sessions, id string) error {
				return a.showSession(cmd.Context(), of.Archive, id)
			})
		},
	})
}

func (a *app) showSession(ctx context.Context, archive *workflow.Archive, id string) error {
	if a.json {
		raw, err := archive.Show(ctx, id)
		if err != nil {
			return fmt.Errorf("reading session %s: %w", id, err)
		}
		_, err = fmt.Fprintf(a.out, "%s\n", strings.TrimRight(string(raw), "\n"))
		return err
	}
	s, err := archive.Read(id)
	if err != nil {
		return fmt.Errorf("reading session %s: %w", id, err)
	}
	show.Session(a.out, s)
	return nil
}
