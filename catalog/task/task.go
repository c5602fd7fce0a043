// Package task holds the types of the task board and the rules that all its stores follow:
// projects, their repositories, tasks, and attempts (seed 004; DESIGN "Task board"). The store
// itself is store.Board, in session/store.
package task

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/xslices"
	"deepwork/catalog/cursor"
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

// Priority is how urgent a task is.
type Priority string

// The values of Priority.
const (
	Low    Priority = "low"
	Normal Priority = "normal"
	High   Priority = "high"
)

// Check returns ErrInvalid if p is not a value of Priority.
func (p Priority) Check() error {
	if p == Low || p == Normal || p == High {
		return nil
	}
	return fmt.Errorf("%w: priority %q is not low, normal or high", ErrInvalid, Clip(string(p)))
}

const (
	// MaxLabels is the maximum number of labels of a task, and MaxLabel the maximum length of each in
	// characters.
	MaxLabels = 10
	MaxLabel  = 40
)

// A Filter selects tasks of a project. Zero fields select all.
type Filter struct {
	Status   Status
	Priority Priority
	Labels   []string // the task has all of them
	Text     string   // in the title, ignoring case
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
	Inputs       json.RawMessage // values of the workflow's inputs, an object; nil means none given
	Lead         string          // AgentLeads or ServerLeads; the latter needs a workflow
	Labels       []string        // single words, sorted
	Priority     Priority
	DependsOn    []string // ids of tasks of its project that must be done before it starts, sorted
	CallerGroup  string   // whose members see and change it; "" means none
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// A Summary is a task with a summary of its attempts (seed 004, "list_tasks provides attempt summary"). The
// latest attempt is the one created last or, if equal to the microsecond, the one with the smaller id.
type Summary struct {
	Task
	Situation             // of the latest attempt; State is "" without one
	LatestAttemptID       *string
	LatestWorkspaceBranch *string
	LatestSessionID       *string // of the latest attempt
	LatestSessionExecutor *string
	HasInProgressAttempt  bool     // an attempt is waiting, starting or running
	LastAttemptFailed     bool     // the latest attempt failed or was interrupted
	BlockedBy             []string // dependencies that are not done
}

// A ProjectSpec is a project in the config, with a unique name and repositories with unique names. One of the
// projects may be the root.
type ProjectSpec struct {
	Name  string
	Root  bool
	Repos []RepoSpec
}

// A RepoSpec is a repository in the config.
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
	Labels                []string
	Priority              Priority // "" means Normal
	DependsOn             []string
}

// A TaskChange sets the fields that are not nil. An empty Description, JobName, WorkflowName, Inputs, Labels
// or DependsOn clears that field.
type TaskChange struct {
	Title, Description    *string
	Status                *Status
	JobName, WorkflowName *string
	Inputs                json.RawMessage
	Labels                []string
	Priority              *Priority
	DependsOn             []string
	Group                 *string // of callers, to which it is given; "" gives it back to the owner
}

// Apply applies the change to t, except for DependsOn and Group, and checks the result.
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

	if c.Labels != nil {
		t.Labels = c.Labels
	}

	if c.Priority != nil {
		t.Priority = *c.Priority
	}

	if c.Inputs != nil {
		t.Inputs = c.Inputs
	}
	if len(t.Inputs) == 0 {
		t.Inputs = nil
	}
	return t.Check()
}

// Check returns ErrInvalid if the title is blank, the status or the priority is unknown, or only one of job and
// workflow is set.
func (t *Task) Check() error {
	switch {
	case strings.TrimSpace(t.Title) == "":
		return fmt.Errorf("%w: the title is blank", ErrInvalid)
	case t.JobName != nil && t.WorkflowName == nil:
		return fmt.Errorf("%w: job_name is %q, and workflow_name is missing: a task names both or neither", ErrInvalid,
			Clip(*t.JobName))
	case t.Lead == ServerLeads && t.WorkflowName == nil:
		return fmt.Errorf("%w: lead is %q, and the task names no workflow: a server leads agents through one",
			ErrInvalid, t.Lead)
	case t.Lead != "" && t.Lead != AgentLeads && t.Lead != ServerLeads:
		return fmt.Errorf("%w: lead %q is not one of %s, %s", ErrInvalid, Clip(t.Lead), AgentLeads, ServerLeads)
	case t.JobName == nil && t.WorkflowName != nil:
		return fmt.Errorf("%w: workflow_name is %q, and job_name is missing: a task names both or neither", ErrInvalid,
			Clip(*t.WorkflowName))
	}

	return cmp.Or(t.Status.Check(), t.Priority.Check())
}

// NonEmpty returns s, or nil if it is empty.
func NonEmpty(s *string) *string {
	if s == nil || *s == "" {
		return nil
	}
	return s
}

// A Request identifies a call, so that a repetition gets the same result. RequestID is scoped to Identity and
// Tool. It is known for 30 days, and the newest 100 of a board for longer. The zero value is a call without
// an id.
type Request struct{ Identity, Tool, RequestID, ArgsDigest string }

// RequestsKept is how long a request_id is known, and NewestRequests is how many are known regardless of age:
// if a clock is set forward between a call and its repetition, the call must not be executed twice.
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
	ErrStopping   = errors.New("it is being stopped")
	ErrDeleting   = errors.New("the task is being deleted")
	ErrDeleted    = errors.New("was deleted since")
	ErrReused     = errors.New("the request_id was used with other arguments")
	ErrRepeated   = errors.New("the call with this request_id was carried out before")
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

// MaxDependencies is how many tasks a task can depend on.
const MaxDependencies = 50

// A Blocker is an unfinished task on which another one depends. Title and Status are empty if the caller does
// not see it.
type Blocker struct {
	ID, Title string
	Status    Status
}

// A BlockedError says that a task cannot start because it depends on others that are not done. It is an
// ErrBlocked.
type BlockedError struct {
	TaskID string
	By     []Blocker
}

func (e *BlockedError) Error() string {
	return e.In(func(id string) string { return id })
}

// In returns the text of the error, with ids worded by word.
func (e *BlockedError) In(word func(id string) string) string {
	all := make([]string, len(e.By))
	for i, b := range e.By {
		all[i] = word(b.ID)
		if b.Title != "" {
			all[i] += fmt.Sprintf(" (%q, %s)", Clip(b.Title), b.Status)
		}
	}
	return fmt.Sprintf("task %s %v: %s", word(e.TaskID), ErrBlocked, strings.Join(all, ", "))
}

func (e *BlockedError) Unwrap() error { return ErrBlocked }

// A CycleError says that tasks would depend on each other. It is an ErrCycle.
type CycleError struct{ Way []string } // each depends on the next

func (e *CycleError) Error() string { return e.In(func(id string) string { return id }) }

// In returns the text of the error, with ids worded by word.
func (e *CycleError) In(word func(id string) string) string {
	return ErrCycle.Error() + ": " + strings.Join(xslices.Map(e.Way, word), " depends on ")
}

func (e *CycleError) Unwrap() error { return ErrCycle }

// Cyclic returns a task that depends on itself through others, or "".
func Cyclic(dependsOn map[string][]string) string {
	const onWay, done = 1, 2
	state := make(map[string]int)
	var walk func(id string) string
	walk = func(id string) string {
		if state[id] == onWay {
			return id
		}
		if state[id] == done {
			return ""
		}
		state[id] = onWay
		for _, next := range dependsOn[id] {
			if found := walk(next); found != "" {
				return found
			}
		}
		state[id] = done
		return ""
	}
	for _, id := range slices.Sorted(maps.Keys(dependsOn)) {
		if found := walk(id); found != "" {
			return found
		}
	}

	return ""
}

// Cycle returns a path from a task along its dependencies back to itself, which begins and ends with it, or
// nil. It visits each task once.
func Cycle(id string, dependsOn map[string][]string) []string {
	seen := make(map[string]bool)
	var walk func(way []string) []string
	walk = func(way []string) []string {
		for _, next := range dependsOn[way[len(way)-1]] {
			if next == id {
				return append(way, id)
			}
			if seen[next] {
				continue
			}
			seen[next] = true
			if found := walk(append(way, next)); found != nil {
				return found
			}
		}

		return nil
	}
	return walk([]string{id})
}

// timeLayout is RFC 3339 in UTC, always with six decimals, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// FormatTime writes a time so that times sort as text.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime reads what FormatTime wrote.
func ParseTime(s string) (time.Time, error) { return time.Parse(timeLayout, s) }

// maxPage is the maximum number of rows of a page, whatever is requested.
const maxPage = 100_000

// A Page is a part of a list, newest first.
type Page struct {
	Limit  int    // from 1 to 100,000; other values are replaced by the nearest
	Cursor string // from the previous page; "" for the first
}

// A Listing is one page being read: at most Limit rows after the row with CreatedAt and ID, in a list ordered
// by time of creation, newest first, then by id. Adding or removing other rows does not move that position.
type Listing struct {
	Limit         int
	CreatedAt, ID string

	list cursor.List
}

// Listing decodes the cursor of a page of the named list with its filters. It refuses a cursor of another
// list with ErrCursor, since that would silently omit matching rows.
func (p Page) Listing(list ...string) (Listing, error) {
	sum := sha256.Sum256([]byte(strings.Join(list, "\x00")))
	l := Listing{
		Limit:     min(max(1, p.Limit), maxPage),
		CreatedAt: "9999-12-31T23:59:59.999999Z",
		list:      cursor.List(fmt.Sprintf("1 %x ", sum[:6])),
	}
	if p.Cursor == "" {
		return l, nil
	}
	position, ok := l.list.Decode(p.Cursor)
	l.CreatedAt, l.ID, _ = strings.Cut(position, " ")
	at, _ := ParseTime(l.CreatedAt)
	id, _ := uuid.Parse(l.ID)
	if !ok || FormatTime(at)+" "+id.String() != position { // also if one of them cannot be parsed
		return l,
			fmt.Errorf("%w: %q is malformed or of another list; give the cursor that this list's last page came "+
				"with, with the same arguments, or none to start from the beginning", ErrCursor, Clip(p.Cursor))
	}
	return l, nil
}

// Cut cuts a list at its limit, given one row more than that. next is the cursor for the rest, or "" if
// nothing was cut off.
func Cut[T any](l Listing, rows []T, at func(row T) (createdAt time.Time, id string)) (page []T, next string) {
	if len(rows) <= l.Limit {
		return rows, ""
	}
	createdAt, id := at(rows[l.Limit-1])
	return rows[:l.Limit], l.list.Encode(FormatTime(createdAt) + " " + id)
}
