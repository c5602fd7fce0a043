// Package replies has the replies of the workflow tools. Every field of seed 000 is always present, and null if it has
// no value (seed 000, 001.7; DESIGN "Shapes"). Other fields without a value are absent, since agents pay for each null.
//
// The jsonschema tags are the descriptions that clients see. To add a field, add it here and set it where the reply is
// made (finish.go, goto.go or machine.go of package machine, or step.go of package workflow); then renew the goldens
// of tools/list.
package replies

import (
	"encoding/json"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
)

// Workflows is the reply of get_workflows (seed 000, 001.2).
type Workflows struct {
	Jobs   json.RawMessage `json:"jobs"`   // []JobInfo, encoded once per snapshot
	Errors json.RawMessage `json:"errors"` // []JobLoadError, encoded once per snapshot
	Notice *string         `json:"notice,omitempty" jsonschema:"a hint"`
	Stack  []StackEntry    `json:"stack"`
	// Resumable lists the newest sessions that the caller can resume.
	Resumable []ResumableSession `json:"resumable"`
}

// Tags implements fieldtag.Tagger.
func (Workflows) Tags() map[string]string {
	return map[string]string{
		"Stack": `jsonschema:"the workflows in progress, bottom first; calls use the last one by default"`,
		"Resumable": `jsonschema:"your newest 20 sessions that are not on the stack; get_step with its session_id ` +
			`resumes one"`,
	}
}

// ResumableSession is a session that its caller can resume.
type ResumableSession struct {
	SessionID string `json:"session_id" jsonschema:"id of the session, 8 hexadecimal characters"`
	Workflow  string `json:"workflow" jsonschema:"name, as job/workflow"`
	Step      string `json:"step" jsonschema:"id of the current step"`
	Goal      string `json:"goal" jsonschema:"goal, at most 200 characters"`
	Age       string `json:"age" jsonschema:"time since its last step, such as 40s, 5m, 3h, 9d"`
	Machine   string `json:"machine,omitempty" jsonschema:"machine and folder that moved it last, if not here"`
}

// EncodeJSON returns the reply as JSON, without scanning the lists.
func (r *Workflows) EncodeJSON() ([]byte, error) {
	rest, err := jsontext.Encode(struct {
		Notice    *string            `json:"notice,omitempty"`
		Stack     []StackEntry       `json:"stack"`
		Resumable []ResumableSession `json:"resumable"`
	}{r.Notice, r.Stack, r.Resumable})
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"jobs":`), r.Jobs, []byte(`,"errors":`), r.Errors, []byte(","), rest[1:]), nil
}

// JobInfo describes a job in get_workflows.
type JobInfo struct {
	Name        string         `json:"name" jsonschema:"name of the job, for start_workflow"`
	Summary     string         `json:"summary" jsonschema:"purpose of the job, at most 200 characters"`
	Description *string        `json:"description" jsonschema:"description of the job"`
	Workflows   []WorkflowInfo `json:"workflows" jsonschema:"workflows of the job, in its author's order"`
}

// WorkflowInfo describes a workflow of a job.
type WorkflowInfo struct {
	Name       string          `json:"name" jsonschema:"name of the workflow, for start_workflow"`
	Summary    string          `json:"summary" jsonschema:"what the workflow does, at most 200 characters"`
	Agent      string          `json:"agent,omitempty"`
	HowToStart string          `json:"how_to_start,omitempty"`
	Inputs     []ParameterInfo `json:"inputs,omitzero" jsonschema:"values that start_workflow takes as inputs"`
}

// Tags implements fieldtag.Tagger.
func (WorkflowInfo) Tags() map[string]string {
	return map[string]string{
		"Agent":      `jsonschema:"type of the subagent that should follow the workflow"`,
		"HowToStart": `jsonschema:"how to start it, if not by a call of start_workflow"`,
	}
}

// ParameterInfo describes an input of a workflow.
type ParameterInfo struct {
	Name        string  `json:"name" jsonschema:"name of the input, a key of inputs"`
	Description string  `json:"description" jsonschema:"what the value is"`
	Required    bool    `json:"required" jsonschema:"whether start_workflow requires it"`
	Type        string  `json:"type"`
	Default     *string `json:"default,omitempty" jsonschema:"the value if none is given"`
}

// Tags implements fieldtag.Tagger.
func (ParameterInfo) Tags() map[string]string {
	return map[string]string{
		"Type": `jsonschema:"string (a text), file (one path), files (a list of paths) or file_path (one path, or ` +
			`a list)"`,
	}
}

// JobLoadError describes a job that does not load.
type JobLoadError struct {
	JobName string `json:"job_name" jsonschema:"name of the job's folder"`
	JobDir  string `json:"job_dir" jsonschema:"absolute path of the job's folder"`
	Error   string `json:"error" jsonschema:"every error, one per line, as file:line:column: message"`
}

// StackEntry describes a session on the stack.
type StackEntry struct {
	Workflow  string `json:"workflow" jsonschema:"name, as job/workflow"`
	Step      string `json:"step" jsonschema:"id of the current step"`
	SessionID string `json:"session_id" jsonschema:"id of the session, 8 hexadecimal characters"`
}

// Tags implements fieldtag.Tagger.
func (StepInfo) Tags() map[string]string {
	return map[string]string{
		"SessionID":       `jsonschema:"id of the session, 8 hexadecimal characters"`,
		"BranchName":      `jsonschema:"git branch of the session, deepwork/<job>-<workflow>-<instance or date>"`,
		"Position":        `jsonschema:"place of its entry in the workflow, such as 1 of 3"`,
		"Item":            `jsonschema:"the item that the step is about, if it is done for each of a list"`,
		"ProjectRoot":     `jsonschema:"absolute path of the folder that paths are relative to"`,
		"JobDir":          `jsonschema:"absolute path of the job's folder, with its templates and scripts"`,
		"ExpectedOutputs": `jsonschema:"outputs to hand in with finished_step, in the author's order"`,
		"Checks":          `jsonschema:"programs that must pass when finished_step is called, before the reviews"`,
		"CommonJobInfo":   `jsonschema:"information for every step of this job"`,
	}
}

// BranchStatus says what a session's branch_name means. git.branch decides it when the session begins.
type BranchStatus string

// The values of BranchStatus.
const (
	BranchNamed      BranchStatus = "suggested, not created"
	BranchOutsideGit BranchStatus = "suggested, and not in git"
	BranchCreated    BranchStatus = "created, not checked out"
	BranchCheckedOut BranchStatus = "created and checked out"
)

// Tags implements fieldtag.Tagger.
func (ExpectedOutput) Tags() map[string]string {
	return map[string]string{
		"Type": `jsonschema:"file (one path), files (a list of paths), file_path (either, or a folder) or string ` +
			`(a text)"`,
	}
}

// Tags implements fieldtag.Tagger.
func (CheckInfo) Tags() map[string]string {
	return map[string]string{
		"Protect": `jsonschema:"patterns of files that must be as they were when the step began"`,
	}
}

// Tags implements fieldtag.Tagger.
func (ReviewInfo) Tags() map[string]string {
	return map[string]string{
		"RunEach":  `jsonschema:"step for all outputs together, or the name of the output to review, files one by one"`,
		"Criteria": `jsonschema:"names of the criteria with their questions"`,
		"Guidance": `jsonschema:"guidance for the reviewer"`,
		"Together": `jsonschema:"true: all files of the output are reviewed together"`,
		"Account":  `jsonschema:"true: your account of the work, in notes, is reviewed too"`,
	}
}

// Tags implements fieldtag.Tagger.
func (CriterionResult) Tags() map[string]string {
	return map[string]string{
		"TargetFile": `jsonschema:"reviewed file, as submitted; absent if all were reviewed together"`,
	}
}

// FailedReview is a review that did not pass. Its feedback is in the reply's feedback and failed_criteria.
type FailedReview struct {
	RunEach    string  `json:"review_run_each" jsonschema:"run_each of the review"`
	TargetFile *string `json:"target_file" jsonschema:"reviewed file, as submitted"`
	Passed     bool    `json:"passed" jsonschema:"always false"`
}

// Start is the reply of start_workflow (seed 000, 001.3.11 and 12).
type Start struct {
	BeginStep       *StepInfo    `json:"begin_step" jsonschema:"the first step"`
	ConcurrentSteps []StepInfo   `json:"concurrent_steps,omitzero" jsonschema:"the other steps of its concurrent group"`
	ConcurrentGroup *string      `json:"concurrent_group,omitempty" jsonschema:"how to hand out the steps of the group"`
	Notice          *string      `json:"notice,omitempty" jsonschema:"a hint"`
	Stack           []StackEntry `json:"stack" jsonschema:"the workflows in progress, bottom first"`

	SessionID string `json:"-"` // of the workflow; BeginStep has another session's if the first step is a workflow
}

// Status is the result of finished_step (seed 000, 001.7.2).
type Status string

// The values of Status.
const (
	NeedsWork        Status = "needs_work"
	NextStep         Status = "next_step"
	WorkflowComplete Status = "workflow_complete"
)

// Finish is the reply of finished_step (seed 000, 001.4).
type Finish struct {
	Status                 Status            `json:"status"`
	Feedback               *string           `json:"feedback" jsonschema:"what to do now"`
	FailedReviews          []FailedReview    `json:"failed_reviews,omitzero" jsonschema:"reviews that did not pass"`
	FailedCriteria         []CriterionResult `json:"failed_criteria,omitzero"`
	BeginStep              *StepInfo         `json:"begin_step" jsonschema:"next step"`
	ConcurrentSteps        []StepInfo        `json:"concurrent_steps,omitzero"`
	ConcurrentGroup        *string           `json:"concurrent_group,omitempty"`
	PendingConcurrentSteps []string          `json:"pending_concurrent_steps,omitzero"`
	Summary                *string           `json:"summary"`
	AllOutputs             *outputs.Map      `json:"all_outputs"`
	Closing                string            `json:"post_workflow_instructions,omitempty"`
	ResumedWorkflow        *string           `json:"resumed_workflow,omitempty"`
	ResumedStep            *string           `json:"resumed_step,omitempty" jsonschema:"current step of the parent"`
	Notice                 *string           `json:"notice,omitempty" jsonschema:"a hint"`
	Stack                  []StackEntry      `json:"stack" jsonschema:"the workflows in progress, bottom first"`

	outdated, alone bool

	Going *Going           `json:"-"` // set if the call waits for a verdict
	Waits *session.Waiting `json:"-"` // why, then; replies that wait are not stored
}

// Tags implements fieldtag.Tagger.
func (Finish) Tags() map[string]string {
	return map[string]string{
		"Status": `jsonschema:"needs_work: act on feedback and call again; next_step: do ` +
			`begin_step; workflow_complete: done"`,
		"FailedCriteria":         `jsonschema:"criteria of failed_reviews that were not met"`,
		"ConcurrentSteps":        `jsonschema:"the other steps of its concurrent group"`,
		"ConcurrentGroup":        `jsonschema:"how to hand out the steps of the group"`,
		"PendingConcurrentSteps": `jsonschema:"ids of the steps of the group that are not finished"`,
		"Summary":                `jsonschema:"summary of the finished workflow, or null before workflow_complete"`,
		"AllOutputs": `jsonschema:"outputs of all steps, or null before workflow_complete; if two have ` +
			`the same name, the later one"`,
		"Closing":         `jsonschema:"what to do now that the workflow is complete, by its author"`,
		"ResumedWorkflow": `jsonschema:"parent that is current again, as job/workflow"`,
	}
}

// Going says what a finished_step waits for.
type Going struct {
	SessionID  string `json:"session_id"`
	StepID     string `json:"step_id"`
	Submission int64  `json:"submission"` // the id of what was handed in
}

// NewFinish returns a reply with the nonempty notices. Every reply of finished_step is made here, or is
// a copy of a stored one.
func NewFinish(status Status, notices ...string) *Finish {
	return &Finish{Status: status, Notice: Notice(nil, notices...)}
}

// Outdated marks a repeated reply whose group meanwhile has other open steps: a caller that repeated its call
// until the group ends would wait forever.
func (r *Finish) Outdated() {
	r.outdated = true
	r.Notice = new("This repeats an earlier reply. Other steps are open by now: get_step says which.")
}

// Alone returns the reply for a caller that does only this step. Other agents do the next steps and the rest
// of its group, so it need not wait for them.
func (r Finish) Alone(feedback string) *Finish {
	r.BeginStep = nil
	r.ConcurrentSteps = nil
	r.ConcurrentGroup = nil
	r.PendingConcurrentSteps = nil
	r.Feedback, r.alone = &feedback, true
	return &r
}

func (r *Finish) membersPending() bool { return r.Status == NextStep && r.BeginStep == nil }

// Waiting returns why the caller can only wait or call again, or nil.
func (r *Finish) Waiting() *session.Waiting {
	switch {
	case r.membersPending() && (r.outdated || r.alone):
		return nil
	case r.membersPending():
		return &session.Waiting{Code: codes.MembersPending, RetryAfterMS: 10_000}
	}

	return r.Waits
}

// Abort is the reply of abort_workflow (seed 000, 001.6.7).
type Abort struct {
	AbortedWorkflow string       `json:"aborted_workflow" jsonschema:"the aborted workflow, as job/workflow"`
	AbortedStep     string       `json:"aborted_step" jsonschema:"step that it had reached"`
	Explanation     string       `json:"explanation" jsonschema:"the given explanation"`
	ResumedWorkflow *string      `json:"resumed_workflow"`
	ResumedStep     *string      `json:"resumed_step" jsonschema:"current step of the parent"`
	Notice          *string      `json:"notice,omitempty" jsonschema:"a hint"`
	Stack           []StackEntry `json:"stack" jsonschema:"the workflows in progress, bottom first"`
}

// Tags implements fieldtag.Tagger.
func (Abort) Tags() map[string]string {
	return map[string]string{
		"ResumedWorkflow": `jsonschema:"parent that is current again, as job/workflow"`,
	}
}

// Member is the state of a step of the current entry.
type Member struct {
	StepID        string  `json:"step_id" jsonschema:"id of the step"`
	State         string  `json:"state" jsonschema:"started or completed"`
	StartedAt     *string `json:"started_at" jsonschema:"when it was started, RFC 3339 in UTC"`
	CompletedAt   *string `json:"completed_at" jsonschema:"when it was finished, RFC 3339 in UTC"`
	QualityTries  int     `json:"quality_attempts" jsonschema:"number of reviews with a verdict"`
	ReviewRunning bool    `json:"review_running" jsonschema:"whether a review, or a check, is running"`
	FailedChecks  int     `json:"failed_checks,omitzero" jsonschema:"number of finished_step calls whose checks failed"`

	Review *Standing `json:"review,omitempty" jsonschema:"review of the outputs handed in last"`
}

// Standing is the state of a step's review.
type Standing struct {
	State     string      `json:"verdict"`
	Feedback  string      `json:"feedback,omitempty" jsonschema:"why it failed or is void"`
	Outputs   outputs.Map `json:"outputs" jsonschema:"what was handed in, by output"`
	TriesLeft int         `json:"tries_left" jsonschema:"number of tries left"`
	Command   string      `json:"command,omitempty" jsonschema:"how the person answers"`
}

// Tags implements fieldtag.Tagger.
func (Standing) Tags() map[string]string {
	return map[string]string{
		"State": `jsonschema:"running, waiting_for_you (a person must pass the outputs), passed, failed or void ` +
			`(without a verdict)"`,
	}
}

// Step is the reply of get_step.
type Step struct {
	BeginStep              *StepInfo       `json:"begin_step"`
	ConcurrentSteps        []StepInfo      `json:"concurrent_steps,omitzero"`
	ConcurrentGroup        *string         `json:"concurrent_group,omitempty"`
	Members                []Member        `json:"members"`
	PendingConcurrentSteps []string        `json:"pending_concurrent_steps,omitzero"`
	Goal                   string          `json:"goal" jsonschema:"goal given to start_workflow"`
	CompletedSteps         []CompletedStep `json:"completed_steps"`
	Notice                 *string         `json:"notice,omitempty" jsonschema:"a hint"`
	NextCursor             *string         `json:"next_cursor,omitempty"`
	Stack                  []StackEntry    `json:"stack" jsonschema:"the workflows in progress, bottom first"`
}

// Tags implements fieldtag.Tagger.
func (Step) Tags() map[string]string {
	return map[string]string{
		"BeginStep":              `jsonschema:"the current step, with its instructions as they are now"`,
		"ConcurrentSteps":        `jsonschema:"the other steps of its concurrent group"`,
		"ConcurrentGroup":        `jsonschema:"how to hand out the steps of the group"`,
		"Members":                `jsonschema:"state of the current step, or of each step of its group"`,
		"PendingConcurrentSteps": `jsonschema:"ids of the steps of the group that are not finished"`,
		"CompletedSteps":         `jsonschema:"finished steps with their outputs, in the workflow's order"`,
		"NextCursor": `jsonschema:"cursor of the next steps that may be worked on now; absent if all ` +
			`are here"`,
	}
}

// GoTo is the reply of go_to_step.
type GoTo struct {
	BeginStep        *StepInfo    `json:"begin_step" jsonschema:"the current step"`
	ConcurrentSteps  []StepInfo   `json:"concurrent_steps,omitzero"`
	ConcurrentGroup  *string      `json:"concurrent_group,omitempty"`
	InvalidatedSteps []string     `json:"invalidated_steps"`
	Notice           *string      `json:"notice,omitempty" jsonschema:"a hint"`
	Stack            []StackEntry `json:"stack" jsonschema:"the workflows in progress, bottom first"`
}

// Tags implements fieldtag.Tagger.
func (GoTo) Tags() map[string]string {
	return map[string]string{
		"ConcurrentSteps":  `jsonschema:"the other steps of its concurrent group"`,
		"ConcurrentGroup":  `jsonschema:"how to hand out the steps of the group"`,
		"InvalidatedSteps": `jsonschema:"ids of the steps whose progress was cleared, in the workflow's order"`,
	}
}

// Tags implements fieldtag.Tagger.
func (StepInput) Tags() map[string]string {
	return map[string]string{
		"FromStep": `jsonschema:"id of the step that made it; absent if it comes from the user"`,
		"Paths":    `jsonschema:"its files, as submitted; absent if it is a text, or comes from the user"`,
		"NotGiven": `jsonschema:"true: it has no value, since nobody gave one; files from a step are an empty list ` +
			`then"`,
		"Omitted": `jsonschema:"number of further files, or bytes of the text, not listed"`,
		"Machine": `jsonschema:"other machine that has the files, with the project's folder there; absent if they ` +
			`are here"`,
	}
}

// Tags implements fieldtag.Tagger.
func (CompletedStep) Tags() map[string]string {
	return map[string]string{
		"Items": `jsonschema:"of a step that is done for each item of a list: for how many it is done, such as ` +
			`412 of 1000; their outputs are in step_inputs and all_outputs"`,
		"Machine": `jsonschema:"other machine that has the files, with the project's folder there; absent if they ` +
			`are here"`,
	}
}

// Notice appends the nonempty texts to a notice. It returns nil if there is no text.
func Notice(of *string, texts ...string) *string {
	for _, text := range texts {
		switch {
		case text == "":
		case of == nil:
			of = &text
		default:
			of = new(*of + " " + text)
		}
	}
	return of
}
