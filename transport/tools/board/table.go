package board

import (
	"deepwork/session/merge"
	"deepwork/transport/tool"
)

// What several tools are.
var (
	reads   = tool.Hints{ReadOnly: true, Idempotent: true}
	starts  = tool.Hints{Open: true}
	sets    = tool.Hints{Destructive: true, Idempotent: true}
	follows = tool.Hints{Destructive: true, Open: true} // they drop or replace what was queued
)

// smallerPage is the Smaller of tools that list.
const smallerPage = "give a smaller limit, and continue with next_cursor."

// agents are the tools for tasks and the agents that work on them.
var agents = []row{
	method(tool.Tool{
		Name: "list_projects", Title: "List projects", Hints: reads, Smaller: smallerPage,
		Description: "Lists the board's projects. Call it first.",
	}, Engine.ListProjects),
	method(tool.Tool{
		Name: "list_repos", Title: "List repositories", Hints: reads, Smaller: smallerPage,
		Description: "Lists a project's git repositories.",
	}, Engine.ListRepos),
	method(tool.Tool{
		Name: "list_tasks", Title: "List tasks", Hints: reads, Smaller: smallerPage,
		Description: "Lists a project's tasks, newest first, with their latest attempt.",
	}, Engine.ListTasks),
	method(tool.Tool{
		Name: "get_task", Title: "Get a task", Hints: reads,
		Description: "Returns a task with its latest attempt.",
	}, Engine.GetTask),
	method(tool.Tool{
		Name: "create_task", Title: "Create a task",
		Description: "Adds a task with status todo. start_task_attempt starts an agent on it.",
		Recheck:     "call list_tasks: the task was created only if it is listed there",
	}, Engine.CreateTask),
	method(tool.Tool{
		Name: "update_task", Title: "Change a task", Hints: sets,
		Description: "Changes the given fields of a task; empty ones are cleared. Set status done when you accept " +
			"the work.",
		Recheck: "call get_task to see what the task is now",
	}, Engine.UpdateTask),
	method(tool.Tool{
		Name: "delete_task", Title: "Delete a task", Hints: sets,
		Description: "Deletes a task and its worktrees. Unmerged branches stay; uncommitted work is kept in the git " +
			"refs of rescued.",
		Recheck: "call get_task: the task was deleted only if it is no longer found",
	}, Engine.DeleteTask),
	bare(tool.Tool{
		Name: "list_executors", Title: "List executors", Hints: reads,
		Description: "Lists the executors of agents, and their variants.",
	}, Engine.ListExecutors),
	method(tool.Tool{
		Name: "start_task_attempt", Title: "Start an attempt", Hints: starts,
		Description: "Starts an agent on a task, in a new worktree and branch per repository, and returns at once. " +
			"When it completes, the task is inreview.",
		Recheck: "call list_task_attempts: the attempt was created only if it is listed there",
	}, startTaskAttempt),
	method(tool.Tool{
		Name: "list_task_attempts", Title: "List attempts", Hints: reads, Smaller: smallerPage,
		Description: "Lists a task's attempts, newest first.",
	}, Engine.ListTaskAttempts),
	method(tool.Tool{
		Name: "get_attempt", Title: "Get an attempt", Hints: reads,
		Description: "Returns an attempt's state, final message, workflow step, worktrees and changed files.",
	}, Engine.GetAttempt),
	method(tool.Tool{
		Name: "tail_attempt", Title: "Read an attempt's output", Hints: reads,
		Description: "Returns an agent's output. To follow it, give next_index as after_index, with wait.",
		Smaller:     "give a smaller limit, and continue with after_index.",
	}, Engine.TailAttempt),
	function(tool.Tool{
		Name: "get_attempt_diff", Title: "See an attempt's changes", Hints: reads,
		Description: "Returns an attempt's changes as git diff, with untracked files. If truncated, give paths.",
		Smaller:     "give a smaller max_bytes, or paths for a part of the changes.",
	}, merge.Diff),
	method(tool.Tool{
		Name:        "follow_up",
		Title:       "Follow up an attempt",
		Hints:       follows,
		Session:     "session_id",
		Outcome:     followUpOutcome,
		Description: "Gives an agent more work in its conversation, or resumes a run. Give attempt_id or session_id.",
		Recheck: "call get_attempt to see its state and what is queued; a call with the same request_id starts and " +
			"queues nothing twice",
	}, followUp),
	function(tool.Tool{
		Name: "comment_attempt", Title: "Comment on an attempt's changes", Hints: follows, Outcome: commentOutcome,
		Description: "Collects and lists comments on an attempt's diff; send gives them to its agent as a follow-up.",
		Recheck: "call get_attempt to see whether a follow-up was started or queued; a call with the same request_id " +
			"adds and sends nothing twice",
	}, merge.CommentAttempt),
	method(tool.Tool{
		Name: "stop_attempt", Title: "Stop an attempt", Hints: sets,
		Description: "Stops an agent or a run, and drops a queued follow-up. The work stays.",
		Recheck:     "call get_attempt to see whether its agent has ended",
	}, Engine.StopAttempt),
	method(tool.Tool{
		Name: "run_workflow", Title: "Run a workflow", Hints: starts, Outcome: runOutcome,
		Description: "Runs agents through a workflow, one per step, in a new worktree, and returns at once. Its " +
			"run_id is also an attempt_id.",
		Recheck: "call list_tasks: the run was made only if its task is listed there",
	}, runWorkflow),
	bare(tool.Tool{
		Name: "needs_attention", Title: "List what needs a person", Hints: reads,
		Description: "Lists what waits for a person, and the commands for it.",
	}, Engine.NeedsAttention),
}

var getRunTool = tool.Tool{
	Name: "get_run", Title: "Get a run", Hints: reads,
	Description: "Returns a run's state and its agents; tail_attempt has their output.",
}

// getContextTool is offered in a workspace alone (seed 004, "Workspace context data").
var getContextTool = tool.Tool{
	Name: "get_context", Title: "Get the context of this workspace", Hints: reads,
	Description: "Returns the project, task, attempt, branch and repositories of this workspace. Call it first. If " +
		"workflow_session_id is not null, call get_step with it.",
}

// merges are the tools that act on the branches of attempts.
var merges = []row{
	function(tool.Tool{
		Name: "merge_attempt", Title: "Merge an attempt", Hints: tool.Hints{Destructive: true}, Outcome: mergeOutcome,
		Description: "Merges an attempt into its target branch. Conflicts are left in its worktree: use follow_up or " +
			"abort_merge.",
		Recheck: "call get_attempt: of merged work, ahead is 0",
	}, merge.Merge),
	function(tool.Tool{
		Name: "rebase_attempt", Title: "Rebase an attempt", Hints: sets, Outcome: mergeOutcome,
		Description: "Rebases an attempt onto its target branch. Conflicts: as in merge_attempt.",
		Recheck:     "call get_attempt: after a rebase, behind is 0",
	}, merge.Rebase),
	function(tool.Tool{
		Name: "abort_merge", Title: "Abort a merge", Hints: sets, Outcome: mergeOutcome,
		Description: "Undoes a merge with conflicts; what was resolved is kept in the git refs of rescue.",
		Recheck:     "call get_attempt to see whether the worktree has changes",
	}, merge.Abort),
	function(tool.Tool{
		Name:        "push_attempt",
		Title:       "Push an attempt",
		Hints:       tool.Hints{Destructive: true, Idempotent: true, Open: true},
		Outcome:     mergeOutcome,
		Description: "Pushes an attempt's branch, under the same name.",
		Recheck:     "call get_attempt, and push again",
	}, merge.Push),
	function(tool.Tool{
		Name: "change_target", Title: "Change an attempt's target", Hints: sets, Outcome: mergeOutcome,
		Description: "Sets the branch that an attempt is compared with and merged into.",
		Recheck:     "call get_attempt to see target_branch",
	}, merge.ChangeTarget),
}
