package transport

import (
	"errors"
	"fmt"

	"deepwork/session"
	"deepwork/session/execution"
)

// maxReplyBytes is how much JSON one reply may be; it goes out twice, as text and as
// structured content. What can be large is bounded where it is made: lists have
// pages, the output of agents and diffs have limits, get_workflows leaves things out
// and says so, and a step or a group with more instructions than its bound does not
// begin. This is for what is left, such as the result of another system's workflow.
const maxReplyBytes = 8 << 20

// errTooLarge is a reply that is not sent.
var errTooLarge = errors.New("the reply is too large")

// tooLarge is the error for a reply of n bytes of a call that was carried out. Nothing
// is cut out of the reply, since nobody could see what is missing. Of a run it has the
// execution_id.
func (s *Server) tooLarge(tool string, n int, reply any) *session.Error {
	ran := runOf(reply)
	what, next := "was carried out, but its reply is not sent", s.again(tool)
	switch how := recheck[tool]; {
	case s.reads[tool]:
		what = "has no reply that can be sent"
		next = smaller[tool]
		if next == "" {
			next = "ask for less, where " + tool + " has an argument for it, or read the files of the project yourself."
		}
	case ran != nil:
		next = fmt.Sprintf("the run, with execution_id %s, is %s, and its result is at its source: look there; workflow_status tells the run without its result. "+
			"Calling %s again runs the workflow again; before that, have it give a reference to a large result instead of the result.", ran.ExecutionID, ran.State, tool)
	case how == seeRun, how == "": // a workflow of another system
		next = "the run ended, and its result is at its source: look there. Calling " + tool + " again runs the workflow again; before that, have it give a reference to a large result instead of the result."
	}
	e := session.NotNow("reply_too_large", "%s %s: it would have %d bytes of JSON, and %d are the most. What to do now: %s", tool, what, n, maxReplyBytes, next).
		With("bytes", n).With("max", maxReplyBytes).Because(fmt.Errorf("%w: %d bytes", errTooLarge, n))
	if ran != nil {
		e = e.With("execution_id", ran.ExecutionID)
	}
	return e
}

// runOf is the run that a reply tells of; nil: it is another's.
func runOf(reply any) *execution.Execution {
	if called, ok := reply.(*calledReply); ok {
		reply = called.value
	}
	ran, _ := reply.(*execution.Execution)
	return ran
}

// sendable is a run as it can be told: without a result that no reply has room for.
func sendable(r *execution.Execution) *execution.Execution {
	if len(r.Result) <= maxReplyBytes/2 { // all else of a run is some 10 KB
		return r
	}
	if data, err := encode(r); err != nil || len(data) <= maxReplyBytes {
		return r
	}
	lighter := *r
	lighter.Result = nil
	why := fmt.Sprintf("its result is too large to be sent: it has %d bytes of JSON, and a reply may have %d; look for it at its source, and have the workflow give a reference to a large result instead of the result", len(r.Result), maxReplyBytes)
	if r.Error != nil {
		why = *r.Error + "; " + why
	}
	lighter.Error = &why
	return &lighter
}

// smaller tells, of tools that only read, how to get less at once.
var smaller = map[string]string{
	"get_step":            "the instructions stand in the job's folder, in the instructions_file of the step: read them there; shorter ones are taken up by go_to_step.",
	"workflow_status":     "the run ended, and its result is at its source: have the workflow give a reference to a large result instead of the result.",
	"list_workflow_tools": "give name, for one tool or for those of a pattern.",
	"list_tasks":          "give limit, for fewer at once, and go on with next_cursor.",
	"list_task_attempts":  "give limit, for fewer at once, and go on with next_cursor.",
	"list_projects":       "give limit, for fewer at once, and go on with next_cursor.",
	"list_repos":          "give limit, for fewer at once, and go on with next_cursor.",
	"tail_attempt":        "give limit, for fewer entries at once, and go on with after_index.",
	"get_attempt_diff":    "give max_bytes, or paths for a part of the changes.",
}
