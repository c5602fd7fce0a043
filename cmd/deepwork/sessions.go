package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/session"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
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

// listOf lists the sessions, the most recently active first.
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

func (a *app) sessionsListCommand() *cobra.Command {
	return a.onProject("print them as JSON, with exact times", &cobra.Command{
		Use:   "list",
		Short: "List the sessions, the most recently active first",
		Long: `List the sessions, the most recently active first. AGE is the time since a
session was started, IDLE since its last change; SERVER is the running server that owns
an active session, or gone if that server has ended; ATTEMPT is the attempt of the task
board in whose workspace a session is. Empty columns are left out, and more are left
out at a narrow terminal. A session that is "foreign" was not written by this
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
	rows := make([]sessionRow, len(listed))
	for i, s := range listed {
		rows[i] = rowOf(s)
	}
	switch {
	case a.json:
		err = a.printJSON(rows)
	case len(rows) == 0:
		fmt.Fprintln(a.out, "There are no sessions.")
	default:
		a.sessionTable(rows)
	}
	if err != nil {
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

// A sessionRow is a session in the list, as --json prints it.
type sessionRow struct {
	SessionID string    `json:"session_id"`
	Status    string    `json:"status"`
	Workflow  string    `json:"workflow,omitempty"` // JOB/WORKFLOW
	Step      string    `json:"step,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	Server    string    `json:"server,omitempty"` // of an active session, "gone" if it has ended
	AttemptID string    `json:"attempt_id,omitempty"`
	Goal      string    `json:"goal,omitempty"`
	Error     string    `json:"error,omitempty"` // why it cannot be read
}

func rowOf(s listedSession) sessionRow {
	row := sessionRow{SessionID: s.SessionID, Status: s.Status, AttemptID: s.of.attempt}
	if f, ok := errors.AsType[*store.ForeignError](s.Err); ok {
		row.Error = fmt.Sprintf("not written here: %s; deepwork sessions adopt %s takes it over", f.Reason, s.SessionID)
		if f.Older {
			row.Error = strings.TrimPrefix(row.Error, "not written here: ")
		}
		return row
	}
	if s.Err != nil {
		row.Error = s.Err.Error()
		return row
	}
	row.Workflow, row.Step, row.Goal = s.JobName+"/"+s.WorkflowName, s.Step, s.Goal
	row.StartedAt, row.UpdatedAt = s.StartedAt, s.UpdatedAt
	switch {
	case s.OwnerAlive:
		row.Server = cmp.Or(s.OwnerText, "alive")
	case s.Owner != "" && s.Status == string(machine.Active):
		row.Server = "gone"
	}
	return row
}

// sessionTable prints sessions, with a column for their attempts if one is an attempt's.
func (a *app) sessionTable(rows []sessionRow) {
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{r.SessionID, r.Status, r.Workflow, r.Step, show.Since(r.StartedAt), show.Since(r.UpdatedAt),
			r.Server, r.AttemptID[:min(shortID, len(r.AttemptID))], cmp.Or(r.Error, r.Goal)})
	}
	a.out.Table([]show.Column{{Title: "ID"}, {Title: "STATUS", State: true}, {Title: "WORKFLOW", Least: 12}, {Title: "STEP", Least: 8, Optional: true},
		{Title: "AGE"}, {Title: "IDLE", Optional: true}, {Title: "SERVER", Least: 8, Optional: true}, {Title: "ATTEMPT", Optional: true}, {Title: "GOAL", Least: 20}}, cells)
}

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
	cmd.Flags().StringVar(&why, "reason", "aborted from the command line", "`REASON`, as the session records it")
	return cmd
}

func (a *app) sessionsPruneCommand() *cobra.Command {
	var olderThan time.Duration
	var dryRun bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "prune",
		Short: "Remove sessions that ended long ago, and unused job definitions",
		Long: `Remove the files of sessions that were completed or aborted longer ago than
--older-than, and print their ids. Active sessions are never removed. The stored
definitions of jobs that no session needs are removed as well, except those of the
last two hours. With sessions.keep_ended in the config, servers do the same once
an hour.`,
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
	cmd.Flags().DurationVar(&olderThan, "older-than", 720*time.Hour, "how long ago they must have ended, such as 720h (30 days)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print which sessions would be removed, and remove nothing")
	return cmd
}

func (a *app) prune(ctx context.Context, archive *workflow.Archive, cutoff time.Time, dryRun bool) error {
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	ids, definitions, err := archive.Prune(ctx, cutoff, dryRun)
	for _, id := range ids {
		fmt.Fprintln(a.out, id)
	}
	if err != nil {
		return fmt.Errorf("pruning sessions: %w", err)
	}
	what := count(len(ids), "session")
	if definitions > 0 {
		what += " and " + count(definitions, "unused definition")
	}
	fmt.Fprintf(a.err, "deepwork: %s %s\n", verb, what)
	return nil
}

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
