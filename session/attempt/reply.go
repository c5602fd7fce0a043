package attempt

import (
	"deepwork/catalog/task"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
)

// Rescue is uncommitted work that was saved before its worktree was removed.
type Rescue struct {
	AttemptID string `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Worktree  string `json:"worktree_path" jsonschema:"absolute path of the removed worktree"`
	RepoPath  string `json:"repo_path" jsonschema:"absolute path of the repository that keeps the work"`
	Ref       string `json:"ref" jsonschema:"git ref below refs/deepwork/rescue/; git show --first-parent prints it"`
	Commit    string `json:"commit" jsonschema:"commit of that ref, in hexadecimal"`
}

// DeleteReply answers delete_task.
type DeleteReply struct {
	TaskID    string   `json:"task_id" jsonschema:"UUID of the deleted task"`
	Deleted   bool     `json:"deleted" jsonschema:"always true"`
	Rescued   []Rescue `json:"rescued" jsonschema:"uncommitted work that was kept, one entry per worktree"`
	Discarded []string `json:"-"` // repositories in worktrees that Force discarded, and why they had been refused
	Notice    *string  `json:"notice,omitempty"`
}

// Tags implements fieldtag.Tagger.
func (DeleteReply) Tags() map[string]string {
	return map[string]string{
		"Notice": `jsonschema:"a hint, such as where worktrees are left on another machine"`,
	}
}

// AttemptReply answers start_task_attempt and stop_attempt.
type AttemptReply struct {
	AttemptID       string          `json:"attempt_id" jsonschema:"UUID of the attempt"`
	TaskID          string          `json:"task_id" jsonschema:"UUID of its task"`
	State           board.State     `json:"state"`
	Lead            string          `json:"lead" jsonschema:"agent, or server if it is a run: get_run shows its agents"`
	ExitCode        *int            `json:"exit_code"`
	StartedAt       *string         `json:"started_at"`
	EndedAt         *string         `json:"ended_at" jsonschema:"when it ended, RFC 3339 in UTC"`
	FinalMessage    *string         `json:"final_message"`
	Error           *string         `json:"error"`
	PushError       *string         `json:"push_error"`
	Cost            *board.Cost     `json:"cost" jsonschema:"what its executions cost, or null before one has ended"`
	WorkspaceBranch string          `json:"workspace_branch"`
	Executor        string          `json:"executor" jsonschema:"its executor, such as CLAUDE_CODE"`
	Variant         *string         `json:"variant" jsonschema:"variant of the executor"`
	LatestSessionID *string         `json:"latest_session_id"`
	QueuedFollowUp  *QueuedFollowUp `json:"queued_follow_up"`
	WorkflowSession *string         `json:"workflow_session_id"`
	WorkflowStatus  *string         `json:"workflow_status"`
	WorkflowStep    *string         `json:"workflow_step" jsonschema:"current step of the workflow"`
	Repos           []AttemptRepo   `json:"repos" jsonschema:"its worktrees, one per repository"`
	CreatedAt       string          `json:"created_at" jsonschema:"when it was created, RFC 3339 in UTC"`
	UpdatedAt       string          `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
	Notice          *string         `json:"notice" jsonschema:"a hint, such as why it waits"`

	Agent        task.AttemptState `json:"-"` // of its newest execution, whatever became of its branch
	Open         bool              `json:"-"` // it has not ended
	WaitsForSlot bool              `json:"-"` // as many agents work as may work at once
	Workspace    string            `json:"-"` // the folder in which its agent works, absolute
	Contained    string            `json:"-"` // under what its agent last ran; see task.Execution
	Why          string            `json:"-"` // why its agent has not completed its work, in a sentence
	Unseen       string            `json:"-"` // of a start: which files are not in its worktrees, in a sentence

	Going `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (AttemptReply) Tags() map[string]string {
	return map[string]string{
		"State": `jsonschema:"queued, running, waiting_for_you, waiting, paused, conflicts, interrupted, ` +
			`failed, stopped, completed or merged"`,
		"ExitCode": `jsonschema:"exit code of the agent's last execution, -1 if a signal ended it, null ` +
			`while it runs or if it never ran"`,
		"StartedAt":       `jsonschema:"when the agent last started, RFC 3339 in UTC"`,
		"FinalMessage":    `jsonschema:"what the agent said last: its result, or its last line of output"`,
		"Error":           `jsonschema:"why its last execution failed, with the agent's last lines on stderr"`,
		"PushError":       `jsonschema:"why its branch was not pushed to the remote in attempts.push_to"`,
		"WorkspaceBranch": `jsonschema:"git branch of the attempt, in every repository"`,
		"LatestSessionID": `jsonschema:"UUID of its conversation, for follow_up, or null if its agent never ran"`,
		"QueuedFollowUp":  `jsonschema:"follow-up that starts when the agent ends"`,
		"WorkflowSession": `jsonschema:"workflow session of its agent, 8 hexadecimal characters"`,
		"WorkflowStatus":  `jsonschema:"active, completed or aborted, or null without a workflow"`,
	}
}

// FullAttemptReply answers get_attempt.
type FullAttemptReply struct {
	AttemptReply
	Executions []Execution `json:"executions" jsonschema:"its agent's executions, newest first, at most 50"`
}

// Execution describes one run of an attempt's agent.
type Execution struct {
	ExecutionID  string               `json:"execution_id" jsonschema:"UUID of the execution, for tail_attempt"`
	State        board.State          `json:"state"`
	Prompt       string               `json:"prompt" jsonschema:"beginning of what the agent was asked"`
	ExitCode     *int                 `json:"exit_code" jsonschema:"its exit code"`
	FinalMessage *string              `json:"final_message" jsonschema:"beginning of what the agent said last"`
	Error        *string              `json:"error" jsonschema:"beginning of why it failed"`
	StartedAt    *string              `json:"started_at"`
	EndedAt      *string              `json:"ended_at" jsonschema:"when it ended, RFC 3339 in UTC"`
	Cost         *board.ExecutionCost `json:"cost"`

	Why string `json:"-"` // why it has not completed its work, in a sentence
}

// Tags implements fieldtag.Tagger.
func (Execution) Tags() map[string]string {
	return map[string]string{
		"State":     `jsonschema:"queued, running, completed, failed, stopped or interrupted"`,
		"StartedAt": `jsonschema:"when it started, RFC 3339 in UTC, or null if it never ran"`,
		"Cost":      `jsonschema:"what it used; null before its end or if it never ran; unknown values are null"`,
	}
}

// QueuedFollowUp is a follow-up that waits for the end of the current run.
type QueuedFollowUp struct {
	Prompt   string  `json:"prompt" jsonschema:"the message for the agent"`
	Variant  *string `json:"variant" jsonschema:"variant of the executor, or null for the session's own"`
	QueuedAt string  `json:"queued_at" jsonschema:"when it was queued, RFC 3339 in UTC"`
}

// AttemptRepo describes a worktree of an attempt.
type AttemptRepo struct {
	RepoID       string   `json:"repo_id" jsonschema:"UUID of the repository"`
	RepoName     string   `json:"repo_name" jsonschema:"name of the repository"`
	TargetBranch string   `json:"target_branch" jsonschema:"branch that it is compared with and merged into"`
	WorktreePath string   `json:"worktree_path" jsonschema:"absolute path of the worktree"`
	Exists       bool     `json:"exists"`
	Ahead        int      `json:"ahead" jsonschema:"commits that only the attempt has"`
	Behind       int      `json:"behind" jsonschema:"commits that only the target branch has"`
	ChangedFiles []string `json:"changed_files"`
	ChangedCount int      `json:"changed_count" jsonschema:"number of all changed files"`
	Conflicts    []string `json:"conflicts"`

	// About the worktree, for people: whether it was made here and no longer exists, whether a merge is in
	// progress, how many files are uncommitted, what is checked out instead of the attempt's branch, or "",
	// and whether somebody merged its commits into the target by hand.
	Gone      bool     `json:"-"`
	Merging   bool     `json:"-"`
	Loose     int      `json:"-"`
	Elsewhere string   `json:"-"`
	ByHand    bool     `json:"-"`
	Resolved  []string `json:"-"` // the files whose conflicts in the merge in progress are resolved
}

// Tags implements fieldtag.Tagger.
func (AttemptRepo) Tags() map[string]string {
	return map[string]string{
		"Exists": `jsonschema:"whether the worktree exists; it is created when the attempt starts"`,
		"ChangedFiles": `jsonschema:"files that the attempt changed, even if merged, including untracked ones, ` +
			`relative to the worktree; at most 1000"`,
		"Conflicts": `jsonschema:"files whose conflicts of a merge in the worktree are not resolved"`,
	}
}

// FollowUpReply answers follow_up (seed 004, "MCP follow-up tool").
type FollowUpReply struct {
	SessionID     string  `json:"session_id" jsonschema:"UUID of the session"`
	AttemptID     string  `json:"attempt_id" jsonschema:"UUID of its attempt"`
	Action        string  `json:"action" jsonschema:"the given action: send, queue or cancel"`
	Status        string  `json:"status"`
	QueuedPrompt  *string `json:"queued_prompt" jsonschema:"prompt that is queued now"`
	DroppedPrompt *string `json:"dropped_prompt"`
	Notice        *string `json:"notice" jsonschema:"a hint, if any"`

	Going `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (FollowUpReply) Tags() map[string]string {
	return map[string]string{
		"Status": `jsonschema:"started (now, or as soon as a slot is free), queued (for when the agent ` +
			`ends), cancelled (what was queued is dropped) or empty (nothing was queued)"`,
		"DroppedPrompt": `jsonschema:"queued prompt that this call replaced or cancelled"`,
	}
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
	AttemptID string         `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Messages  []Message      `json:"messages" jsonschema:"what the agent said and did, oldest first; empty if raw"`
	Entries   []runner.Entry `json:"entries"`
	NextIndex int64          `json:"next_index" jsonschema:"after_index for what follows these"`
	State     board.State    `json:"state"`
}

// Tags implements fieldtag.Tagger.
func (TailReply) Tags() map[string]string {
	return map[string]string{
		"Entries": `jsonschema:"if raw: what the agent printed, one entry per line, oldest first"`,
		"State": `jsonschema:"queued, running, completed, failed, stopped or interrupted; after the end nothing ` +
			`follows until a follow-up"`,
	}
}

// RepoDiff has the changes in one worktree.
type RepoDiff struct {
	RepoID    string `json:"repo_id" jsonschema:"UUID of the repository"`
	RepoName  string `json:"repo_name" jsonschema:"name of the repository"`
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated" jsonschema:"whether this diff was cut off"`

	// Binary has the files that the diff names without content, with their sizes in bytes; -1 means deleted.
	Binary map[string]int64 `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (RepoDiff) Tags() map[string]string {
	return map[string]string{
		"Diff": `jsonschema:"git diff of the attempt's work, even if merged, with uncommitted and untracked files"`,
	}
}

// ExecutorInfo describes an executor in list_executors.
type ExecutorInfo struct {
	Name        string   `json:"name" jsonschema:"name, for start_task_attempt"`
	Variants    []string `json:"variants" jsonschema:"names of its variants, for start_task_attempt"`
	Program     string   `json:"program" jsonschema:"program that it runs"`
	Available   bool     `json:"available" jsonschema:"whether that program is installed here"`
	CanContinue bool     `json:"can_continue"`
}

// Tags implements fieldtag.Tagger.
func (ExecutorInfo) Tags() map[string]string {
	return map[string]string{
		"CanContinue": `jsonschema:"whether a follow-up continues the conversation; otherwise a new one starts in ` +
			`the same worktree, with the task and what was done"`,
	}
}

// ExecutorsReply answers list_executors.
type ExecutorsReply struct {
	Executors []ExecutorInfo `json:"executors" jsonschema:"the coding agents, available ones first"`
	Count     int            `json:"count" jsonschema:"number of executors"`
}
