package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AttemptState is the stored state of an attempt, or of one of its executions. Callers see a State of package
// session/board instead.
type AttemptState string

// The values of AttemptState.
const (
	Waiting     AttemptState = "waiting" // waiting for a slot
	Starting    AttemptState = "starting"
	Running     AttemptState = "running"
	Completed   AttemptState = "completed"
	Failed      AttemptState = "failed"
	Stopped     AttemptState = "stopped"
	Interrupted AttemptState = "interrupted" // ended early, together with a server or otherwise
)

// Open reports whether s is not a final state.
func (s AttemptState) Open() bool { return s == Waiting || s == Starting || s == Running }

// Ended reports whether s is a final state.
func (s AttemptState) Ended() bool {
	return s == Completed || s == Failed || s == Stopped || s == Interrupted
}

// A Situation has what determines the State of an attempt.
type Situation struct {
	Place                  // where its worktrees are
	State  AttemptState    // of its newest execution
	Landed string          // LandedMerged, LandedConflicts or ""
	Run    json.RawMessage // data of the server that leads its agents; nil means that it has one agent, its executor
	Leader string          // the server that manages its newest execution; "" means none
	Busy   bool            // agents of its run wait or work
}

// The values of Situation.Landed. LandedMerged is forgotten when its agent goes on, LandedConflicts when the
// merge is over.
const (
	LandedMerged    = "merged"    // all of its commits are in its target branches, and no work is left
	LandedConflicts = "conflicts" // its worktree has a merge with conflicts, for a person or its agent to resolve
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
	PushError         *string // why the branch was not pushed to the config's remote the last time
	Repos             []AttemptRepo
	LatestSessionID   *string
	LatestExecutor    *string // executor of that session
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

// ShownExecutions is how many executions the details of an attempt have.
const ShownExecutions = 50

// AttemptDetails is an attempt with its newest execution and its newest session, as of one moment. Executions
// are the newest ones, newest first, with the beginnings of their texts. Session is nil until one of its
// processes was started. If its execution waits, Open is the number of executions on the whole board that are
// starting or running, and Ahead is the number of those that wait for a slot before it; otherwise both are 0.
type AttemptDetails struct {
	Attempt   *Attempt
	Execution *Execution
	Session   *Session
	Open      int
	Ahead     int

	Executions []Execution
}

// An AttemptList is a page of a task's attempts, with the task, as of one moment.
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

// An Execution is one process: of an agent (an attempt's first, a follow-up, or one for a step of a run), or
// of the leader of a run.
type Execution struct {
	Place     // where it ran
	ID        string
	AttemptID string
	LogID     string  // names its log: the attempt's id, or, for a step, one that the executions of one agent share
	SessionID *string // nil before the process was started, and for a step

	WorkflowSessionID string // of the step, 8 hex; "" if it is not for a step of a run
	StepID            string
	Conversation      *string    // its program's name for the conversation; nil means unknown
	LimitedUntil      *time.Time // when to continue, if a limit of the provider ended it
	OverLimit         bool       // a limit of its step ended it

	FollowUp     bool
	Prompt       string // the text for the agent; a follow-up in a new conversation gets more text before it
	Executor     string
	Variant      *string
	Contained    string // under what its program was started, such as "contained (bubblewrap 0.11.0; 3 hosts)", or ""
	State        AttemptState
	Owner        string     // the server that manages it; "" means none
	Lead         bool       // the leader of a run instead of an agent; needs no slot
	StopAsked    *time.Time // when its server was asked to stop it; nil means never
	ExitCode     *int
	FinalMessage *string
	Error        *string // why it failed, if known
	CreatedAt    time.Time
	StartedAt    *time.Time
	EndedAt      *time.Time
}

// An Ending says how an execution ended.
type Ending struct {
	State        AttemptState // completed, failed, stopped or interrupted
	ExitCode     *int
	FinalMessage *string
	Error        *string
	// the new status of the task, "inreview" only once its workflow is complete; "" leaves it unchanged
	Task         Status
	EndedAt      *time.Time // set if no server ran at that time; nil means now; never before its start
	Conversation *string    // its program's name for the conversation; nil means unknown
	LimitedUntil *time.Time // set if a limit of the provider ended it
	OverLimit    bool       // a limit of its step ended it
	Usage        *Usage     // what its agent reported as used; nil means nothing
	Resolved     bool       // the merge whose conflicts its attempt had is over
}

// A Usage is what one execution used, as its agent reported it, with its cost by the prices at its end.
type Usage struct {
	MicroUSD                                *int64 // millionths of a USD; nil means unknown
	InputTokens, CachedTokens, OutputTokens int64
	Turns                                   int64

	// Thread, if not "", is the conversation whose totals the agent reports. Totals has these by model, as
	// JSON that only the engine understands. nil means that the agent ended before reporting them; then the
	// next execution of the thread reports them for it.
	Thread string
	Totals json.RawMessage
}

// A Use is the Usage of an ended execution, or of an executor that reviewed.
type Use struct {
	AttemptID   string
	ExecutionID string // or an id of its own, for a review
	Executor    string
	Reported    bool // false: the agent reported nothing
	EndedAt     time.Time
	Usage
}

// Spent is the sum of what ended executions used.
type Spent struct {
	Executions                                     int
	Unknown                                        int   // executions with unknown cost
	MicroUSD                                       int64 // of the others, in millionths of a USD
	InputTokens, CachedTokens, OutputTokens, Turns int64
}

// Limits say how much the executions of a board may have used for another one to start; nil means no limit.
type Limits struct {
	MicroUSD *int64
	Unknown  *int64 // executions with unknown cost
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

// The values of Task.Lead.
const (
	AgentLeads  = "agent"  // one agent goes through the task's workflow on its own
	ServerLeads = "server" // a server goes through it, and gives each step to an agent
)

// MaxAttention is the maximum number of attempts that a board's Attention lists.
const MaxAttention = 50

// An Attention is the latest attempt of a task that goes on only after a person has looked at it, or a run
// whose leader may be gone.
type Attention struct {
	TaskID, Title string // of the task
	AttemptID     string
	Situation
	Began bool      // its agent, or its leader, has run, and its workflow was not aborted
	Since time.Time // the end of its last execution, or when that was created
}

// MaxWork is the maximum number of attempts of each kind that a board's Work lists.
const MaxWork = 50

// A Work is an attempt with its last execution.
type Work struct {
	TaskID, Title string // of the task
	AttemptID     string
	Executor      string
	Situation
	Step  string    // of its workflow
	Since time.Time // the end of the execution, or when it was created
}

// A HistoryRow is a session of the project itself, an attempt or a run, in a list of everything that has run.
type HistoryRow struct {
	Kind      string `json:"kind"` // HistorySession, HistoryAttempt or HistoryRun
	ID        string `json:"id"`
	Title     string `json:"goal"` // of a session, or the title of the task
	Job       string `json:"job"`  // "" for a task without a workflow
	Workflow  string `json:"workflow"`
	Identity  string `json:"identity"` // who began it
	Status    string `json:"state"`    // of a session; "" for the others, which have a Situation
	Executor  string `json:"executor"` // of an attempt or a run
	Situation `json:"-"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`       // nil while in progress
	MicroUSD  *int64     `json:"cost_micro_usd"` // the known part; nil also for a session
	// FailedTries is how many tries of its steps' checks and reviews have failed.
	FailedTries int `json:"failed_tries"`
}

// The values of HistoryRow.Kind.
const (
	HistorySession = "session"
	HistoryAttempt = "attempt"
	HistoryRun     = "run"
)

// The values of HistoryQuery.State.
const (
	HistoryOpen    = "open"    // in progress, or waiting
	HistoryDone    = "done"    // complete
	HistoryStopped = "stopped" // failed, stopped, aborted or interrupted, or has conflicts
)

// A HistoryQuery selects a page of a list of everything that has run, most recently started first. Zero
// fields select all.
type HistoryQuery struct {
	Schedule string // a schedule's name: runs of its due times
	Kind     string `json:"kind" arg:"What to list. Default: run" enum:"session,attempt,run"`
	State    string `json:"state" arg:"Only those in this state" enum:"open,done,stopped"`
	Job      string `json:"job" arg:"Only those of this job, or JOB/WORKFLOW"`
	Workflow string
	Identity string
	Text     string // part of the title, ignoring case
	// from Since on, and before Until, it was started
	Since, Until time.Time
	// Before and AfterID are StartedAt and ID of the previous page's last row.
	Before  time.Time
	AfterID string
	Limit   int `json:"limit" arg:"List at most so many. Default: 100" min:"1" max:"10000"` // required
}

// HistoryTotals are about everything that a HistoryQuery selects, on all its pages.
type HistoryTotals struct {
	Runs     int      `json:"runs"`           // with sessions and attempts
	Judged   int      `json:"judged"`         // those of a workflow that have ended
	FirstTry int      `json:"first_try"`      // those of them that are complete without a failed check or review
	Seconds  *float64 `json:"median_seconds"` // from start to end, of all that have ended; nil if none has
	USD      *float64 `json:"cost_usd"`       // the known part; nil if nothing is known
}

const (
	// MaxComments is how many comments on an attempt's diff may wait to be sent at once.
	MaxComments = 100
	// MaxComment is the maximum length of a comment in characters.
	MaxComment = 5000
)

var (
	// ErrComments means that there would be more comments than MaxComments.
	ErrComments = errors.New("too many comments")
	// ErrSent means that some of the comments to send were sent or removed meanwhile.
	ErrSent = errors.New("some of the comments were sent or removed in the meantime")
	// ErrQueued means that a queued follow-up without comments cannot be replaced by one with comments.
	ErrQueued = errors.New("another follow-up is queued")
)

// The sides of a Comment.
const (
	NewSide = "new" // the file as in the worktree
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
	Quote     string // the line at that time
	Text      string
	Queued    bool   // it belongs to the queued follow-up
	Identity  string // who made it
	CreatedAt time.Time
}

// A Place is the folder of a project on one machine, whose work other machines cannot reach. It is zero in a
// store that only one machine uses.
type Place struct {
	// the id of the installation: 8 hexadecimal digits; machine names may change, or be shared
	MachineID   string `json:"machine_id"`
	MachineName string `json:"machine_name"` // of the host, for people
	Root        string `json:"root"`         // absolute path of the project root there
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

// A Claim says what a process may run in a store that several machines share: follow-ups of the attempts at
// its place, and attempts without a place whose executor and repositories it has. It may also restrict the
// process to one run.
type Claim struct {
	Place     Place // zero in a store of one machine
	Executors []string
	Repos     []string // ids
	Run       string   // the attempt of the only run that it leads; "" means any
}

// Room limits which tasks servers start without a call.
type Room struct {
	InReview int   // start only while fewer tasks than this are in review, worked on by an agent, or failed
	Slots    int   // start only while fewer executions than this wait, or run at Place; zero Place: on the whole board
	Place    Place // the server's place
	Limits   Limits
}

// MaxReady is the maximum number of tasks listed as ready.
const MaxReady = 1000

// Ready is a task that servers may start without a call.
type Ready struct{ ID, ProjectID string }

// A Report is what other machines can read about an attempt. Fields that were never saved are nil.
type Report struct {
	Output   json.RawMessage // the last entries of its output
	OutputAt *time.Time
	Diff     json.RawMessage // its changes at the end of its last execution
	DiffAt   *time.Time
}
