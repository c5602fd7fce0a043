package board

import (
	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/transport/tool"
)

// words describe what the types of the board's replies cannot.
var words = tool.Words{
	Enums: map[string][]any{
		"status":          {"todo", "inprogress", "inreview", "done", "cancelled"},
		"task_status":     {"todo", "inprogress", "inreview", "done", "cancelled"},
		"state":           {"waiting", "starting", "running", "completed", "failed", "stopped", "interrupted"},
		"workflow_status": {board.WorkflowActive, board.WorkflowCompleted, board.WorkflowAborted},
		"stream":          {"stdout", "stderr", "system"},
		"lead":            {task.AgentLeads, task.ServerLeads},
		"action":          {attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel},
	},
}

// outputSchema is the output schema of a tool of the board.
func outputSchema[R any](of string) *jsonschema.Schema {
	s := tool.OutputSchema[R](words)
	if refine := refinements[of]; refine != nil {
		refine(s)
	}
	return s
}

// refinements say of some tools what is only so in their replies: the values of fields, and which tool
// has the fields of an object, since clients get every schema at every start.
var refinements = map[string]func(*jsonschema.Schema){
	"get_task":           func(s *jsonschema.Schema) { fieldsIn("get_attempt", s, "cost") },
	"start_task_attempt": func(s *jsonschema.Schema) { fieldsIn("get_attempt", s, "cost", "queued_follow_up", "repos") },
	"stop_attempt":       func(s *jsonschema.Schema) { fieldsIn("get_attempt", s, "cost", "queued_follow_up", "repos") },
	"follow_up": func(s *jsonschema.Schema) {
		s.Properties["status"].Enum = []any{attempt.FollowUpStarted, attempt.FollowUpQueued, attempt.FollowUpCancelled, attempt.FollowUpEmpty}
	},
	"tail_attempt": func(s *jsonschema.Schema) {
		kinds(s, "messages", "message", "reasoning", "tool_call", "tool_result", "error", "output", "stderr", "system")
	},
	"needs_attention": func(s *jsonschema.Schema) {
		kinds(s, "items", board.AttentionFailed, board.AttentionRun, board.AttentionReview, board.AttentionUntrusted, board.AttentionBudget, board.AttentionStep)
	},
	"run_workflow": runStates,
	"get_run": func(s *jsonschema.Schema) {
		runStates(s)
		s.Properties["plan"].Items.Properties["state"].Enum = nil
		fieldsIn("get_attempt", s, "cost")
		fieldsIn("executions of get_attempt", s.Properties["steps"].Items, "cost")
	},
	"merge_attempt": mergeStatuses, "rebase_attempt": mergeStatuses, "abort_merge": mergeStatuses, "push_attempt": mergeStatuses, "change_target": mergeStatuses,
}

func runStates(s *jsonschema.Schema) {
	s.Properties["state"].Enum = []any{"waiting", "starting", "running", string(board.RunComplete), string(board.RunStopped), string(board.RunPaused), string(board.RunInterrupted)}
}

func mergeStatuses(s *jsonschema.Schema) {
	s.Properties["repos"].Items.Properties["status"].Enum = []any{merge.Merged, merge.Unchanged, merge.Rebased, merge.Updated,
		merge.Conflicts, merge.Aborted, merge.Pushed, merge.Retargeted}
}

// kinds sets the values that kind has in a list of a reply.
func kinds(s *jsonschema.Schema, list string, kinds ...any) {
	s.Properties[list].Items.Properties["kind"].Enum = kinds
}

// fieldsIn describes objects of a reply by the tool whose output schema has their fields.
func fieldsIn(other string, s *jsonschema.Schema, names ...string) {
	for _, name := range names {
		p := s.Properties[name]
		of := p
		if p.Items != nil {
			of = p.Items
		}
		of.Properties, of.PropertyOrder, of.Required = nil, nil, nil
		p.Description += "; fields: see " + other
	}
}
