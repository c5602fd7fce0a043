package workflow

import (
	"encoding/json"
	"time"

	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// StartArgs are the parameters of start_workflow (seed 000, 001.3.2 and 3).
type StartArgs struct {
	Goal         string `json:"goal" arg:"What the user wants to achieve" max:"100000"`
	JobName      string `json:"job_name" arg:"Job name from get_workflows"`
	WorkflowName string `json:"workflow_name" arg:"Workflow name; any, if the job has only one"`
	// Inputs are values of the workflow's inputs, by name: a text, a path, or a list of paths. null means none.
	Inputs          map[string]outputs.Value `json:"inputs"`
	InstanceID      *string                  `json:"instance_id"`
	ParentSessionID *string                  `json:"parent_session_id"`
	// agents use this name because other tools have it
	SessionID *string `json:"session_id" arg:"Another name of parent_session_id" unlisted:"true"`
	RequestID *string `json:"request_id" arg:"Any text, for retries"`

	// Root starts a session without a parent, whatever is on the stack: it was ordered from outside, and
	// others will continue it. It does not count as in use yet.
	Root bool `json:"-"`
	// Isolated is set by runs that give items worktrees of their own: see machine.State.
	Isolated bool `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (StartArgs) Tags() map[string]string {
	return map[string]string{
		"Inputs":          `arg:"Values of the workflow's inputs, by name: texts, paths or lists of paths"`,
		"InstanceID":      `arg:"Short name for the branch, such as acme. Default: the date"`,
		"ParentSessionID": `arg:"Session to nest in, 8 hex digits. Default: top of the stack"`,
	}
}

// FinishArgs are the parameters of finished_step (seed 000, 001.4.2 and 3).
type FinishArgs struct {
	// untyped: 001.5 judges it
	Outputs        json.RawMessage `json:"outputs" required:"true"`
	Notes          *string         `json:"notes" arg:"What reviewers should know: how you did it" max:"100000"`
	WorkSummary    *string         `json:"work_summary" arg:"Another name of notes." max:"100000" unlisted:"true"`
	OverrideReason *string         `json:"quality_review_override_reason" max:"100000"`
	SessionID      *string         `json:"session_id" arg:"8 hex digits. Default: top of the stack"`
	StepID         *string         `json:"step_id"`
	Item           *int            `json:"item" arg:"Index of its item; or give step_id as port[3]" min:"0" max:"9999"`
	RequestID      *string         `json:"request_id" arg:"Any text, for retries"`

	Merged bool `json:"-"` // set by the leader of a run that has merged an item's branch
}

// Tags implements fieldtag.Tagger.
func (FinishArgs) Tags() map[string]string {
	return map[string]string{
		"Outputs": `arg:"Paths by output name, a list for type files, a text for type string, relative to ` +
			`the project root, such as {\"report\":\"out/report.md\",\"sources\":[\"a.md\"]}"`,
		"OverrideReason": `arg:"Reason to skip the review, recorded. Only after a self-review that feedback asked ` +
			`for, or if a review is wrong"`,
		"StepID": `arg:"The step you finished; always give it. Default: the current one"`,
	}
}

// AbortArgs are the parameters of abort_workflow (seed 000, 001.6).
type AbortArgs struct {
	Explanation string  `json:"explanation" arg:"Why, recorded with the session" max:"100000"`
	SessionID   *string `json:"session_id" arg:"8 hex digits. Default: top of the stack"`
	RequestID   *string `json:"request_id" arg:"Any text, for retries"`
}

// GoToArgs are the parameters of go_to_step.
type GoToArgs struct {
	StepID    string  `json:"step_id" arg:"The current step or an earlier one"`
	All       bool    `json:"all,omitempty" arg:"Restart the whole concurrent group of step_id. Default: that member"`
	SessionID *string `json:"session_id" arg:"8 hex digits. Default: top of the stack"`
	RequestID *string `json:"request_id" arg:"Any text, for retries"`
}

// StepArgs are the parameters of get_step.
type StepArgs struct {
	SessionID *string `json:"session_id" arg:"8 hex digits. Default: top of the stack"`
	StepID    *string `json:"step_id" arg:"Id of one step of the concurrent group, to return it alone. Default: all"`
	Cursor    *string `json:"cursor" arg:"next_cursor of the last reply"`
}

// A Caller says who makes a call, and what identifies the call.
type Caller struct {
	Identity string
	Channel  string
	Person   bool    // allowed to act as a person
	Anywhere bool    // may act on sessions of every root
	MovedBy  *string // recorded as the process that last moved the session; nil keeps the recorded one
	Call     machine.Call
}

// A FinishCall is a finished_step for a session.
type FinishCall struct {
	Caller
	Args     FinishArgs
	Arrived  time.Time
	Within   time.Duration // after Arrived, the reply must be sent
	Progress ProgressFunc  // may be nil
	// Moved is called with a transition before it is stored, and with the session if it ends it or leaves it for
	// others, else with nil. It must not block.
	Moved func(*Ended)

	// Waited is the submission that an earlier call waited for, and Step its step; 0 means that there was none. A call
	// with a Step is about that step, even if the session moves on meanwhile.
	Waited int64
	Step   string
	// Repeats means that the call repeats an earlier one: it does not begin a review of other content, nor begin a void
	// try again.
	Repeats bool
	// Untold means that nobody reads the reply, so a verdict that refuses the outputs is kept for the next call.
	Untold bool
}

// A ProgressFunc receives the progress of a call, as done of total, and what the call waits for. It must not
// block.
type ProgressFunc func(done, total int, message string)

// An Ended is a session that a call has ended, or left for those that it has begun.
type Ended struct {
	SessionID, Step string // the step is the finished one
	Outputs         outputs.Map
}

// Finished is the result of a finished_step.
type Finished struct {
	Row      store.Session // the session after the call
	Reply    *replies.Finish
	Began    []store.Session // sessions that it has begun, for steps that are workflows
	Recorded bool            // a transition or the answer was stored; false for a repetition and for needs work
	Asks     string          // the content about which the caller's client may ask its user, or ""
}
