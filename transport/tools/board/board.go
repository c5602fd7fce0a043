// Package board has the tools of the set "board", which put tasks on the board and have coding
// agents work on them.
package board

import (
	"context"

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

// method returns the row of a tool that a method of the engine carries out.
func method[A, R any](t tool.Tool, do func(Engine, context.Context, session.Caller, A) (*R, error)) row {
	return func(s *tool.Set, e Engine) {
		call(t, func(ctx context.Context, who session.Caller, args A) (*R, error) { return do(e, ctx, who, args) })(s, e)
	}
}

// function returns the row of a tool that a function of package merge carries out.
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

// call returns the row of a tool that a function carries out.
func call[A, R any](t tool.Tool, do func(context.Context, session.Caller, A) (*R, error)) row {
	return func(s *tool.Set, _ Engine) {
		t := t // several servers may be opened at once
		t.Output = outputSchema[R](t.Name)
		tool.Add(s, t, func(ctx context.Context, c *tool.Caller, args A) (*R, error) { return do(ctx, c.Caller, args) })
	}
}

// runWorkflow answers with what identifies a run: get_run has the rest.
func runWorkflow(e Engine, ctx context.Context, who session.Caller, a attempt.RunWorkflowArgs) (*attempt.RunMade, error) {
	r, err := e.RunWorkflow(ctx, who, a)
	if err != nil {
		return nil, err
	}
	return &attempt.RunMade{RunID: r.RunID, TaskID: r.TaskID, State: r.State, Branch: r.Branch, Workspace: r.Workspace}, nil
}

// What the log says of replies.

func commentOutcome(r any) string {
	if sent := r.(*merge.CommentsReply).Sent; sent != nil {
		return *sent
	}
	return "kept"
}

func followUpOutcome(r any) string { return r.(*attempt.FollowUpReply).Status }

func runOutcome(r any) string { return r.(*attempt.RunMade).State }

// mergeOutcome is the status of the last repository.
func mergeOutcome(r any) string {
	repos := r.(*merge.Reply).Repos
	if len(repos) == 0 {
		return "ok"
	}
	return repos[len(repos)-1].Status
}
