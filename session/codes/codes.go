// Package codes has the codes of errors (session.Error), by which agents and scripts tell them apart. The
// comment of each says what its caller does; the table in cmd/deepwork/docs/reference/tools.md is made of them.
package codes

// The codes, sorted.
const (
	AmbiguousExecutionID  = "ambiguous_execution_id"  // Pass one of the execution ids that the error lists
	AmbiguousWorkflowTool = "ambiguous_workflow_tool" // Call one of the names that the error lists
	// Shorten the argument, or put its content in a file and give its path
	ArgumentTooLarge = "argument_too_large"
	// Wait until the attempt ends, stop it with `stop_attempt`, or queue the prompt
	AttemptRunning = "attempt_running"
	// Pass `next_cursor` of the previous reply with the same filters, or leave `cursor` out
	BadCursor     = "bad_cursor"
	BadDecision   = "bad_decision"   // Reload the page, and answer with its buttons
	BadDependency = "bad_dependency" // Name existing tasks of the same project in `depends_on`
	BadInputs     = "bad_inputs"     // Pass `inputs` as the error describes them
	BadList       = "bad_list"       // Hand in a JSON list of texts or objects, as the error says
	// Pass `outputs` as an object from the step's output names to paths
	BadOutputs = "bad_outputs"
	// Write the content to a file inside the project and give its path
	BadPath      = "bad_path"
	BadSessionID = "bad_session_id" // Pass a session_id of 8 hexadecimal digits, or leave it out
	// Call `delete_task` again if that was interrupted, or create a new task
	BeingDeleted   = "being_deleted"
	BlankRequestID = "blank_request_id" // Pass a unique text as `request_id`, or leave it out
	// Complete the tasks that the error names, set their status to `done`, or change `depends_on`
	Blocked = "blocked"
	// Wait and call again; end the other process that has the board locked if this continues
	BoardBusy = "board_busy"
	// Have a person repair or remove the board's file as the error says
	BoardDamaged = "board_damaged"
	// Have a person use the deepwork that wrote the board, or set the board aside as the error says
	BoardVersion = "board_version"
	// Ask the user to raise the key of the config that the error names, and call again
	BudgetReached = "budget_reached"
	// Make sure that the disk can be written, and call `cancel_execution` again
	CancelNotSaved = "cancel_not_saved"
	// Correct why the check cannot run, or have the user do it, and call again
	CheckNotRun = "check_not_run"
	// Call `comment_attempt` with `attempt_id` alone for the comments that wait
	CommentsChanged = "comments_changed"
	// Correct the configuration file that the error names, and call again
	ConfigInvalid   = "config_invalid"
	DefinitionLost  = "definition_lost"  // Abort the session and start the workflow again
	DeletedSince    = "deleted_since"    // Pass a new `request_id` to create another one
	DependencyCycle = "dependency_cycle" // Leave out one of the dependencies that the error names
	// Commit, stash or remove the files that the error names, and call again
	DirtyTree = "dirty_tree"
	// Free space on the disk, or make the folder writable, and call again
	DiskFull  = "disk_full"
	Elsewhere = "elsewhere" // Call a server on the machine that the error names
	// Install the executor's program, or choose another one from `list_executors`
	ExecutorUnavailable = "executor_unavailable"
	// Add the command of the executor to the configuration, or choose another one from `list_executors`
	ExecutorWithoutCommand = "executor_without_command"
	FileNotFound           = "file_not_found"  // Create the file first, or correct its path
	FileProtected          = "file_protected"  // Restore the files that the step protects, and call again
	FileUnreadable         = "file_unreadable" // Make the file readable, and call again
	// Send the comments when the queued follow-up has started, or drop it with `follow_up`
	FollowUpQueued = "follow_up_queued"
	ForeignRepo    = "foreign_repo" // Choose a repository of the task's project from `list_repos`
	GitFailed      = "git_failed"   // Correct what git reports, and call again
	// Continue with the current step; to do the member again, call `go_to_step`
	GroupMovedOn  = "group_moved_on"
	HalfAWorkflow = "half_a_workflow" // Pass both the job and the workflow, or neither
	InPlace       = "in_place"        // Commit and push the work in the project itself
	// Restore the file that the error names, or abort the session and start the workflow again
	InstructionsLost     = "instructions_lost"
	InstructionsMissing  = "instructions_missing"   // Create the step's instructions file, and call again
	InstructionsTooLarge = "instructions_too_large" // Shorten the step's instructions file, and call again
	// Report it; the log has the cause. Check with `get_step` or `get_attempt` whether the call had an effect
	Internal           = "internal"
	InvalidArgument    = "invalid_argument"     // Correct the argument that the error names
	InvalidArguments   = "invalid_arguments"    // Correct the arguments by the input schema of the workflow tool
	InvalidExecutionID = "invalid_execution_id" // Pass an execution_id that a reply gave
	JobBroken          = "job_broken"           // Correct the errors of the job's file that the error lists
	JobNotFound        = "job_not_found"        // Choose a job from `get_workflows`
	// Start a server or a worker of the project on the machine that the error names, and call again
	MachineGone = "machine_gone"
	MalformedID = "malformed_id" // Pass the id as a reply gave it
	// Wait until the other members of the concurrent group are reported by `finished_step`
	MembersPending = "members_pending"
	// Resolve and commit the merge in the worktree, or undo it with `abort_merge`
	MergeUnfinished = "merge_unfinished"
	MissingArgument = "missing_argument" // Pass the argument that the error names
	MissingComment  = "missing_comment"  // Pass the text of the comment
	MissingExecutor = "missing_executor" // Pass an executor from `list_executors`
	MissingOutputs  = "missing_outputs"  // Pass every required output
	MissingPrompt   = "missing_prompt"   // Pass a prompt
	MissingTitle    = "missing_title"    // Pass a title
	// Start a workflow, or pass the session_id of one of the sessions that the error lists
	NoActiveSession = "no_active_session"
	// Have a person check whether the attempt's task board still exists, or start the server with the toolset
	// `board`
	NoBoard = "no_board"
	// Check out a branch that has a commit, and make the same call again
	NoBranch = "no_branch"
	// Delete branches of old attempts, change the task's title, or do as the message says
	NoBranchLeft = "no_branch_left"
	// Pass comments, or check with `get_attempt` whether they were sent before
	NoComments = "no_comments"
	// Have a person make the path or the variable that the error names available to this server
	NoDatabase = "no_database"
	// Have a person make a repository with `git init`, or name one in the config; for a run, pass `in_place`
	NoRepos           = "no_repos"
	NoSession         = "no_session"           // Start a new attempt: the agent of this one never ran
	NoSources         = "no_sources"           // Start the server with the toolset `remote`
	NoStateFolder     = "no_state_folder"      // Set a state folder as the error says, and start the server again
	NoTarget          = "no_target"            // Pass `attempt_id` or `session_id`
	NoWorkspace       = "no_workspace"         // Start a new attempt, or wait until its worktrees are created
	NotAFile          = "not_a_file"           // Give the path of a regular file
	NotAGitRepository = "not_a_git_repository" // Run `git init`, or set `git.branch` to `name`
	NotARepository    = "not_a_repository"     // Repair the repository's folder, or choose another repository
	// Call the tool itself; for workflows, choose from `list_workflow_tools`
	NotAWorkflowTool = "not_a_workflow_tool"
	NotAnswered      = "not_answered" // Call `workflow_status` to see whether the execution was cancelled
	// Commit the files that the error names, or have the agent do it with `follow_up`, and call again
	NotCommitted = "not_committed"
	NotHere      = "not_here"    // Leave `in_place` out
	NotInDiff    = "not_in_diff" // Name a line of a changed file, as `get_attempt_diff` shows them
	// Correct what the error names, such as a target branch that is gone, and call again
	NotMerged = "not_merged"
	// Have the server started with `--toolsets …,source` or `expose_jobs`
	NotOffered = "not_offered"
	// Correct what kept the worktrees from being removed, and call again
	NotRemoved = "not_removed"
	NotSaved   = "not_saved" // Make sure that the disk can be written, and call again
	// Have a person correct what the error names; the attempt is then stopped without another call
	NotStoppable = "not_stoppable"
	NotText      = "not_text"   // Pass text without control characters
	OtherRoot    = "other_root" // Call a server that was started in the folder that the error names
	// Leave `session_id` out, or pass that of a workflow that you have started
	OtherSession = "other_session"
	OtherStep    = "other_step"   // Leave `step_id` out
	OutOfRange   = "out_of_range" // Pass a value within the limits that the error gives
	OutputType   = "output_type"  // Pass one path for type `file`, a list of paths for type `files`
	// Have the agent call `finished_step` with the outputs as they are now, look at those, and answer again
	OutputsChanged = "outputs_changed"
	OutsideProject = "outside_project" // Put the file inside the project root, and give that path
	// Have a person override the review with `deepwork sessions override`
	OverrideNeedsPerson = "override_needs_person"
	PersonAnswered      = "person_answered" // Do nothing: another person has answered
	// Ask the user to answer as the feedback says, and make the same call again afterwards
	PersonAwaited  = "person_awaited"
	PersonNotAsked = "person_not_asked" // Check with `deepwork sessions show` where the session is
	// Restore the reviewer that the session began with, or start the workflow again
	PinnedReviewerGone = "pinned_reviewer_gone"
	ProjectGone        = "project_gone"        // Restore the project's folder, or start the server in another one
	PushRejected       = "push_rejected"       // Correct what the remote reports; after a rebase, pass `force`
	QualityGateFailed  = "quality_gate_failed" // Stop, and tell the user what fails: no tries are left
	ReasonNeeded       = "reason_needed"       // Say why in the form
	// Call `get_step` or the tool that shows the result; the call was carried out
	ReplyForgotten  = "reply_forgotten"
	ReplyTooLarge   = "reply_too_large"   // Ask for less, as the error says
	RepoTwice       = "repo_twice"        // Name each repository once
	RequestIDReused = "request_id_reused" // Pass a new `request_id`, or repeat the earlier call exactly
	// Tell the user: the server must be restarted, or their own config corrected
	RestartNeeded = "restart_needed"
	// Correct what failed the review, or have its configuration corrected, and call again
	ReviewFailed     = "review_failed"
	ReviewNotStarted = "review_not_started" // Wait and make the same call again; no try is spent
	ReviewRunning    = "review_running"     // Wait: make the same call again, which joins the review
	ReviewSuperseded = "review_superseded"  // Call `get_step`: other outputs were submitted for the step
	// Have the user correct `quality_gate.reviewer_executor` as the error says, and make the same call again
	ReviewerUnavailable = "reviewer_unavailable"
	RightNeeded         = "right_needed" // Have the user, or a caller with that right, do it
	RunComplete         = "run_complete" // Start a new run for more work
	// Make sure that the disk can be written, and call again; nothing was started
	RunNotSaved = "run_not_saved"
	// Correct what the error names and ask again; do not start the execution again
	RunsUnread = "runs_unread"
	// Wait, call `get_step` to see whether the call was carried out, and call again if not
	SessionBusy     = "session_busy"
	SessionEnded    = "session_ended"     // Start a new session with `start_workflow`
	SessionExists   = "session_exists"    // Do nothing: the session is in the project already
	SessionIDNeeded = "session_id_needed" // Pass the session_id of one of the sessions that the error lists
	SessionTooNew   = "session_too_new"   // Use the newer deepwork that wrote the session
	// It is not known whether the call was stored: call again with the same request_id when the store
	// answers; without a request_id, call get_step first
	SessionUncertain   = "session_uncertain"
	SessionUnreadable  = "session_unreadable"   // Make the session's file readable, and call again
	ShuttingDown       = "shutting_down"        // Wait until the server is back, and call again
	SourceAway         = "source_away"          // Wait and call again, or have the source repaired
	StatusNotSupported = "status_not_supported" // Look up the result at the source
	// Finish the current step with `finished_step`; `go_to_step` only goes back
	StepAhead = "step_ahead"
	// Continue with the current step; to do the step again, call `go_to_step`
	StepFinished   = "step_finished"
	StepIDNeeded   = "step_id_needed"   // Pass the step_id of one of the members that the error lists
	StepIsWorkflow = "step_is_workflow" // Follow the session that the error names, or call `go_to_step`
	StepMovedOn    = "step_moved_on"    // Call `get_step`: another call has moved the session
	StepNotCurrent = "step_not_current" // Continue with the step that the error names
	StillStopping  = "still_stopping"   // Wait, and call `get_attempt` to see whether the attempt has ended
	Stopping       = "stopping"         // Wait until the server is back, and call again
	// Call again: another process has the database locked, and nothing has moved; continue or end a stopped
	// deepwork process of the project if this continues
	StoreBusy    = "store_busy"
	StoreDamaged = "store_damaged" // Have a person repair or set aside the database as the error says
	// Call again: the database of the store does not answer, and nothing has moved
	StoreUnavailable = "store_unavailable"
	// Commit or stash the files that the error names, or run its command by hand
	TargetCheckedOut = "target_checked_out"
	TargetMoved      = "target_moved" // Call again
	TitleLines       = "title_lines"  // Pass a title of one line
	// Have the user change the jobs: workflows are steps of each other too many times
	TooDeep             = "too_deep"
	TooLong             = "too_long"              // Shorten the text to the limit that the error gives
	TooManyComments     = "too_many_comments"     // First send or remove waiting comments
	TooManyDependencies = "too_many_dependencies" // Name only the last of the tasks that must be done first
	TooManyPaths        = "too_many_paths"        // Pass fewer paths
	TooManyRepos        = "too_many_repos"        // Pass fewer repositories
	// Wait until executions have ended, or end one with `cancel_execution`, and call again
	TooManyRuns  = "too_many_runs"
	TooManyTasks = "too_many_tasks" // Wait until tasks have ended, or cancel one, and call again
	// Call another server of the project, or have this one started with the toolset
	ToolsetMissing  = "toolset_missing"
	TwoTargets      = "two_targets"      // Pass only one of `attempt_id` and `session_id`
	UnknownAction   = "unknown_action"   // Pass one of the actions that the error lists
	UnknownArgument = "unknown_argument" // Leave out the argument that the error names, or correct its name
	UnknownAttempt  = "unknown_attempt"  // Choose an attempt from `list_task_attempts`
	UnknownBranch   = "unknown_branch"   // Choose a branch that exists in the repository
	// Call `comment_attempt` with `attempt_id` alone for the comments that wait
	UnknownComment   = "unknown_comment"
	UnknownExecution = "unknown_execution" // Pass the id of an execution of the attempt from `get_attempt`
	UnknownExecutor  = "unknown_executor"  // Choose an executor from `list_executors`
	UnknownJob       = "unknown_job"       // Choose a job from the page Jobs
	UnknownOutput    = "unknown_output"    // Open the file from the page of the session that handed it in
	UnknownOutputs   = "unknown_outputs"   // Pass only the output names that the step declares
	UnknownProject   = "unknown_project"   // Choose a project from `list_projects`
	UnknownRepo      = "unknown_repo"      // Choose a repository from `list_repos`
	// Pass an execution_id that a reply gave; the error lists the newest
	UnknownRun = "unknown_run"
	// Choose a session from `resumable` or `stack` of `get_workflows`, or start the workflow again
	UnknownSession       = "unknown_session"
	UnknownSide          = "unknown_side"           // Pass `new` or `old` as the side, or leave it out
	UnknownStatus        = "unknown_status"         // Pass one of the states that the error lists
	UnknownStep          = "unknown_step"           // Pass a step_id of this workflow; `get_step` shows the current one
	UnknownTask          = "unknown_task"           // Choose a task from `list_tasks`
	UnknownVariant       = "unknown_variant"        // Pass a variant from `list_executors`
	UnknownWay           = "unknown_way"            // Use one of `merge`, `squash` and `rebase`
	UnknownWorkflow      = "unknown_workflow"       // Choose one of the workflows that the error lists
	UnknownWorkflowTool  = "unknown_workflow_tool"  // Choose a workflow from `list_workflow_tools`
	UnreadableOutput     = "unreadable_output"      // Restore the file, or read what the session recorded about it
	Untrusted            = "untrusted"              // Have a person read the file and approve it with `deepwork trust`
	WorkNotKept          = "work_not_kept"          // Commit the work or move it away, and call again
	WorkflowCancelled    = "workflow_cancelled"     // Call again only if the result is still needed
	WorkflowFailed       = "workflow_failed"        // Correct what the source reports, and call again
	WorkflowNotFound     = "workflow_not_found"     // Choose a workflow from `get_workflows`
	WorkflowTimedOut     = "workflow_timed_out"     // Check at the source whether it completed, before you call again
	WorkflowUnknown      = "workflow_unknown"       // Check at the source whether it completed, before you call again
	WorkflowWithoutSteps = "workflow_without_steps" // Add steps to the workflow, or abort the session
	// Start a new attempt; the commits are on the branch that the error names
	WorkspaceGone = "workspace_gone"
	WorktreeInUse = "worktree_in_use" // End the programs that use the worktree, and call again
	WrongWorkflow = "wrong_workflow"  // Pass the workflow that the error names, or another execution_id
)
