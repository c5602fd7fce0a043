package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session/workflow"
)

// goalWidth is how much of a goal the list shows.
const goalWidth = 50

func (a *app) sessionsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions, the one that moved last first",
		Long: `List the sessions, the one that moved last first. AGE is the time since a
session was started, IDLE since it last moved; SERVER is the running server that
owns it, or gone where that server has ended.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withArchive(func(_ string, archive *workflow.Archive) error {
				return a.listSessions(cmd.Context(), archive)
			})
		},
	}
	a.pathFlag(cmd)
	return cmd
}

func (a *app) listSessions(ctx context.Context, archive *workflow.Archive) error {
	sessions, err := archive.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the sessions: %w", err)
	}
	if len(sessions) == 0 {
		fmt.Fprintln(a.out, "There are no sessions.")
	} else if err := a.sessionTable(sessions); err != nil {
		return err
	}
	aside, err := archive.Damaged()
	if err != nil {
		return fmt.Errorf("listing what was set aside: %w", err)
	}
	for _, file := range aside {
		fmt.Fprintf(a.err, "deepwork: a damaged record was set aside: %s\n", file)
	}
	return nil
}

func (a *app) sessionTable(sessions []workflow.SessionInfo) error {
	now := time.Now()
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATUS\tWORKFLOW\tSTEP\tAGE\tIDLE\tSERVER\tGOAL")
	for _, s := range sessions {
		if s.Err != nil {
			fmt.Fprintf(table, "%s\tdamaged\t-\t-\t-\t-\t-\t%s\n", s.SessionID, oneLine(s.Err.Error(), 200))
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s/%s\t%s\t%s\t%s\t%s\t%s\n", s.SessionID, s.Status,
			oneLine(s.JobName, 100), oneLine(s.WorkflowName, 100), oneLine(s.Step, 100),
			since(now, s.StartedAt), since(now, s.UpdatedAt), owner(s), oneLine(s.Goal, goalWidth))
	}
	return table.Flush()
}

func since(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return ago(now.Sub(t))
}

func owner(s workflow.SessionInfo) string {
	switch {
	case s.OwnerAlive && s.OwnerText != "":
		return oneLine(s.OwnerText, 100)
	case s.OwnerAlive:
		return "alive"
	case s.Owner != "":
		return "gone"
	}
	return "-"
}
