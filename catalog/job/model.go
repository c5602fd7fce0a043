// Package job is the model of a job.yml: its types, its parser with positioned diagnostics, its validator and
// its JSON Schema. It neither watches nor caches; package catalog does.
//
// The tags of the types define the format of the file: see yamltree.Decoder.Decode. Format 2 has its own
// structs, from which a Job is made (format2.go); older formats are converted first (convert.go). A Sequence
// says what a workflow does: entries, some of which belong to a Form.
package job

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/internal/follow"
	contentschema "deepwork/catalog/schema"
)

//go:embed job.schema.json
var schema string

// Schema returns the JSON Schema (draft 2020-12) of job.yml, for editors and validators. It refuses
// structural errors; errors that only Parse can find (references, cycles, the order of steps,
// files) pass. The caller owns the returned bytes.
func Schema() []byte { return []byte(schema) }

// A Job is a valid, parsed job.yml. It is immutable and may be read from any goroutine.
type Job struct {
	Name        string  `yaml:"name" as:"identifier" add:"the job's name, such as name: monthly_report"`
	Version     string  `yaml:"version" as:"version" add:"three numbers, such as version: \"1.0.0\""`
	Summary     string  `yaml:"summary" as:"summary" add:"what the job is for, in 1 to 200 characters"`
	Description *string `yaml:"description"` // nil if the file has none
	// CommonInfo is information for every step.
	CommonInfo string `yaml:"common_job_info_provided_to_all_steps_at_runtime" add:"what every step should know"`
	// in the author's order
	Steps     []Step     `yaml:"steps" is:"a list of steps" nonempty:"add at least one step"`
	Workflows []Workflow `yaml:"workflows" is:"a list of workflows"`

	Format int // 2 for the format of DeepWork 0.10 and later, otherwise 1; see format2.go

	Dir      string       // absolute path of the job's folder
	Bundled  bool         // it comes with the binary
	Source   []byte       // the bytes of job.yml
	Hash     string       // hex SHA-256 of Source
	Warnings []Diagnostic // valid but probably unintended

	steps     map[string]int  // id -> index in Steps
	workflows map[string]int  // name -> index in Workflows
	views     map[string]*Job // by workflow; see Of

	files []namedFile
	texts *texts // instructions as last read
}

// Tags implements fieldtag.Tagger.
func (Job) Tags() map[string]string {
	return map[string]string{
		"Steps": `add:"a list of at least one step"`,
	}
}

// Step returns the step with this id, or nil; for an item, such as port[3], a copy with that id. In format 2
// two workflows may have different steps with one id: workflow/id names a particular one, and the id alone
// names the first.
func (j *Job) Step(id string) *Step {
	if i, ok := j.steps[id]; ok {
		return &j.Steps[i]
	}
	if workflow, id, ok := strings.Cut(id, "/"); ok && j.views[workflow] != nil {
		return j.views[workflow].Step(id)
	}
	if step, _, item := SplitItem(id); item {
		if s := j.Step(step); s != nil {
			s = new(*s)
			s.ID = id
			return s
		}
		return nil
	}
	if of, ok := strings.CutPrefix(id, mergePrefix); ok && j.Step(of) != nil {
		return mergeStep(id)
	}

	return nil
}

// Of returns the job for the sessions of a workflow: with that workflow's own steps and common info, if it
// has them.
func (j *Job) Of(workflow string) *Job {
	if view := j.views[workflow]; view != nil {
		return view
	}
	return j
}

// index makes the indexes. If ids or names repeat, the first step or workflow counts.
func (j *Job) index() {
	j.indexSteps()
	j.workflows = make(map[string]int, len(j.Workflows))
	for i := range j.Workflows {
		if _, twice := j.workflows[j.Workflows[i].Name]; !twice {
			j.workflows[j.Workflows[i].Name] = i
		}
	}
}

func (j *Job) indexSteps() {
	j.steps = make(map[string]int, len(j.Steps))
	for i := range j.Steps {
		if _, twice := j.steps[j.Steps[i].ID]; !twice && j.Steps[i].ID != "" {
			j.steps[j.Steps[i].ID] = i
		}
	}
}

// maxCopies limits the steps in the views of all workflows that have their own calls or checks.
const maxCopies = 250_000

// copies reports whether the workflow has different steps than the job, or additional ones.
func (w *Workflow) copies(ends map[string]*StepCheck) bool { return w.calls != nil || len(ends) > 0 }

// makeViews makes the views of the workflows that have their own steps or common info.
func (j *Job) makeViews() {
	j.views = map[string]*Job{}
	for _, w := range j.Workflows {
		ends := w.endChecks()
		if w.Steps == nil && w.CommonInfo == "" && w.calls == nil && len(ends) == 0 {
			continue
		}

		view := *j
		if j.Format == 2 || w.CommonInfo != "" {
			view.CommonInfo = w.CommonInfo
		}
		if w.Steps != nil {
			view.Steps = w.Steps
		}
		if w.Steps != nil || w.copies(ends) {
			view.Steps = slices.Concat(view.Steps, w.calls)
			view.indexSteps()
		}
		for i := range view.Steps {
			if c := ends[view.Steps[i].ID]; c != nil {
				view.Steps[i].Checks = append(slices.Clip(view.Steps[i].Checks), *c)
			}
		}
		j.views[w.Name] = &view
	}
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
	// Exactly one of these is not empty. InstructionsFile is slash-separated, relative to the job's folder
	// and inside it.
	Instructions     string `yaml:"instructions" as:"filled"`
	InstructionsFile string `yaml:"instructions_file" as:"path"`

	Call *Call // the workflow that the step is, without instructions; nil means that an agent does the step

	Inputs       []Input  `yaml:"inputs" is:"a list of inputs"`
	Outputs      []Output `yaml:"outputs" is:"a mapping of output names ({} for none)" keys:"name"`
	Reviews      []Review `yaml:"reviews" is:"a list of reviews ([] for none)"`
	Dependencies []string `yaml:"dependencies" is:"a list of step ids" each:"filled"`
	Hooks        Hooks    `yaml:"hooks"`
	StopHooks    []Hook   `yaml:"stop_hooks" is:"a list of hooks"` // the former name of Hooks.AfterAgent
	Exposed      bool     `yaml:"exposed"`
	Hidden       bool     `yaml:"hidden"`
	Agent        *string  `yaml:"agent"`
	Workflow     string   // the workflow that has the step, in format 2
	// Executor is the agent for the step in runs, as NAME or NAME:VARIANT; "" means the run's.
	Executor string `yaml:"executor" as:"executor"`
	AgentLimits
	Checks []StepCheck `yaml:"checks" is:"a list of checks"` // in the order of running
}

// Tags implements fieldtag.Tagger.
func (Step) Tags() map[string]string {
	return map[string]string{
		"Outputs": `add:"a mapping of output names, or outputs: {} for none"`,
		"Reviews": `add:"a list of reviews, or reviews: [] for none"`,
	}
}

// Ref returns the text with which Job.Step finds the step: its id, or workflow/id if workflows have their own
// steps.
func (s *Step) Ref() string {
	if s.Workflow != "" {
		return s.Workflow + "/" + s.ID
	}
	return s.ID
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

// An Input is either a parameter from outside (Name, Description) or an output of an earlier step (File,
// FromStep).
type Input struct {
	Name        string `yaml:"name" as:"name"`
	Description string `yaml:"description"`
	File        string `yaml:"file" as:"name"`
	FromStep    string `yaml:"from_step" as:"filled"`

	// From has all earlier steps that make this output, nearest first, if the newest value counts. It is nil
	// if FromStep's value counts.
	From     []string
	Optional bool       // it may be absent
	Type     OutputType // of a parameter; "" means that of the workflow's
}

// OutputType is the type of an output or a parameter.
type OutputType string

// The types: a text, one file, several files, and, only in format 2, one or several files.
const (
	Text     OutputType = "string"
	File     OutputType = "file"
	Files    OutputType = "files"
	FilePath OutputType = "file_path"
)

// A Parameter is a value that a workflow takes when it starts.
type Parameter struct {
	Name        string     `yaml:"name" as:"name" unique:"" add:"a name, such as name: topic"`
	Description string     `yaml:"description" add:"what the value is"`
	Required    bool       `yaml:"required" default:"true"`
	Default     *string    `yaml:"default" written:""` // nil means none
	Type        OutputType `yaml:"type" oneof:"string,file,files" default:"string"`
}

// A ContentSchema is a JSON Schema that the files of an output must satisfy: its text, or the path of its
// file in the job's folder. The zero ContentSchema accepts everything.
type ContentSchema struct {
	File string
	JSON []byte
}

// MaxSchemaBytes is the maximum size of a ContentSchema: 256 KiB.
const MaxSchemaBytes = 256 << 10

// Text returns the schema as JSON, read from the file in the job's folder if necessary. It is nil for the
// zero ContentSchema.
func (c ContentSchema) Text(dir string) ([]byte, error) {
	if c.File == "" || c.JSON != nil {
		return c.JSON, nil
	}

	text, fault := new(texts).read(dir, c.File, follow.SaveBound) // read waits for a save
	if fault != nil {
		return nil, fmt.Errorf("the schema %q %s", c.File, fault.message)
	}

	var data []byte
	value, err := contentschema.Document([]byte(text))
	if err == nil {
		data, err = json.Marshal(value)
	}
	if err != nil {
		return nil, fmt.Errorf("the schema %q is not YAML or JSON: %w", c.File, err)
	}
	return data, nil
}

// Compile returns the schema from Text, compiled, or nil for the zero ContentSchema. It is an error if a
// schema refers to anything outside itself, or has something that cannot be checked here.
func (c ContentSchema) Compile(dir string) (*contentschema.Schema, error) {
	text, err := c.Text(dir)
	if err != nil || text == nil {
		return nil, err
	}
	if len(text) > MaxSchemaBytes {
		return nil, fmt.Errorf("the schema has %d bytes, and %d are the most", len(text), MaxSchemaBytes)
	}

	s, err := contentschema.Compile(text)
	if err == nil && s.Unchecked != nil {
		err = fmt.Errorf("these parts cannot be checked, as they have regular expressions or references that are not "+
			"supported: %s", strings.Join(s.Unchecked, "; "))
	}
	if err != nil {
		return nil, fmt.Errorf("the JSON Schema cannot be used: %s", strings.Join(strings.Fields(err.Error()), " "))
	}

	return s, nil
}

// SetSchemas replaces the schema files of outputs by these schemas. Nobody else may have the job.
func (j *Job) SetSchemas(of map[string]json.RawMessage) {
	for _, st := range j.Steps {
		for i := range st.Outputs {
			if o := &st.Outputs[i]; o.Schema.File != "" {
				o.Schema.JSON = of[o.Schema.File]
			}
		}
	}
}

// HasSchema reports whether an output of the step has a schema.
func (s *Step) HasSchema() bool {
	return slices.ContainsFunc(s.Outputs, func(o Output) bool { return o.Schema.File != "" || o.Schema.JSON != nil })
}

// An Output is a declared result of a step.
type Output struct {
	Name        string        `yaml:",key"`
	Type        OutputType    `yaml:"type" oneof:"file,files,string" add:"type: file, type: files, or type: string"`
	Description string        `yaml:"description" add:"what the output is"`
	Required    bool          `yaml:"required" default:"true"`
	Schema      ContentSchema `yaml:"schema" as:"schema"`
}

// A Review says which part of a step is judged, and by which questions.
type Review struct {
	// RunEach is "step", or the name of an output.
	RunEach string `yaml:"run_each" as:"filled" add:"run_each: step, or the name of an output"`
	// Criteria are in the author's order, at least one.
	Criteria []Criteria `yaml:"quality_criteria" is:"a mapping of criteria to questions" keys:"filled"`
	Guidance *string    `yaml:"additional_review_guidance"`
	ByHuman  bool       `yaml:"by" as:"judge"` // by: human; a person judges it, otherwise a reviewer

	// Only in format 2:
	Together     bool   // all files of the output are judged in one review
	Account      bool   // the author's account of the work is judged
	OtherOutputs bool   // the reviewer gets the names of the step's other outputs
	Brief        bool   // the reviewer does not get the common info
	Agent        string // the subagent that reviews, if the agent has its work reviewed itself; "" means any
}

// Tags implements fieldtag.Tagger.
func (Review) Tags() map[string]string {
	return map[string]string{
		"Criteria": `nonempty:"add at least one criterion, as in Complete: Does it cover everything?" add:"a ` +
			`mapping of criteria to questions"`,
	}
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

// A Hook has exactly one of these fields.
type Hook struct {
	Prompt     string `yaml:"prompt" as:"filled"`
	PromptFile string `yaml:"prompt_file" as:"path"`
	Script     string `yaml:"script" as:"path"`
}

// A Workflow is a named sequence of steps of a job.
type Workflow struct {
	Name     string `yaml:"name" as:"workflow name" unique:"" add:"a name, such as name: new_report"`
	Summary  string `yaml:"summary" as:"summary" add:"what the workflow does, in 1 to 200 characters"`
	Sequence `yaml:"steps" as:"entries" add:"a list of step ids"`
	// CommonInfo replaces the job's.
	CommonInfo string      `yaml:"common_job_info_provided_to_all_steps_at_runtime" as:"filled"`
	Inputs     []Parameter `yaml:"inputs" is:"a list of inputs"`
	// for the agent, when the workflow is complete
	Closing string `yaml:"post_workflow_instructions" as:"filled"`
	Agent   string `yaml:"agent" as:"filled"` // the type of subagent that should follow the workflow
	Steps   []Step // its own steps, in format 2; see Job.Of
}

// An Entry is one element of a workflow: a step, or several that run concurrently. The first is the
// primary.
type Entry []string

// Input returns the declared input with this name, or nil. w may be nil.
func (w *Workflow) Input(name string) *Parameter {
	if w == nil {
		return nil
	}
	if i := slices.IndexFunc(w.Inputs, func(p Parameter) bool { return p.Name == name }); i >= 0 {
		return &w.Inputs[i]
	}
	return nil
}

// Find returns the index of the entry with this step, perhaps for an item, or -1.
func (w *Workflow) Find(id string) int {
	stepID, _, _ := SplitItem(strings.TrimPrefix(id, mergePrefix))
	for _, id := range []string{id, stepID} { // the id itself first: a faulty one may look like an item
		if e := slices.IndexFunc(w.Entries, func(e Entry) bool { return slices.Contains(e, id) }); e >= 0 {
			return e
		}
	}
	return -1
}
