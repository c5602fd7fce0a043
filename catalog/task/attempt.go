package task

import (
	"slices"
	"time"
)

// AttemptState is where an attempt, or one execution of it, is.
type AttemptState string

// The values of AttemptState.
const (
	Waiting     AttemptState = "waiting" // for a slot
	Starting    AttemptState = "starting"
	Running     AttemptState = "running"
	Completed   AttemptState = "completed"
	Failed      AttemptState = "failed"
	Stopped     AttemptState = "stopped"
	Interrupted AttemptState = "interrupted" // cut short, with a server or otherwise
)

// Open reports whether it has not ended.
func (s AttemptState) Open() bool { return s == Waiting || s == Starting || s == Running }

// Ended reports whether it is one of the ways to end.
func (s AttemptState) Ended() bool {
	return s == Completed || s == Failed || s == Stopped || s == Interrupted
}

// An Attempt is one try at a task, in a workspace of its own. Its state is that
// of its newest execution.
type Attempt struct {
	ID                string
	TaskID            string
	Executor          string
	Variant           *string
	Prompt            *string // what is added to the task's title and description
	Branch            string
	Workspace         string // the folder the agent works in, absolute
	State             AttemptState
	Error             *string // why its last execution failed, where that is known
	WorkflowSessionID *string
	WorkflowStatus    *string
	WorkflowStep      *string
	Repos             []AttemptRepo
	LatestSessionID   *string
	LatestExecutor    *string // of that session
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// Made reports whether its worktrees were made.
func (a *Attempt) Made() bool {
	return !slices.ContainsFunc(a.Repos, func(r AttemptRepo) bool { return r.BaseCommit == nil })
}

// An AttemptRepo is a worktree of an attempt.
type AttemptRepo struct {
	RepoID, RepoName, RepoPath string
	TargetBranch               string
	BaseCommit                 *string // nil until the worktree is made
	Worktree                   string  // absolute
}

// WorkflowProgress is where the workflow in an attempt's workspace is. An empty field
// is unknown.
type WorkflowProgress struct{ SessionID, Status, Step string }

// AttemptDetails are an attempt with its newest execution and its newest session, as they
// were at one moment; Session is nil while no process of it was started. Open
// and Ahead are set for one whose execution waits, and 0 for others: how many
// executions are starting or running on the whole board, and how many wait for a
// slot before it.
type AttemptDetails struct {
	Attempt   *Attempt
	Execution *Execution
	Session   *Session
	Open      int
	Ahead     int
}

// An AttemptList is a part of a task's attempts and the task itself, as they were
// at one moment.
type AttemptList struct {
	Task     *Summary
	Attempts []Attempt // newest first, of one microsecond the smaller id first
	Total    int       // how many the task has
	Next     string    // the cursor for more; "" if there are no more
}

// An AttemptContext is an attempt with its task and its project, as they were at one moment.
type AttemptContext struct {
	Attempt *Attempt
	Task    *Summary
	Project *Project
}

// An Execution is one process of an agent: an attempt's first, or a follow-up.
type Execution struct {
	ID           string
	AttemptID    string
	SessionID    *string // nil before the process was started
	FollowUp     bool
	Prompt       string // all that the agent is given
	Variant      *string
	State        AttemptState
	Owner        string // the server that manages it; "" means none
	ExitCode     *int
	FinalMessage *string
	CreatedAt    time.Time
	StartedAt    *time.Time
	EndedAt      *time.Time
}

// An Ending is how an execution ended.
type Ending struct {
	State        AttemptState // completed, failed, stopped or interrupted
	ExitCode     *int
	FinalMessage *string
	Error        *string
	Task         Status     // what the task becomes; "" leaves it as it is
	EndedAt      *time.Time // when, if that was before now, while no server ran; nil means now; never before it was started
}

// A Session is a conversation with an agent.
type Session struct {
	ID        string
	AttemptID string
	Executor  string
	Variant   *string // of its first execution
	Queued    *Queued
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Queued is a follow-up that waits for the end of the current execution.
type Queued struct {
	Prompt  string
	Variant *string
	At      time.Time
}
