package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/show"
	"deepwork/session/store"
	"deepwork/session/work"

	times "deepwork/catalog/schedule"
)

const (
	retryAfter  = 5 * time.Second // after this machine could not start a run
	giveUpAfter = 5 * time.Minute // after no machine could
	atOnce      = 8               // schedules that one process fires
	queuePoll   = 30 * time.Second
)

// An Engine fires the schedules of a project. Its methods may be called from any goroutine, and by several processes.
type Engine struct {
	Attempts *attempt.Engine
	Rows     store.Schedules
	// Now is the clock by which times are due; nil means that of the database, which is the same for all machines.
	Now func() time.Time
}

// New returns an engine that starts runs on a board.
func New(attempts *attempt.Engine) *Engine {
	return &Engine{Attempts: attempts, Rows: attempts.Database.Schedules()}
}

// Serve makes the schedules wake this process when they are due, until the loop leaves store.ScheduleWork.
func (e *Engine) Serve(loop *work.Loop) {
	loop.Register(work.Kind{
		Name:  store.ScheduleWork,
		Limit: atOnce,
		Do: func(ctx context.Context, t *work.Task) (store.Outcome, error) {
			_, wait, err := e.Fire(ctx, t.Key)
			if _, refused := errors.AsType[*session.Error](err); refused {
				return store.Outcome{Again: retryAfter, Yield: true}, nil
			}
			if errors.Is(err, store.ErrNotFound) { // it was removed
				err = nil
			}
			return store.Outcome{Again: wait}, err
		},
	})
}

// Fire does what is due of a schedule. It returns the ids of the runs that it has started, and how long to wait until
// something may be due again: 0 means until the schedule is resumed. A *session.Error says why this machine cannot
// start a run now that another one may start, or later this one.
func (e *Engine) Fire(ctx context.Context, id string) (runs []string, wait time.Duration, err error) {
	var state store.ScheduleState
	var plan *store.PlannedRun
	for {
		var unreadable error
		now := time.Time{}
		if e.Now != nil {
			now = e.Now()
		}
		d, err := e.Rows.Fire(ctx, id, now, func(s *store.ScheduleState) store.Decision {
			state = *s
			t, err := times.Parse(s.Cron, s.Zone)
			if unreadable = err; err != nil {
				return store.Decision{Next: s.Next}
			}
			return Decide(s, t)
		}, plan)
		if err = cmp.Or(err, unreadable); err != nil {
			return runs, 0, err
		}

		switch {
		case d.DueAt.IsZero():
			return runs, waitFor(&state, d.Next), nil
		case d.Outcome != store.DueStarted:
			e.Attempts.Log.InfoContext(ctx, "due time without a run", "schedule", state.Name, "due", d.DueAt, "count",
				d.Count, "outcome", d.Outcome, "reason", d.Reason)
			plan = nil
		case d.RunID != nil:
			plan.Attempt.ID = *d.RunID
			workflow := board.OrEmpty(plan.Task.JobName) + "/" + board.OrEmpty(plan.Task.WorkflowName)
			e.Attempts.RunMade(ctx, &plan.Attempt, workflow, callerOf(&state.Schedule))
			runs, plan = append(runs, *d.RunID), nil
		default:
			if plan, err = e.prepare(ctx, &state, d.DueAt); err != nil {
				return runs, 0, err
			}
		}
	}
}

func waitFor(s *store.ScheduleState, next time.Time) time.Duration {
	wait := max(next.Sub(s.Now), time.Millisecond)
	switch {
	case s.Paused || s.Failing:
		return 0
	case s.Queued != nil:
		return min(wait, queuePoll) // the end of the run wakes it, unless this process is just looking
	}
	return wait
}

// callerOf returns the caller that made a schedule, for whom its runs are started.
func callerOf(s *store.Schedule) session.Caller {
	if s.Identity == session.LocalIdentity {
		return session.LocalCaller(session.ChannelTerminal)
	}
	return session.Caller{Identity: s.Identity, Group: s.CallerGroup, Rights: session.RightAgents}
}

// prepare plans the run of a due time, or the skip if it cannot be started. A *session.Error says that this machine
// cannot start it.
func (e *Engine) prepare(ctx context.Context, s *store.ScheduleState, due time.Time) (*store.PlannedRun, error) {
	plan, err := e.plan(ctx, s, due)
	refused, isRefusal := errors.AsType[*session.Error](err)
	switch {
	case err == nil:
		plan.DueAt = due
		return plan, nil
	case !isRefusal || board.Passing(err):
		return nil, err
	}

	reason := refused.For(show.People)
	if refused.Code == codes.BudgetReached {
		return &store.PlannedRun{DueAt: due, Skip: reason}, nil
	}
	machine := e.Attempts.Here.MachineName
	if machine == "" {
		machine, _ = os.Hostname()
	}
	all := refusalsOf(s)
	if !all.DueAt.Equal(due) || all.Machines[machine] != reason {
		if all, err = e.Rows.Refuse(ctx, s.ID, due, s.Now, machine, reason); err != nil {
			return nil, err
		}
		e.Attempts.Log.InfoContext(ctx, "this machine cannot start the run of a schedule now", "schedule", s.Name,
			"due", due, "error", reason)
	}
	if s.Now.Sub(all.Since) < giveUpAfter {
		return nil, refused
	}
	return &store.PlannedRun{DueAt: due, Skip: reasons(all)}, nil
}

// reasons says why no machine could start the run of a due time.
func reasons(r *store.Refusals) string {
	text := fmt.Sprintf("Nothing could start it for %.0f minutes.", giveUpAfter.Minutes())
	for _, machine := range slices.Sorted(maps.Keys(r.Machines)) {
		text += fmt.Sprintf(" %s: %s", machine, r.Machines[machine])
	}
	return text
}

func (e *Engine) plan(ctx context.Context, s *store.ScheduleState, due time.Time) (*store.PlannedRun, error) {
	args, err := argsFor(&s.Schedule, due)
	if err != nil {
		return nil, err
	}
	return e.Attempts.PlanRun(ctx, callerOf(&s.Schedule), *args)
}

// argsFor returns the arguments of the run of a due time: {date} and {due} in the goal are its date and its time, in
// the zone of the schedule.
func argsFor(s *store.Schedule, due time.Time) (*attempt.RunWorkflowArgs, error) {
	args, zone, err := argsOf(s)
	if err != nil {
		return nil, err
	}
	args.Goal = strings.NewReplacer("{date}", due.In(zone).Format(time.DateOnly), "{due}",
		due.In(zone).Format(time.RFC3339)).Replace(args.Goal)
	return args, nil
}

// argsOf returns the arguments of runs as they were given, and the zone.
func argsOf(s *store.Schedule) (*attempt.RunWorkflowArgs, *time.Location, error) {
	args := &attempt.RunWorkflowArgs{}
	if err := json.Unmarshal(s.Args, args); err != nil {
		return nil, nil, fmt.Errorf("the arguments of the schedule %s cannot be read: %w", s.Name, err)
	}
	zone, err := time.LoadLocation(s.Zone)
	return args, zone, err
}

// RunNow starts a run of a schedule beside its due times.
func (e *Engine) RunNow(ctx context.Context, s *store.Schedule, who session.Caller) (*board.RunReply, error) {
	args, err := argsFor(s, time.Now())
	if err != nil {
		return nil, err
	}
	return e.Attempts.RunWorkflow(ctx, who, *args)
}

// Resume makes a schedule go on: its next due time is after now.
func (e *Engine) Resume(ctx context.Context, s *store.Schedule) error {
	t, err := times.Parse(s.Cron, s.Zone)
	if err != nil {
		return err
	}
	return e.Rows.Resume(ctx, s.ID, func(now *store.ScheduleState) store.Decision { return Passed(now, t) })
}

// Pause makes a schedule start nothing until it is resumed.
func (e *Engine) Pause(ctx context.Context, s *store.Schedule) error { return e.Rows.Pause(ctx, s.ID) }

// FireDue fires all schedules of which something is due, and returns the ids of the runs that it has started.
func (e *Engine) FireDue(ctx context.Context) (runs []string, err error) {
	states, err := e.Rows.States(ctx)
	for _, s := range states {
		if e.Now != nil {
			s.Now = e.Now()
		}
		if s.Next.After(s.Now) && (s.Queued == nil || s.OpenRun != "") {
			continue
		}
		started, _, failed := e.Fire(ctx, s.ID)
		runs = append(runs, started...)
		if failed != nil && !errors.Is(failed, store.ErrNotFound) {
			err = errors.Join(err, fmt.Errorf("firing the schedule %s: %w", s.Name, failed))
		}
	}
	return runs, err
}
