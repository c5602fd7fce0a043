package board

import (
	"time"

	"deepwork/session"
	"deepwork/session/outputs"
)

// The tools' replies. Every field is always present, and null without a value. The jsonschema tags are the
// descriptions that clients see (seed 004, "Schema field documentation").

// Project describes a project in list_projects.
type Project struct {
	ProjectID string `json:"project_id" jsonschema:"UUID of the project, the same after a restart"`
	Name      string `json:"name" jsonschema:"name in the config, or of the folder"`
	IsRoot    bool   `json:"is_root" jsonschema:"whether it is the server's own project"`
	CreatedAt string `json:"created_at" jsonschema:"when it was added to the board, RFC 3339 in UTC"`
	UpdatedAt string `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
}

// ProjectFilters are the filters of list_projects.
type ProjectFilters struct {
	Limit int `json:"limit" jsonschema:"limit on the entries of a reply"`
}

// ProjectsReply answers list_projects.
type ProjectsReply struct {
	Projects   []Project      `json:"projects" jsonschema:"the projects, newest first"`
	Count      int            `json:"count" jsonschema:"number of entries in this reply"`
	Total      int            `json:"total" jsonschema:"number of entries in total"`
	Filters    ProjectFilters `json:"applied_filters" jsonschema:"the filters of this list"`
	NextCursor *string        `json:"next_cursor" jsonschema:"cursor for the next page, or null on the last page"`
}

// Repo describes a repository in list_repos.
type Repo struct {
	RepoID    string `json:"repo_id" jsonschema:"UUID of the repository, for start_task_attempt"`
	ProjectID string `json:"project_id" jsonschema:"UUID of its project"`
	Name      string `json:"name" jsonschema:"name, unique in the project"`
	Path      string `json:"path" jsonschema:"absolute path; checked when an attempt starts"`
	CreatedAt string `json:"created_at" jsonschema:"when it was added to the board, RFC 3339 in UTC"`
	UpdatedAt string `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
}

// RepoFilters are the filters of list_repos.
type RepoFilters struct {
	ProjectID string `json:"project_id" jsonschema:"UUID of the project"`
	Limit     int    `json:"limit" jsonschema:"limit on the entries of a reply"`
}

// ReposReply answers list_repos.
type ReposReply struct {
	Repos      []Repo      `json:"repos" jsonschema:"the repositories, newest first"`
	Count      int         `json:"count" jsonschema:"number of entries in this reply"`
	Total      int         `json:"total" jsonschema:"number of entries in total"`
	Filters    RepoFilters `json:"applied_filters" jsonschema:"the filters of this list"`
	NextCursor *string     `json:"next_cursor" jsonschema:"cursor for the next page, or null on the last page"`
}

// Task describes a task, with a summary of its attempts, in get_task, create_task and update_task (seed 004,
// "list_tasks provides attempt summary").
type Task struct {
	TaskID                string      `json:"task_id" jsonschema:"UUID of the task"`
	ProjectID             string      `json:"project_id" jsonschema:"UUID of its project"`
	Title                 string      `json:"title" jsonschema:"the work in one line"`
	Description           *string     `json:"description" jsonschema:"the work in full"`
	Status                string      `json:"status" jsonschema:"todo, inprogress, inreview, done or cancelled"`
	JobName               *string     `json:"job_name"`
	WorkflowName          *string     `json:"workflow_name"`
	Inputs                outputs.Map `json:"inputs"`
	Lead                  string      `json:"lead"`
	Labels                []string    `json:"labels" jsonschema:"its labels"`
	Priority              string      `json:"priority" jsonschema:"low, normal or high"`
	DependsOn             []string    `json:"depends_on"`
	BlockedBy             []string    `json:"blocked_by" jsonschema:"UUIDs of those that are not done"`
	CreatedAt             string      `json:"created_at" jsonschema:"when it was created, RFC 3339 in UTC"`
	UpdatedAt             string      `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
	LatestAttemptID       *string     `json:"latest_attempt_id" jsonschema:"UUID of its newest attempt"`
	LatestWorkspaceBranch *string     `json:"latest_workspace_branch"`
	LatestSessionID       *string     `json:"latest_session_id"`
	LatestSessionExecutor *string     `json:"latest_session_executor"`
	HasInProgressAttempt  bool        `json:"has_in_progress_attempt"`
	LastAttemptFailed     bool        `json:"last_attempt_failed"`

	LatestAttemptState *State `json:"-"` // of the newest attempt; nil without an attempt
	Group              string `json:"-"` // the group of tokens whose members share it; "" means none
}

// Tags implements fieldtag.Tagger.
func (Task) Tags() map[string]string {
	return map[string]string{
		"JobName":      `jsonschema:"job of the workflow that its attempts must complete"`,
		"WorkflowName": `jsonschema:"workflow that its attempts must complete"`,
		"Inputs":       `jsonschema:"values of the workflow's inputs that are known, by name"`,
		"Lead": `jsonschema:"agent: one agent does the workflow; server: each attempt is a run, ` +
			`with an agent per step"`,
		"DependsOn":             `jsonschema:"UUIDs of tasks that must be done before an attempt starts"`,
		"LatestWorkspaceBranch": `jsonschema:"git branch of that attempt"`,
		"LatestSessionID":       `jsonschema:"UUID of that attempt's newest conversation"`,
		"LatestSessionExecutor": `jsonschema:"executor of that conversation, such as CLAUDE_CODE"`,
		"HasInProgressAttempt":  `jsonschema:"whether an attempt is waiting, starting or running"`,
		"LastAttemptFailed":     `jsonschema:"whether the newest attempt failed or was interrupted"`,
	}
}

// TaskReply answers get_task.
type TaskReply struct {
	Task
	Cost *Cost `json:"cost" jsonschema:"what the executions of all its attempts cost, or null before one has ended"`
}

// TaskFilters are the filters of list_tasks.
type TaskFilters struct {
	ProjectID string   `json:"project_id" jsonschema:"UUID of the project"`
	Status    *string  `json:"status" jsonschema:"todo, inprogress, inreview, done or cancelled, or null for all"`
	Labels    []string `json:"labels" jsonschema:"labels that they all have"`
	Priority  *string  `json:"priority" jsonschema:"low, normal or high, or null for all"`
	Limit     int      `json:"limit" jsonschema:"limit on the entries of a reply"`
}

// TasksReply answers list_tasks.
type TasksReply struct {
	Tasks      []Task      `json:"tasks" jsonschema:"the tasks, newest first"`
	Count      int         `json:"count" jsonschema:"number of entries in this reply"`
	Total      int         `json:"total" jsonschema:"number of tasks that match the filters"`
	Filters    TaskFilters `json:"applied_filters" jsonschema:"the filters of this list"`
	NextCursor *string     `json:"next_cursor" jsonschema:"cursor for the next page, or null on the last page"`
}

// Attention is a thing that needs a person.
type Attention struct {
	Kind    string  `json:"kind"`
	ID      string  `json:"id"`
	State   *State  `json:"state"`
	Title   string  `json:"title" jsonschema:"title of the task, or what waits, in one line"`
	Why     *string `json:"why" jsonschema:"why it stopped or waits, in a sentence"`
	Since   *string `json:"since" jsonschema:"since when it waits, RFC 3339 in UTC"`
	Command string  `json:"command"`

	Waits   *session.AwaitingStep `json:"-"` // for AttentionStep
	TaskID  string                `json:"-"` // for an attempt
	End     *RunEnd               `json:"-"` // for a run
	InPlace bool                  `json:"-"` // the run works in the project's own folder
	at      time.Time             // Since as a time
}

// Tags implements fieldtag.Tagger.
func (Attention) Tags() map[string]string {
	return map[string]string{
		"Kind": `jsonschema:"attempt_failed, attempt_to_review, attempt_conflicts (of a merge), run_to_resume (it ` +
			`failed, was interrupted, or paused by a budget), untrusted (what the config asks for is not ` +
			`approved), budget_reached (so that no agent starts), limit_unclear (a run waits for a limit without a ` +
			`known end), schedule_failing (it is paused, since its last runs failed), source_asks (a workflow of ` +
			`another system, where a person answers) or step_waits (only a person can pass it)"`,
		"ID": `jsonschema:"UUID of the attempt, id of the session, name of the schedule, key of the config, or ` +
			`what identifies a part of it"`,
		"State": `jsonschema:"of an attempt or a run: queued, running, waiting_for_you, waiting, paused, ` +
			`conflicts, interrupted, failed, stopped, completed or merged"`,
		"Command": `jsonschema:"what a person runs in a terminal, in the project; empty for source_asks"`,
	}
}

// AttentionReply answers needs_attention.
type AttentionReply struct {
	Items     []Attention `json:"items" jsonschema:"what waits for a person, newest first"`
	Count     int         `json:"count" jsonschema:"number of items"`
	Truncated bool        `json:"truncated" jsonschema:"whether older attempts were left out"`
}

// AttemptSummary describes an attempt in list_task_attempts (seed 004, "list_task_attempts returns attempt
// details").
type AttemptSummary struct {
	AttemptID             string  `json:"attempt_id" jsonschema:"UUID of the attempt"`
	WorkspaceBranch       string  `json:"workspace_branch" jsonschema:"git branch of the attempt"`
	State                 State   `json:"state"`
	Executor              string  `json:"executor" jsonschema:"its executor, such as CLAUDE_CODE"`
	Variant               *string `json:"variant" jsonschema:"variant of the executor"`
	CreatedAt             string  `json:"created_at" jsonschema:"when it was created, RFC 3339 in UTC"`
	UpdatedAt             string  `json:"updated_at" jsonschema:"when it last changed, RFC 3339 in UTC"`
	LatestSessionID       *string `json:"latest_session_id"`
	LatestSessionExecutor *string `json:"latest_session_executor" jsonschema:"executor of that conversation"`
}

// Tags implements fieldtag.Tagger.
func (AttemptSummary) Tags() map[string]string {
	return map[string]string{
		"State": `jsonschema:"queued, running, waiting_for_you, waiting, paused, conflicts, interrupted, ` +
			`failed, stopped, completed or merged"`,
		"LatestSessionID": `jsonschema:"UUID of its newest conversation, or null if its agent never ran"`,
	}
}

// AttemptFilters are the filters of list_task_attempts.
type AttemptFilters struct {
	TaskID string `json:"task_id" jsonschema:"UUID of the task"`
	Limit  int    `json:"limit" jsonschema:"limit on the entries of a reply"`
}

// AttemptsReply answers list_task_attempts.
type AttemptsReply struct {
	Attempts        []AttemptSummary `json:"attempts" jsonschema:"the attempts, newest first"`
	LatestAttemptID *string          `json:"latest_attempt_id" jsonschema:"UUID of the newest attempt"`
	LatestSessionID *string          `json:"latest_session_id"`
	Count           int              `json:"count" jsonschema:"number of entries in this reply"`
	Total           int              `json:"total" jsonschema:"number of entries in total"`
	Notice          *string          `json:"notice"`
	Filters         AttemptFilters   `json:"applied_filters" jsonschema:"the filters of this list"`
	NextCursor      *string          `json:"next_cursor"`
}

// Tags implements fieldtag.Tagger.
func (AttemptsReply) Tags() map[string]string {
	return map[string]string{
		"LatestSessionID": `jsonschema:"UUID of that attempt's newest conversation"`,
		"Notice":          `jsonschema:"why waiting attempts do not start, if a budget is reached"`,
		"NextCursor":      `jsonschema:"cursor for the next page, or null on the last page"`,
	}
}

// ContextReply answers get_context (seed 004, "Workspace context data").
type ContextReply struct {
	ProjectID         string        `json:"project_id" jsonschema:"UUID of the project"`
	ProjectName       string        `json:"project_name" jsonschema:"name of the project"`
	TaskID            string        `json:"task_id" jsonschema:"UUID of the task"`
	TaskTitle         string        `json:"task_title" jsonschema:"title of the task"`
	TaskDescription   *string       `json:"task_description" jsonschema:"description of the task"`
	TaskStatus        string        `json:"task_status" jsonschema:"todo, inprogress, inreview, done or cancelled"`
	AttemptID         string        `json:"attempt_id" jsonschema:"UUID of the attempt whose workspace this is"`
	WorkspaceBranch   string        `json:"workspace_branch" jsonschema:"git branch of the attempt"`
	WorkspaceRepos    []ContextRepo `json:"workspace_repos" jsonschema:"repositories of the workspace"`
	JobName           *string       `json:"job_name" jsonschema:"job of the workflow that the task requires"`
	WorkflowName      *string       `json:"workflow_name" jsonschema:"workflow that the task requires"`
	Inputs            outputs.Map   `json:"inputs"`
	WorkflowSessionID *string       `json:"workflow_session_id"`
	WorkflowStatus    *string       `json:"workflow_status"`
	WorkflowStep      *string       `json:"workflow_step" jsonschema:"current step of the workflow"`
}

// Tags implements fieldtag.Tagger.
func (ContextReply) Tags() map[string]string {
	return map[string]string{
		"Inputs":            `jsonschema:"values of its inputs that are known, for start_workflow"`,
		"WorkflowSessionID": `jsonschema:"session of that workflow, 8 hexadecimal characters"`,
		"WorkflowStatus":    `jsonschema:"active, completed or aborted, or null if none was started"`,
	}
}

// ContextRepo describes a repository of a workspace.
type ContextRepo struct {
	RepoID       string `json:"repo_id" jsonschema:"UUID of the repository"`
	RepoName     string `json:"repo_name" jsonschema:"name of the repository"`
	TargetBranch string `json:"target_branch" jsonschema:"branch that the attempt is merged into"`
	WorktreePath string `json:"worktree_path" jsonschema:"absolute path of its worktree"`
}
