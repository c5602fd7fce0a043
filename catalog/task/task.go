// Package task holds the types of the task board and the rules that all its stores follow:
// projects, their repositories, tasks, and attempts (seed 004; DESIGN "Task board"). The store
// itself is store.Board, in session/store.
package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
)

// Status is the status of a task.
type Status string

// The values of Status.
const (
	Todo       Status = "todo"
	InProgress Status = "inprogress"
	InReview   Status = "inreview"
	Done       Status = "done"
	Cancelled  Status = "cancelled"
)

// Statuses are all values of Status, in the order of a task's life.
var Statuses = []Status{Todo, InProgress, InReview, Done, Cancelled}

// Check returns ErrInvalid if s is not one of Statuses.
func (s Status) Check() error {
	if slices.Contains(Statuses, s) {
		return nil
	}
	return fmt.Errorf("%w: status %q is not one of %v", ErrInvalid, Clip(string(s)), Statuses)
}

// A Project groups repositories and tasks. The project root is one.
type Project struct {
	ID        string
	Name      string
	Root      bool
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Repo is a git repository of a project.
type Repo struct {
	ID        string
	ProjectID string
	Name      string
	Path      string // absolute
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Task is a piece of work.
type Task struct {
	ID           string
	ProjectID    string
	Title        string
	Description  *string
	Status       Status
	JobName      *string // the workflow that its attempts run; both or neither
	WorkflowName *string
	Inputs       json.RawMessage // values of the workflow's inputs, an object; nil means none were given
	Lead         string          // AgentLeads or ServerLeads; the latter needs a workflow
	DependsOn    []string        // ids of tasks of its project that are to be done before it starts, sorted
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// A Summary is a task with a summary of its attempts (seed 004, "list_tasks provides attempt
// summary"). The latest attempt is the one created last; if equal to the microsecond, the one with
// the smaller id.
type Summary struct {
	Task
	Situation             // of the latest attempt; State is "" if there is none
	LatestAttemptID       *string
	LatestWorkspaceBranch *string
	LatestSessionID       *string // of the latest attempt
	LatestSessionExecutor *string
	HasInProgressAttempt  bool     // one is waiting, starting or running
	LastAttemptFailed     bool     // the latest one failed or was interrupted
	BlockedBy             []string // those of DependsOn that are not done
}

// A ProjectSpec is a project as in the config: with a unique name and repos with unique names. One
// of them may be the root.
type ProjectSpec struct {
	Name  string
	Root  bool
	Repos []RepoSpec
}

// A RepoSpec is a repository as in the config.
type RepoSpec struct {
	Name string
	Path string // absolute
}

// A NewTask is a task to be created, with status todo. An empty Description, JobName or
// WorkflowName means none.
type NewTask struct {
	ProjectID, Title      string
	Description           *string
	JobName, WorkflowName *string
	Inputs                json.RawMessage
	Lead                  string // "" means AgentLeads
	DependsOn             []string
}

// A TaskChange sets the fields that are not nil; an empty Description, JobName,
// WorkflowName, Inputs or DependsOn clears it.
type TaskChange struct {
	Title, Description    *string
	Status                *Status
	JobName, WorkflowName *string
	Inputs                json.RawMessage
	DependsOn             []string
}

// Apply applies the change to t, except for DependsOn, and checks the result.
func (c TaskChange) Apply(t *Task) error {
	if c.Title != nil {
		t.Title = *c.Title
	}
	if c.Status != nil {
		t.Status = *c.Status
	}
	for _, f := range []struct{ to, from **string }{
		{&t.Description, &c.Description}, {&t.JobName, &c.JobName}, {&t.WorkflowName, &c.WorkflowName},
	} {
		if *f.from != nil {
			*f.to = NonEmpty(*f.from)
		}
	}
	if c.Inputs != nil {
		t.Inputs = c.Inputs
	}
	if len(t.Inputs) == 0 {
		t.Inputs = nil
	}
	return t.Check()
}

// Check returns ErrInvalid if the title is blank, the status is unknown, or only one of job and
// workflow is set.
func (t *Task) Check() error {
	switch {
	case strings.TrimSpace(t.Title) == "":
		return fmt.Errorf("%w: the title is blank", ErrInvalid)
	case t.JobName != nil && t.WorkflowName == nil:
		return fmt.Errorf("%w: job_name is %q, and workflow_name is missing: a task names both or neither", ErrInvalid, Clip(*t.JobName))
	case t.Lead == ServerLeads && t.WorkflowName == nil:
		return fmt.Errorf("%w: lead is %q, and the task names no workflow: a server leads agents through one", ErrInvalid, t.Lead)
	case t.Lead != "" && t.Lead != AgentLeads && t.Lead != ServerLeads:
		return fmt.Errorf("%w: lead %q is not one of %s, %s", ErrInvalid, Clip(t.Lead), AgentLeads, ServerLeads)
	case t.JobName == nil && t.WorkflowName != nil:
		return fmt.Errorf("%w: workflow_name is %q, and job_name is missing: a task names both or neither", ErrInvalid, Clip(*t.WorkflowName))
	}
	return t.Status.Check()
}

// NonEmpty returns s, or nil if it is empty.
func NonEmpty(s *string) *string {
	if s == nil || *s == "" {
		return nil
	}
	return s
}

// A Request identifies a call, so that its repetition gives the same result: RequestID is scoped to
// Identity and Tool, and is known for 30 days; the newest 100 of a board for longer. The zero value
// is a call without an id.
type Request struct{ Identity, Tool, RequestID, ArgsDigest string }

// RequestsKept is how long a request_id is known, and NewestRequests how many are known regardless
// of age: if a clock is set forward between a call and its repetition, the call must not be
// executed twice.
const (
	RequestsKept   = 30 * 24 * time.Hour
	NewestRequests = 100
)

// Totals counts the contents of a board.
type Totals struct {
	Projects, Tasks, Attempts int
	Open                      int // executions that have not ended
}

// Errors that callers distinguish; each is wrapped with its subject.
var (
	ErrNotFound   = errors.New("not found")
	ErrNotReady   = errors.New("is not one that servers start now")
	ErrBlocked    = errors.New("depends on tasks that are not done")
	ErrCycle      = errors.New("the tasks would depend on each other")
	ErrDependency = errors.New("no task that it can depend on")
	ErrCursor     = errors.New("not a cursor of this list")
	ErrRunning    = errors.New("an attempt of it is running")
	ErrDeleting   = errors.New("the task is being deleted")
	ErrDeleted    = errors.New("was deleted since")
	ErrReused     = errors.New("the request_id was used with other arguments")
	ErrFull       = errors.New("the disk is full, or the board cannot be written")
	ErrInvalid    = errors.New("not valid")
	ErrEnded      = errors.New("the execution has ended")
	ErrDamaged    = errors.New("the file of the database is damaged")
	ErrVersion    = errors.New("the schema of the database is of another version")
	ErrClosed     = errors.New("the board is closed")
)

// Clip shortens a value for a message.
func Clip(s string) string { return jsontext.Clip(s, 81) }

// Missing returns ErrNotFound for something of this kind and id.
func Missing(what, id string) error { return fmt.Errorf("%s %q: %w", what, Clip(id), ErrNotFound) }
