//go:build unix

package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An answer is a reply as the model writes it.
type answer struct {
	kind    kind
	reply   string
	session string   // of start_workflow
	likely  []string // what can be finished next; nil: not told
	over    bool     // the session has ended
	damaged bool     // the session's file was damaged before the call
}

type kind int

const (
	given      kind = iota
	lostAnswer      // none: the call may have taken effect
	noEffect        // refused for what has nothing to do with the session's state
	goneAnswer      // there is no such session, or its file is damaged
	oddAnswer       // what must not be
)

// The codes of refusals that are no matter of the state machine.
var (
	passing = []string{
		"session_owned", "not_saved", "shutting_down", // another server, the disk, the end of this one
		"job_broken", "job_not_found", "definition_lost", "instructions_missing", // an editor saves
	}
	uncertain = []string{"session_uncertain", "session_busy", "stopping"}
	gone      = []string{"unknown_session", "session_damaged"}
)

// read makes an answer of a tool's result.
func read(in input, result *mcp.CallToolResult) answer {
	text := ""
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	if result.IsError {
		return refusal(in, result, text)
	}
	var r struct {
		Status    string   `json:"status"`
		Begin     *place   `json:"begin_step"`
		Group     []place  `json:"concurrent_steps"`
		Pending   []string `json:"pending_concurrent_steps"`
		Completed []string `json:"completed_steps"`
		Cleared   []string `json:"invalidated_steps"`
		Aborted   string   `json:"aborted_step"`
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return answer{kind: oddAnswer, reply: fmt.Sprintf("cannot be read: %v: %.200s", err, text)}
	}
	a := answer{likely: r.Pending}
	first := ""
	if r.Begin != nil {
		first = r.Begin.Step
		if r.Pending == nil {
			a.likely = []string{first}
			for _, other := range r.Group {
				a.likely = append(a.likely, other.Step)
			}
		}
	}
	switch {
	case in.Tool == "start_workflow" && r.Begin != nil:
		a.reply, a.session = "begin "+first, r.Begin.Session
	case in.Tool == "get_step" && r.Begin != nil:
		a.reply = "at " + first + " done " + strings.Join(r.Completed, ",")
	case in.Tool == "go_to_step" && r.Begin != nil:
		a.reply = "back to " + first + " clears " + strings.Join(r.Cleared, ",")
	case in.Tool == "abort_workflow":
		a.reply, a.over = "aborted "+r.Aborted, true
	case r.Status == "next_step" && r.Begin != nil:
		a.reply = "begin " + first
	case r.Status == "next_step":
		a.reply = "pending " + strings.Join(r.Pending, ",")
	case r.Status == "workflow_complete":
		a.reply, a.over = "complete", true
	default:
		return answer{kind: oddAnswer, reply: fmt.Sprintf("is no reply to %s: %.200s", in.Tool, text)}
	}
	return a
}

// A place is what the simulation reads of a step.
type place struct {
	Session string `json:"session_id"`
	Step    string `json:"step_id"`
}

func refusal(in input, result *mcp.CallToolResult, text string) answer {
	meta, _ := result.Meta["deepwork/error"].(map[string]any)
	code, _ := meta["code"].(string)
	status, _ := meta["status"].(string)
	switch {
	case in.Tool == "start_workflow" && code == "session_ended":
		return answer{kind: noEffect} // its parent, by now
	case in.Tool == "start_workflow" && slices.Contains(gone, code):
		return answer{kind: noEffect} // its parent's file was damaged
	case slices.Contains(passing, code):
		return answer{kind: noEffect}
	case slices.Contains(uncertain, code):
		return answer{kind: lostAnswer}
	case slices.Contains(gone, code):
		return answer{kind: goneAnswer, reply: text}
	case code == "reply_forgotten":
		return answer{reply: forgotten}
	case code == "session_ended":
		return answer{reply: "!session_ended " + status, over: true}
	case slices.Contains([]string{"step_id_needed", "step_finished", "group_moved_on", "step_not_current", "unknown_step", "step_ahead"}, code):
		return answer{reply: "!" + code}
	}
	return answer{kind: oddAnswer, reply: fmt.Sprintf("is refused with %q: %s", code, text)}
}
