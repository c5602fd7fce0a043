package attempt

import "deepwork/session/attempt/runner"

// The tools' replies. Every field is always present; one without a value is null. The jsonschema
// tags are the descriptions that clients see (seed 004, "Schema field documentation").

// Project is one project of list_projects.
type Project struct {
	ProjectID string `json:"project_id" jsonschema:"the project's id, a UUID; it stays the same across restarts"`
	Name      string `json:"name" jsonschema:"the project's name: that of its folder for the project root, else as configured"`
	IsRoot    bool   `json:"is_root" jsonschema:"whether it is the folder that the server works on"`
	CreatedAt string `json:"created_at" jsonschema:"when the board first knew it, RFC 3339 in UTC"`
	UpdatedAt string `json:"updated_at" jsonschema:"when it last changed on the board, RFC 3339 in UTC"`
}

// ProjectFilters are the filters of list_projects.
type ProjectFilters struct {
	Limit int `json:"limit" jsonschema:"how many are returned at most"`
}

// ProjectsReply answers list_projects.
type ProjectsReply struct {
	Projects   []Project      `json:"projects" jsonschema:"the projects, newest first"`
	Count      int            `json:"count" jsonschema:"how many are returned here"`
	Total      int            `json:"total" jsonschema:"how many there are in all"`
	Filters    ProjectFilters `json:"applied_filters" jsonschema:"what this list was limited to"`
	NextCursor *string        `json:"next_cursor" jsonschema:"give it as cursor to have the next ones; null: there are no more"`
}

// Repo is one repository of list_repos.
type Repo struct {
	RepoID    string `json:"repo_id" jsonschema:"the repository's id, a UUID, for start_task_attempt"`
	ProjectID string `json:"project_id" jsonschema:"the id of its project, a UUID"`
	Name      string `json:"name" jsonschema:"its name, unique in the project"`
	Path      string `json:"path" jsonschema:"its absolute path; whether a git repository is there is checked when an attempt starts"`
	CreatedAt string `json:"created_at" jsonschema:"when the board first knew it, RFC 3339 in UTC"`
	UpdatedAt string `json:"updated_at" jsonschema:"when it last changed on the board, RFC 3339 in UTC"`
}

// RepoFilters are the filters of list_repos.
type RepoFilters struct {
	ProjectID string `json:"project_id" jsonschema:"the project's id, a UUID"`
	Limit     int    `json:"limit" jsonschema:"how many are returned at most"`
}

// ReposReply answers list_repos.
type ReposReply struct {
	Repos      []Repo      `json:"repos" jsonschema:"the repositories, newest first"`
	Count      int         `json:"count" jsonschema:"how many are returned here"`
	Total      int         `json:"total" jsonschema:"how many there are in all"`
	Filters    RepoFilters `json:"applied_filters" jsonschema:"what this list was limited to"`
	NextCursor *string     `json:"next_cursor" jsonschema:"give it as cursor to have the next ones; null: there are no more"`
}

// Task is a task with a summary of its attempts; it answers get_task, create_task and update_task
// (seed 004, "list_tasks provides attempt summary").
type Task struct {
	TaskID                string  `json:"task_id" jsonschema:"the task's id, a UUID"`
	ProjectID             string  `json:"project_id" jsonschema:"the id of its project, a UUID"`
	Title                 string  `json:"title" jsonschema:"what is to be done, in one line"`
	Description           *string `json:"description" jsonschema:"what is to be done, in full, or null"`
	Status                string  `json:"status" jsonschema:"todo, inprogress, inreview, done or cancelled"`
	JobName               *string `json:"job_name" jsonschema:"the job of the workflow that its attempts run, or null"`
	WorkflowName          *string `json:"workflow_name" jsonschema:"the workflow that its attempts run, or null"`
	CreatedAt             string  `json:"created_at" jsonschema:"when it was made, RFC 3339 in UTC"`
	UpdatedAt             string  `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
	LatestAttemptID       *string `json:"latest_attempt_id" jsonschema:"the id of its newest attempt, a UUID, or null"`
	LatestWorkspaceBranch *string `json:"latest_workspace_branch" jsonschema:"the git branch of that attempt, or null"`
	LatestSessionID       *string `json:"latest_session_id" jsonschema:"the id of the newest session of that attempt, a UUID, or null while its agent never ran"`
	LatestSessionExecutor *string `json:"latest_session_executor" jsonschema:"the executor of that session, such as CLAUDE_CODE, or null"`
	HasInProgressAttempt  bool    `json:"has_in_progress_attempt" jsonschema:"whether an attempt is waiting, starting or running"`
	LastAttemptFailed     bool    `json:"last_attempt_failed" jsonschema:"whether the newest attempt failed or was interrupted"`
}

// TaskFilters are the filters of list_tasks.
type TaskFilters struct {
	ProjectID string  `json:"project_id" jsonschema:"the project's id, a UUID"`
	Status    *string `json:"status" jsonschema:"todo, inprogress, inreview, done or cancelled; null: tasks of every status"`
	Limit     int     `json:"limit" jsonschema:"how many are returned at most"`
}

// TasksReply answers list_tasks.
type TasksReply struct {
	Tasks      []Task      `json:"tasks" jsonschema:"the tasks, newest first"`
	Count      int         `json:"count" jsonschema:"how many are returned here"`
	Total      int         `json:"total" jsonschema:"how many match the filters in all"`
	Filters    TaskFilters `json:"applied_filters" jsonschema:"what this list was limited to"`
	NextCursor *string     `json:"next_cursor" jsonschema:"give it as cursor to have the next ones; null: there are no more"`
}

// AttemptSummary is one attempt of list_task_attempts (seed 004,
// "list_task_attempts returns attempt details").
type AttemptSummary struct {
	AttemptID             string  `json:"attempt_id" jsonschema:"the attempt's id, a UUID, for get_attempt, tail_attempt, follow_up and the others"`
	WorkspaceBranch       string  `json:"workspace_branch" jsonschema:"the git branch that the attempt works on"`
	State                 string  `json:"state" jsonschema:"waiting, starting, running, completed, failed, stopped or interrupted"`
	Executor              string  `json:"executor" jsonschema:"the executor that it was started with, such as CLAUDE_CODE"`
	Variant               *string `json:"variant" jsonschema:"the executor's variant that it was started with, or null"`
	CreatedAt             string  `json:"created_at" jsonschema:"when it was made, RFC 3339 in UTC"`
	UpdatedAt             string  `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
	LatestSessionID       *string `json:"latest_session_id" jsonschema:"the id of its newest session, a UUID, or null while its agent never ran"`
	LatestSessionExecutor *string `json:"latest_session_executor" jsonschema:"the executor of that session, or null"`
}

// AttemptFilters are the filters of list_task_attempts.
type AttemptFilters struct {
	TaskID string `json:"task_id" jsonschema:"the task's id, a UUID"`
	Limit  int    `json:"limit" jsonschema:"how many are returned at most"`
}

// AttemptsReply answers list_task_attempts.
type AttemptsReply struct {
	Attempts        []AttemptSummary `json:"attempts" jsonschema:"the attempts, newest first"`
	LatestAttemptID *string          `json:"latest_attempt_id" jsonschema:"the id of the task's newest attempt, a UUID, or null"`
	LatestSessionID *string          `json:"latest_session_id" jsonschema:"the id of that attempt's newest session, a UUID, or null"`
	Count           int              `json:"count" jsonschema:"how many are returned here"`
	Total           int              `json:"total" jsonschema:"how many there are in all"`
	Filters         AttemptFilters   `json:"applied_filters" jsonschema:"what this list was limited to"`
	NextCursor      *string          `json:"next_cursor" jsonschema:"give it as cursor to have the next ones; null: there are no more"`
}

// Rescue is uncommitted work that was saved before its worktree was removed.
type Rescue struct {
	AttemptID string `json:"attempt_id" jsonschema:"the attempt whose work it is, a UUID"`
	Worktree  string `json:"worktree_path" jsonschema:"the absolute path of the worktree that was removed"`
	RepoPath  string `json:"repo_path" jsonschema:"the absolute path of the repository that keeps it"`
	Ref       string `json:"ref" jsonschema:"the git ref that keeps it, below refs/deepwork/rescue/; see it with git show"`
	Commit    string `json:"commit" jsonschema:"the commit that the ref names, in hexadecimal"`
}

// DeleteReply answers delete_task.
type DeleteReply struct {
	TaskID  string   `json:"task_id" jsonschema:"the id of the task that is gone, a UUID"`
	Deleted bool     `json:"deleted" jsonschema:"always true"`
	Rescued []Rescue `json:"rescued" jsonschema:"the uncommitted work that was kept; branches with commits are kept too, under their names"`
}

// AttemptReply answers get_attempt, start_task_attempt and stop_attempt.
type AttemptReply struct {
	AttemptID       string          `json:"attempt_id" jsonschema:"the attempt's id, a UUID"`
	TaskID          string          `json:"task_id" jsonschema:"the id of its task, a UUID"`
	State           string          `json:"state" jsonschema:"waiting (for a slot), starting, running, completed, failed, stopped or interrupted"`
	ExitCode        *int            `json:"exit_code" jsonschema:"the exit code of the agent's last run, -1 where a signal ended it; null while it runs or where it never did"`
	StartedAt       *string         `json:"started_at" jsonschema:"when the agent's last run began, RFC 3339 in UTC, or null"`
	EndedAt         *string         `json:"ended_at" jsonschema:"when it ended, RFC 3339 in UTC, or null"`
	FinalMessage    *string         `json:"final_message" jsonschema:"what the agent said at the end of its last run: its own result, or its last line of output; or null"`
	Error           *string         `json:"error" jsonschema:"why the agent could not be run, or null"`
	WorkspaceBranch string          `json:"workspace_branch" jsonschema:"the git branch that it works on, in every repository"`
	Executor        string          `json:"executor" jsonschema:"the executor that it was started with, such as CLAUDE_CODE"`
	Variant         *string         `json:"variant" jsonschema:"the executor's variant that it was started with, or null"`
	LatestSessionID *string         `json:"latest_session_id" jsonschema:"the id of its session, a UUID, for follow_up; null while its agent never ran"`
	QueuedFollowUp  *QueuedFollowUp `json:"queued_follow_up" jsonschema:"the follow-up that runs when the agent ends, or null"`
	WorkflowSession *string         `json:"workflow_session_id" jsonschema:"the session of the workflow that its agent runs, 8 hexadecimal characters, or null"`
	WorkflowStatus  *string         `json:"workflow_status" jsonschema:"active, completed or aborted; null where its agent runs no workflow"`
	WorkflowStep    *string         `json:"workflow_step" jsonschema:"the step that the workflow is at, or null"`
	Repos           []AttemptRepo   `json:"repos" jsonschema:"its worktrees, one a repository"`
	CreatedAt       string          `json:"created_at" jsonschema:"when it was made, RFC 3339 in UTC"`
	UpdatedAt       string          `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
	Notice          *string         `json:"notice" jsonschema:"what else there is to know, such as why it waits, or null"`
}

// QueuedFollowUp is a follow-up that waits for the end of the current run.
type QueuedFollowUp struct {
	Prompt   string  `json:"prompt" jsonschema:"what the agent will be told"`
	Variant  *string `json:"variant" jsonschema:"the variant that will run, or null for the session's own"`
	QueuedAt string  `json:"queued_at" jsonschema:"when it was queued, RFC 3339 in UTC"`
}

// AttemptRepo is a worktree of an attempt.
type AttemptRepo struct {
	RepoID       string   `json:"repo_id" jsonschema:"the repository's id, a UUID"`
	RepoName     string   `json:"repo_name" jsonschema:"the repository's name"`
	TargetBranch string   `json:"target_branch" jsonschema:"the branch that it started from"`
	WorktreePath string   `json:"worktree_path" jsonschema:"the absolute path of the worktree"`
	Exists       bool     `json:"exists" jsonschema:"whether the worktree is there: it is made when the attempt starts"`
	Ahead        int      `json:"ahead" jsonschema:"how many commits the attempt has that the target branch has not"`
	Behind       int      `json:"behind" jsonschema:"how many commits the target branch has that the attempt has not"`
	ChangedFiles []string `json:"changed_files" jsonschema:"the files changed since the target branch, committed, uncommitted and untracked, relative to the worktree; at most 1000"`
	ChangedCount int      `json:"changed_count" jsonschema:"how many files are changed in all"`
}

// FollowUpReply answers follow_up (seed 004, "MCP follow-up tool").
type FollowUpReply struct {
	SessionID     string  `json:"session_id" jsonschema:"the session's id, a UUID"`
	AttemptID     string  `json:"attempt_id" jsonschema:"the id of its attempt, a UUID"`
	Action        string  `json:"action" jsonschema:"the action as given: send, queue or cancel"`
	Status        string  `json:"status" jsonschema:"started (the agent runs with it, or does as soon as a slot is free), queued (it runs when the current run ends), cancelled (what was queued is dropped) or empty (nothing was queued)"`
	QueuedPrompt  *string `json:"queued_prompt" jsonschema:"the prompt that is queued now, or null"`
	DroppedPrompt *string `json:"dropped_prompt" jsonschema:"the queued prompt that this call replaced or cancelled, or null"`
	Notice        *string `json:"notice" jsonschema:"what else there is to know, or null"`
}

// The values of FollowUpReply.Status.
const (
	FollowUpStarted   = "started"
	FollowUpQueued    = "queued"
	FollowUpCancelled = "cancelled"
	FollowUpEmpty     = "empty"
)

// TailReply answers tail_attempt.
type TailReply struct {
	AttemptID string         `json:"attempt_id" jsonschema:"the attempt's id, a UUID"`
	Entries   []runner.Entry `json:"entries" jsonschema:"lines of the agent's output, oldest first"`
	NextIndex int64          `json:"next_index" jsonschema:"give it as after_index to go on after these entries"`
	State     string         `json:"state" jsonschema:"waiting, starting, running, completed, failed, stopped or interrupted; nothing comes after the entries of one that has ended, until a follow-up"`
}

// DiffReply answers get_attempt_diff.
type DiffReply struct {
	AttemptID string     `json:"attempt_id" jsonschema:"the attempt's id, a UUID"`
	Diffs     []RepoDiff `json:"diffs" jsonschema:"the changes, one entry a repository"`
	Truncated bool       `json:"truncated" jsonschema:"whether there is more than max_bytes"`
	Notice    *string    `json:"notice" jsonschema:"what else there is to know, or null"`
}

// RepoDiff holds the changes in one worktree.
type RepoDiff struct {
	RepoID    string `json:"repo_id" jsonschema:"the repository's id, a UUID"`
	RepoName  string `json:"repo_name" jsonschema:"the repository's name"`
	Diff      string `json:"diff" jsonschema:"the changes since the target branch as git diff writes them, uncommitted and untracked files included"`
	Truncated bool   `json:"truncated" jsonschema:"whether this diff was cut"`
}

// ExecutorInfo is one executor of list_executors.
type ExecutorInfo struct {
	Name        string   `json:"name" jsonschema:"the name for start_task_attempt's executor"`
	Variants    []string `json:"variants" jsonschema:"the names for start_task_attempt's variant"`
	Program     string   `json:"program" jsonschema:"the program that it runs"`
	Available   bool     `json:"available" jsonschema:"whether that program was found on this machine"`
	CanContinue bool     `json:"can_continue" jsonschema:"whether a follow-up goes on in the same conversation; else the agent begins anew in the same workspace"`
}

// ExecutorsReply answers list_executors.
type ExecutorsReply struct {
	Executors []ExecutorInfo `json:"executors" jsonschema:"the coding agents that attempts can run, available ones first"`
	Count     int            `json:"count" jsonschema:"how many there are"`
}

// ContextReply answers get_context (seed 004, "Workspace context data").
type ContextReply struct {
	ProjectID         string        `json:"project_id" jsonschema:"the id of the project, a UUID"`
	ProjectName       string        `json:"project_name" jsonschema:"the project's name"`
	TaskID            string        `json:"task_id" jsonschema:"the id of the task that is worked on here, a UUID"`
	TaskTitle         string        `json:"task_title" jsonschema:"the task's title"`
	TaskDescription   *string       `json:"task_description" jsonschema:"the task's description, or null"`
	TaskStatus        string        `json:"task_status" jsonschema:"todo, inprogress, inreview, done or cancelled"`
	AttemptID         string        `json:"attempt_id" jsonschema:"the id of the attempt whose workspace this is, a UUID"`
	WorkspaceBranch   string        `json:"workspace_branch" jsonschema:"the git branch that the attempt works on"`
	WorkspaceRepos    []ContextRepo `json:"workspace_repos" jsonschema:"the repositories of the workspace"`
	JobName           *string       `json:"job_name" jsonschema:"the job of the workflow that the task asks for, or null"`
	WorkflowName      *string       `json:"workflow_name" jsonschema:"the workflow that the task asks for, or null"`
	WorkflowSessionID *string       `json:"workflow_session_id" jsonschema:"the session of the workflow that runs here, 8 hexadecimal characters, or null"`
	WorkflowStatus    *string       `json:"workflow_status" jsonschema:"active, completed or aborted; null where none was started"`
	WorkflowStep      *string       `json:"workflow_step" jsonschema:"the step that the workflow is at, or null"`
}

// ContextRepo is a repository of a workspace.
type ContextRepo struct {
	RepoID       string `json:"repo_id" jsonschema:"the repository's id, a UUID"`
	RepoName     string `json:"repo_name" jsonschema:"the repository's name"`
	TargetBranch string `json:"target_branch" jsonschema:"the branch that the attempt started from"`
	WorktreePath string `json:"worktree_path" jsonschema:"the absolute path of its worktree"`
}
