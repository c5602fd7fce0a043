package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/cmd/deepwork/plugin"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow"

	"github.com/spf13/cobra"
)

func (a *app) sessionsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "sessions",
		Short: "List, show, abort, review, override, drop, prune and import the sessions of a project",
	},
		a.onStore(a.sessionsListCommand()),
		a.onStore(a.sessionsShowCommand()),
		a.onStore(a.sessionsAbortCommand()),
		a.onStore(a.sessionsReviewCommand()),
		a.onStore(a.sessionsOverrideCommand()),
		a.onStore(a.sessionsDropCommand()),
		a.onStore(a.sessionsPruneCommand()),
		a.onStore(a.sessionsImportCommand()),
	)
}

// hookCommand groups the commands that hooks of agents run.
func (a *app) hookCommand() *cobra.Command {
	return group(&cobra.Command{Use: "hook", Short: "Answer a hook of an agent"}, &cobra.Command{
		Use:     "compact",
		Short:   "Tell Claude Code after a compaction which sessions are in progress, and where",
		Example: `  echo '{"hook_event_name":"SessionStart","source":"compact"}' | deepwork hook compact`,
		Long: `Read the input of a SessionStart hook of Claude Code from stdin, and print, for its agent,
which sessions are in progress in the project, and at which step each is. It prints nothing
if there are none. The plugin, and deepwork init --claude-code, have Claude Code run it
after each compaction.`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return plugin.Compacted(cmd.Context(), a.in, a.rawOut, a.sessionsIn)
		},
	})
}

// sessionsIn returns the last few sessions in progress of an agent that works in a folder, or, for a run's agent, its
// session and step. It returns none if the folder is in no project with state.
func (a *app) sessionsIn(ctx context.Context, dir string) ([]store.Session, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := state.Canonical(state.Upwards(dir))
	if err != nil {
		return nil, nil // the folder is gone
	}
	folder, err := a.stateOf(ctx, root)
	if errors.Is(err, state.ErrInside) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	stores, err := a.stores(ctx, folder, true, nil)
	if err != nil {
		return nil, err
	}

	query := store.SessionQuery{Identity: session.LocalIdentity, Active: true, Root: root, Limit: 3}
	id := os.Getenv(config.SessionEnv)
	if id != "" {
		query = store.SessionQuery{IDs: []string{id}, Active: true}
	}
	sessions, err := stores.Database.Sessions().ListSessions(ctx, query)
	if id != "" && len(sessions) > 0 {
		sessions[0].Step = os.Getenv(config.StepEnv) // its own of a group
	}
	sessions = slices.DeleteFunc(sessions, func(s store.Session) bool { return placeElsewhere(&s, stores.Place) != "" })
	return sessions, errors.Join(err, stores.Close(ctx))
}

func (a *app) sessionsListCommand() *cobra.Command {
	return a.onProject("print them as JSON, with exact times", &cobra.Command{
		Use:   "list",
		Short: "List the sessions, the most recently active first",
		Long: `List the sessions, the most recently active first. AGE is the time since a session was
started, IDLE since its last change. SERVER is the process that last moved an active
session, if its agent is still connected; ATTEMPT is the attempt it was begun in; PLACE
is the machine and folder that last moved it, if not this one. Empty columns are left
out, and more at a narrow terminal.`,
		Example: `  deepwork sessions list`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withEngine(cmd.Context(), true, nil, func(engine *workflow.Engine) error {
				return a.printSessions(cmd.Context(), engine)
			})
		},
	})
}

func (a *app) printSessions(ctx context.Context, engine *workflow.Engine) error {
	listed, err := engine.List(ctx)
	if err != nil {
		return err
	}

	rows, cells := []sessionRow{}, [][]string{}
	for _, s := range listed {
		r := sessionRow{
			SessionID: s.ID,
			Status:    s.Status,
			Workflow:  s.Job + "/" + s.Workflow,
			Step:      s.Step,
			StartedAt: s.StartedAt,
			UpdatedAt: s.UpdatedAt,
			AttemptID: s.AttemptID,
			Root:      s.Root,
			Place:     placeElsewhere(&s.Session, engine.Place),
			Goal:      s.Goal,
		}
		if s.InUse {
			r.Server = cmp.Or(s.By, "running")
		}
		rows = append(rows, r)
		cells = append(cells, []string{r.SessionID, r.Status, r.Workflow, r.Step, show.Since(r.StartedAt),
			show.Since(r.UpdatedAt),
			r.Server, r.AttemptID[:min(shortID, len(r.AttemptID))], r.Place, r.Goal})
	}
	switch {
	case a.json:
		return a.printJSON(rows)
	case len(rows) == 0:
		fmt.Fprintln(a.out, "There are no sessions.")
		if root, err := a.projectRoot(); err == nil {
			if files, _ := fs.Glob(os.DirFS(root), ".deepwork/tmp/"+state.ExportName("????????")); len(files) > 0 {
				fmt.Fprintln(a.err, a.here("deepwork: note: .deepwork/tmp has files of sessions. If the folder was "+
					"moved here, 'deepwork where --adopt OLDPATH' takes over what it had there; else 'deepwork "+
					"sessions import --all' makes sessions of them."))
			}
		}
	default:
		a.out.Table([]show.Column{{Title: "ID"}, {Title: "STATUS", State: true}, {Title: "WORKFLOW", Least: 12},
			{Title: "STEP", Least: 8, Optional: true},
			{Title: "AGE"}, {Title: "IDLE", Optional: true}, {Title: "SERVER", Least: 8, Optional: true}, {
				Title:    "ATTEMPT",
				Optional: true,
			}, {Title: "PLACE", Least: 8, Optional: true}, {Title: "GOAL", Least: 20}}, cells)
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
	Server    string    `json:"server,omitempty"` // that an agent is connected to who has moved it
	AttemptID string    `json:"attempt_id,omitempty"`
	Root      string    `json:"root"`            // where it was begun
	Place     string    `json:"place,omitempty"` // MACHINE:FOLDER that moved it last, if not this one
	Goal      string    `json:"goal,omitempty"`
}

// placeElsewhere returns the place that moved a session last, or "" if that is this one.
func placeElsewhere(s *store.Session, here *task.Place) string {
	p := s.PlaceOf()
	if p == nil || here != nil && p.Is(*here) {
		return ""
	}
	return cmp.Or(p.MachineName, p.MachineID) + ":" + p.Root
}

func (a *app) sessionsAbortCommand() *cobra.Command {
	var why string
	cmd := a.onProject("", &cobra.Command{
		Use:     "abort ID",
		Short:   "Abort an active session",
		Long:    "Abort an active session." + sessionIDs.help(),
		Example: `  deepwork sessions abort 1a2b --reason "The plan has changed"`,
		Args:    sessionID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" {
				return usagef(cmd, "--reason is blank; say why, or leave it out")
			}
			return a.withSession(cmd.Context(), false, args[0], func(engine *workflow.Engine, id string) error {
				if err := engine.AbortFor(cmd.Context(), id, why); err != nil {
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

func (a *app) sessionsOverrideCommand() *cobra.Command {
	var why string
	cmd := a.onProject("", &cobra.Command{
		Use:     "override ID STEP",
		Short:   "Let a step continue without its reviews and checks; " + idsHelp,
		Example: `  deepwork sessions override latest write --reason "The reviewer misread the notes."`,
		Long: `Show a step that waits for its review, or whose checks fail, and ask at the terminal
whether it may continue without. A check with override: never is not skipped. The agent can
then finish that step, once; going back to an earlier step
withdraws the decision. The session records it as a person's.

If quality_gate.override is human, this is the only way to finish a step without a
reviewer's verdict. If it is never, nobody can.`,
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

	if _, err := s.Grant(stepID, judging.Override{}); err != nil { // before it is shown
		return err
	}

	st, err := engine.Step(s, stepID)
	if err != nil {
		return err
	}

	unfit := s.Progress(stepID).Unfit()
	if len(st.Reviews)+len(st.Checks) == 0 && unfit == nil {
		return errors.New("the step has no reviews, no checks, and nothing was handed in that was not accepted, so " +
			"there is nothing to override")
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
		a.line("handed in %s, and not accepted:\n%s", show.Ago(unfit.At), show.Indent(unfit.Feedback, "  "))
	}

	given, files := workflow.GivenFor(s, stepID)
	if last := s.Progress(stepID).Newest(); last != nil {
		show.Tries(a.line, []*machine.Try{last})
	} else if review := filepath.Join(info.Root, ".deepwork", "tmp",
		"quality_review_"+id+"_"+stepID+".md"); fileExists(review) {
		fmt.Fprintf(a.out, "The agent was asked to have its outputs judged by %s.\n",
			inline(a.display(engine.Root, review)))
	} else if len(files) == 0 {
		fmt.Fprintln(a.out, "No outputs were handed in for a review yet.")
	}
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
	if err := confirm(fmt.Sprintf("\nSkip these %s of step %s, with the reason %s? Type yes: ", what, plain(stepID),
		plain(fmt.Sprintf("%q", why))), "nothing was overridden", ""); err != nil {
		return err
	}

	err = engine.OverrideFor(ctx, id, stepID, judging.Override{
		GivenFor: given,
		Identity: session.LocalIdentity,
		Channel:  session.ChannelTerminal,
		Reason:   why,
	})
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
				s, err := engine.Read(cmd.Context(), id)
				if err != nil {
					return err
				}

				def, err := engine.Definition(s)
				if err == nil { // before it asks
					err = s.Droppable(def, args[1])
				}
				if err != nil {
					return fmt.Errorf("dropping the item of %s of session %s: %w", args[1], id, err)
				}
				if err := confirm(fmt.Sprintf("Leave out the item of %s, with the reason %s? Type yes: ",
					plain(args[1]), plain(fmt.Sprintf("%q", why))), "nothing was dropped", ""); err != nil {
					return err
				}
				err = engine.DropFor(cmd.Context(), id, args[1],
					judging.Override{Identity: session.LocalIdentity, Channel: session.ChannelTerminal, Reason: why})
				if err != nil {
					return fmt.Errorf("dropping the item of %s of session %s: %w", args[1], id, err)
				}
				fmt.Fprintln(a.out,
					a.here(fmt.Sprintf("Dropped. The agent goes on with the other items; 'deepwork sessions show %s' "+
						"shows them.", id)))
				return nil
			})
		},
	})
	cmd.Flags().StringVar(&why, "reason", "", "`REASON`, as the session records it")
	return cmd
}

func (a *app) sessionsPruneCommand() *cobra.Command {
	var olderThan time.Duration
	var dryRun bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "prune",
		Short: "Remove sessions that ended long ago, and unused job definitions",
		Long: `Remove the sessions that ended longer ago than --older-than, with their files on this
machine, and print their ids. Active sessions are never removed, nor is a finished one whose
outputs the workflow that called it has not taken over yet. Job definitions that no
session needs are removed, too, except those of the last two hours. With
sessions.keep_ended in the config, servers do this once an hour.`,
		Example: `  deepwork sessions prune --older-than 168h --dry-run`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan < 0 {
				return usagef(cmd, "--older-than %s is negative; expected a time such as 720h", olderThan)
			}
			cutoff := time.Now().Add(-olderThan)
			return a.withEngine(cmd.Context(), false, nil, func(engine *workflow.Engine) error {
				return a.prune(cmd.Context(), engine, cutoff, dryRun)
			})
		},
	})
	cmd.Flags().DurationVar(&olderThan, "older-than", 720*time.Hour,
		"how long ago they must have ended, such as 720h (30 days)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print which sessions would be removed, and remove nothing")
	return cmd
}

func (a *app) prune(ctx context.Context, engine *workflow.Engine, cutoff time.Time, dryRun bool) error {
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	ids, definitions, err := engine.Prune(ctx, cutoff, dryRun)
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
	return a.onProject("print the record, as in its file in .deepwork/tmp", &cobra.Command{
		Use:     "show ID",
		Short:   "Print a session: its steps, outputs, tries, verdicts and overrides",
		Long:    "Print a session: its steps, outputs, tries, verdicts and overrides." + sessionIDs.help(),
		Example: `  deepwork sessions show latest`,
		Args:    sessionID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd.Context(), true, args[0], func(engine *workflow.Engine, id string) error {
				return a.showSession(cmd.Context(), engine, id)
			})
		},
	})
}

func (a *app) showSession(ctx context.Context, engine *workflow.Engine, id string) error {
	s, err := engine.Read(ctx, id)
	if err != nil {
		return fmt.Errorf("reading session %s: %w", id, err)
	}

	if a.json {
		raw, err := s.Encode()
		if err == nil {
			_, err = fmt.Fprintf(a.out, "%s\n", raw)
		}
		return err
	}
	info, err := engine.Info(ctx, id)
	if err != nil {
		return err
	}
	show.Session(a.out, s, engine.Elsewhere(&info.Session))
	return nil
}
