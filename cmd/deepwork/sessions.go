package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

func (a *app) sessionsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "sessions",
		Short: "List, show, abort, override, prune and adopt the sessions of a project",
	},
		a.onStore(a.sessionsListCommand()),
		a.onStore(a.sessionsShowCommand()),
		a.onStore(a.sessionsAbortCommand()),
		a.onStore(a.sessionsOverrideCommand()),
		a.onStore(a.sessionsPruneCommand()),
		a.onStore(a.sessionsAdoptCommand()),
	)
}

// sessionsCommandList lists what oneSession finds.
const sessionsCommandList = "deepwork sessions list"

// sessionID checks that the one argument can name a session.
func sessionID(cmd *cobra.Command, args []string) error {
	if err := takes(1, 1, "a session id")(cmd, args); err != nil {
		return err
	}
	return idArgument(cmd, "session", sessionsCommandList, args[0], 8)
}

// oneSession returns the id of the session that an argument names by its id, the beginning of one,
// or latest. A whole id is returned even if there is no such session.
func oneSession(ctx context.Context, archive *workflow.Archive, given string) (string, error) {
	if _, err := hex.DecodeString(given); err == nil && len(given) == 8 {
		return given, nil
	}
	all, err := archive.List(ctx)
	if err != nil {
		return "", err
	}
	ids := make([]candidate, len(all))
	for i, s := range all {
		ids[i] = candidate{s.SessionID, fmt.Sprintf("%s: %s", s.Status, s.Goal), s.StartedAt}
	}
	i, err := choose("session", sessionsCommandList, given, ids)
	if err != nil {
		return "", err
	}
	return all[i].SessionID, nil
}

// goalWidth is the length of a goal in the list.
const goalWidth = 50

func (a *app) sessionsListCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "list",
		Short: "List the sessions, the one that moved last first",
		Long: `List the sessions, the one that moved last first. AGE is the time since a
session was started, IDLE since it last moved; SERVER is the running server that
owns it, or gone where that server has ended. A session that is "foreign" was not
written by this installation for this project: nothing reads it until it is adopted.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withArchive(func(_ *state.Folder, archive *workflow.Archive) error {
				return a.listSessions(cmd.Context(), archive)
			})
		},
	})
}

func (a *app) listSessions(ctx context.Context, archive *workflow.Archive) error {
	sessions, err := archive.List(ctx)
	if err != nil {
		return err
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
		fmt.Fprintf(a.err, "deepwork: a damaged record was set aside: %s\n", oneLine(file, 2000))
	}
	return nil
}

func (a *app) sessionTable(sessions []workflow.SessionInfo) error {
	now := time.Now()
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATUS\tWORKFLOW\tSTEP\tAGE\tIDLE\tSERVER\tGOAL")
	for _, s := range sessions {
		if f, ok := errors.AsType[*store.ForeignError](s.Err); ok {
			what := "not written here: "
			if f.Older {
				what = ""
			}
			s.Err = fmt.Errorf("%s%s; deepwork sessions adopt %s takes it over", what, f.Reason, s.SessionID)
		}
		if s.Err != nil {
			fmt.Fprintf(table, "%s\t%s\t-\t-\t-\t-\t-\t%s\n", s.SessionID, s.Status, oneLine(s.Err.Error(), 200))
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
	return session.Ago(now.Sub(t))
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

// defaultAbortReason is recorded if the person gives no reason.
const defaultAbortReason = "aborted from the command line"

func (a *app) sessionsAbortCommand() *cobra.Command {
	var why string
	cmd := a.onProject("", &cobra.Command{
		Use:   "abort ID",
		Short: "Abort an active session; " + idsHelp,
		Args:  sessionID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" {
				return usagef(cmd, "--reason is blank; say why, or leave it out")
			}
			return a.withArchive(func(_ *state.Folder, archive *workflow.Archive) error {
				id, err := oneSession(cmd.Context(), archive, args[0])
				if err != nil {
					return err
				}
				if err := archive.Abort(cmd.Context(), id, why, archive.Requests()); err != nil {
					return fmt.Errorf("aborting session %s: %w", id, err)
				}
				fmt.Fprintf(a.out, "aborted %s\n", id)
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&why, "reason", defaultAbortReason, "`why`, as the session records it")
	return cmd
}

func (a *app) sessionsPruneCommand() *cobra.Command {
	var olderThan time.Duration
	var dryRun bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "prune",
		Short: "Remove sessions that ended long ago",
		Long: `Remove the files of sessions that were completed or aborted longer ago than
--older-than, and print their ids. Active sessions are never removed.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan < 0 {
				return usagef(cmd, "--older-than %s is negative; give how long ago sessions must have ended, such as 720h", olderThan)
			}
			cutoff := time.Now().Add(-olderThan)
			return a.withArchive(func(_ *state.Folder, archive *workflow.Archive) error {
				return a.prune(cmd.Context(), archive, cutoff, dryRun)
			})
		},
	})
	cmd.Flags().DurationVar(&olderThan, "older-than", 720*time.Hour, "how long ago they must have ended")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be removed and remove nothing")
	return cmd
}

func (a *app) prune(ctx context.Context, archive *workflow.Archive, cutoff time.Time, dryRun bool) error {
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	ids, err := archive.Prune(ctx, cutoff, dryRun)
	for _, id := range ids {
		fmt.Fprintln(a.out, id)
	}
	if err != nil {
		return fmt.Errorf("pruning sessions: %w", err)
	}
	fmt.Fprintf(a.err, "deepwork: %s %s\n", verb, count(len(ids), "session"))
	return nil
}
