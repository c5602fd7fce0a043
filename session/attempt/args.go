package attempt

import (
	"deepwork/session/board"
)

// DeleteArgs are the arguments of delete_task.
type DeleteArgs struct {
	TaskID string `json:"task_id" arg:"UUID"`
	Force  bool   `json:"-"` // discard repositories in its worktrees; only for people at the command line
}

// StartArgs are the arguments of start_task_attempt.
type StartArgs struct {
	TaskID    string     `json:"task_id" arg:"UUID"`
	Executor  string     `json:"executor" arg:"From list_executors"`
	Variant   *string    `json:"variant" arg:"Of the executor"`
	Repos     []RepoArgs `json:"repos" arg:"Default: all of the project, on the checked-out branches" max:"50"`
	Prompt    *string    `json:"prompt" arg:"More instructions" max:"100000"`
	Wait      bool       `json:"wait,omitempty" arg:"Reply when it has ended"`
	RequestID *string    `json:"request_id" arg:"Any text, for retries"`
	Budget    *board.Run `json:"-"` // the limits of a run, for people; nil means none
}

// RepoArgs name a repository of an attempt and the branch that it starts from.
type RepoArgs struct {
	RepoID       string `json:"repo_id" arg:"UUID, from list_repos"`
	TargetBranch string `json:"target_branch" arg:"Branch to start from, as committed"`
}

// FollowUpArgs are the arguments of follow_up (seed 004, "MCP follow-up tool"): exactly one of SessionID and
// the target.
type FollowUpArgs struct {
	board.Target `optional:"true"`

	SessionID *string `json:"session_id" arg:"UUID: latest_session_id"`
	Action    string  `json:"action" enum:"send,queue,cancel"`
	Prompt    *string `json:"prompt" arg:"For send and queue" max:"100000"`
	Variant   *string `json:"variant" arg:"Default: as before"`
	Wait      bool    `json:"wait,omitempty" arg:"Reply when it has ended"`
	RequestID *string `json:"request_id" arg:"Any text, for retries"`

	// WorkspaceID is what earlier clients call AttemptID (DESIGN "Task board").
	WorkspaceID *string `json:"workspace_id" arg:"Another name for attempt_id." unlisted:"true"`

	Comments []string `json:"-"` // the comments in Prompt; see merge.CommentAttempt
}

// Tags implements fieldtag.Tagger.
func (FollowUpArgs) Tags() map[string]string {
	return map[string]string{
		"Action": `arg:"send: now; queue: when it ends, replacing what is queued; cancel: drop that"`,
	}
}

// The actions of follow_up.
const (
	ActionSend   = "send"
	ActionQueue  = "queue"
	ActionCancel = "cancel"
)

// AttemptArgs are the arguments of get_attempt and stop_attempt.
type AttemptArgs struct{ board.Target }

// The limits of arguments of attempts.
const (
	MaxRepos       = 50   // repositories of one attempt
	DefaultTail    = 100  // entries of tail_attempt
	MaxTail        = 1000 // entries of tail_attempt
	MaxWait        = 30   // seconds that tail_attempt waits
	MaxListedFiles = 1000 // changed_files of one worktree
)

// TailArgs are the arguments of tail_attempt.
type TailArgs struct {
	board.Target
	ExecutionID *string  `json:"execution_id" arg:"UUID from get_attempt or get_run. Default: all"`
	AfterIndex  *int64   `json:"after_index" min:"-1" max:"9007199254740992"`
	Limit       *int     `json:"limit" arg:"Default: 100" min:"1" max:"1000"`
	Wait        *float64 `json:"wait" arg:"Seconds, to 30. Default: 0" min:"0" max:"30"`
	Raw         *bool    `json:"raw" arg:"The lines as printed"`

	Newest bool `json:"-"` // the newest entries of the execution, if AfterIndex is nil
}

// Tags implements fieldtag.Tagger.
func (TailArgs) Tags() map[string]string {
	return map[string]string{
		"AfterIndex": `arg:"next_index; -1: the start. Default: the end"`,
	}
}
