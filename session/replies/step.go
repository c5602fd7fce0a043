package replies

import (
	"encoding/json"

	"deepwork/catalog/jsontext"
	"deepwork/session/outputs"
)

// StepInfo has what an agent needs to do a step: seed 000, 001.3.11, and the fields of seed 001 that it
// dropped. Unlike begin_step, an entry of concurrent_steps lacks session_id, branch_name, branch_status,
// project_root, job_dir and common_job_info.
type StepInfo struct {
	SessionID       string           `json:"session_id,omitempty"`
	BranchName      string           `json:"branch_name,omitempty"`
	BranchStatus    BranchStatus     `json:"branch_status,omitempty" jsonschema:"what branch_name is"`
	StepID          string           `json:"step_id" jsonschema:"id of the step, for finished_step"`
	Name            string           `json:"name,omitempty" jsonschema:"name of the step, by its author"`
	Description     string           `json:"description,omitempty" jsonschema:"what the step does, in short"`
	Position        string           `json:"position,omitempty"`
	Item            *ItemInfo        `json:"item,omitempty"`
	Round           *Round           `json:"round,omitempty" jsonschema:"the round, if the step is repeated"`
	ProjectRoot     string           `json:"project_root,omitempty"`
	JobDir          string           `json:"job_dir,omitempty"`
	Inputs          []StepInput      `json:"step_inputs" jsonschema:"inputs with their values, in the author's order"`
	ExpectedOutputs []ExpectedOutput `json:"step_expected_outputs"`
	Reviews         []ReviewInfo     `json:"step_reviews" jsonschema:"reviews of the outputs"`
	Checks          []CheckInfo      `json:"step_checks,omitzero"`
	QualityCriteria []string         `json:"step_quality_criteria" jsonschema:"all questions of all reviews, in order"`
	Instructions    string           `json:"step_instructions" jsonschema:"what to do, in Markdown"`
	CommonJobInfo   *string          `json:"common_job_info,omitempty"`
}

// ExpectedOutput describes a declared output (seed 000, 001.3.13 and 14).
type ExpectedOutput struct {
	Name        string `json:"name" jsonschema:"name of the output, a key of finished_step's outputs"`
	Type        string `json:"type"`
	Description string `json:"description" jsonschema:"description of the output"`
	Required    bool   `json:"required" jsonschema:"whether finished_step requires it"`
	Syntax      string `json:"syntax_for_finished_step_tool" jsonschema:"form of its value for finished_step"`
}

// CheckInfo describes a check of a step.
type CheckInfo struct {
	Name    string   `json:"name" jsonschema:"name of the check"`
	Run     []string `json:"run" jsonschema:"program and its arguments; exit code 0 passes"`
	Protect []string `json:"protect,omitzero"`
}

// ReviewInfo describes a review of a step.
type ReviewInfo struct {
	RunEach  string                      `json:"run_each"`
	Criteria jsontext.OrderedMap[string] `json:"quality_criteria"`
	Guidance *string                     `json:"additional_review_guidance,omitempty"`
	By       string                      `json:"by,omitempty" jsonschema:"human: a person reviews"`
	Together bool                        `json:"together,omitempty"`
	Account  bool                        `json:"account,omitempty"`
}

// CriterionResult is the verdict on one criterion (seed 001).
type CriterionResult struct {
	Criterion  string  `json:"criterion" jsonschema:"question of the criterion"`
	Passed     bool    `json:"passed" jsonschema:"whether it is met"`
	Feedback   *string `json:"feedback" jsonschema:"why not"`
	TargetFile *string `json:"target_file,omitempty"`
}

// An ItemInfo describes the item that a step is about.
type ItemInfo struct {
	Index int             `json:"index" jsonschema:"position in the list, from 0"`
	Count int             `json:"count" jsonschema:"number of items in the list"`
	Value json.RawMessage `json:"value" jsonschema:"the item: a text or an object"`
}

// A Round says in which round of its steps a repeated entry is.
type Round struct {
	Number int    `json:"number" jsonschema:"number of the round, from 1"`
	AtMost int    `json:"at_most" jsonschema:"number of rounds after which a person is asked"`
	Until  string `json:"until" jsonschema:"what ends the rounds"`
	Failed string `json:"failed,omitempty" jsonschema:"why the last round did not end them"`
}

// A StepInput is one declared input of a step.
type StepInput struct {
	Name        string   `json:"name" jsonschema:"name of the input"`
	Description string   `json:"description" jsonschema:"description of the input"`
	FromStep    string   `json:"from_step,omitempty"`
	Optional    bool     `json:"optional,omitzero" jsonschema:"true: it may have no value"`
	Value       *string  `json:"value,omitempty" jsonschema:"its text; absent if it is files"`
	Paths       []string `json:"paths,omitzero"`
	NotGiven    bool     `json:"not_given,omitzero"`
	Omitted     int      `json:"omitted,omitzero"`
	Machine     string   `json:"machine,omitempty"`
}

// A CompletedStep is a finished step and its outputs.
type CompletedStep struct {
	StepID  string      `json:"step_id" jsonschema:"id of the step"`
	Items   string      `json:"items,omitempty"`
	Outputs outputs.Map `json:"outputs" jsonschema:"files by output, as submitted; the beginning of a text"`
	Omitted int         `json:"omitted,omitzero" jsonschema:"number of further files, not listed"`
	Machine string      `json:"machine,omitempty"`
}
