package store

import (
	"context"
	"encoding/json"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
)

// ScheduleWork is the kind of work that wakes a schedule: its key is the schedule's id, and it is due with it. It
// records nothing: see Schedules.Fire.
const ScheduleWork = "schedule"

// A Schedule starts runs of a workflow at its due times.
type Schedule struct {
	ID   string
	Name string // unique in the project
	Cron string
	Zone string          // IANA name
	Args json.RawMessage // of the tool run_workflow
	// What happens at a due time while a run of the schedule has not ended, and to due times that were missed: values
	// of package schedule.
	Overlap       string
	CatchUp       string
	CatchUpWithin time.Duration // missed due times that are older are skipped
	PauseAfter    int           // failed runs in a row, at most 100; 0 means never
	Paused        bool          // by a person, or since it was failing
	ResumedAt     time.Time     // earlier failures do not count
	Next          time.Time     // the first due time without a record
	Refusals      json.RawMessage
	Identity      string // of the caller that made it
	CallerGroup   string
	CreatedAt     time.Time
}

// The outcomes of due times.
const (
	DueStarted = "started"
	DueQueued  = "queued" // starts when the open run has ended
	DueSkipped = "skipped"
)

// A DueTime is the record of a due time, or of several in a row that were skipped.
type DueTime struct {
	Schedule string // id
	DueAt    time.Time
	Until    *time.Time // the last one of several
	Count    int
	Outcome  string
	Reason   string // of a skip, a sentence
	RunID    *string
}

// A FiredTime is a DueTime with the situation of its run, which is empty if it has none.
type FiredTime struct {
	DueTime
	task.Situation
}

// Refusals are the reasons why machines could not start the run of a due time.
type Refusals struct {
	DueAt    time.Time         `json:"due_at"`
	Since    time.Time         `json:"since"`
	Machines map[string]string `json:"machines"` // reasons, by the machine's name
}

// A ScheduleState is what decides about a schedule: all of one state of the database.
type ScheduleState struct {
	Schedule
	Now     time.Time
	OpenRun string     // the run that is still open, or ""
	Queued  *time.Time // the due time that waits for the open run
	Failing bool       // its last PauseAfter runs have failed
}

// VisibleTo reports whether a caller sees the schedule: their own, their group's, or, as the user, all.
func (s *Schedule) VisibleTo(who session.Caller) bool {
	return who.Owner || s.Identity == who.Identity || s.CallerGroup != "" && s.CallerGroup == who.Group
}

// A Decision is what becomes of the first due times of a schedule.
type Decision struct {
	DueTime           // DueAt is zero if there is nothing to do
	Next    time.Time // the schedule's next due time after that
}

// A PlannedRun is the run of a due time, or the reason why it is skipped.
type PlannedRun struct {
	DueAt   time.Time
	Skip    string
	Task    task.NewTask
	Attempt task.Attempt
	First   task.Execution
}

// Schedules stores the schedules of a project. Methods return ErrNotFound for a schedule that does not exist, and the
// errors of a Board.
type Schedules interface {
	// Add adds a schedule, with a row of work that is due when it is; ErrExists if its name is taken.
	Add(ctx context.Context, s *Schedule) error
	// States returns all schedules, those that are due first.
	States(ctx context.Context) ([]ScheduleState, error)
	// History returns the newest records of a schedule, newest first.
	History(ctx context.Context, id string, limit int) ([]FiredTime, error)
	// Remove removes a schedule with its records. Its runs stay.
	Remove(ctx context.Context, id string) error
	// Pause makes a schedule start nothing until Resume; earlier failures do not count any more.
	Pause(ctx context.Context, id string) error
	// Resume makes a schedule that is paused or failing go on. decide says what became of the due times meanwhile;
	// earlier failures do not count any more.
	Resume(ctx context.Context, id string, decide func(*ScheduleState) Decision) error
	// Fire does what decide says about the first due times of a schedule, in one transaction: the schedule's next due
	// time, the record, and the run. A schedule that is failing is paused. decide must be pure; now is the database's
	// clock if it is zero. A run starts only if the plan is for its due time; otherwise nothing is written, and the
	// decision has no RunID.
	Fire(ctx context.Context, id string, now time.Time, decide func(*ScheduleState) Decision,
		plan *PlannedRun) (Decision, error)
	// Refuse records why a machine cannot start the run of a due time now, and returns all such reasons.
	Refuse(ctx context.Context, id string, dueAt, now time.Time, machine, reason string) (*Refusals, error)
}
