package store

import (
	"context"
	"encoding/json"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
)

// A View is a board as a caller sees it: all projects and repositories, but only the caller's own tasks with
// what belongs to them, made by its identity or its group; the owner sees all. For anything else the methods
// return task.ErrNotFound, as for something that does not exist. Its methods are used like those of a Board.
type View interface {
	// Projects lists the projects, newest first, and how many there are in all; next
	// is the cursor for more, "" if there are no more (seed 004, "MCP task tool
	// set"). task.ErrCursor refuses a cursor of another list.
	Projects(ctx context.Context, p task.Page) (list []task.Project, total int, next string, err error)
	// Project returns a project, even one that is no longer in the config: it still has its tasks.
	Project(ctx context.Context, id string) (*task.Project, error)
	// Repos lists a project's repositories; total and next are as for Projects.
	Repos(ctx context.Context, projectID string, p task.Page) (list []task.Repo, total int, next string, err error)
	// Repo returns a repository of the config.
	Repo(ctx context.Context, id string) (*task.Repo, error)

	// Tasks lists the tasks of a project that a filter selects, newest first, each with
	// a summary of its attempts (seed 004, "list_tasks provides attempt summary");
	// total is how many match, next is as for Projects.
	Tasks(ctx context.Context, projectID string, f task.Filter, p task.Page) (list []task.Summary, total int,
		next string, err error)
	Task(ctx context.Context, id string) (*task.Summary, error)
	// CreateTask makes a task of the caller, or finds the one that the same request made earlier and returns
	// its current state. ErrNotFound: the config has no such project; also ErrDeleted: the request's task was
	// deleted; ErrReused: the request was a different one; ErrInvalid: see task.Task.Check, or too many
	// dependencies; ErrDependency: it cannot depend on one of these tasks, which must exist for the caller
	// and belong to the same project.
	CreateTask(ctx context.Context, n task.NewTask, r task.Request) (*task.Summary, error)
	// UpdateTask changes a task and returns it. Errors are those of CreateTask, and ErrCycle: the task would
	// depend on itself, perhaps through others. Without a change nothing is written, and UpdatedAt stays
	// (seed 004, update_task).
	UpdateTask(ctx context.Context, id string, c task.TaskChange) (*task.Summary, error)
	// BeginDelete marks a task whose worktrees are about to be removed: from then on no server starts an
	// attempt or a follow-up of it (ErrDeleting), until DeleteTask removes it or UndoDelete removes the mark.
	// It returns the ids of the task's attempts, newest first. ErrRunning: an attempt of it has not ended. A
	// marked task may be marked again by any caller that completes the deletion.
	BeginDelete(ctx context.Context, id string) (attemptIDs []string, err error)
	// AskRemoval asks the place of an attempt whose task is marked to remove its worktrees, by a row of work with
	// the kind RemovalWork and the attempt's id. The result of an earlier call is forgotten.
	AskRemoval(ctx context.Context, attemptID string) error
	// Removal returns the result of that work, or nil.
	Removal(ctx context.Context, attemptID string) (json.RawMessage, error)
	// UndoDelete removes the mark of BeginDelete, and with it requests of AskRemoval. Without a mark it does
	// nothing.
	UndoDelete(ctx context.Context, id string) error
	// DeleteTask removes a task with its attempts' rows; ErrRunning if one is waiting, starting or running.
	// Their worktrees must have been removed since BeginDelete.
	DeleteTask(ctx context.Context, id string) error
	// FindRequest returns the result (an id) of an earlier call with this name, "" if there was none, or
	// ErrReused (DESIGN "Retries").
	FindRequest(ctx context.Context, r task.Request) (result string, err error)

	// CreateAttempt makes an attempt with its first execution, both waiting, and puts the task inprogress, or
	// finds the attempt that the same request made earlier. The caller sets ID, Branch, Workspace and Repos
	// of the attempt, Prompt and Variant of the execution, and may set its ID; an empty ID is generated. The
	// maker is the caller or, if that is the owner, the maker of the task. Errors are those of CreateTask,
	// ErrDeleting, and task.BlockedError if the task depends on one that is not done. Attempts made before
	// that dependency go on.
	CreateAttempt(ctx context.Context, a task.Attempt, first task.Execution, r task.Request) (*task.Attempt, error)
	// CreateRun is CreateAttempt for a new task, which it makes as CreateTask does: both or neither.
	CreateRun(ctx context.Context, n task.NewTask, a task.Attempt, first task.Execution,
		r task.Request) (*task.Attempt, error)
	Attempt(ctx context.Context, id string) (*task.Attempt, error)
	// Report returns what was saved of an attempt for other machines; empty if nothing was.
	Report(ctx context.Context, attemptID string) (*task.Report, error)
	// AttemptDetails returns an attempt with its executions from one state of the board; two calls could
	// report a running agent without a session (seed 004, "Task attempt listing").
	AttemptDetails(ctx context.Context, id string) (*task.AttemptDetails, error)
	// TaskAttempts lists a task's attempts with the task from one state of the board, so that its
	// latest attempt is the first of the first page (seed 004, "list_task_attempts returns attempt
	// details").
	TaskAttempts(ctx context.Context, taskID string, p task.Page) (*task.AttemptList, error)
	// BranchTaken reports whether any attempt of the board, whoever made it, has a branch of this name,
	// created or not.
	BranchTaken(ctx context.Context, branch string) (bool, error)
	// VisibleBranches returns the branches of the attempts that the caller sees.
	VisibleBranches(ctx context.Context) (branches []string, err error)

	// Attention returns the attempts that wait for a person, most recently ended first, and whether there are
	// more than task.MaxAttention. They belong to tasks that are inprogress or inreview and without an
	// attempt that waits or runs, and their latest attempt failed, was interrupted, completed or, in review,
	// was stopped. A stopped attempt of a task that is inprogress does not wait: a person has stopped it.
	Attention(ctx context.Context) (all []task.Attention, more bool, err error)
	// Work returns the attempts whose agents wait or run, and those that have ended; each list has at most
	// task.MaxWork attempts and begins with the newest execution.
	Work(ctx context.Context) (open, ended []task.Work, err error)
	// History returns a page of everything that has run: the project's own sessions that the caller sees, and
	// the attempts and runs of its tasks. A page costs the same however many there are.
	History(ctx context.Context, q task.HistoryQuery) ([]task.HistoryRow, error)
	// HistoryTotals adds up what History would list on all pages of a query, whose Before, AfterID and Limit
	// it ignores.
	HistoryTotals(ctx context.Context, q task.HistoryQuery) (task.HistoryTotals, error)
	// WorkedOn returns the ids of the attempts of tasks that are inprogress or inreview, newest first, at
	// most task.MaxAttention.
	WorkedOn(ctx context.Context) ([]string, error)
	// Spent returns the sum of what executions that ran and have ended used: those of an attempt, of a task
	// if attemptID is "", or, if both are "", of the whole board, including tasks deleted since.
	Spent(ctx context.Context, taskID, attemptID string) (task.Spent, error)
	// Used returns what each execution of an attempt that ran and has ended used, oldest first; none if there
	// is no such attempt.
	Used(ctx context.Context, attemptID string) ([]task.Use, error)
	// Executions returns an attempt's executions, newest first, none if there is no such attempt. Executions
	// for steps of a run are only in Steps.
	Executions(ctx context.Context, attemptID string) ([]task.Execution, error)
	// LatestExecution returns an attempt's newest execution.
	LatestExecution(ctx context.Context, attemptID string) (*task.Execution, error)
	// AddExecution adds a follow-up, waiting, and puts the task inprogress; ErrRunning: an execution of its
	// attempt has not ended; ErrDeleting: the task is being deleted (seed 004, "follow_up targeting"). It
	// removes the comments that the prompt contains, given by ids; ErrSent: one of them no longer waits, and
	// nothing is added. ErrRepeated: the same request has already added one, whose id FindRequest returns, or
	// queued one. It also removes the end of the last leader that SetRun recorded.
	AddExecution(ctx context.Context, sessionID, prompt string, variant *string, r task.Request,
		comments ...string) (*task.Execution, error)
	// SetTargets changes the target branches of an attempt, by the ids of its repositories. ErrRunning: an
	// execution of it has not ended.
	SetTargets(ctx context.Context, attemptID string, targets map[string]string) error
	// SetLanded records what became of the branch of an attempt (task.Situation.Landed). With done it also
	// sets the task done in the same transaction, unless it is done or cancelled, and reports whether it did.
	// If an execution has not ended, the attempt is being worked on again, and SetLanded records nothing
	// except conflicts: see EndExecution.
	SetLanded(ctx context.Context, attemptID, landed string, done bool) (taskDone bool, err error)
	// Stop ends a waiting execution, so that it never runs, and drops the queue of its session. It marks one
	// that is starting or running as StopAsked: the server that leads it, or takes it over, then ends it, and
	// drops what is queued, however it ends. Stop returns the state in which it found the execution, and does
	// nothing if that has ended. The task is unchanged.
	Stop(ctx context.Context, executionID string) (was task.AttemptState, err error)

	// Steps returns the executions of the agents of a run, newest first, none if there is no such run.
	Steps(ctx context.Context, attemptID string) ([]task.Execution, error)

	Session(ctx context.Context, id string) (*task.Session, error)
	// Queue sets or, with nil, clears what is queued in a session while an execution of its attempt has not
	// ended, and returns what was queued before; q.At is set to now. ErrStopping: the execution was asked to
	// stop, so q would be dropped. idle: no execution runs, nothing was queued, and nothing was set. The
	// comments in q are kept until it runs, and then removed; if it is dropped or replaced, they wait as
	// before. Errors with comments: ErrSent, as for AddExecution; ErrQueued: what is queued has no comments.
	// ErrRepeated: as for AddExecution; for a request that has set something, FindRequest returns as JSON
	// what was queued before. While idle, only a call that clears is recorded.
	Queue(ctx context.Context, sessionID string, q *task.Queued, r task.Request,
		comments ...string) (before *task.Queued, idle bool, err error)

	// Comments returns the comments on an attempt's diff that wait to be sent, by repository, file and line.
	Comments(ctx context.Context, attemptID string) ([]task.Comment, error)
	// ChangeComments removes comments that are not queued, by their ids, adds some of the caller's, and
	// returns the ids of these. If the same request did so before, it does nothing and returns the ids of
	// those added then, of which some may have been sent. ErrComments: there would be too many; ErrSent: one
	// to be removed is queued or does not exist.
	ChangeComments(ctx context.Context, attemptID string, remove []string, add []task.Comment,
		r task.Request) (added []string, err error)
}

// A Board stores projects, repositories, tasks and their attempts; as a View it sees all of them. Its methods
// may be called from any goroutine and by several processes; each change is one transaction, and durable when
// the method returns. Methods return task.ErrNotFound for something that does not exist; each may also return
// task.ErrFull, ErrDamaged, ErrVersion or ErrClosed, or the context's error.
type Board interface {
	View
	// For returns the board as a caller sees it.
	For(who session.Caller) View
	// Maker returns the identity and the group that made an attempt, without any rights.
	Maker(ctx context.Context, attemptID string) (session.Caller, error)

	// SyncProjects sets the board's projects to those of the config. Known projects keep their ids: they are
	// recognized by name, the root as such. Removed ones are no longer listed, until they return, with their
	// tasks. A repository keeps its id by project and name. Without a difference nothing is written. With
	// add, nothing is removed: other machines may have more.
	SyncProjects(ctx context.Context, all []task.ProjectSpec, add bool) error
	// Synced returns the paths of the repositories from the last SyncProjects of this process, by their ids.
	// The caller must not change it.
	Synced() map[string]string
	// RepoPaths returns the absolute paths of the repositories that the board knows, including
	// those of the attempts of a place, without duplicates, sorted.
	RepoPaths(ctx context.Context, here task.Place) ([]string, error)

	// Deleting returns the ids of the marked tasks in the order of their marks. After a crash, their deletion
	// must be completed.
	Deleting(ctx context.Context) ([]string, error)

	// AllAttempts returns every attempt of the board, by id.
	AllAttempts(ctx context.Context) ([]task.Attempt, error)
	// AttemptContext returns what an attempt belongs to, from one state of the board (seed 004, "Workspace
	// context data").
	AttemptContext(ctx context.Context, attemptID string) (*task.AttemptContext, error)
	// SetWorkspace records the base commits of the worktrees of an attempt, by the ids of its repositories.
	// It fails with ErrEnded if the worktrees no longer belong to the attempt: it was taken from the place
	// where they were made.
	SetWorkspace(ctx context.Context, a *task.Attempt, base map[string]string) error
	// SetWorkflow records how far an attempt's workflow is.
	SetWorkflow(ctx context.Context, attemptID string, n task.WorkflowProgress) error
	// SetRun replaces what the leader of a run keeps on the board.
	SetRun(ctx context.Context, attemptID string, run json.RawMessage) error
	// StepsOf returns the executions of the agents of a step, newest first.
	StepsOf(ctx context.Context, attemptID, sessionID, stepID string) ([]task.Execution, error)
	// AddStep adds an execution for an agent of a run that goes on: starting if it gets a slot, else waiting.
	// It is created now, but not before x.CreatedAt. The other arguments are those of ClaimNext. Errors of
	// AddStep and ClaimStep: task.ErrEnded, the run or the execution has ended.
	AddStep(ctx context.Context, x task.Execution, max int, c *task.Claim, l task.Limits) (claimed bool, err error)
	// ClaimStep gives a slot to a waiting execution, which is then starting. It reports false if no slot is
	// free. The other arguments are those of ClaimNext.
	ClaimStep(ctx context.Context, attemptID, id string, max int, c *task.Claim, l task.Limits) (claimed bool,
		err error)
	// SetPushError records why the branch of an attempt was not pushed; nil clears that.
	SetPushError(ctx context.Context, attemptID string, why *string) error
	// SetBranch gives an attempt without worktrees another branch, since two servers may choose the same name
	// at once. ErrInvalid: a worktree was created.
	SetBranch(ctx context.Context, attemptID, branch string) error
	// WorktreeFolders returns the folders that contain worktrees of the attempts of a place, without
	// duplicates and unordered: the config may have named several over time.
	WorktreeFolders(ctx context.Context, here task.Place) ([]string, error)
	// SetPaths sets the workspace of an attempt that has none, and RepoPath and Worktree of its repositories,
	// which the machine that claimed it knows. ErrInvalid: it has one. ErrEnded: it was taken from that
	// machine.
	SetPaths(ctx context.Context, a *task.Attempt) error
	// SaveOutput and SaveDiff replace a part of an attempt's report by a JSON value, with the time. They do
	// nothing if there is no such attempt.
	SaveOutput(ctx context.Context, attemptID string, entries json.RawMessage) error
	SaveDiff(ctx context.Context, attemptID string, diff json.RawMessage) error

	Execution(ctx context.Context, id string) (*task.Execution, error)
	// OpenExecutions returns the board's executions that are starting or running, oldest first.
	OpenExecutions(ctx context.Context) ([]task.Execution, error)
	// OpenElsewhere returns the unfinished executions of attempts at other places, oldest first, each with
	// the place of its attempt.
	OpenElsewhere(ctx context.Context, here task.Place) ([]task.Execution, error)
	// ClaimNext gives the oldest waiting execution to a server, if fewer than max are starting or running on
	// the whole board: it and its attempt are then starting. nil means that none waits, or that there is no
	// room. No other call on this board, in any process, gets the same one. If c is not nil, it restricts
	// what may be given, max counts the executions at its place, and that becomes the place of the execution
	// and its attempt. Nothing is given once what has ended by then has reached a limit.
	ClaimNext(ctx context.Context, owner string, max int, c *task.Claim, l task.Limits) (*task.Execution, error)
	// Release returns a claimed execution whose process was never started to the board: it and its attempt
	// wait again, in the same position, and without a place unless the attempt has worktrees: begun means that
	// its place has some that are not recorded. An execution that was asked to stop is stopped instead. It
	// reports false if the execution is not this owner's, or is no longer starting.
	Release(ctx context.Context, executionID, owner string, begun bool) (released bool, err error)
	// Ready returns the tasks that servers may start without a call, by priority and then age, at most
	// task.MaxReady, if there is room. These tasks are todo, have no attempt and no dependency that is not
	// done, and were made and changed only by callers with the right to start agents.
	Ready(ctx context.Context, r task.Room) ([]task.Ready, error)
	// StartReady is CreateAttempt for a task of Ready. ErrNotReady: the task is no longer ready, or there is
	// no room.
	StartReady(ctx context.Context, a task.Attempt, first task.Execution, r task.Room) error
	// ReachedAt returns when each of the limits was reached, nil for one that is not reached, or was reached
	// before anything had ended.
	ReachedAt(ctx context.Context, l task.Limits) (cost, unknown *time.Time, err error)
	// AddUse records what a process other than an execution, such as a reviewer, used for an attempt.
	// u.ExecutionID is a new id.
	AddUse(ctx context.Context, u task.Use) error
	// Adopt changes the owner of an execution. It reports false if the execution no longer has the old owner,
	// or has ended.
	Adopt(ctx context.Context, executionID, from, to string) (adopted bool, err error)
	// StartExecution records that the process of an execution has been running since a time (zero means now;
	// never before the execution was made). The execution and its attempt are then running, and the execution
	// belongs to the attempt's session, which is made if there is none. It does nothing if the execution is
	// already running. ErrEnded: it has ended meanwhile, and the process must be ended, too; ErrInvalid:
	// nobody has claimed it. An execution for a step changes nothing else, and has no session. contained says under
	// what the process was started, or is "".
	StartExecution(ctx context.Context, executionID, executor, contained string, since time.Time) (*task.Session, error)
	// EndExecution records the end of an execution, its attempt and the task, in one transaction. If the
	// execution completed or failed, a queued follow-up of its session becomes the next, waiting, execution,
	// which is returned, and the task is inprogress; if it was stopped or interrupted, or had been asked to
	// stop, or is the leader of a run that is complete, the queue is dropped. A task that is no longer
	// inprogress keeps its status; if a follow-up runs next, only done and cancelled are kept. It reports
	// false and does nothing if the execution has ended. Conflicts that SetLanded recorded stay until
	// e.Resolved, whatever runs meanwhile. ErrInvalid: e.State or e.Task is not allowed. The end of an
	// execution for a step changes nothing else; the end of a leader ends the executions for its steps as
	// interrupted.
	EndExecution(ctx context.Context, executionID string, e task.Ending) (next *task.Execution, ended bool, err error)

	// Inspect checks the board: its storage, its references, and rows that contradict each other. It sees one
	// state of the board and changes nothing. A board of 100,000 rows takes about a second.
	Inspect(ctx context.Context) (found []session.Finding, s task.Totals, err error)
}
