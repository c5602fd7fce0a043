package transport

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"deepwork/session/board"
	"deepwork/transport/tool"
)

// A tool of the board that breaks, or is cut short by the end of the server, says where on the board to
// look, and one that only reads can be called again.
func TestBoardCallThatFails(t *testing.T) {
	s, _ := fakeServer(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tool.ErrStopping)
	for name, says := range map[string]string{
		"create_task": "before you call create_task again, call list_tasks",
		"get_task":    "it changes nothing, so call get_task again",
	} {
		for _, c := range []struct {
			ctx        context.Context
			err        error
			code, says string
		}{
			{t.Context(), errors.New("disk on fire"), "internal", says},
			{ctx, tool.ErrStopping, "stopping", "Connect again; " + says},
		} {
			res, err := serve(c.ctx, s, name, func() (any, error) { return nil, c.err })
			if err != nil || errorMetaOf(t, res)["code"] != c.code || !strings.Contains(text(res), c.says) || strings.Contains(text(res), "get_step") {
				t.Errorf("%s: %v: %s", name, err, text(res))
			}
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
			p.workspace = new(board.Context)
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
