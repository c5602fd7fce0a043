// Package job is the model of a job.yml: its types, its parser with positioned diagnostics, its
// validator and its JSON Schema. It neither watches nor caches; package catalog does.
//
// The tags of the types are the format of the file: see yamltree.Decoder.Decode. Another format
// would be structs of its own, from which a Job is made before it is checked.
package job

import (
	_ "embed"
	"slices"
)

//go:embed job.schema.json
var schema string

// Schema returns the JSON Schema (draft 2020-12) of job.yml, for editors and validators. It refuses
// structural faults; faults that only Parse can find (references, cycles, the order of steps,
// files) pass. The caller owns the returned bytes.
func Schema() []byte { return []byte(schema) }

// A Job is one valid, parsed job.yml. It is immutable and may be read from any goroutine.
type Job struct {
	Name        string  `yaml:"name" as:"identifier" add:"the job's name, such as name: monthly_report"`
	Version     string  `yaml:"version" as:"version" add:"three numbers, such as version: \"1.0.0\""`
	Summary     string  `yaml:"summary" as:"summary" add:"what the job is for, in 1 to 200 characters"`
	Description *string `yaml:"description"` // nil if the file has none
	// CommonInfo is what every step is told.
	CommonInfo string     `yaml:"common_job_info_provided_to_all_steps_at_runtime" add:"what every step should know"`
	Steps      []Step     `yaml:"steps" is:"a list of steps" add:"a list of at least one step" nonempty:"add at least one step"` // in the author's order
	Workflows  []Workflow `yaml:"workflows" is:"a list of workflows"`

	Dir      string       // the job's folder, absolute
	Bundled  bool         // it comes with the binary
	Source   []byte       // the bytes of job.yml
	Hash     string       // hex SHA-256 of Source
	Warnings []Diagnostic // valid but probably unintended

	steps     map[string]int // id -> index in Steps
	workflows map[string]int // name -> index in Workflows
	texts     *texts         // instructions as they were last read
}

// Step returns the step with this id, or nil.
func (j *Job) Step(id string) *Step {
	if i, ok := j.steps[id]; ok {
		return &j.Steps[i]
	}
	return nil
}

// Workflow returns the workflow with this name, or nil.
func (j *Job) Workflow(name string) *Workflow {
	if i, ok := j.workflows[name]; ok {
		return &j.Workflows[i]
	}
	return nil
}

// A Step is one piece of work for an agent.
type Step struct {
	ID          string `yaml:"id" as:"identifier" unique:"" add:"an id, such as id: draft"`
	Name        string `yaml:"name" add:"a title for people"`
	Description string `yaml:"description" add:"what the step does"`
	// InstructionsFile is slash-separated, relative to the job's folder and inside it.
	InstructionsFile string   `yaml:"instructions_file" as:"path" add:"the path of a Markdown file, such as instructions_file: steps/draft.md"`
	Inputs           []Input  `yaml:"inputs" is:"a list of inputs"`
	Outputs          []Output `yaml:"outputs" is:"a mapping of output names ({} for none)" keys:"name" add:"a mapping of output names, or outputs: {} for none"`
	Reviews          []Review `yaml:"reviews" is:"a list of reviews ([] for none)" add:"a list of reviews, or reviews: [] for none"`
	Dependencies     []string `yaml:"dependencies" is:"a list of step ids" each:"filled"`
	Hooks            Hooks    `yaml:"hooks"`
	StopHooks        []Hook   `yaml:"stop_hooks" is:"a list of hooks"` // the former name of Hooks.AfterAgent
	Exposed          bool     `yaml:"exposed"`
	Hidden           bool     `yaml:"hidden"`
	Agent            *string  `yaml:"agent"`
	// Executor is of the agent that does the step in runs, NAME or NAME:VARIANT; "" means that of the
	// run.
	Executor string `yaml:"executor" as:"executor"`
}

// Output returns the declared output with this name, or nil.
func (s *Step) Output(name string) *Output {
	for i := range s.Outputs {
		if s.Outputs[i].Name == name {
			return &s.Outputs[i]
		}
	}
	return nil
}

// An Input is either a parameter from the user (Name, Description) or a file from an earlier step
// (File, FromStep).
type Input struct {
	Name        string `yaml:"name" as:"name"`
	Description string `yaml:"description"`
	File        string `yaml:"file" as:"name"`
	FromStep    string `yaml:"from_step" as:"filled"`
}

// OutputType is the type of an output: one file or several.
type OutputType string

// The two types of an output.
const (
	File  OutputType = "file"
	Files OutputType = "files"
)

// An Output is a declared result of a step.
type Output struct {
	Name        string     `yaml:",key"`
	Type        OutputType `yaml:"type" oneof:"file,files" add:"type: file, or type: files"`
	Description string     `yaml:"description" add:"what the output is"`
	Required    bool       `yaml:"required" default:"true"`
}

// A Review says which part of a step is judged, and by which questions.
type Review struct {
	// RunEach is "step", or the name of an output.
	RunEach string `yaml:"run_each" as:"filled" add:"run_each: step, or the name of an output"`
	// Criteria are in the author's order, at least one.
	Criteria []Criteria `yaml:"quality_criteria" is:"a mapping of criteria to questions" keys:"filled" add:"a mapping of criteria to questions" nonempty:"add at least one criterion, as in Complete: Does it cover everything?"`
	Guidance *string    `yaml:"additional_review_guidance"`
	ByHuman  bool       `yaml:"by" as:"judge"` // by: human; a person judges it. Otherwise a reviewer does
}

// ReviewsBy returns the reviews of a step by people if human is true, otherwise those by reviewers.
func (s *Step) ReviewsBy(human bool) (all []Review) {
	for _, r := range s.Reviews {
		if r.ByHuman == human {
			all = append(all, r)
		}
	}
	return all
}

// Criteria is one question of a review.
type Criteria struct {
	Name     string `yaml:",key"`
	Question string `yaml:",value" as:"filled"`
}

// Hooks are checked when a job is loaded and never run by the server.
type Hooks struct {
	AfterAgent   []Hook `yaml:"after_agent" is:"a list of hooks"`
	BeforeTool   []Hook `yaml:"before_tool" is:"a list of hooks"`
	BeforePrompt []Hook `yaml:"before_prompt" is:"a list of hooks"`
}

// A Hook is exactly one of its fields.
type Hook struct {
	Prompt     string `yaml:"prompt" as:"filled"`
	PromptFile string `yaml:"prompt_file" as:"path"`
	Script     string `yaml:"script" as:"path"`
}

// A Workflow is a named sequence of steps of a job.
type Workflow struct {
	Name    string  `yaml:"name" as:"workflow name" unique:"" add:"a name, such as name: new_report"`
	Summary string  `yaml:"summary" as:"summary" add:"what the workflow does, in 1 to 200 characters"`
	Entries []Entry `yaml:"steps" as:"entries" add:"a list of step ids"` // may be empty, which is a warning
}

// An Entry is one element of a workflow: a step, or several that run concurrently. The first is the
// primary.
type Entry []string

// Find returns the index of the entry that has this step, or -1.
func (w *Workflow) Find(stepID string) int {
	return slices.IndexFunc(w.Entries, func(e Entry) bool { return slices.Contains(e, stepID) })
}
