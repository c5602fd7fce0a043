// Package board has the tools of the set "board", which put tasks on the board and have coding
// agents work on them.
package board

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/transport/tool"
)

// An Engine executes the calls of these tools.
type Engine = *attempt.Engine

// GetRun returns a run, as board.Board.GetRun does.
type GetRun = func(ctx context.Context, who session.Caller, a board.RunArgs) (*board.RunReply, error)

// Add registers the set: the tools of seed 004 and those that its users also need; if workspace is
// set, get_context, and no tools that merge. getRun carries out get_run.
func Add(s *tool.Set, engine Engine, getRun GetRun, workspace *board.Context) {
	for _, add := range agents {
		add(s, engine)
	}

	call(getRunTool, getRun)(s, engine)
	if workspace != nil {
		call(getContextTool, func(ctx context.Context, _ session.Caller, _ tool.NoArgs) (*board.ContextReply, error) {
			return workspace.GetContext(ctx)
		})(s, engine)
		return
	}
	for _, add := range merges {
		add(s, engine)
	}
}

// A row registers a tool.
type row func(*tool.Set, Engine)

// method returns the row of a tool that calls a method of the engine.
func method[A, R any](t tool.Tool, do func(Engine, context.Context, session.Caller, A) (*R, error)) row {
	return func(s *tool.Set, e Engine) {
		call(t, func(ctx context.Context, who session.Caller, args A) (*R, error) {
			return do(e, ctx, who, args)
		})(s, e)
	}
}

// function returns the row of a tool that calls a function of package merge.
func function[A, R any](t tool.Tool, do func(context.Context, Engine, session.Caller, A) (*R, error)) row {
	return method(t, func(e Engine, ctx context.Context, who session.Caller, args A) (*R, error) {
		return do(ctx, e, who, args)
	})
}

// bare returns the row of a tool without arguments.
func bare[R any](t tool.Tool, do func(Engine, context.Context, session.Caller) (*R, error)) row {
	return method(t, func(e Engine, ctx context.Context, who session.Caller, _ tool.NoArgs) (*R, error) {
		return do(e, ctx, who)
	})
}

// call returns the row of a tool that calls a function.
func call[A, R any](t tool.Tool, do func(context.Context, session.Caller, A) (*R, error)) row {
	return func(s *tool.Set, _ Engine) {
		t := t // several servers may be opened at once
		t.Output = outputSchema[R](t.Name)
		tool.Add(s, t, func(ctx context.Context, c *tool.Caller, args A) (*R, error) { return do(ctx, c.Caller, args) })
	}
}

// runWorkflow replies with what identifies a run; get_run has the rest.
func runWorkflow(
	e Engine, ctx context.Context, who session.Caller, a attempt.RunWorkflowArgs,
) (*attempt.RunMade, error) {
	r, err := e.RunWorkflow(ctx, who, a)
	if err != nil {
		return nil, err
	}
	made := &attempt.RunMade{RunID: r.RunID, TaskID: r.TaskID, State: r.State, Branch: r.Branch, Workspace: r.Workspace}
	return waited(ctx, e, who, "run_workflow", a.Wait, r.RunID, made)
}

func startTaskAttempt(
	e Engine, ctx context.Context, who session.Caller, a attempt.StartArgs,
) (*attempt.AttemptReply, error) {
	r, err := e.StartTaskAttempt(ctx, who, a)
	if err != nil {
		return nil, err
	}
	return waited(ctx, e, who, "start_task_attempt", a.Wait, r.AttemptID, r)
}

func followUp(
	e Engine, ctx context.Context, who session.Caller, a attempt.FollowUpArgs,
) (*attempt.FollowUpReply, error) {
	r, err := e.FollowUp(ctx, who, a)
	if err != nil {
		return nil, err
	}
	return waited(ctx, e, who, "follow_up", a.Wait && a.Action != attempt.ActionCancel, r.AttemptID, r)
}

// waited returns the reply of a call that started an agent, or the reply after its end if the call waits.
func waited[R any](
	ctx context.Context, e Engine, who session.Caller, tool string, wait bool, attemptID string, first *R,
) (*R, error) {
	if !wait {
		return first, nil
	}

	now, err := e.Await(ctx, who, attemptID)
	if err != nil {
		return nil, board.Midway(err)
	}

	encoded, err := json.Marshal(first)
	if err != nil {
		return nil, err
	}
	r, err := attempt.WaitedReply(tool, encoded, now)
	if err != nil {
		return nil, err
	}
	return r.(any).(*R), nil
}

// What the log says of replies.

func commentOutcome(r any) string {
	if sent := r.(*merge.CommentsReply).Sent; sent != nil {
		return *sent
	}
	return "kept"
}

func followUpOutcome(r any) string { return r.(*attempt.FollowUpReply).Status }

func runOutcome(r any) string { return string(r.(*attempt.RunMade).State) }

// mergeOutcome is the status of the last repository.
func mergeOutcome(r any) string {
	repos := r.(*merge.Reply).Repos
	if len(repos) == 0 {
		return "ok"
	}
	return repos[len(repos)-1].Status
}

// words describe what the types of the board's replies cannot.
var words = tool.Words{
	"status":          {"todo", "inprogress", "inreview", "done", "cancelled"},
	"task_status":     {"todo", "inprogress", "inreview", "done", "cancelled"},
	"state":           {board.Queued, board.Running, board.Completed, board.Failed, board.Stopped, board.Interrupted},
	"workflow_status": {board.WorkflowActive, board.WorkflowCompleted, board.WorkflowAborted},
	"stream":          {"stdout", "stderr", "system"},
	"lead":            {task.AgentLeads, task.ServerLeads},
	"action":          {attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel},
}

// outputSchema is the output schema of a tool of the board.
func outputSchema[R any](of string) *jsonschema.Schema {
	s := tool.OutputSchema[R](words)
	if refine := refinements[of]; refine != nil {
		refine(s)
	}
	for field, other := range elsewhere[of] {
		tool.Refer(s, field, other)
	}
	return s
}

// elsewhere has, by tool and field, the tool that lists the fields of what several tools return.
var elsewhere = map[string]map[string]string{
	"get_task":           {"cost": "get_attempt"},
	"get_run":            {"cost": "get_attempt"},
	"start_task_attempt": {"cost": "get_attempt", "repos": "get_attempt", "queued_follow_up": "get_attempt"},
	"stop_attempt":       {"cost": "get_attempt", "repos": "get_attempt", "queued_follow_up": "get_attempt"},
	"rebase_attempt":     {"repos": "merge_attempt"},
	"abort_merge":        {"repos": "merge_attempt"},
	"push_attempt":       {"repos": "merge_attempt"},
	"change_target":      {"repos": "merge_attempt"},
}

// refinements say of some tools what is only so in their replies: the values of fields.
var refinements = map[string]func(*jsonschema.Schema){
	"follow_up": func(s *jsonschema.Schema) {
		s.Properties["status"].Enum = []any{attempt.FollowUpStarted, attempt.FollowUpQueued, attempt.FollowUpCancelled,
			attempt.FollowUpEmpty}
	},
	"tail_attempt": func(s *jsonschema.Schema) {
		kinds(s, "messages", "message", "reasoning", "tool_call", "tool_result", "error", "output", "stderr", "system")
	},
	"needs_attention": func(s *jsonschema.Schema) {
		allStates(s.Properties["items"].Items)
		kinds(s, "items", board.AttentionFailed, board.AttentionConflicts, board.AttentionRun, board.AttentionReview,
			board.AttentionUntrusted, board.AttentionBudget, board.AttentionLimit, board.AttentionSource,
			board.AttentionSchedule, board.AttentionStep)
	},
	"get_run": func(s *jsonschema.Schema) {
		allStates(s)
		plan := []board.State{board.NotBegun, board.Dropped, board.Queued, board.Running, board.WaitingForYou,
			board.WaitingForLimit, board.Completed, board.Paused, board.Interrupted, board.Failed, board.Stopped}
		s.Properties["plan"].Items.Properties["state"].Enum = values(plan)
	},
	"get_attempt":        allStates,
	"start_task_attempt": allStates,
	"stop_attempt":       allStates,
	"run_workflow":       allStates,
	"list_task_attempts": func(s *jsonschema.Schema) { allStates(s.Properties["attempts"].Items) },
	"merge_attempt": func(s *jsonschema.Schema) {
		s.Properties["repos"].Items.Properties["status"].Enum = []any{merge.Merged, merge.Unchanged, merge.Rebased,
			merge.Updated, merge.Conflicts, merge.Aborted, merge.Pushed, merge.Retargeted}
	},
}

// allStates lets the state in a reply be any state of an attempt or a run, or null where that is allowed already.
func allStates(s *jsonschema.Schema) {
	of, all := s.Properties["state"], values(board.States)
	if slices.Contains(of.Enum, nil) {
		all = append(all, nil)
	}
	of.Enum = all
}

func values(states []board.State) (all []any) {
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}

// kinds sets the values that kind has in a list of a reply.
func kinds(s *jsonschema.Schema, list string, kinds ...any) {
	s.Properties[list].Items.Properties["kind"].Enum = kinds
}
