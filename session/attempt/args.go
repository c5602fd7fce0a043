package attempt

// The arguments of the board's tools (seed 004, "MCP task tool set"). Their tags describe them: input
// schemas, the forms of pages and the flags of commands are made from these (tool.Argument). A nil
// pointer means that the argument was omitted or null. Ids are UUIDs, except RequestID, which the caller
// chooses.

// ListProjectsArgs are the arguments of list_projects.
type ListProjectsArgs struct {
	Limit  *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// ListReposArgs are the arguments of list_repos.
type ListReposArgs struct {
	ProjectID string  `json:"project_id" arg:"From list_projects"`
	Limit     *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor    *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// ListTasksArgs are the arguments of list_tasks (seed 004, "list_tasks provides
// attempt summary").
type ListTasksArgs struct {
	ProjectID string  `json:"project_id" arg:"From list_projects"`
	Status    *string `json:"status" arg:"Only this status" enum:"todo,inprogress,inreview,done,cancelled"`
	Limit     *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor    *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// ListTaskAttemptsArgs are the arguments of list_task_attempts.
type ListTaskAttemptsArgs struct {
	TaskID string  `json:"task_id" arg:"From list_tasks"`
	Limit  *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// TaskArgs are the arguments of get_task.
type TaskArgs struct {
	TaskID string `json:"task_id" arg:"From list_tasks"`
}

// DeleteArgs are the arguments of delete_task.
type DeleteArgs struct {
	TaskID string `json:"task_id" arg:"From list_tasks"`
	Force  bool   `json:"-"` // discard repositories in its worktrees: for people, on the command line
}

// CreateTaskArgs are the arguments of create_task.
type CreateTaskArgs struct {
	ProjectID    string   `json:"project_id" arg:"From list_projects"`
	Title        string   `json:"title" arg:"One line" max:"200"`
	Description  *string  `json:"description" arg:"The work in full" max:"100000"`
	JobName      *string  `json:"job_name" arg:"Job of the workflow to complete"`
	WorkflowName *string  `json:"workflow_name" arg:"Its workflow"`
	Lead         *string  `json:"lead,omitempty" arg:"server: an agent per step. Default: agent" enum:"agent,server"`
	DependsOn    []string `json:"depends_on,omitempty" arg:"Tasks to be done first" max:"50"`
	RequestID    *string  `json:"request_id" arg:"Makes retries safe"`
}

// UpdateTaskArgs are the arguments of update_task: omitted fields do not change; an empty
// description, job_name, workflow_name or depends_on is cleared.
type UpdateTaskArgs struct {
	TaskID       string   `json:"task_id" arg:"From list_tasks"`
	Title        *string  `json:"title" arg:"One line" max:"200"`
	Description  *string  `json:"description" arg:"The work in full" max:"100000"`
	Status       *string  `json:"status" arg:"New status" enum:"todo,inprogress,inreview,done,cancelled"`
	JobName      *string  `json:"job_name" arg:"Job of the workflow to complete"`
	WorkflowName *string  `json:"workflow_name" arg:"Its workflow"`
	DependsOn    []string `json:"depends_on" arg:"Tasks to be done first" max:"50"`
}

// StartArgs are the arguments of start_task_attempt.
type StartArgs struct {
	TaskID    string     `json:"task_id" arg:"From list_tasks"`
	Executor  string     `json:"executor" arg:"From list_executors"`
	Variant   *string    `json:"variant" arg:"Of the executor"`
	Repos     []RepoArgs `json:"repos" arg:"Of the project" required:"true" min:"1" max:"50"`
	Prompt    *string    `json:"prompt" arg:"More instructions" max:"100000"`
	RequestID *string    `json:"request_id" arg:"Makes retries safe"`
}

// RepoArgs name a repository of an attempt and the branch that it starts from.
type RepoArgs struct {
	RepoID       string `json:"repo_id" arg:"From list_repos"`
	TargetBranch string `json:"target_branch" arg:"Branch to start from, as committed"`
}

// Target names an attempt.
type Target struct {
	AttemptID *string `json:"attempt_id" arg:"UUID" required:"true"`
}

// FollowUpArgs are the arguments of follow_up (seed 004, "MCP follow-up tool"):
// exactly one of SessionID and the target.
type FollowUpArgs struct {
	Target `optional:"true"`

	SessionID *string `json:"session_id" arg:"UUID: latest_session_id"`
	Action    string  `json:"action" arg:"send: now; queue: when it ends, replacing what is queued; cancel: drop that" enum:"send,queue,cancel"`
	Prompt    *string `json:"prompt" arg:"For send and queue" max:"100000"`
	Variant   *string `json:"variant" arg:"Default: as before"`

	// WorkspaceID is the name that earlier clients have for AttemptID (DESIGN "Task board").
	WorkspaceID *string `json:"workspace_id" arg:"Another name for attempt_id." unlisted:"true"`

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
	ExecutionID *string  `json:"execution_id" arg:"UUID from get_attempt or get_run. Default: all"`
	AfterIndex  *int64   `json:"after_index" arg:"next_index; -1: the start. Default: the end" min:"-1" max:"9007199254740992"`
	Limit       *int     `json:"limit" arg:"Default: 100" min:"1" max:"1000"`
	Wait        *float64 `json:"wait" arg:"Seconds, to 30. Default: 0" min:"0" max:"30"`
	Raw         *bool    `json:"raw" arg:"The lines as printed"`

	Newest bool `json:"-"` // of the execution, if AfterIndex is nil
}

// DiffArgs are the arguments of get_attempt_diff.
type DiffArgs struct {
	Target
	Paths    []string `json:"paths" arg:"Files or folders. Default: all" max:"200" each:"4096"`
	MaxBytes *int     `json:"max_bytes" arg:"Default: 100000" min:"1" max:"1000000"`
}

// BranchArgs are the arguments of rebase_attempt and abort_merge.
type BranchArgs struct {
	Target
	RepoID *string `json:"repo_id" arg:"Default: all"`
}

// MergeArgs are the arguments of merge_attempt.
type MergeArgs struct {
	Target
	RepoID  *string `json:"repo_id" arg:"Default: all"`
	Way     *string `json:"way" arg:"Default: merge" enum:"merge,squash,rebase"`
	Message *string `json:"message" arg:"Text of the commit" max:"100000"`
}

// PushArgs are the arguments of push_attempt.
type PushArgs struct {
	Target
	RepoID *string `json:"repo_id" arg:"Default: all"`
	Remote *string `json:"remote" arg:"Default: origin"`
	Force  *bool   `json:"force" arg:"Replace it unless others pushed. Default: false"`
}

// TargetArgs are the arguments of change_target.
type TargetArgs struct {
	Target
	TargetBranch string  `json:"target_branch" arg:"An existing branch"`
	RepoID       *string `json:"repo_id" arg:"Default: all"`
}
