// Package task is the task board: projects, their repositories, tasks, and the
// rows of what is attempted, in an embedded SQLite database that several
// servers share (seed 004; DESIGN "Task board").
//
// What a Board writes is durable when the method returns: a process that is
// killed, or a machine that loses power, loses nothing that was acknowledged.
package task

import (
	"errors"
	"slices"
	"time"
)

// Status is a task's.
type Status string

// The values of Status.
const (
	Todo       Status = "todo"
	InProgress Status = "inprogress"
	InReview   Status = "inreview"
	Done       Status = "done"
	Cancelled  Status = "cancelled"
)

// Statuses are all of them, in the order of a task's life.
var Statuses = []Status{Todo, InProgress, InReview, Done, Cancelled}

func (s Status) valid() bool { return slices.Contains(Statuses, s) }

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
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// A Summary is a task with what is attempted of it (seed 004, "list_tasks
// provides attempt summary"). The latest attempt is the one created last; of two
// of one microsecond, the one with the smaller id.
type Summary struct {
	Task
	LatestAttemptID       *string
	LatestWorkspaceBranch *string
	LatestSessionID       *string // of the latest attempt
	LatestSessionExecutor *string
	HasInProgressAttempt  bool // one is waiting, starting or running
	LastAttemptFailed     bool // the latest one failed or was interrupted
}

// A ProjectSpec is a project as the config has it.
type ProjectSpec struct {
	Name  string
	Root  bool
	Repos []RepoSpec
}

// A RepoSpec is a repository as the config has it.
type RepoSpec struct {
	Name string
	Path string // absolute
}

// A Page is a part of a list, newest first.
type Page struct {
	Limit  int    // from 1 to 100,000; what is beyond is taken for the nearest
	Cursor string // as the page before gave it; "" for the first
}

// Errors that callers tell apart; each is wrapped with what it is about.
var (
	ErrNotFound = errors.New("not found")
	ErrCursor   = errors.New("not a cursor of this list")
	ErrRunning  = errors.New("an attempt of it is running")
	ErrDeleting = errors.New("the task is being deleted")
	ErrDeleted  = errors.New("was deleted since")
	ErrReused   = errors.New("the request_id was used with other arguments")
	ErrFull     = errors.New("the disk is full, or the board cannot be written")
	ErrInvalid  = errors.New("not valid")
	ErrEnded    = errors.New("the execution has ended")
	ErrDamaged  = errors.New("the board's file is damaged")
	ErrNewer    = errors.New("the board's file is of a newer version")
	ErrClosed   = errors.New("the board is closed")
)
