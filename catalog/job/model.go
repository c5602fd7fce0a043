// Package job is the model of a job.yml: its types, its parser with positioned diagnostics, its
// validator and its JSON Schema.
//
// It neither watches nor caches; package catalog does.
package job

import (
	"fmt"
	"slices"

	"deepwork/catalog/internal/yamltree"
)

// A Job is one valid, parsed job.yml. It is immutable and may be read from any goroutine.
type Job struct {
	Name        string  // `^[a-z][a-z0-9_]*$`
	Version     string  // three numbers, "1.0.0"
	Summary     string  // 1 to 200 characters
	Description *string // nil if the file has none
	CommonInfo  string  // common_job_info_provided_to_all_steps_at_runtime
	Steps       []Step  // in the author's order, at least one
	Workflows   []Workflow

	Dir      string       // the job's folder, absolute
	Bundled  bool         // it comes with the binary
	Source   []byte       // the bytes of job.yml
	Hash     string       // hex SHA-256 of Source
	Warnings []Diagnostic // valid but probably unintended

	nameAt    yamltree.Position
	steps     map[string]int // id -> index in Steps
	workflows map[string]int // name -> index in Workflows
	texts     *texts         // instructions as they were last read
}

// NameFault returns a fault of the job's name, in its file.
func (j *Job) NameFault(file, message string) Diagnostic {
	return Diagnostic{File: file, Line: j.nameAt.Line, Column: j.nameAt.Column, Path: "name", Message: message}
}

// ExecutorWarning returns a warning about the executor of the i-th step, in the job's file.
func (j *Job) ExecutorWarning(i int, file, message string) Diagnostic {
	at := j.Steps[i].executorAt
	return Diagnostic{File: file, Line: at.Line, Column: at.Column, Path: fmt.Sprintf("steps[%d].executor", i), Message: message, Warning: true}
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
	ID               string
	Name             string
	Description      string
	InstructionsFile string // slash-separated, relative to the job's folder and inside it
	Inputs           []Input
	Outputs          []Output // in the author's order
	Reviews          []Review
	Dependencies     []string
	Hooks            Hooks // stop_hooks are appended to AfterAgent
	Exposed          bool
	Hidden           bool
	Agent            *string
	Executor         string // of the agent that does it in runs, NAME or NAME:VARIANT; "" means that of the run

	instructionsAt yamltree.Position // of the key, for CheckFiles
	executorAt     yamltree.Position // of the key, for ExecutorWarning
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
	Name        string
	Description string
	File        string
	FromStep    string
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
	Name        string
	Type        OutputType
	Description string
	Required    bool
}

// A Review says which part of a step is judged, and by which questions.
type Review struct {
	RunEach  string     // "step", or the name of an output
	Criteria []Criteria // name and question, in the author's order, at least one
	Guidance *string    // additional_review_guidance
	ByHuman  bool       // by: human; a person judges it. Otherwise a reviewer does
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
	Name     string
	Question string
}

// Hooks are checked when a job is loaded and never run by the server.
type Hooks struct {
	AfterAgent   []Hook
	BeforeTool   []Hook
	BeforePrompt []Hook
}

// A Hook is exactly one of its fields.
type Hook struct {
	Prompt     string
	PromptFile string
	Script     string

	at   yamltree.Position // of the key, for CheckFiles
	path string            // of the key, for CheckFiles
}

// A Workflow is a named sequence of steps of a job.
type Workflow struct {
	Name    string
	Summary string
	Entries []Entry // may be empty, which is a warning
}

// An Entry is one element of a workflow: a step, or several that run concurrently. The first is the
// primary.
type Entry []string

// Find returns the index of the entry that has this step, or -1.
func (w *Workflow) Find(stepID string) int {
	return slices.IndexFunc(w.Entries, func(e Entry) bool { return slices.Contains(e, stepID) })
}
