package machine

import (
	"encoding/json"
	"slices"

	"deepwork/catalog/jsontext"
)

// The shapes of the tools' replies. Every field is always present; what has no
// value is null (seed 000, 001.7; DESIGN "Shapes"). The jsonschema tags are the
// descriptions that clients see. To add a field, add it here and set it where the
// reply is made (one file: finish.go, goto.go, machine.go or describe.go of this
// package, or step.go of package workflow); then renew the goldens of tools/list.

// WorkflowsReply is the reply of get_workflows (seed 000, 001.2).
type WorkflowsReply struct {
	Jobs   json.RawMessage `json:"jobs"`   // []JobInfo, encoded once per snapshot
	Errors json.RawMessage `json:"errors"` // []JobLoadError, likewise
	Notice *string         `json:"notice" jsonschema:"what was too much to list, or null"`
	Stack  []StackEntry    `json:"stack" jsonschema:"the workflows in progress here, bottom first; calls go to the last by default"`
	// Resumable is the newest sessions that the caller can resume.
	Resumable []ResumableSession `json:"resumable" jsonschema:"your newest 20 sessions that are not on the stack; to go on with one, call get_step with its session_id"`
}

// ResumableSession is a session that its caller can resume.
type ResumableSession struct {
	SessionID string `json:"session_id" jsonschema:"8 hexadecimal characters"`
	Workflow  string `json:"workflow" jsonschema:"its name, as job/workflow"`
	Step      string `json:"step" jsonschema:"its current step's id"`
	Goal      string `json:"goal" jsonschema:"its goal, at most 200 characters"`
	Age       string `json:"age" jsonschema:"time since its last step, such as 40s, 5m, 3h, 9d"`
}

// EncodeJSON returns the reply as JSON, without scanning the lists.
func (r *WorkflowsReply) EncodeJSON() ([]byte, error) {
	rest, err := jsontext.Encode(struct {
		Notice    *string            `json:"notice"`
		Stack     []StackEntry       `json:"stack"`
		Resumable []ResumableSession `json:"resumable"`
	}{r.Notice, r.Stack, r.Resumable})
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"jobs":`), r.Jobs, []byte(`,"errors":`), r.Errors, []byte(","), rest[1:]), nil
}

// JobInfo is one job of get_workflows.
type JobInfo struct {
	Name        string         `json:"name" jsonschema:"the job's name, for start_workflow's job_name"`
	Summary     string         `json:"summary" jsonschema:"what the job is for, at most 200 characters"`
	Description *string        `json:"description" jsonschema:"more about the job, or null"`
	Workflows   []WorkflowInfo `json:"workflows" jsonschema:"the job's workflows, in its author's order"`
}

// WorkflowInfo is one workflow of a job.
type WorkflowInfo struct {
	Name    string `json:"name" jsonschema:"the workflow's name, for start_workflow's workflow_name"`
	Summary string `json:"summary" jsonschema:"what the workflow does, at most 200 characters"`
}

// JobLoadError is a job that does not load.
type JobLoadError struct {
	JobName string `json:"job_name" jsonschema:"the name of the job's folder"`
	JobDir  string `json:"job_dir" jsonschema:"the absolute path of the job's folder"`
	Error   string `json:"error" jsonschema:"every fault, one a line, as file:line:column: message"`
}

// StackEntry is one session on the stack.
type StackEntry struct {
	Workflow  string `json:"workflow" jsonschema:"its name, as job/workflow"`
	Step      string `json:"step" jsonschema:"its current step's id"`
	SessionID string `json:"session_id" jsonschema:"8 hexadecimal characters"`
}

// StepInfo is what an agent needs to do one step: seed 000, 001.3.11, and the fields of seed 001
// that it dropped.
type StepInfo struct {
	SessionID       string           `json:"session_id" jsonschema:"the session's id, 8 hexadecimal characters"`
	BranchName      string           `json:"branch_name" jsonschema:"the session's branch, deepwork/<job>-<workflow>-<instance or date>"`
	StepID          string           `json:"step_id" jsonschema:"the step's id, for finished_step's step_id"`
	JobDir          string           `json:"job_dir" jsonschema:"absolute path of the job's folder, with its templates and scripts"`
	ExpectedOutputs []ExpectedOutput `json:"step_expected_outputs" jsonschema:"what finished_step must be given, in the author's order"`
	Reviews         []ReviewInfo     `json:"step_reviews" jsonschema:"the reviews that the outputs will face"`
	QualityCriteria []string         `json:"step_quality_criteria" jsonschema:"every question of every review, in order"`
	Instructions    string           `json:"step_instructions" jsonschema:"what to do, in Markdown"`
	CommonJobInfo   string           `json:"common_job_info" jsonschema:"what every step of this job should know"`
}

// ExpectedOutput is one declared output (seed 000, 001.3.13 and 14).
type ExpectedOutput struct {
	Name        string `json:"name" jsonschema:"the output's name, a key of finished_step's outputs"`
	Type        string `json:"type" jsonschema:"file (one path) or files (a list of paths)"`
	Description string `json:"description" jsonschema:"what the output is"`
	Required    bool   `json:"required" jsonschema:"whether the step can be finished without it"`
	Syntax      string `json:"syntax_for_finished_step_tool" jsonschema:"how finished_step wants the value"`
}

// ReviewInfo is one review of a step.
type ReviewInfo struct {
	RunEach  string             `json:"run_each" jsonschema:"step: all outputs at once; else the output that is reviewed, a files output file by file"`
	Criteria OrderedMap[string] `json:"quality_criteria" jsonschema:"the criteria's names and questions"`
	Guidance *string            `json:"additional_review_guidance" jsonschema:"more for the reviewer, or null"`
}

// CriterionResult is the verdict on one criterion (seed 001).
type CriterionResult struct {
	Criterion string  `json:"criterion" jsonschema:"the criterion's question"`
	Passed    bool    `json:"passed" jsonschema:"whether it is met"`
	Feedback  *string `json:"feedback" jsonschema:"why not, or null"`
}

// FailedReview is one review that did not pass.
type FailedReview struct {
	RunEach    string            `json:"review_run_each" jsonschema:"the review's run_each"`
	TargetFile *string           `json:"target_file" jsonschema:"the file it judged, as submitted, or null"`
	Passed     bool              `json:"passed" jsonschema:"always false"`
	Feedback   string            `json:"feedback" jsonschema:"what to change"`
	Criteria   []CriterionResult `json:"criteria_results" jsonschema:"the verdict on each criterion"`
}

// StartReply is the reply of start_workflow (seed 000, 001.3.11 and 12).
type StartReply struct {
	BeginStep       *StepInfo    `json:"begin_step" jsonschema:"the first step"`
	ConcurrentSteps []StepInfo   `json:"concurrent_steps" jsonschema:"the other steps of the same concurrent group, each to be done in parallel and reported by its step_id; null where there is no group"`
	Notice          *string      `json:"notice" jsonschema:"what else there is to know"`
	Stack           []StackEntry `json:"stack" jsonschema:"the workflows in progress here, bottom first"`
}

// Status is the result of finished_step (seed 000, 001.7.2).
type Status string

// The values of Status.
const (
	NeedsWork        Status = "needs_work"
	NextStep         Status = "next_step"
	WorkflowComplete Status = "workflow_complete"
)

// FinishReply is the reply of finished_step (seed 000, 001.4).
type FinishReply struct {
	Status                 Status            `json:"status" jsonschema:"needs_work: act on feedback and call again; next_step: do begin_step; workflow_complete: done"`
	Feedback               *string           `json:"feedback" jsonschema:"what to do on needs_work, or while members of a group are pending"`
	FailedReviews          []FailedReview    `json:"failed_reviews" jsonschema:"the reviews that did not pass, or null"`
	FailedCriteria         []CriterionResult `json:"failed_criteria" jsonschema:"every criterion of failed_reviews that was not met, or null"`
	BeginStep              *StepInfo         `json:"begin_step" jsonschema:"the next step, once the entry has advanced, else null"`
	ConcurrentSteps        []StepInfo        `json:"concurrent_steps" jsonschema:"the rest of begin_step's concurrent group, to be done in parallel, each reported by its step_id"`
	PendingConcurrentSteps []string          `json:"pending_concurrent_steps" jsonschema:"the members of the current group that are not finished yet"`
	Summary                *string           `json:"summary" jsonschema:"a sentence about the finished workflow; null before workflow_complete"`
	AllOutputs             *Outputs          `json:"all_outputs" jsonschema:"the outputs of all steps, merged in the workflow's order, later ones winning; null before workflow_complete"`
	ResumedWorkflow        *string           `json:"resumed_workflow" jsonschema:"the parent that goes on now, as job/workflow, or null"`
	ResumedStep            *string           `json:"resumed_step" jsonschema:"the parent's current step, or null"`
	Notice                 *string           `json:"notice" jsonschema:"what else there is to know"`
	Stack                  []StackEntry      `json:"stack" jsonschema:"the workflows in progress here, bottom first"`
}

// AbortReply is the reply of abort_workflow (seed 000, 001.6.7).
type AbortReply struct {
	AbortedWorkflow string       `json:"aborted_workflow" jsonschema:"the aborted workflow, as job/workflow"`
	AbortedStep     string       `json:"aborted_step" jsonschema:"the step it was at"`
	Explanation     string       `json:"explanation" jsonschema:"the explanation as given"`
	ResumedWorkflow *string      `json:"resumed_workflow" jsonschema:"the parent that goes on now, as job/workflow, or null"`
	ResumedStep     *string      `json:"resumed_step" jsonschema:"the parent's current step, or null"`
	Stack           []StackEntry `json:"stack" jsonschema:"the workflows in progress here, bottom first"`
}

// Member is the state of one step of the current entry.
type Member struct {
	StepID          string  `json:"step_id" jsonschema:"the step's id"`
	State           string  `json:"state" jsonschema:"started or completed"`
	StartedAt       *string `json:"started_at" jsonschema:"when it was begun, RFC 3339 in UTC, or null"`
	CompletedAt     *string `json:"completed_at" jsonschema:"when it was finished, RFC 3339 in UTC, or null"`
	QualityAttempts int     `json:"quality_attempts" jsonschema:"how many reviews its outputs have had"`
	ReviewRunning   bool    `json:"review_running" jsonschema:"whether a review of it runs now"`
}

// StepReply is the reply of get_step.
type StepReply struct {
	BeginStep              *StepInfo    `json:"begin_step" jsonschema:"the current step, as when it was begun"`
	ConcurrentSteps        []StepInfo   `json:"concurrent_steps" jsonschema:"the rest of its concurrent group, or null"`
	Members                []Member     `json:"members" jsonschema:"the state of each step of the current entry; one where it is not a group"`
	PendingConcurrentSteps []string     `json:"pending_concurrent_steps" jsonschema:"the members of the current group that are not finished yet"`
	Goal                   string       `json:"goal" jsonschema:"what the user wants to accomplish, as given to start_workflow"`
	CompletedSteps         []string     `json:"completed_steps" jsonschema:"the steps already finished, in the workflow's order"`
	Notice                 *string      `json:"notice" jsonschema:"what else there is to know"`
	Stack                  []StackEntry `json:"stack" jsonschema:"the workflows in progress here, bottom first"`
}

// GoToReply is the reply of go_to_step.
type GoToReply struct {
	BeginStep        *StepInfo    `json:"begin_step" jsonschema:"the step that is current now"`
	ConcurrentSteps  []StepInfo   `json:"concurrent_steps" jsonschema:"the rest of its concurrent group, or null"`
	InvalidatedSteps []string     `json:"invalidated_steps" jsonschema:"the steps whose progress was cleared, in the workflow's order"`
	Notice           *string      `json:"notice" jsonschema:"what else there is to know"`
	Stack            []StackEntry `json:"stack" jsonschema:"the workflows in progress here, bottom first"`
}
