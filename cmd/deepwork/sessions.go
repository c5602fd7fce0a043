package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
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
		Short: "List, show, abort, review, override, prune and adopt the sessions of a project",
	},
		a.onStore(a.sessionsListCommand()),
		a.onStore(a.sessionsShowCommand()),
		a.onStore(a.sessionsAbortCommand()),
		a.onStore(a.sessionsReviewCommand()),
		a.onStore(a.sessionsOverrideCommand()),
		a.onStore(a.sessionsPruneCommand()),
		a.onStore(a.sessionsAdoptCommand()),
	)
}

// sessionsCommandList lists what withSession finds.
const sessionsCommandList = "deepwork sessions list"

// sessionID checks that the one argument can name a session.
func sessionID(cmd *cobra.Command, args []string) error {
	if err := takes(1, 1, "a session id")(cmd, args); err != nil {
		return err
	}
	return idArgument(cmd, "a session", sessionsCommandList, args[0], 8)
}

// Sessions are those of the project, or of the workspace of an attempt.
type sessions struct {
	*workflow.Archive
	folder  *state.Folder // of the project
	tmp     string        // the folder of their files
	attempt string        // "" in the project
}

// withSessions opens the sessions of the project and of its attempts on this machine for use, the
// project's first. If the board cannot be read, it says so and opens the project's alone.
func (a *app) withSessions(ctx context.Context, use func(all []sessions) error) error {
	return a.withArchive(func(folder *state.Folder, archive *workflow.Archive) (err error) {
		all := []sessions{{archive, folder, folder.Tmp(), ""}}
		workspaces, err := archive.Workspaces(ctx)
		if err != nil {
			fmt.Fprintf(a.err, "deepwork: the sessions of attempts are not looked at: %s\n", oneLine(err.Error(), 2000))
		}
		logger := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
		for _, w := range workspaces {
			archive, done, err := workflow.OpenWorkspace(w.Path, logger)
			if err != nil {
				fmt.Fprintf(a.err, "deepwork: the sessions of attempt %s are not looked at: %s\n", w.AttemptID, oneLine(err.Error(), 2000))
				continue
			}
			defer done() // nothing is left to write
			all = append(all, sessions{archive, folder, filepath.Join(w.Path, ".deepwork", "tmp"), w.AttemptID})
		}
		return use(all)
	})
}

// withSession opens the sessions among which is the one that an argument names by its id, the
// beginning of one, or latest. A whole id that nobody has is one of the project.
func (a *app) withSession(ctx context.Context, given string, use func(of sessions, id string) error) error {
	return a.withSessions(ctx, func(all []sessions) error {
		if _, err := hex.DecodeString(given); err == nil && len(given) == 8 {
			for _, of := range all {
				if _, err := of.Read(given); session.CodeOf(err) != "unknown_session" {
					return use(of, given)
				}
			}
			return use(all[0], given)
		}
		listed, err := listOf(ctx, all)
		if err != nil {
			return err
		}
		ids := make([]candidate, len(listed))
		for i, s := range listed {
			ids[i] = candidate{s.SessionID, fmt.Sprintf("%s: %s", s.Status, s.Goal), s.StartedAt}
		}
		i, err := choose("session", sessionsCommandList, given, ids)
		if err != nil {
			return err
		}
		return use(listed[i].of, listed[i].SessionID)
	})
}

// A listedSession is a session with those that it is among.
type listedSession struct {
	workflow.SessionInfo
	of sessions
}

// listOf lists the sessions, the one that moved last first.
func listOf(ctx context.Context, all []sessions) (listed []listedSession, err error) {
	for _, of := range all {
		these, err := of.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range these {
			listed = append(listed, listedSession{s, of})
		}
	}
	slices.SortStableFunc(listed, func(x, y listedSession) int { return y.UpdatedAt.Compare(x.UpdatedAt) })
	return listed, nil
}

// goalWidth is the length of a goal in the list.
const goalWidth = 50

func (a *app) sessionsListCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "list",
		Short: "List the sessions, the one that moved last first",
		Long: `List the sessions, the one that moved last first. AGE is the time since a
session was started, IDLE since it last moved; SERVER is the running server that
owns it, or gone where that server has ended; ATTEMPT is the attempt of the task board
in whose workspace a session is. A session that is "foreign" was not written by this
installation for this project: nothing reads it until it is adopted.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSessions(cmd.Context(), func(all []sessions) error { return a.listSessions(cmd.Context(), all) })
		},
	})
}

func (a *app) listSessions(ctx context.Context, all []sessions) error {
	listed, err := listOf(ctx, all)
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		fmt.Fprintln(a.out, "There are no sessions.")
	} else if err := a.sessionTable(listed); err != nil {
		return err
	}
	for _, of := range all {
		aside, err := of.Damaged()
		if err != nil {
			return fmt.Errorf("listing what was set aside: %w", err)
		}
		for _, file := range aside {
			fmt.Fprintf(a.err, "deepwork: a damaged record was set aside: %s\n", oneLine(file, 2000))
		}
	}
	return nil
}

// sessionTable prints sessions, with a column for their attempts if one is an attempt's.
func (a *app) sessionTable(listed []listedSession) error {
	now := time.Now()
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	attempts := slices.ContainsFunc(listed, func(s listedSession) bool { return s.of.attempt != "" })
	of := func(attempt string) string {
		switch {
		case !attempts:
			return ""
		case attempt == "":
			return "-\t"
		}
		return attempt[:8] + "\t"
	}
	title := ""
	if attempts {
		title = "ATTEMPT\t"
	}
	fmt.Fprintf(table, "ID\tSTATUS\tWORKFLOW\tSTEP\tAGE\tIDLE\tSERVER\t%sGOAL\n", title)
	for _, s := range listed {
		if f, ok := errors.AsType[*store.ForeignError](s.Err); ok {
			what := "not written here: "
			if f.Older {
				what = ""
			}
			s.Err = fmt.Errorf("%s%s; deepwork sessions adopt %s takes it over", what, f.Reason, s.SessionID)
		}
		if s.Err != nil {
			fmt.Fprintf(table, "%s\t%s\t-\t-\t-\t-\t-\t%s%s\n", s.SessionID, s.Status, of(s.of.attempt), oneLine(s.Err.Error(), 200))
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s/%s\t%s\t%s\t%s\t%s\t%s%s\n", s.SessionID, s.Status,
			oneLine(s.JobName, 100), oneLine(s.WorkflowName, 100), oneLine(s.Step, 100),
			since(now, s.StartedAt), since(now, s.UpdatedAt), owner(s.SessionInfo), of(s.of.attempt), oneLine(s.Goal, goalWidth))
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
			return a.withSession(cmd.Context(), args[0], func(of sessions, id string) error {
				if err := of.Abort(cmd.Context(), id, why, of.Requests()); err != nil {
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
