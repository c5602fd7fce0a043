package transport

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
	boardtools "deepwork/transport/tools/board"
)

// A brokenBoard fails at two tools, or waits there until the call is cut short;
// the others are never called.
type brokenBoard struct {
	boardtools.Engine
	err error
}

func (b brokenBoard) fail(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (b brokenBoard) CreateTask(ctx context.Context, _ session.Caller, _ attempt.CreateTaskArgs) (*attempt.Task, error) {
	return nil, b.fail(ctx)
}

func (b brokenBoard) GetTask(ctx context.Context, _ session.Caller, _ attempt.TaskArgs) (*attempt.TaskReply, error) {
	return nil, b.fail(ctx)
}

const createOne = `{"project_id":"3b241101-e2bb-4255-8caf-4136c566a962","title":"x"}`

// A tool of the board that breaks says where on the board to look, and one that
// only reads can be called again.
func TestBrokenBoardCall(t *testing.T) {
	s, _ := fakeServer(t, nil, func(p *engines) { p.board = brokenBoard{err: errors.New("disk on fire")} })
	cs := client(t, s)
	for tool, c := range map[string]struct{ args, says string }{
		"create_task": {createOne, "before you call create_task again, call list_tasks"},
		"get_task":    {`{"task_id":"3b241101-e2bb-4255-8caf-4136c566a962"}`, "it changes nothing, so call get_task again"},
	} {
		res := callTool(t, cs, tool, c.args)
		if got := text(res); errorMetaOf(t, res)["code"] != "internal" || !strings.Contains(got, c.says) || strings.Contains(got, "get_step") {
			t.Errorf("%s: %s", tool, got)
		}
	}
}

// So does one that is cut short by the end of the server.
func TestBoardCallCutShort(t *testing.T) {
	s, _ := fakeServer(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tool.ErrStopping)
	for name, says := range map[string]string{
		"create_task": "Connect again; before you call create_task again, call list_tasks",
		"get_task":    "Connect again; it changes nothing, so call get_task again",
	} {
		res, err := serve(ctx, s, name, func() (any, error) { return nil, brokenBoard{}.fail(ctx) })
		if err != nil || errorMetaOf(t, res)["code"] != "stopping" || !strings.Contains(text(res), says) {
			t.Errorf("%s: %v: %s", name, err, text(res))
		}
	}
}

// Each tool that changes something says how to see what it did, by tools there are.
func TestEveryToolCanBeRechecked(t *testing.T) {
	s, _ := fakeServer(t, nil)
	name := regexp.MustCompile(`\b(?:get|list)_[a-z_]+|workflow_status|workflows-status-tool`)
	for _, tool := range s.tools.Names() {
		r := s.tools.Tool(tool)
		if r.Hints.ReadOnly != (r.Recheck == "") {
			t.Errorf("%s: reads %v, and is rechecked by %q", tool, r.Hints.ReadOnly, r.Recheck)
		}
		named := name.FindAllString(r.Recheck, -1)
		if !r.Hints.ReadOnly && len(named) == 0 {
			t.Errorf("%s: no tool is named in %q", tool, r.Recheck)
		}
		for _, n := range named {
			if !s.tools.Tool(n).Hints.ReadOnly {
				t.Errorf("%s: %s is no tool that reads", tool, n)
			}
		}
	}
}

// The instructions tell of the tools that are offered, and of no others.
func TestInstructionsFitTheToolsets(t *testing.T) {
	for _, c := range []struct {
		sets        []string
		inside      bool
		has, hasNot []string
	}{
		{nil, false, []string{onBoardLine, lifecycle, "failed to load"}, []string{inWorkspaceLine}},
		{nil, true, []string{onBoardLine, lifecycle, inWorkspaceLine}, nil},
		{[]string{"workflows"}, false, []string{lifecycle}, []string{onBoardLine, inWorkspaceLine}},
		{[]string{"board"}, false, []string{onBoardLine}, []string{"get_workflows", "workflows"}},
	} {
		server, _ := project(t, func(o *Options) { o.Toolsets = c.sets })
		p := server.engines
		if c.inside {
			p.workspace = (*attempt.Context)(nil)
		}
		s, err := newServer(p, c.sets, "", slog.New(slog.DiscardHandler))
		must(t, err)
		got := s.instructions(t.Context())
		for _, text := range c.has {
			if !strings.Contains(got, text) {
				t.Errorf("%v: %q is not in:\n%s", c.sets, text, got)
			}
		}
		for _, text := range c.hasNot {
			if strings.Contains(got, text) {
				t.Errorf("%v: %q is in:\n%s", c.sets, text, got)
			}
		}
		if len(got) > instructionBytes || strings.TrimSpace(got) != got {
			t.Errorf("%v: %d bytes:\n%s", c.sets, len(got), got)
		}
	}
}
