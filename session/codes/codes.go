// Package codes has the codes of errors (session.Error), by which agents and scripts tell them apart. The
// comment of each says what its caller does; the table in cmd/deepwork/docs/reference/tools.md is made of them.
package codes

// The codes, sorted.
const (
	// Pass one of the execution ids that the error lists
	AmbiguousExecutionID = "ambiguous_execution_id"
	// Call one of the names that the error lists
	AmbiguousWorkflowTool = "ambiguous_workflow_tool"
	// Shorten the argument, or put its content in a file and give its path
	ArgumentTooLarge = "argument_too_large"
	// Wait until the attempt ends, stop it with `stop_attempt`, or queue the prompt
	AttemptRunning = "attempt_running"
	// Pass `next_cursor` of the previous reply with the same filters, or leave `cursor` out
	BadCursor = "bad_cursor"
	// Reload the page, and answer with its buttons
	BadDecision = "bad_decision"
	// Name existing tasks of the same project in `depends_on`
	BadDependency = "bad_dependency"
	// Pass `inputs` as the error describes them
	BadInputs = "bad_inputs"
	// Hand in a JSON list of texts or objects, as the error says
	BadList = "bad_list"
	// Pass `outputs` as an object from the step's output names to paths
	BadOutputs = "bad_outputs"
	// Write the content to a file inside the project and give its path
	BadPath = "bad_path"
	// Pass a session_id of 8 hexadecimal digits, or leave it out
	BadSessionID = "bad_session_id"
	// Call `delete_task` again if that was interrupted, or create a new task
	BeingDeleted = "being_deleted"
	// Pass a unique text as `request_id`, or leave it out
	BlankRequestID = "blank_request_id"
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
	ConfigInvalid = "config_invalid"
	// Abort the session and start the workflow again
	DefinitionLost = "definition_lost"
	// Pass a new `request_id` to create another one
	DeletedSince = "deleted_since"
	// Leave out one of the dependencies that the error names
	DependencyCycle = "dependency_cycle"
	// Commit, stash or remove the files that the error names, and call again
	DirtyTree = "dirty_tree"
	// Free space on the disk, or make the folder writable, and call again
	DiskFull = "disk_full"
	// Call a server on the machine that the error names
	Elsewhere = "elsewhere"
	// Install the executor's program, or choose another one from `list_executors`
	ExecutorUnavailable = "executor_unavailable"
	// Add the command of the executor to the configuration, or choose another one from `list_executors`
	ExecutorWithoutCommand = "executor_without_command"
	// Create the file first, or correct its path
	FileNotFound = "file_not_found"
	// Restore the files that the step protects, and call again
	FileProtected = "file_protected"
	// Make the file readable, and call again
	FileUnreadable = "file_unreadable"
	// Send the comments when the queued follow-up has started, or drop it with `follow_up`
	FollowUpQueued = "follow_up_queued"
	// Choose a repository of the task's project from `list_repos`
	ForeignRepo = "foreign_repo"
	// Correct what git reports, and call again
	GitFailed = "git_failed"
	// Continue with the current step; to do the member again, call `go_to_step`
	GroupMovedOn = "group_moved_on"
	// Pass both the job and the workflow, or neither
	HalfAWorkflow = "half_a_workflow"
	// Commit and push the work in the project itself
	InPlace = "in_place"
	// Restore the file that the error names, or abort the session and start the workflow again
	InstructionsLost = "instructions_lost"
	// Create the step's instructions file, and call again
	InstructionsMissing = "instructions_missing"
	// Shorten the step's instructions file, and call again
	InstructionsTooLarge = "instructions_too_large"
	// Report it; the log has the cause. Check with `get_step` or `get_attempt` whether the call had an effect
	Internal = "internal"
	// Correct the argument that the error names
	InvalidArgument = "invalid_argument"
	// Correct the arguments by the input schema of the workflow tool
	InvalidArguments = "invalid_arguments"
	// Pass an execution_id that a reply gave
	InvalidExecutionID = "invalid_execution_id"
	// Correct the errors of the job's file that the error lists
	JobBroken = "job_broken"
	// Choose a job from `get_workflows`
	JobNotFound = "job_not_found"
	// Start a server or a worker of the project on the machine that the error names, and call again
	MachineGone = "machine_gone"
	// Pass the id as a reply gave it
	MalformedID = "malformed_id"
	// Wait until the other members of the concurrent group are reported by `finished_step`
	MembersPending = "members_pending"
	// Resolve and commit the merge in the worktree, or undo it with `abort_merge`
	MergeUnfinished = "merge_unfinished"
	// Pass the argument that the error names
	MissingArgument = "missing_argument"
	// Pass the text of the comment
	MissingComment = "missing_comment"
	// Pass an executor from `list_executors`
	MissingExecutor = "missing_executor"
	// Pass every required output
	MissingOutputs = "missing_outputs"
	// Pass a prompt
	MissingPrompt = "missing_prompt"
	// Pass a title
	MissingTitle = "missing_title"
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
	NoRepos = "no_repos"
	// Start a new attempt: the agent of this one never ran
	NoSession = "no_session"
	// Start the server with the toolset `remote`
	NoSources = "no_sources"
	// Set a state folder as the error says, and start the server again
	NoStateFolder = "no_state_folder"
	// Pass `attempt_id` or `session_id`
	NoTarget = "no_target"
	// Start a new attempt, or wait until its worktrees are created
	NoWorkspace = "no_workspace"
	// Give the path of a regular file
	NotAFile = "not_a_file"
	// Run `git init`, or set `git.branch` to `name`
	NotAGitRepository = "not_a_git_repository"
	// Repair the repository's folder, or choose another repository
	NotARepository = "not_a_repository"
	// Call the tool itself; for workflows, choose from `list_workflow_tools`
	NotAWorkflowTool = "not_a_workflow_tool"
	// Call `workflow_status` to see whether the execution was cancelled
	NotAnswered = "not_answered"
	// Commit the files that the error names, or have the agent do it with `follow_up`, and call again
	NotCommitted = "not_committed"
	// Leave `in_place` out
	NotHere = "not_here"
	// Name a line of a changed file, as `get_attempt_diff` shows them
	NotInDiff = "not_in_diff"
	// Correct what the error names, such as a target branch that is gone, and call again
	NotMerged = "not_merged"
	// Have the server started with `--toolsets …,source` or `expose_jobs`
	NotOffered = "not_offered"
	// Correct what kept the worktrees from being removed, and call again
	NotRemoved = "not_removed"
	// Make sure that the disk can be written, and call again
	NotSaved = "not_saved"
	// Have a person correct what the error names; the attempt is then stopped without another call
	NotStoppable = "not_stoppable"
	// Pass text without control characters
	NotText = "not_text"
	// Call a server that was started in the folder that the error names
	OtherRoot = "other_root"
	// Leave `session_id` out, or pass that of a workflow that you have started
	OtherSession = "other_session"
	// Leave `step_id` out
	OtherStep = "other_step"
	// Pass a value within the limits that the error gives
	OutOfRange = "out_of_range"
	// Pass one path for type `file`, a list of paths for type `files`
	OutputType = "output_type"
	// Have the agent call `finished_step` with the outputs as they are now, look at those, and answer again
	OutputsChanged = "outputs_changed"
	// Put the file inside the project root, and give that path
	OutsideProject = "outside_project"
	// Have a person override the review with `deepwork sessions override`
	OverrideNeedsPerson = "override_needs_person"
	// Do nothing: another person has answered
	PersonAnswered = "person_answered"
	// Ask the user to answer as the feedback says, and make the same call again afterwards
	PersonAwaited = "person_awaited"
	// Check with `deepwork sessions show` where the session is
	PersonNotAsked = "person_not_asked"
	// Restore the reviewer that the session began with, or start the workflow again
	PinnedReviewerGone = "pinned_reviewer_gone"
	// Restore the project's folder, or start the server in another one
	ProjectGone = "project_gone"
	// Correct what the remote reports; after a rebase, pass `force`
	PushRejected = "push_rejected"
	// Stop, and tell the user what fails: no tries are left
	QualityGateFailed = "quality_gate_failed"
	// Say why in the form
	ReasonNeeded = "reason_needed"
	// Call `get_step` or the tool that shows the result; the call was carried out
	ReplyForgotten = "reply_forgotten"
	// Ask for less, as the error says
	ReplyTooLarge = "reply_too_large"
	// Name each repository once
	RepoTwice = "repo_twice"
	// Pass a new `request_id`, or repeat the earlier call exactly
	RequestIDReused = "request_id_reused"
	// Tell the user: the server must be restarted, or their own config corrected
	RestartNeeded = "restart_needed"
	// Correct what failed the review, or have its configuration corrected, and call again
	ReviewFailed = "review_failed"
	// Wait and make the same call again; no try is spent
	ReviewNotStarted = "review_not_started"
	// Wait: make the same call again, which joins the review
	ReviewRunning = "review_running"
	// Call `get_step`: other outputs were submitted for the step
	ReviewSuperseded = "review_superseded"
	// Have the user correct `quality_gate.reviewer_executor` as the error says, and make the same call again
	ReviewerUnavailable = "reviewer_unavailable"
	// Have the user, or a caller with that right, do it
	RightNeeded = "right_needed"
	// Start a new run for more work
	RunComplete = "run_complete"
	// Make sure that the disk can be written, and call again; nothing was started
	RunNotSaved = "run_not_saved"
	// Correct what the error names and ask again; do not start the execution again
	RunsUnread = "runs_unread"
	// Wait, call `get_step` to see whether the call was carried out, and call again if not
	SessionBusy = "session_busy"
	// Start a new session with `start_workflow`
	SessionEnded = "session_ended"
	// Do nothing: the session is in the project already
	SessionExists = "session_exists"
	// Pass the session_id of one of the sessions that the error lists
	SessionIDNeeded = "session_id_needed"
	// Use the newer deepwork that wrote the session
	SessionTooNew = "session_too_new"
	// It is not known whether the call was stored: call again with the same request_id when the store
	// answers; without a request_id, call get_step first
	SessionUncertain = "session_uncertain"
	// Make the session's file readable, and call again
	SessionUnreadable = "session_unreadable"
	// Wait until the server is back, and call again
	ShuttingDown = "shutting_down"
	// Wait and call again, or have the source repaired
	SourceAway = "source_away"
	// Look up the result at the source
	StatusNotSupported = "status_not_supported"
	// Finish the current step with `finished_step`; `go_to_step` only goes back
	StepAhead = "step_ahead"
	// Continue with the current step; to do the step again, call `go_to_step`
	StepFinished = "step_finished"
	// Pass the step_id of one of the members that the error lists
	StepIDNeeded = "step_id_needed"
	// Follow the session that the error names, or call `go_to_step`
	StepIsWorkflow = "step_is_workflow"
	// Call `get_step`: another call has moved the session
	StepMovedOn = "step_moved_on"
	// Continue with the step that the error names
	StepNotCurrent = "step_not_current"
	// Wait, and call `get_attempt` to see whether the attempt has ended
	StillStopping = "still_stopping"
	// Wait until the server is back, and call again
	Stopping = "stopping"
	// Call again: another process has the database locked, and nothing has moved; continue or end a stopped
	// deepwork process of the project if this continues
	StoreBusy = "store_busy"
	// Have a person repair or set aside the database as the error says
	StoreDamaged = "store_damaged"
	// Call again: the database of the store does not answer, and nothing has moved
	StoreUnavailable = "store_unavailable"
	// Commit or stash the files that the error names, or run its command by hand
	TargetCheckedOut = "target_checked_out"
	// Call again
	TargetMoved = "target_moved"
	// Pass a title of one line
	TitleLines = "title_lines"
	// Have the user change the jobs: workflows are steps of each other too many times
	TooDeep = "too_deep"
	// Shorten the text to the limit that the error gives
	TooLong = "too_long"
	// First send or remove waiting comments
	TooManyComments = "too_many_comments"
	// Name only the last of the tasks that must be done first
	TooManyDependencies = "too_many_dependencies"
	// Pass fewer paths
	TooManyPaths = "too_many_paths"
	// Pass fewer repositories
	TooManyRepos = "too_many_repos"
	// Wait until executions have ended, or end one with `cancel_execution`, and call again
	TooManyRuns = "too_many_runs"
	// Wait until tasks have ended, or cancel one, and call again
	TooManyTasks = "too_many_tasks"
	// Call another server of the project, or have this one started with the toolset
	ToolsetMissing = "toolset_missing"
	// Pass only one of `attempt_id` and `session_id`
	TwoTargets = "two_targets"
	// Pass one of the actions that the error lists
	UnknownAction = "unknown_action"
	// Leave out the argument that the error names, or correct its name
	UnknownArgument = "unknown_argument"
	// Choose an attempt from `list_task_attempts`
	UnknownAttempt = "unknown_attempt"
	// Choose a branch that exists in the repository
	UnknownBranch = "unknown_branch"
	// Call `comment_attempt` with `attempt_id` alone for the comments that wait
	UnknownComment = "unknown_comment"
	// Pass the id of an execution of the attempt from `get_attempt`
	UnknownExecution = "unknown_execution"
	// Choose an executor from `list_executors`
	UnknownExecutor = "unknown_executor"
	// Choose a job from the page Jobs
	UnknownJob = "unknown_job"
	// Open the file from the page of the session that handed it in
	UnknownOutput = "unknown_output"
	// Pass only the output names that the step declares
	UnknownOutputs = "unknown_outputs"
	// Choose a project from `list_projects`
	UnknownProject = "unknown_project"
	// Choose a repository from `list_repos`
	UnknownRepo = "unknown_repo"
	// Pass an execution_id that a reply gave; the error lists the newest
	UnknownRun = "unknown_run"
	// Choose a session from `resumable` or `stack` of `get_workflows`, or start the workflow again
	UnknownSession = "unknown_session"
	// Pass `new` or `old` as the side, or leave it out
	UnknownSide = "unknown_side"
	// Pass one of the states that the error lists
	UnknownStatus = "unknown_status"
	// Pass a step_id of this workflow; `get_step` shows the current one
	UnknownStep = "unknown_step"
	// Choose a task from `list_tasks`
	UnknownTask = "unknown_task"
	// Pass a variant from `list_executors`
	UnknownVariant = "unknown_variant"
	// Use one of `merge`, `squash` and `rebase`
	UnknownWay = "unknown_way"
	// Choose one of the workflows that the error lists
	UnknownWorkflow = "unknown_workflow"
	// Choose a workflow from `list_workflow_tools`
	UnknownWorkflowTool = "unknown_workflow_tool"
	// Restore the file, or read what the session recorded about it
	UnreadableOutput = "unreadable_output"
	// Have a person read the file and approve it with `deepwork trust`
	Untrusted = "untrusted"
	// Commit the work or move it away, and call again
	WorkNotKept = "work_not_kept"
	// Call again only if the result is still needed
	WorkflowCancelled = "workflow_cancelled"
	// Correct what the source reports, and call again
	WorkflowFailed = "workflow_failed"
	// Choose a workflow from `get_workflows`
	WorkflowNotFound = "workflow_not_found"
	// Check at the source whether it completed, before you call again
	WorkflowTimedOut = "workflow_timed_out"
	// Check at the source whether it completed, before you call again
	WorkflowUnknown = "workflow_unknown"
	// Add steps to the workflow, or abort the session
	WorkflowWithoutSteps = "workflow_without_steps"
	// Start a new attempt; the commits are on the branch that the error names
	WorkspaceGone = "workspace_gone"
	// End the programs that use the worktree, and call again
	WorktreeInUse = "worktree_in_use"
	// Pass the workflow that the error names, or another execution_id
	WrongWorkflow = "wrong_workflow"
)
