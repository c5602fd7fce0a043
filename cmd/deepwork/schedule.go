package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"deepwork/actor/wait"
	times "deepwork/catalog/schedule"
	"deepwork/cmd/deepwork/timer"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/schedule"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/store"
)

func (a *app) scheduleCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "schedule",
		Short: "Start runs at set times",
		Long: `Start runs of workflows at set times. A server of the project ('deepwork serve' or
'deepwork ui') starts them; where none runs, a timer does ('deepwork schedule timer').
Each due time is one run, or one recorded skip with its reason.`,
	}, a.scheduleAddCommand(), a.scheduleListCommand(), a.scheduleShowCommand(),
		a.onSchedule("pause", "Start nothing until the schedule is resumed",
			func(ctx context.Context, e *schedule.Engine, s *store.ScheduleState) error {
				if err := e.Pause(ctx, &s.Schedule); err != nil {
					return err
				}
				fmt.Fprintln(a.out, "paused "+s.Name)
				return nil
			}),
		a.onSchedule("resume", "Let a paused schedule go on at its next time",
			func(ctx context.Context, e *schedule.Engine, s *store.ScheduleState) error {
				if err := e.Resume(ctx, &s.Schedule); err != nil {
					return err
				}
				fmt.Fprintln(a.out, "resumed "+s.Name)
				return nil
			}),
		a.onSchedule("rm", "Remove a schedule and its history; its runs stay",
			func(ctx context.Context, e *schedule.Engine, s *store.ScheduleState) error {
				if err := e.Rows.Remove(ctx, s.ID); err != nil {
					return err
				}
				fmt.Fprintln(a.out, "removed "+s.Name)
				return nil
			}),
		a.scheduleRunCommand(), a.scheduleTimerCommand())
}

const scheduleArgument = "the name of a schedule"

// onSchedule returns a command that does something with one schedule.
func (a *app) onSchedule(
	name, short string, do func(context.Context, *schedule.Engine, *store.ScheduleState) error,
) *cobra.Command {
	return a.onBoardStore(a.onProject("", &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    short + ".",
		Example: "  deepwork schedule " + name + " weekly",
		Args:    argumentCount(1, 1, scheduleArgument),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withSchedule(args[0], do)
		},
	}))
}

func (a *app) withSchedule(
	name string, do func(context.Context, *schedule.Engine, *store.ScheduleState) error,
) error {
	return a.withBoard(false, func(ctx context.Context, attempts *attempt.Engine) error {
		engine := schedule.New(attempts)
		found, err := engine.Named(ctx, atTerminal, name)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("there is no schedule %q; 'deepwork schedule list' lists them", name)
		}
		if err != nil {
			return err
		}
		return do(ctx, engine, found)
	})
}

var (
	scheduleName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	inBraces     = regexp.MustCompile(`\{[a-z_]+\}`)
)

func (a *app) scheduleAddCommand() *cobra.Command {
	var given attempt.RunWorkflowArgs
	var worktree bool
	s := store.Schedule{ID: uuid.NewString()}
	cmd := a.onBoardStore(a.onProject("", &cobra.Command{
		Use:   "add NAME CRON JOB/WORKFLOW --goal TEXT",
		Short: "Add a schedule",
		Long: `Add a schedule: it starts runs of a workflow at the times of a cron expression. CRON has
five fields (minute, hour, day of the month, month, day of the week), or is @hourly,
@daily, @weekly, @monthly or @yearly. The goal may have {date} and {due}, the date and
the time at which the run is due.

A time is missed if it is over a minute late: --catch-up says what happens to those.
--overlap says what happens while the run before has not ended; a run that waits for you
has not.
` + inputsHelp,
		Example: `  deepwork schedule add weekly "0 9 * * mon" release_notes/write --goal "Notes of {date}"
  deepwork schedule add nightly @daily audit/check --goal "Audit" --zone Europe/Berlin --overlap queue_one`,
		Args: argumentCount(3, 3, "a name, a cron expression and JOB/WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Name, s.Cron = args[0], args[1]
			job, workflow, ok := strings.Cut(args[2], "/")
			if s.Zone == "" {
				s.Zone = times.Zone()
			}
			t, err := times.Parse(s.Cron, s.Zone)
			switch {
			case !scheduleName.MatchString(s.Name):
				return usagef(cmd, "%q is no name of a schedule; use lower-case letters, digits, - and _", s.Name)
			case s.Zone == "":
				return usagef(cmd, "the time zone of this machine is unknown; add --zone, such as --zone Europe/Berlin")
			case err != nil:
				return usagef(cmd, "%v", err)
			case !ok:
				return usagef(cmd, "%q is not JOB/WORKFLOW; 'deepwork jobs' lists them", args[2])
			case strings.TrimSpace(given.Goal) == "":
				return usagef(cmd, "--goal is missing; say what the runs should accomplish")
			case worktree && given.InPlace != nil && *given.InPlace:
				return usagef(cmd, "--worktree and --in-place exclude each other; pass one of them")
			case !slices.Contains(overlaps, s.Overlap):
				return usagef(cmd, "--overlap is %q; expected %s", s.Overlap, choices(overlaps))
			case !slices.Contains(catchUps, s.CatchUp):
				return usagef(cmd, "--catch-up is %q; expected %s", s.CatchUp, choices(catchUps))
			case s.CatchUpWithin <= 0 || s.PauseAfter < 0 || s.PauseAfter > 100:
				return usagef(cmd, "--window must be above 0, and --pause-after from 0 to 100")
			}
			for _, template := range inBraces.FindAllString(given.Goal, -1) {
				if template != "{date}" && template != "{due}" {
					return usagef(cmd, "the goal has %s; only {date} and {due} are replaced", template)
				}
			}
			if worktree {
				given.InPlace = new(false)
			}
			given.JobName, given.WorkflowName = job, workflow
			return a.withBoard(false, func(ctx context.Context, engine *attempt.Engine) error {
				return a.addSchedule(ctx, cmd, engine, &s, t, given)
			})
		},
	}))
	argumentFlags(cmd, &given, append([]string{"goal", "parallel", "in_place", "context"}, budgets...)...)
	onExecutor(cmd, &given)
	onInputs(cmd, &given.Inputs)
	flags := cmd.Flags()
	flags.BoolVar(&worktree, "worktree", false, "work in a git worktree (default in a git repository)")
	flags.StringVar(&s.Zone, "zone", "", "IANA `name` of the time zone (default: that of this machine)")
	flags.StringVar(&s.Overlap, "overlap", schedule.OverlapSkip, "while a run has not ended: "+choices(overlaps))
	flags.StringVar(&s.CatchUp, "catch-up", schedule.CatchUpLatest, "of missed times: "+choices(catchUps))
	flags.DurationVar(&s.CatchUpWithin, "window", 7*24*time.Hour, "missed times that are older are skipped")
	flags.IntVar(&s.PauseAfter, "pause-after", 3, "pause after so many failed runs in a row; 0: never")
	return cmd
}

var (
	overlaps = []string{schedule.OverlapSkip, schedule.OverlapQueue, schedule.OverlapAllow}
	catchUps = []string{schedule.CatchUpLatest, schedule.CatchUpSkip, schedule.CatchUpAll}
)

func (a *app) addSchedule(
	ctx context.Context, cmd *cobra.Command, engine *attempt.Engine, s *store.Schedule, t *times.Times,
	given attempt.RunWorkflowArgs,
) error {
	wf, err := engine.CheckWorkflow(ctx, &given.JobName, &given.WorkflowName)
	if err == nil && wf != nil {
		if flags := neededInputs(wf, given.Inputs); flags != "" {
			return usagef(cmd, "%s/%s needs more; add %s", given.JobName, given.WorkflowName, flags)
		}
	}
	if err == nil {
		err = attempt.CheckRun(given)
	}
	if err != nil {
		return runRefused(cmd, "adding the schedule", err)
	}

	now := time.Now()
	s.CreatedAt, s.ResumedAt, s.Next = now, now, t.Next(now)
	s.Identity = atTerminal.Identity
	if s.Args, err = json.Marshal(given); err != nil {
		return err
	}
	if err := engine.Database.Open(ctx); err != nil {
		return err
	}
	err = schedule.New(engine).Rows.Add(ctx, s)
	if errors.Is(err, store.ErrExists) {
		return fmt.Errorf("there is a schedule %q already; choose another name, or remove it with "+
			"'deepwork schedule rm'", s.Name)
	}
	if err != nil {
		return err
	}
	a.fields("schedule", s.Name, "cron", s.Cron, "zone", s.Zone)
	for next, i := s.Next, 0; i < 5; i++ {
		a.fields("due", next.Format(time.RFC3339))
		next = t.Next(next)
	}
	return a.whoFires(ctx, engine)
}

// whoFires says if no server starts what is due.
func (a *app) whoFires(ctx context.Context, engine *attempt.Engine) error {
	others, err := engine.Stores.Others(ctx)
	if err == nil && !others {
		fmt.Fprintln(a.err, "deepwork: note: no server of this project runs, so only a timer starts what is due: "+
			"'deepwork serve' or 'deepwork ui' is a server, 'deepwork schedule timer' prints a timer")
	}
	return err
}

const (
	dueEvery   = 2 * time.Second // the pause of run --due between looks
	shownDue   = 50              // by show
	listedDues = 1               // by list
)

func (a *app) scheduleListCommand() *cobra.Command {
	return a.onBoardStore(a.onProject("print it as JSON", &cobra.Command{
		Use:     "list",
		Short:   "List the schedules",
		Long:    "List the schedules, those that are due first, with what became of the last due time.",
		Example: "  deepwork schedule list",
		Args:    argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return a.withBoard(true, func(ctx context.Context, attempts *attempt.Engine) error {
				engine := schedule.New(attempts)
				states, err := engine.Rows.States(ctx)
				if err != nil {
					return err
				}
				all, cells := []*schedule.View{}, [][]string{}
				for i := range states {
					l, err := engine.View(ctx, &states[i], listedDues)
					if err != nil {
						return err
					}
					all = append(all, l)
					next, last := l.State, ""
					if l.Next != nil {
						next = *l.Next
					}
					if len(l.History) > 0 {
						last = l.History[0].Words()
					}
					cells = append(cells, []string{l.Name, next, last, l.Workflow, l.Cron, l.Zone})
				}
				switch {
				case a.json:
					return a.printJSON(all)
				case len(all) == 0:
					fmt.Fprintln(a.out, "There are no schedules; 'deepwork schedule add' adds one.")
					return nil
				}
				a.out.Table([]show.Column{{Title: "NAME"}, {Title: "NEXT"}, {Title: "LAST", State: true},
					{Title: "WORKFLOW", Least: 12}, {Title: "CRON"}, {Title: "ZONE"}}, cells)
				return a.whoFires(ctx, attempts)
			})
		},
	}))
}

func (a *app) scheduleShowCommand() *cobra.Command {
	cmd := a.onSchedule("show", "Show a schedule, and what became of its due times",
		func(ctx context.Context, e *schedule.Engine, s *store.ScheduleState) error {
			l, err := e.View(ctx, s, shownDue)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(l)
			}
			a.fields("schedule", l.Name, "state", l.State, "workflow", l.Workflow, "goal", l.Goal, "cron", l.Cron,
				"zone", l.Zone, "overlap", l.Overlap, "catch-up", l.CatchUp, "next", optional(l.Next))
			if l.State == "failing" {
				a.fields("paused", fmt.Sprintf("its last runs (%d) failed; 'deepwork schedule resume %s' continues it",
					s.PauseAfter, s.Name))
			}
			fmt.Fprintln(a.out)
			if len(l.History) == 0 {
				fmt.Fprintln(a.out, "None was due yet.")
				return nil
			}
			var cells [][]string
			for _, d := range l.History {
				run := ""
				if d.RunID != nil {
					run = board.Short(*d.RunID)
				}
				due := d.Due
				if d.Count > 1 {
					due = fmt.Sprintf("%s and %d more", d.Due, d.Count-1)
				}
				cells = append(cells, []string{due, d.Words(), run, optional(d.Reason)})
			}
			a.out.Table([]show.Column{{Title: "DUE"}, {Title: "STATE", State: true}, {Title: "RUN"},
				{Title: "REASON", Least: 20}}, cells)
			return nil
		})
	cmd.Flags().BoolVar(&a.json, "json", false, "print it as JSON")
	return cmd
}

func (a *app) scheduleRunCommand() *cobra.Command {
	var due, detach bool
	cmd := a.onBoardStore(a.onProject("print one event per line, as JSON", &cobra.Command{
		Use:   "run NAME | run --due",
		Short: "Start a run now, or all that is due",
		Long: `Start a run of a schedule now, and follow it; its due times stay as they are. With --due,
start what is due of all schedules, and wait until those runs have ended: a timer calls
it where no server runs. The exit code is then 0 if all of them are complete or nothing is
due, and 1 if a run stopped or could not be started.`,
		Example: `  deepwork schedule run weekly
  deepwork schedule run --due`,
		Args: argumentCount(0, 1, scheduleArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case due && len(args) > 0:
				return usagef(cmd, "--due is for all schedules; leave %q out", args[0])
			case due:
				return a.withBoard(false, a.runDue)
			case len(args) == 0:
				return usagef(cmd, "name a schedule, or add --due")
			}
			return a.withSchedule(args[0], func(ctx context.Context, e *schedule.Engine, s *store.ScheduleState) error {
				r, err := e.RunNow(ctx, &s.Schedule, atTerminal)
				if err != nil {
					return runRefused(cmd, "starting a run of "+s.Name, err)
				}
				return a.lead(ctx, e.Attempts, r, detach)
			})
		},
	}))
	cmd.Flags().BoolVar(&due, "due", false, "start what is due of all schedules")
	return onDetach(cmd, &detach)
}

// runDue starts what is due, also while it waits for those runs.
func (a *app) runDue(ctx context.Context, engine *attempt.Engine) error {
	var open []string
	stopped := false
	for {
		runs, err := schedule.New(engine).FireDue(ctx)
		for _, id := range runs {
			fmt.Fprintln(a.out, "started "+board.Short(id))
			err = errors.Join(err, a.inBackground(ctx, id))
		}
		open = append(open, runs...)
		open = slices.DeleteFunc(open, func(id string) bool {
			r, failed := getRun(ctx, engine, id, false)
			if failed == nil && r.Open {
				return false
			}
			if failed == nil {
				fmt.Fprintln(a.out, board.Short(id)+" "+r.State.Words())
				stopped = stopped || runExit(r) != nil
			}
			err = errors.Join(err, failed)
			return true
		})
		switch {
		case len(open) > 0:
			if wait.For(ctx, dueEvery) != nil {
				return ctx.Err()
			}
		case err != nil:
			return err
		case stopped:
			return &exitError{exitFailure}
		default:
			return nil
		}
	}
}

func (a *app) scheduleTimerCommand() *cobra.Command {
	kind := timer.Kinds[0]
	if runtime.GOOS == "darwin" {
		kind = timer.Kinds[1]
	}
	cmd := a.onProject("", &cobra.Command{
		Use:   "timer",
		Short: "Print a timer that starts what is due",
		Long: `Print a timer that calls 'deepwork schedule run --due' for this project every five
minutes: a systemd timer with its service, a launchd plist, or a line for cron. It is for
machines on which no server of the project runs. Nothing is installed.`,
		Example: `  deepwork schedule timer
  deepwork schedule timer --kind crontab`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(timer.Kinds, kind) {
				return usagef(cmd, "--kind is %q; expected %s", kind, choices(timer.Kinds))
			}
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			fmt.Fprint(a.rawOut, timer.Text(kind, timer.Command{
				Name: "deepwork-" + filepath.Base(state.Name(root)),
				Args: []string{self, "schedule", "run", "--due", "--path", root},
				Dir:  root,
				Path: os.Getenv("PATH"),
			}))
			return nil
		},
	})
	cmd.Flags().StringVar(&kind, "kind", kind, "of the timer: "+choices(timer.Kinds))
	return cmd
}
