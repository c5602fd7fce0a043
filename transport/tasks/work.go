package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
)

// A work is what continues after a call: exactly one field is set, or none if the row is damaged.
type work struct {
	Step      *step  `json:"step,omitempty"`
	Execution string `json:"execution,omitempty"` // the id of a remote run
	Agent     *agent `json:"agent,omitempty"`
}

// A step is a finished_step that waits for a verdict.
type step struct {
	replies.Going
	Args workflow.FinishArgs `json:"args"` // as they were given
	Here string              `json:"here"` // where the outputs are; see Set.Here
}

// An agent is a call with wait that started an attempt or a run.
type agent struct {
	Attempt string          `json:"attempt"`
	Call    string          `json:"call"`  // the digest of the tool and its arguments
	Reply   json.RawMessage `json:"reply"` // of the call
}

// workOf returns what continues after a call with this reply at a server in a place, or nil.
func workOf(here string, p *mcp.CallToolParamsRaw, reply any) *work {
	switch r := reply.(type) {
	case *replies.Finish:
		s := &step{Here: here}
		if r.Going == nil || json.Unmarshal(p.Arguments, &s.Args) != nil {
			return nil
		}
		s.Going = *r.Going
		return &work{Step: s}
	case attempt.Waited:
		if id := r.GoesOn(); id != "" {
			encoded, _ := json.Marshal(reply) // a reply can be encoded
			return &work{Agent: &agent{id, session.Digest(p.Name + " " + canonical(p.Arguments)), encoded}}
		}
	default:
		if x := tool.ExecutionOf(reply); x != nil && running(x) {
			return &work{Execution: x.ExecutionID}
		}
	}

	return nil
}

func running(x *remote.Run) bool { return x.EndedAt == nil && x.StatusSupported }

// key identifies the work, so that a repeated call gets the existing task.
func (w *work) key() string {
	switch {
	case w.Step != nil:
		return "step " + session.Digest(fmt.Sprintf("%q", []any{w.Step.SessionID, w.Step.StepID, w.Step.Submission}))
	case w.Agent != nil:
		return "attempt " + w.Agent.Attempt + " " + w.Agent.Call
	}
	return "execution " + w.Execution
}

// canonical returns arguments in one form, whatever the order of their keys and the spaces between them.
func canonical(arguments json.RawMessage) string {
	var decoded map[string]any
	if json.Unmarshal(arguments, &decoded) != nil {
		return string(arguments)
	}
	encoded, _ := json.Marshal(decoded) // it was decoded
	return string(encoded)
}

// errToolsetMissing is the error of a task that only a server with other toolsets can look at.
var errToolsetMissing = session.NotNow(codes.ToolsetMissing,
	"This server was started without the tools of this task (--toolsets): another one of the project answers.").
	Wait(30 * time.Second)

// look returns the reply that the call would get now, without waiting.
func (w *work) look(ctx context.Context, s *Set, c *tool.Caller, call *store.LongCall) (any, error) {
	switch {
	case *w == (work{}):
		return nil, session.Wrong(codes.StoreDamaged,
			"What task %s is about can't be read in the store. Call %s again, or find what it did with get_step, "+
				"get_run or workflow_status.", call.ID, call.Tool)
	case w.Step != nil:
		read, _ := ctx.Value(lookingKey{}).(bool)
		return c.Workflows.Collect(ctx, w.Step.Going, w.Step.Args, read)
	case w.Agent != nil && s.Agents == nil, w.Execution != "" && s.Runs() == nil:
		return nil, errToolsetMissing
	case w.Agent != nil:
		now, err := s.Agents.GetAttempt(ctx, c.Caller,
			attempt.AttemptArgs{Target: board.Target{AttemptID: &w.Agent.Attempt}})
		if err != nil {
			return nil, err
		}
		return attempt.WaitedReply(call.Tool, w.Agent.Reply, now)
	}
	return s.Runs().Outcome(ctx, c.Identity, w.Execution)
}

// goesOn reports whether a reply of look says that the work continues.
func (w *work) goesOn(reply any) bool {
	switch r := reply.(type) {
	case *replies.Finish:
		return r.Going != nil
	case attempt.Waited:
		return r.GoesOn() != ""
	}

	x := tool.ExecutionOf(reply)
	return x != nil && running(x)
}

// cancelled reports whether what look returned says that the work was cancelled, by this task or otherwise.
func cancelled(reply any, refusal error) bool {
	if refused, ok := errors.AsType[*session.Error](refusal); ok {
		return refused.Details["cancelled"] == true || refused.Code == codes.WorkflowCancelled
	}
	r, ok := reply.(attempt.Waited)
	return ok && r.Standing() == string(board.Stopped)
}

// message tells people the state of the work.
func (w *work) message(reply any) string {
	switch r := reply.(type) {
	case *replies.Finish:
		if r.Feedback != nil {
			return *r.Feedback
		}
	case attempt.Waited:
		return r.Standing()
	}

	if x := tool.ExecutionOf(reply); x != nil {
		return tool.ProgressWords(x)
	}

	return ""
}

// cancel ends the work as the tool for that would, if it has not ended otherwise.
func (w *work) cancel(ctx context.Context, s *Set, c *tool.Caller) error {
	var err error
	switch {
	case w.Step != nil:
		err = c.Workflows.CancelReview(ctx, w.Step.Going)
	case w.Agent != nil && s.Agents == nil, w.Execution != "" && s.Runs() == nil:
		err = errToolsetMissing
	case w.Agent != nil:
		_, err = s.Agents.StopAttempt(ctx, c.Caller,
			attempt.AttemptArgs{Target: board.Target{AttemptID: &w.Agent.Attempt}})
	default:
		_, err = s.Runs().Cancel(ctx, c.Identity, w.Execution)
	}
	return err
}
