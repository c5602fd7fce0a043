package transport

// Whoever calls a tool that was cut short, or broke, does not know what it has
// done. recheck says how to find out before it is called again; read-only tools
// have no entry, since those can simply be called again.
var recheck = map[string]string{
	"start_workflow": seeStep, "finished_step": seeStep, "abort_workflow": seeStep, "go_to_step": seeStep,

	"create_task":        "call list_tasks: the task was made only if it is listed there",
	"update_task":        "call get_task to see what the task is now",
	"delete_task":        "call get_task: the task was deleted only if it is not found any more",
	"start_task_attempt": "call list_task_attempts: the attempt was made only if it is listed there",
	"follow_up":          "call get_attempt to see what its agent does and what is queued",
	"stop_attempt":       "call get_attempt to see whether its agent has ended",

	"call_workflow_tool":     seeRun,
	"workflows-execute-tool": "call get_step: where no workflow is in progress on the connection it lists those that were started",
	"workflows-cancel-tool":  "call workflows-status-tool with the execution_id to see whether it has ended",
	"refresh_workflow_tools": "call list_workflow_tools to see which there are now",
}

const (
	seeStep = "call get_step, with your session_id if you have one, to see where the workflow stands: what it does not show was not recorded"
	seeRun  = "see whether the workflow was started: call workflow_status with its execution_id if you were told one, else look at the system it runs in"
)

// again ends a sentence that says what became of a call.
func (s *Server) again(tool string) string {
	if s.reads[tool] {
		return "it only reads, so call " + tool + " again."
	}
	how := recheck[tool]
	if how == "" { // a workflow of another system, under its own name
		how = seeRun
	}
	return "before you call " + tool + " again, " + how + "."
}
