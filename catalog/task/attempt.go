package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AttemptState is the stored state of an attempt, or of one execution of it. What callers see is a State of
// package session/board.
type AttemptState string

// The values of AttemptState.
const (
	Waiting     AttemptState = "waiting" // for a slot
	Starting    AttemptState = "starting"
	Running     AttemptState = "running"
	Completed   AttemptState = "completed"
	Failed      AttemptState = "failed"
	Stopped     AttemptState = "stopped"
	Interrupted AttemptState = "interrupted" // ended early, with a server or otherwise
)

// Open reports whether s is a state that has not ended.
func (s AttemptState) Open() bool { return s == Waiting || s == Starting || s == Running }

// Ended reports whether s is a final state.
func (s AttemptState) Ended() bool {
	return s == Completed || s == Failed || s == Stopped || s == Interrupted
}

// A Situation is what the State of an attempt is computed from.
type Situation struct {
	Place                  // where its worktrees lie
	State  AttemptState    // that of its newest execution
	Landed string          // LandedMerged, LandedConflicts or ""
	Run    json.RawMessage // what the server keeps that leads its agents; nil means that it has one agent, its executor
	Leader string          // the server that manages its newest execution; "" means none
	Busy   bool            // agents of its run wait or work
}

// The values of Situation.Landed. LandedMerged is forgotten when its agent goes on, LandedConflicts when the merge is
// no longer in progress.
const (
	LandedMerged    = "merged"    // all of its commits are in its target branches, and no work is left
	LandedConflicts = "conflicts" // its worktree has a merge whose conflicts a person or its agent must resolve
)

// An Attempt is one try at a task, in its own workspace.
type Attempt struct {
	Situation
	ID                string
	TaskID            string
	Executor          string
	Variant           *string
	Prompt            *string // added to the task's title and description
	Branch            string
	Workspace         string  // the folder the agent works in, absolute; "" before a shared store has given it a place
	Error             *string // why its last execution failed, if known
	WorkflowSessionID *string
	WorkflowStatus    *string
	WorkflowStep      *string
	Trace             string  // the traceparent of what it belongs to; "" if nothing was exported when it was made
	PushError         *string // why the branch was last not pushed to the remote of the config
	Repos             []AttemptRepo
	LatestSessionID   *string
	LatestExecutor    *string // of that session
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// Made reports whether its worktrees were created.
func (a *Attempt) Made() bool {
	return !slices.ContainsFunc(a.Repos, func(r AttemptRepo) bool { return r.BaseCommit == nil })
}

// An AttemptRepo is a worktree of an attempt.
type AttemptRepo struct {
	RepoID, RepoName, RepoPath string
	TargetBranch               string
	BaseCommit                 *string // nil until the worktree is created
	Worktree                   string  // absolute
}

// WorkflowProgress is the progress of the workflow in an attempt's workspace. An empty field is
// unknown.
type WorkflowProgress struct{ SessionID, Status, Step string }

// ShownExecutions is how many of its executions the details of an attempt have.
const ShownExecutions = 50

// AttemptDetails is an attempt with its newest execution and its newest session, as of one moment;
// Executions are the newest ones, the newest first, with the beginnings of their texts. Session is nil until
// one of its processes was started. Open and Ahead are set if its execution waits, else 0: the number of
// executions on the whole board that are starting or running, and of those waiting for a slot before it.
type AttemptDetails struct {
	Attempt   *Attempt
	Execution *Execution
	Session   *Session
	Open      int
	Ahead     int

	Executions []Execution
}

// An AttemptList is a part of a task's attempts and the task itself, as of one moment.
type AttemptList struct {
	Task     *Summary
	Attempts []Attempt // newest first; if equal to the microsecond, the smaller id first
	Total    int       // the number of attempts of the task
	Next     string    // the cursor for more; "" if there are no more
}

// An AttemptContext is an attempt with its task and its project, as of one moment.
type AttemptContext struct {
	Attempt *Attempt
	Task    *Summary
	Project *Project
}

// An Execution is one process of an agent: an attempt's first, a follow-up, or that for a step of a run; or
// the leader of a run.
type Execution struct {
	Place     // where it ran
	ID        string
	AttemptID string
	LogID     string  // names its log: the attempt's id, or, for a step, one that the executions of one agent share
	SessionID *string // nil before the process was started, and for a step

	WorkflowSessionID string // of the step, 8 hex; "" if it is not for a step of a run
	StepID            string
	Conversation      *string    // the name that its program gave to it; nil means unknown
	LimitedUntil      *time.Time // set if a limit of the provider ended it: when to go on

	FollowUp     bool
	Prompt       string // the text given to the agent; a follow-up that begins another conversation has more before it
	Executor     string
	Variant      *string
	State        AttemptState
	Owner        string     // the server that manages it; "" means none
	Lead         bool       // it is not an agent but the leader of a run, and needs no slot
	StopAsked    *time.Time // when its server was asked to stop it; nil means never
	ExitCode     *int
	FinalMessage *string
	Error        *string // why it failed, if known
	CreatedAt    time.Time
	StartedAt    *time.Time
	EndedAt      *time.Time
}

// A Removal asks the place of an attempt to remove its worktrees.
type Removal struct {
	AttemptID string
	AskedAt   time.Time
}

// An Ending is how an execution ended.
type Ending struct {
	State        AttemptState // completed, failed, stopped or interrupted
	ExitCode     *int
	FinalMessage *string
	Error        *string
	// the new status of the task, "inreview" only once its workflow is complete; "" leaves it unchanged
	Task         Status
	EndedAt      *time.Time // set if no server ran then; nil means now; never before its start
	Conversation *string    // the name that its program gave to it; nil means unknown
	LimitedUntil *time.Time // set if a limit of the provider ended it
	Usage        *Usage     // what its agent reported that it used; nil means nothing
	Resolved     bool       // the merge whose conflicts its attempt had is no longer in progress
}

// A Usage is what one execution used, as its agent reported it, with its cost by the prices when it ended.
type Usage struct {
	MicroUSD                                *int64 // millionths of a USD; nil means unknown
	InputTokens, CachedTokens, OutputTokens int64
	Turns                                   int64

	// Thread, if it is not "", is the conversation of which the agent reports totals. Totals are those, by
	// model, JSON that only the engine understands; nil means that the agent ended before it reported them:
	// the next execution of the thread does so for it.
	Thread string
	Totals json.RawMessage
}

// A Use is the Usage of an execution that has ended, or of an executor that reviewed.
type Use struct {
	AttemptID   string
	ExecutionID string // or an id of its own, of a review
	Executor    string
	Reported    bool // else the Usage is that of an agent that reported nothing
	EndedAt     time.Time
	Usage
}

// Spent is the sum of what executions used that have ended.
type Spent struct {
	Executions                                     int
	Unknown                                        int   // those whose cost is not known
	MicroUSD                                       int64 // of the others, in millionths of a USD
	InputTokens, CachedTokens, OutputTokens, Turns int64
}

// Limits are how much the executions of a board may have used for another one to start; nil means no limit.
type Limits struct {
	MicroUSD *int64
	Unknown  *int64 // executions whose cost is not known
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

// The values of Lead of a Task.
const (
	AgentLeads  = "agent"  // one agent goes through the workflow of the task on its own
	ServerLeads = "server" // a server does, and gives each step to an agent
)

// MaxAttention is how many attempts Attention of a board lists at most.
const MaxAttention = 50

// An Attention is the latest attempt of a task that goes on only when a person has looked at it, or a run whose
// leader may be gone.
type Attention struct {
	TaskID, Title string // of the task
	AttemptID     string
	Situation
	Began bool      // its agent, or its leader, once ran, and its workflow was not aborted
	Since time.Time // the end of its last execution, or when that was made
}

// MaxWork is how many attempts of a kind Work of a board lists at most.
const MaxWork = 50

// A Work is an attempt with its last execution.
type Work struct {
	TaskID, Title string // of the task
	AttemptID     string
	Executor      string
	Situation
	Step  string    // of its workflow
	Since time.Time // the end of the execution, or when it was made
}

// A HistoryRow is a session of the project itself, an attempt or a run, as a list of all that has run shows it.
type HistoryRow struct {
	Kind          string // HistorySession, HistoryAttempt or HistoryRun
	ID            string
	Title         string // the goal of a session, or of the task
	Job, Workflow string // "" for a task without a workflow
	Identity      string // who began it
	Status        string // of a session; "" for the others, which have a Situation
	Executor      string // of an attempt or a run
	Situation
	StartedAt time.Time
	EndedAt   *time.Time // nil while it goes on
	MicroUSD  *int64     // what is known of its cost; nil for a session, too
}

// The values of HistoryRow.Kind.
const (
	HistorySession = "session"
	HistoryAttempt = "attempt"
	HistoryRun     = "run"
)

// The values of HistoryQuery.State.
const (
	HistoryOpen    = "open"    // it goes on, or waits
	HistoryDone    = "done"    // it is complete
	HistoryStopped = "stopped" // it failed, was stopped, aborted or interrupted, or has conflicts
)

// A HistoryQuery selects a page of a list of all that has run, the one that started last first. Fields that are
// zero select all.
type HistoryQuery struct {
	Kind, State   string
	Job, Workflow string
	Identity      string
	Text          string // a part of the title, in any case
	// Before and AfterID are StartedAt and ID of the last row of the page before.
	Before  time.Time
	AfterID string
	Limit   int // required
}

const (
	// MaxComments is how many comments on an attempt's diff wait for their sending at once.
	MaxComments = 100
	// MaxComment is the longest text of a comment in characters.
	MaxComment = 5000
)

var (
	// ErrComments refuses more comments than MaxComments.
	ErrComments = errors.New("too many comments")
	// ErrSent refuses to send comments of which some were sent or removed in the meantime.
	ErrSent = errors.New("some of the comments were sent or removed in the meantime")
	// ErrQueued refuses to replace a queued follow-up that has no comments by one that has.
	ErrQueued = errors.New("another follow-up is queued")
)

// The sides of a Comment.
const (
	NewSide = "new" // the file as it is in the worktree
	OldSide = "old" // the file before the attempt
)

// A Comment is a remark on a line of an attempt's diff that was not sent to its agent yet.
type Comment struct {
	ID        string
	AttemptID string
	RepoID    string
	File      string // relative to the worktree, with slashes
	Line      int    // of that side, from 1
	Side      string
	Quote     string // the line as it was
	Text      string
	Queued    bool   // it is in the follow-up that is queued
	Identity  string // who made it
	CreatedAt time.Time
}

// A Place is the folder of a project on one machine, where work lies that other machines cannot
// reach. The zero value is that of a store which only one machine uses.
type Place struct {
	// of the installation: 8 hexadecimal digits; a name may change, or be another's, too
	MachineID   string `json:"machine_id"`
	MachineName string `json:"machine_name"` // of the host, for people
	Root        string `json:"root"`         // the project root there, absolute
}

// Is reports whether two places are the same folder of the same machine.
func (p Place) Is(o Place) bool { return p.MachineID == o.MachineID && p.Root == o.Root }

// Elsewhere reports whether p is known and is not here.
func (p Place) Elsewhere(here Place) bool { return p.MachineID != "" && !p.Is(here) }

// Key identifies a place.
func (p Place) Key() string { return p.MachineID + ":" + p.Root }

// Describe returns the place as "NAME (ID), in FOLDER".
func (p Place) Describe() string {
	return fmt.Sprintf("%s (%s), in %s", p.MachineName, p.MachineID, p.Root)
}

// A Claim says what a process may run: of a store that several machines share, follow-ups of the
// attempts at its place, and attempts at no place yet whose executor and repositories it has; and of
// runs, one alone.
type Claim struct {
	Place     Place // zero in a store of one machine
	Executors []string
	Repos     []string // ids
	Run       string   // the attempt of the only run that it leads; "" means any
}

// Room bounds which tasks servers start without a call.
type Room struct {
	InReview int   // of all tasks, fewer are in review, are worked on by an agent, or have failed
	Slots    int   // fewer executions than that wait, or run at Place; of the whole board if that is zero
	Place    Place // of the server
	Limits   Limits
}

// MaxReady is how many tasks are listed as ready.
const MaxReady = 1000

// Ready is a task that servers may start without a call.
type Ready struct{ ID, ProjectID string }

// A Report is what other machines can read of an attempt. What was never saved is nil.
type Report struct {
	Output   json.RawMessage // the last entries of its output
	OutputAt *time.Time
	Diff     json.RawMessage // its changes at the end of its last execution
	DiffAt   *time.Time
}
