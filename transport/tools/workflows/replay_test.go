package workflows_test

import (
	"context"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/replies"
	"deepwork/session/workflow"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/tool"
	"deepwork/transport/tools/toolstest"
	"deepwork/transport/tools/workflows"
)

func TestMain(m *testing.M) { toolstest.Main(m) }

// What an agent calls to go through a workflow, and what it gets.
func TestCalls(t *testing.T) {
	toolstest.Replay(t, pagetest.Project(t), []string{"workflows"})
}

type noStack struct{ tool.WorkflowCaller }

func (noStack) Start(context.Context, workflow.StartArgs) (*replies.Start, error) {
	return new(replies.Start), nil
}

// A list without entries is [] in a reply.
func TestEmptyLists(t *testing.T) {
	r := testkit.Get(workflows.Start(t.Context(), &tool.Caller{Workflows: noStack{}}, workflow.StartArgs{})).Must(t)
	testkit.True(t, r.Stack != nil, "the stack is null")
}
