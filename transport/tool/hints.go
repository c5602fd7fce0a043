package tool

import (
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Some clients show their model no tool until it searches for one. These keys of `_meta` are Claude Code's (from
// 2.1.332 on); others ignore them.
const (
	alwaysLoad     = "anthropic/alwaysLoad"         // the model has the tool from the beginning
	searchHint     = "anthropic/searchHint"         // what a search finds the tool by, beside its name and description
	maxResultChars = "anthropic/maxResultSizeChars" // up to which a result is shown whole
)

// wholeResult is the maximum of results that must not be cut: instructions of steps, diffs, output of agents.
const wholeResult = 200_000

// always are the tools without which no workflow can be followed.
var always = []string{"get_workflows", "start_workflow", "finished_step", "abort_workflow", "get_step", "go_to_step"}

// hints are what the other tools are found by.
var hints = map[string]string{
	"list_projects":          "task board projects kanban",
	"list_repos":             "git repositories of a project",
	"list_tasks":             "task board backlog todo list issues",
	"get_task":               "one task ticket details",
	"create_task":            "add task ticket to the board todo",
	"update_task":            "edit task status done description",
	"delete_task":            "remove task from the board",
	"list_executors":         "coding agents available Claude Code Codex Gemini",
	"start_task_attempt":     "delegate task to a coding agent in a git worktree",
	"list_task_attempts":     "attempts of a task by agents",
	"get_attempt":            "state result of a coding agent",
	"tail_attempt":           "output log of a running agent",
	"get_attempt_diff":       "changes diff review agent's work",
	"follow_up":              "send more instructions to an agent, resume a run",
	"comment_attempt":        "review comments on lines of a diff",
	"stop_attempt":           "cancel kill a running agent or run",
	"run_workflow":           "run a workflow unattended in the background with agents",
	"get_run":                "progress of an unattended run",
	"needs_attention":        "what waits for a person, blocked",
	"get_context":            "this workspace's task and branch",
	"merge_attempt":          "merge an agent's branch",
	"rebase_attempt":         "rebase an agent's branch",
	"abort_merge":            "undo a merge with conflicts",
	"push_attempt":           "push an agent's branch to the remote",
	"change_target":          "target base branch of an attempt",
	"call_workflow_tool":     "run a workflow of another system by name",
	"list_workflow_tools":    "workflows of other systems",
	"refresh_workflow_tools": "reload workflows of other systems",
	"workflow_status":        "status result of a workflow execution",
	"cancel_execution":       "cancel a workflow execution of another system",
	"workflows-list-tool":    "workflows offered to other systems",
	"workflows-execute-tool": "execute an offered workflow",
	"workflows-status-tool":  "status of an offered workflow",
	"workflows-cancel-tool":  "cancel an offered workflow",
}

// long are the tools whose results must not be cut.
var long = []string{"get_workflows", "start_workflow", "finished_step", "get_step", "go_to_step", "get_attempt_diff",
	"tail_attempt", "workflow_status", "call_workflow_tool"}

// metaOf returns what clients that search for tools read of one.
func metaOf(name string) mcp.Meta {
	meta := mcp.Meta{}
	if slices.Contains(always, name) {
		meta[alwaysLoad] = true
	}
	if hint := hints[name]; hint != "" {
		meta[searchHint] = hint
	}
	if slices.Contains(long, name) {
		meta[maxResultChars] = wholeResult
	}
	return meta
}
