package transport

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/attempt"
)

// A boardEngine is what the tools of the set "board" call. It is an
// *attempt.Engine; identity is the caller's name.
type boardEngine interface {
	ListProjects(ctx context.Context, identity string, a attempt.ListProjectsArgs) (*attempt.ProjectsReply, error)
	ListRepos(ctx context.Context, identity string, a attempt.ListReposArgs) (*attempt.ReposReply, error)
	ListTasks(ctx context.Context, identity string, a attempt.ListTasksArgs) (*attempt.TasksReply, error)
	ListTaskAttempts(ctx context.Context, identity string, a attempt.ListTaskAttemptsArgs) (*attempt.AttemptsReply, error)
	GetTask(ctx context.Context, identity string, a attempt.TaskArgs) (*attempt.Task, error)
	CreateTask(ctx context.Context, identity string, a attempt.CreateTaskArgs) (*attempt.Task, error)
	UpdateTask(ctx context.Context, identity string, a attempt.UpdateTaskArgs) (*attempt.Task, error)
	DeleteTask(ctx context.Context, identity string, a attempt.TaskArgs) (*attempt.DeleteReply, error)
	StartTaskAttempt(ctx context.Context, identity string, a attempt.StartArgs) (*attempt.AttemptReply, error)
	FollowUp(ctx context.Context, identity string, a attempt.FollowUpArgs) (*attempt.FollowUpReply, error)
	GetAttempt(ctx context.Context, identity string, a attempt.AttemptArgs) (*attempt.AttemptReply, error)
	TailAttempt(ctx context.Context, identity string, a attempt.TailArgs) (*attempt.TailReply, error)
	GetAttemptDiff(ctx context.Context, identity string, a attempt.DiffArgs) (*attempt.DiffReply, error)
	StopAttempt(ctx context.Context, identity string, a attempt.AttemptArgs) (*attempt.AttemptReply, error)
	ListExecutors(ctx context.Context, identity string) (*attempt.ExecutorsReply, error)
}

// A workspace is what get_context asks. It is an *attempt.Context.
type workspace interface {
	GetContext(ctx context.Context) (*attempt.ContextReply, error)
}

// addBoardTools registers the set "board": seed 004's tools, those that its users
// need beside them, and get_context where there is a workspace.
func (s *Server) addBoardTools() {
	addListProjects(s)
	addListRepos(s)
	addListTasks(s)
	addGetTask(s)
	addCreateTask(s)
	addUpdateTask(s)
	addDeleteTask(s)
	addListExecutors(s)
	addStartTaskAttempt(s)
	addListTaskAttempts(s)
	addGetAttempt(s)
	addTailAttempt(s)
	addGetAttemptDiff(s)
	addFollowUp(s)
	addStopAttempt(s)
	if s.workspace != nil {
		addGetContext(s)
	}
}

// onBoard makes the call of a tool of a method of the board.
func onBoard[A, R any](s *Server, method func(boardEngine, context.Context, string, A) (R, error)) func(context.Context, *connection, A) (R, error) {
	return func(ctx context.Context, c *connection, args A) (R, error) {
		return method(s.board, ctx, c.identity, args)
	}
}

// boardSchema is the output schema of a tool of the board.
func boardSchema[R any]() *jsonschema.Schema { return outputSchemaIn[R](boardWords) }

var (
	taskStatuses  = []any{"todo", "inprogress", "inreview", "done", "cancelled"}
	attemptStates = []any{"waiting", "starting", "running", "completed", "failed", "stopped", "interrupted"}
)

// boardWords are what the types of the board's replies cannot tell.
var boardWords = words{
	enums: map[string][]any{
		"status":          taskStatuses,
		"task_status":     taskStatuses,
		"state":           attemptStates,
		"workflow_status": {attempt.WorkflowActive, attempt.WorkflowCompleted, attempt.WorkflowAborted},
		"stream":          {"stdout", "stderr", "system"},
		"action":          {attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel},
	},
	items: map[string]string{
		"projects": "one project", "repos": "one repository", "tasks": "one task", "attempts": "one attempt",
		"executors": "one executor", "variants": "a variant's name", "changed_files": "a path, relative to the worktree",
		"entries": "one line", "diffs": "the changes in one repository", "rescued": "what was kept of one worktree",
		"workspace_repos": "one repository",
	},
}

// The arguments that several tools of the board share. Ids are strings to the
// schema, so that one that is no UUID is refused in words.

const uuidFormat = " A UUID, such as 3b241101-e2bb-4255-8caf-4136c566a962."

func projectID() property {
	return required("project_id", maxName, "The project, as list_projects gives it."+uuidFormat)
}

func taskID() property {
	return required("task_id", maxName, "The task, as list_tasks or create_task gives it."+uuidFormat)
}

func attemptID() property {
	return required("attempt_id", maxName, "The attempt, as start_task_attempt or list_task_attempts gives it."+uuidFormat)
}

func listLimit() property {
	return integer("limit", 1, attempt.MaxLimit, "How many are returned at most, from 1 to 500. Default 50.")
}

func cursor() property {
	return optional("cursor", 1000, "The next_cursor of the reply before, with the same other arguments; leave it out to begin with the newest.")
}

// integer is a number that may be left out, or be null.
func integer(name string, least, most float64, description string) property {
	return property{name, false, &jsonschema.Schema{Types: []string{"null", "integer"}, Minimum: &least, Maximum: &most, Description: description}}
}

// oneOf gives the values that a string may have.
func oneOf(p property, values []any) property {
	p.schema.Enum = values
	if !p.required {
		p.schema.Enum = append(values[:len(values):len(values)], nil)
	}
	return p
}
