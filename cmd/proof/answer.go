package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// An answer is the outcome of one tool call.
type answer struct {
	kind      kind
	by        *process
	code      string // of a refusal
	waits     string // the code of why the caller can only wait
	status    string // session_ended: how
	text      string // the reply as JSON, or why there is none
	reply     reply  // of a workflow tool
	said      string // the reply in the model's form
	call, ret int64  // for a lost one, ret is when it can no longer take effect
}

type kind int

const (
	given    kind = iota
	lost          // no answer: the call may have taken effect
	unsent        // there was no connection: the call was not made
	noEffect      // refused for reasons other than the state of the object
	gone          // there is no such session, task, attempt or execution
	odd           // must not happen
)

// refusals are the codes of refusals that the models ignore. No server owns a session: a refusal because of another
// server is a fault.
var refusals = func() map[string]kind {
	all := map[string]kind{}
	for kind, codes := range map[kind]string{
		noEffect: "not_saved shutting_down " + // the disk, the end of this server
			"store_unavailable store_busy " + // the database
			"job_broken job_not_found definition_lost instructions_missing " + // an editor saves
			"step_moved_on " + // another client, during the review
			"disk_full attempt_running attempt_busy being_deleted being_removed no_session " +
			"target_checked_out target_moved not_committed not_merged merge_unfinished push_rejected elsewhere " +
			"no_workspace machine_gone workspace_gone not_removed work_not_kept worktree_in_use git_failed " +
			"run_not_saved too_many_runs unknown_workflow_tool config_invalid runs_unread untrusted",
		lost: "session_uncertain session_busy stopping board_busy still_stopping source_away workflow_unknown " +
			"workflow_cancelled",
		gone: "unknown_session unknown_task unknown_attempt deleted_since unknown_run",
	} {
		for code := range strings.FieldsSeq(codes) {
			all[code] = kind
		}
	}
	return all
}()

// refusalOf returns what a tool's refusal says about the call.
func refusalOf(tool, code string) kind {
	k, known := refusals[code]
	switch {
	case !known:
		return odd
	case tool == "start_workflow" && k == gone: // its parent
		return noEffect
	case tool == "call_workflow_tool" && code == "shutting_down":
		return lost
	}
	return k
}

// A reply has the fields of the workflow tools' replies that are checked.
type reply struct {
	Status    string     `json:"status"`
	Begin     *stepInfo  `json:"begin_step"`
	Group     []stepInfo `json:"concurrent_steps"`
	Pending   []string   `json:"pending_concurrent_steps"`
	Completed []struct {
		Step  string `json:"step_id"`
		Items string `json:"items"`
	} `json:"completed_steps"`
	Cleared    []string        `json:"invalidated_steps"`
	AllOutputs json.RawMessage `json:"all_outputs"`
	Feedback   *string         `json:"feedback"`
	Aborted    string          `json:"aborted_step"`
	Why        string          `json:"explanation"`
	Stack      []struct {
		Workflow string `json:"workflow"`
		Step     string `json:"step"`
		Session  string `json:"session_id"`
	} `json:"stack"`
}

// A stepInfo has the fields of a started step that are checked.
type stepInfo struct {
	Session string `json:"session_id"`
	Step    string `json:"step_id"`
	Outputs []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"step_expected_outputs"`
	Instructions string `json:"step_instructions"`
	Info         string `json:"common_job_info"`
	Round        round  `json:"round"`
}

// done are the ids of the completed steps; a step of items also says for how many.
func (r *reply) done() (ids []string) {
	for _, c := range r.Completed {
		ids = append(ids, strings.TrimSpace(c.Step+" "+c.Items))
	}
	return ids
}

// infos are the steps that a reply describes, and steps their ids.
func (r *reply) infos() []stepInfo {
	if r.Begin == nil {
		return nil
	}
	infos := []stepInfo{*r.Begin}
	for _, member := range r.Group {
		member.Session, member.Info = r.Begin.Session, r.Begin.Info // which a reply has once
		infos = append(infos, member)
	}
	return infos
}

func (r *reply) steps() (ids []string) {
	for _, info := range r.infos() {
		ids = append(ids, info.Step)
	}
	return ids
}

// read decodes the answer of a workflow tool and puts it into the model's form.
func (a *answer) read(in input) {
	switch a.kind {
	case odd:
		switch a.code { // refusals that the model knows
		case "reply_forgotten":
			a.kind, a.said = given, forgotten
		case "session_ended":
			a.kind, a.said = given, "!session_ended "+a.status
			if in.Tool == "start_workflow" { // its parent, by now
				a.kind = noEffect
			}
		case "step_id_needed", "step_finished", "group_moved_on", "step_not_current", "unknown_step", "step_ahead",
			"step_is_workflow":
			a.kind, a.said = given, "!"+a.code
		}

		return
	case given:
	default:
		return
	}
	r := &a.reply
	if err := json.Unmarshal([]byte(a.text), r); err != nil {
		a.kind, a.text = odd, fmt.Sprintf("cannot be read: %v: %.300s", err, a.text)
		return
	}
	steps := strings.Join(r.steps(), ",")
	switch {
	case in.Tool == "get_step" && r.Begin != nil:
		a.said = "at " + steps + " done " + listed(r.done())
	case in.Tool == "go_to_step" && r.Begin != nil:
		a.said = "back to " + steps + " clears " + listed(r.Cleared)
	case in.Tool == "abort_workflow":
		a.said = "aborted " + r.Aborted + ": " + r.Why
	case (in.Tool == "start_workflow" || r.Status == "next_step") && r.Begin != nil:
		a.said = "begin " + steps
	case r.Status == "next_step" && r.Feedback != nil:
		a.said = "pending " + strings.Join(r.Pending, ",")
	case r.Status == "needs_work" && r.Feedback != nil:
		a.said = whyHeld(a.waits)
	case r.Status == "workflow_complete":
		a.said = "complete " + string(r.AllOutputs)
	default:
		a.kind, a.text = odd, fmt.Sprintf("is no reply to %s: %.300s", in.Tool, a.text)
	}
}

// whyHeld returns why a step needs work, in the model's form, by the code of why the call waits.
func whyHeld(code string) string {
	switch code {
	case "review_running":
		return reviewRuns
	case "person_awaited":
		return personAwaited
	}
	return reviewFailed
}

// over reports whether an answer says that the session has ended.
func (a *answer) over() bool {
	word, _, _ := strings.Cut(a.said, " ")
	return word == "aborted" || word == "complete" || word == "!session_ended"
}
