package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// The errors of calls to a source.
var (
	ErrAway = errors.New("the source cannot be reached") // wrapped, with the reason
	// with ErrAway: the call may have had its effect
	ErrLost        = errors.New("the connection was lost before it answered")
	ErrUnreadable  = errors.New("its answer cannot be read") // with ErrLost: the source may answer so each time
	ErrUnknown     = errors.New("no source of this name is configured")
	ErrUnsupported = errors.New("the source has no tool for this") // no status or cancel tool
)

// A RefusedError is an error that a source returned, in at most 8,000 characters.
type RefusedError struct {
	Text string
	// Garbled means that Text comes from this package, because the answer was unreadable: the source may have
	// executed the call.
	Garbled bool
}

// Error returns the source's text.
func (e *RefusedError) Error() string {
	return cmp.Or(e.Text, "the source answered with an error that says nothing")
}

// Execute starts a workflow at its source, or runs it to its end if it is synchronous. It blocks until the
// source answers or ctx ends; then it cancels the request at the source. Execute itself calls progress, which
// may be nil, for progress notifications before it returns. If progress is slower than the source, at most 64
// notifications wait, and further ones are dropped.
//
// The answer of a synchronous workflow is Completed, with its result as Output. Errors: ErrUnknown, ErrAway
// (with ErrLost if the source may have begun), a *RefusedError, ErrUnsupported if the source has no execute
// tool, or one that wraps the cause of ctx.
func (c *Catalog) Execute(
	ctx context.Context, w *Workflow, input json.RawMessage, progress func(Progress),
) (*Answer, error) {
	s, err := c.source(w.Source)
	if err != nil {
		return nil, err
	}

	if jsontext.IsNull(input) {
		input = json.RawMessage(`{}`)
	}
	tool, arguments := w.tool, input
	if tool == "" {
		tool = s.def.ExecuteTool
		arguments, err = jsontext.Encode(struct {
			WorkflowID string          `json:"workflow_id"`
			Input      json.RawMessage `json:"input"`
		}{w.ID, input})
		if err != nil {
			return nil, fmt.Errorf("writing the input of workflow %q: %w", w.ID, err)
		}
	}
	answer, err := s.request(ctx, callMethod, &callRequest{Name: tool, Arguments: arguments, mayBeTask: true}, progress)
	switch {
	case err != nil:
		return nil, err
	case answer.task != nil:
		return answer.task.answer()
	case !w.Async:
		return answer.syncAnswer(), nil
	}

	return answer.answer(), nil
}

// Status asks a source about a remote run and blocks until it answers or ctx
// ends. Errors are those of Execute, and ErrUnsupported if the source has no
// status tool (seed 003, 8.5).
func (c *Catalog) Status(ctx context.Context, name, workflowID, executionID string) (*Answer, error) {
	return c.callAbout(ctx, name, getTask, func(s *source) string { return s.def.StatusTool }, workflowID, executionID)
}

// Cancel asks a source to end a remote run (seed 003, 7.5) and blocks until it
// answers or ctx ends. Errors are those of Execute, and ErrUnsupported if the
// source has no cancel tool.
func (c *Catalog) Cancel(ctx context.Context, name, workflowID, executionID string) (*Answer, error) {
	return c.callAbout(ctx, name, cancelTask, func(s *source) string {
		return s.def.CancelTool
	}, workflowID, executionID)
}

// callAbout calls a tool about a remote run or, if the run is a task, a method of MCP.
func (c *Catalog) callAbout(
	ctx context.Context, name, method string, tool func(*source) string, workflowID, executionID string,
) (*Answer, error) {
	s, err := c.source(name)
	if err != nil {
		return nil, err
	}

	if strings.HasPrefix(executionID, taskID) {
		return s.task(ctx, method, executionID)
	}

	arguments, err := json.Marshal(map[string]string{
		"workflow_id":  workflowID,
		"execution_id": strings.TrimPrefix(executionID, plainID),
	})
	if err != nil {
		return nil, fmt.Errorf("writing the ids of an execution: %w", err)
	}
	answer, err := s.request(ctx, callMethod, &callRequest{Name: tool(s), Arguments: arguments}, nil)
	if err != nil {
		return nil, err
	}
	return answer.answer(), nil
}

// source finds a source by its name. A source that may return once the config is approved or corrected counts
// as away.
func (c *Catalog) source(name string) (*source, error) {
	settings := c.applied.Load()
	if s := (*c.sources.Load())[name]; s != nil {
		return s, nil
	}
	if settings == nil {
		return nil, fmt.Errorf("source %q: %w: the config has not been read", name, ErrAway)
	}
	if slices.ContainsFunc(settings.WithheldSources(), func(a config.Asked) bool {
		return a.Key == config.SourcesKey+name
	}) {
		return nil, fmt.Errorf("source %q: %w: the user has not approved it", name, ErrAway)
	}
	return nil, fmt.Errorf("source %q: %w", name, ErrUnknown)
}

// request calls a tool, or a method of tasks, over the current link. A call that did not reach the source, or
// that the restarted source refused because it does not know the session, had no effect: it is repeated once,
// over the next link.
func (s *source) request(ctx context.Context, method string, r *callRequest, progress func(Progress)) (*reply, error) {
	var l *link
	for again := true; ; again = false {
		if l = s.current(ctx, l); l == nil {
			return nil, s.unavailable(nil)
		}
		if l.tools.Load() != nil && r.Name != "" && !l.has(r.Name) &&
			(s.def.Tools == nil || slices.Contains(s.own(), r.Name)) {
			return nil, fmt.Errorf("source %q has no tool %q: %w", s.def.Name, r.Name, ErrUnsupported)
		}
		answer, err := l.call(ctx, method, r, progress)
		lost, isLost := errors.AsType[transportError](err)
		switch {
		case err == nil && answer.IsError:
			return nil, &RefusedError{Text: answer.text()}
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("waiting for source %q: %w", s.def.Name, context.Cause(ctx))
		case !isLost:
			return nil, err
		case again && errors.Is(lost, errUndone):
			continue
		}

		return nil, s.unavailable(lost)
	}
}

// unavailable returns the error of a call that cannot be made or has no answer.
func (s *source) unavailable(lost error) error {
	// nothing was sent
	if dial, ok := errors.AsType[*net.OpError](lost); ok && dial.Op == "dial" || errors.Is(lost, errUndone) {
		return fmt.Errorf("source %q: %w: %w", s.def.Name, ErrAway, lost)
	}
	if _, malformed := errors.AsType[malformedError](lost); malformed {
		return fmt.Errorf("source %q: %w: %w: %w: %w", s.def.Name, ErrAway, ErrLost, ErrUnreadable, lost)
	}
	if lost != nil {
		return fmt.Errorf("source %q: %w: %w: %w", s.def.Name, ErrAway, ErrLost, lost)
	}
	if err := s.offer.Load().err; err != nil {
		return fmt.Errorf("source %q: %w: %w", s.def.Name, ErrAway, err)
	}
	return fmt.Errorf("source %q: %w: the connection was just lost", s.def.Name, ErrAway)
}

// relinkWithin limits the wait for the next link.
const relinkWithin = 10 * time.Second

// current returns the current link other than not, and waits for it while the source is being
// reconnected. It returns nil if that takes too long.
func (s *source) current(ctx context.Context, not *link) *link {
	ctx, cancel := context.WithTimeout(ctx, relinkWithin)
	defer cancel()
	for {
		l := s.link.Load()
		if l != nil && l != not && l.ctx.Err() == nil {
			return l
		}
		if l == nil && !s.offer.Load().connected || wait.For(ctx, 20*time.Millisecond) != nil || s.ended() {
			return nil
		}
	}
}
