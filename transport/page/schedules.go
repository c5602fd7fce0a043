package page

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/schedule"
	"deepwork/session/store"
)

const (
	maxSchedules = 100 // that the page lists: those that are due first
	maxDueTimes  = 50  // of a schedule, the newest
)

// A schedulesPage lists schedules, each with what became of its last due time.
type schedulesPage struct {
	Schedules []*schedule.View
	More      int // that are not listed
}

var scheduleTopics = []string{store.ScheduleChanged, store.AttemptChanged}

func (s *Site) schedules(ctx context.Context, who session.Caller, _ *http.Request) (*shown, error) {
	e := schedule.New(s.Board)
	states, err := e.Rows.States(ctx)
	if err != nil {
		return nil, board.Fault("listing schedules", err)
	}
	states = slices.DeleteFunc(states, func(one store.ScheduleState) bool { return !one.VisibleTo(who) })
	p := &schedulesPage{More: max(len(states)-maxSchedules, 0)}
	for i := range len(states) - p.More {
		v, err := e.View(ctx, &states[i], 1)
		if err != nil {
			return nil, board.Fault("reading a schedule", err)
		}
		p.Schedules = append(p.Schedules, v)
	}
	return &shown{view: "schedules", title: "Schedules", data: p, topics: scheduleTopics}, nil
}

func (s *Site) schedule(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	e, of, err := s.scheduleOf(ctx, who, r)
	if err != nil {
		return nil, err
	}
	v, err := e.View(ctx, of, maxDueTimes)
	return &shown{view: "schedule", title: "Schedule " + of.Name, data: v, topics: scheduleTopics},
		board.Fault("reading a schedule", err)
}

// scheduleOf returns the schedule that a request is about.
func (s *Site) scheduleOf(
	ctx context.Context, who session.Caller, r *http.Request,
) (*schedule.Engine, *store.ScheduleState, error) {
	e, name := schedule.New(s.Board), r.PathValue("name")
	of, err := e.Named(ctx, who, name)
	if errors.Is(err, store.ErrNotFound) {
		err = &refusal{http.StatusNotFound, "There is no schedule " + name + ". It may have been removed."}
	}
	return e, of, board.Fault("reading a schedule", err)
}

// onSchedule lets a caller who may start agents change the schedule that a form is about.
func (s *Site) onSchedule(change func(*schedule.Engine, context.Context, *store.Schedule) error) action {
	return func(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
		if err := s.Board.MayStart(who); err != nil {
			return "", err
		}
		e, of, err := s.scheduleOf(ctx, who, r)
		if err != nil {
			return "", err
		}
		return back(r, "/schedules/"+of.Name), board.Fault("changing a schedule", change(e, ctx, &of.Schedule))
	}
}

// runSchedule starts a run of a schedule now.
func (s *Site) runSchedule(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	e, of, err := s.scheduleOf(ctx, who, r)
	if err != nil {
		return "", err
	}
	run, err := e.RunNow(ctx, &of.Schedule, who)
	if err != nil {
		return "", err
	}
	return "/attempts/" + run.RunID, nil
}
