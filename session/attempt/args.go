package attempt

// The arguments of the board's tools, decoded by their json tags (seed 004, "MCP task tool set"). A
// nil pointer means that the argument was omitted or null. Ids are UUIDs, except RequestID, which
// the caller chooses.

// ListProjectsArgs are the arguments of list_projects.
type ListProjectsArgs struct {
	Limit  *int    `json:"limit"`
	Cursor *string `json:"cursor"`
}

// ListReposArgs are the arguments of list_repos.
type ListReposArgs struct {
	ProjectID string  `json:"project_id"`
	Limit     *int    `json:"limit"`
	Cursor    *string `json:"cursor"`
}

// ListTasksArgs are the arguments of list_tasks (seed 004, "list_tasks provides
// attempt summary").
type ListTasksArgs struct {
	ProjectID string  `json:"project_id"`
	Status    *string `json:"status"`
	Limit     *int    `json:"limit"`
	Cursor    *string `json:"cursor"`
}

// ListTaskAttemptsArgs are the arguments of list_task_attempts.
type ListTaskAttemptsArgs struct {
	TaskID string  `json:"task_id"`
	Limit  *int    `json:"limit"`
	Cursor *string `json:"cursor"`
}

// TaskArgs are the arguments of get_task and delete_task.
type TaskArgs struct {
	TaskID string `json:"task_id"`
}

// DeleteArgs are the arguments of delete_task.
type DeleteArgs struct {
	TaskID string `json:"task_id"`
	Force  bool   `json:"-"` // discard repositories in its worktrees: for people, on the command line
}

// CreateTaskArgs are the arguments of create_task.
type CreateTaskArgs struct {
	ProjectID    string   `json:"project_id"`
	Title        string   `json:"title"`
	Description  *string  `json:"description"`
	JobName      *string  `json:"job_name"`
	WorkflowName *string  `json:"workflow_name"`
	Lead         *string  `json:"lead,omitempty"` // task.AgentLeads or task.ServerLeads
	DependsOn    []string `json:"depends_on,omitempty"`
	RequestID    *string  `json:"request_id"`
}

// UpdateTaskArgs are the arguments of update_task: omitted fields do not change; an empty
// description, job_name, workflow_name or depends_on is cleared.
type UpdateTaskArgs struct {
	TaskID       string   `json:"task_id"`
	Title        *string  `json:"title"`
	Description  *string  `json:"description"`
	Status       *string  `json:"status"`
	JobName      *string  `json:"job_name"`
	WorkflowName *string  `json:"workflow_name"`
	DependsOn    []string `json:"depends_on"`
}

// StartArgs are the arguments of start_task_attempt.
type StartArgs struct {
	TaskID    string     `json:"task_id"`
	Executor  string     `json:"executor"`
	Variant   *string    `json:"variant"`
	Repos     []RepoArgs `json:"repos"`
	Prompt    *string    `json:"prompt"`
	RequestID *string    `json:"request_id"`
}

// RepoArgs name a repository of an attempt and the branch that it starts from.
type RepoArgs struct {
	RepoID       string `json:"repo_id"`
	TargetBranch string `json:"target_branch"`
}

// Target names an attempt. WorkspaceID is an alias of AttemptID that requests may use and that no
// schema lists (DESIGN "Task board").
type Target struct {
	AttemptID   *string `json:"attempt_id"`
	WorkspaceID *string `json:"workspace_id"`
}

// FollowUpArgs are the arguments of follow_up (seed 004, "MCP follow-up tool"):
// exactly one of SessionID and the target.
type FollowUpArgs struct {
	Target
	SessionID *string `json:"session_id"`
	Action    string  `json:"action"`
	Prompt    *string `json:"prompt"`
	Variant   *string `json:"variant"`

	comments []string // that Prompt has; see CommentAttempt
}

// The actions of follow_up.
const (
	ActionSend   = "send"
	ActionQueue  = "queue"
	ActionCancel = "cancel"
)

// AttemptArgs are the arguments of get_attempt and stop_attempt.
type AttemptArgs struct{ Target }

// TailArgs are the arguments of tail_attempt.
type TailArgs struct {
	Target
	ExecutionID *string  `json:"execution_id"`
	AfterIndex  *int64   `json:"after_index"`
	Limit       *int     `json:"limit"`
	Wait        *float64 `json:"wait"` // seconds
	Raw         *bool    `json:"raw"`

	Newest bool `json:"-"` // of the execution, if AfterIndex is nil
}

// DiffArgs are the arguments of get_attempt_diff.
type DiffArgs struct {
	Target
	Paths    []string `json:"paths"`
	MaxBytes *int     `json:"max_bytes"`
}

// MergeArgs are the arguments of merge_attempt and rebase_attempt.
type MergeArgs struct {
	Target
	RepoID  *string `json:"repo_id"`
	Way     *string `json:"way"`     // of merge_attempt
	Message *string `json:"message"` // of merge_attempt
}

// PushArgs are the arguments of push_attempt.
type PushArgs struct {
	Target
	RepoID *string `json:"repo_id"`
	Remote *string `json:"remote"`
	Force  *bool   `json:"force"`
}

// AbortArgs are the arguments of abort_merge.
type AbortArgs struct {
	Target
	RepoID *string `json:"repo_id"`
}

// TargetArgs are the arguments of change_target.
type TargetArgs struct {
	Target
	RepoID       *string `json:"repo_id"`
	TargetBranch string  `json:"target_branch"`
}
