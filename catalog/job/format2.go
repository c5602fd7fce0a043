package job

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/actor/xslices"
	"deepwork/catalog/internal/yamltree"
	contentschema "deepwork/catalog/schema"
)

// Format 2 is that of DeepWork 0.10 and later: values that pass between steps are declared once, as
// step_arguments, and each workflow has its own steps. It is decoded into the structs below, whose tags
// define the format, and these are converted to a Job before it is checked.

type file2 struct {
	Name      string      `yaml:"name" as:"identifier" add:"the job's name, such as name: monthly_report"`
	Summary   string      `yaml:"summary" as:"summary" add:"what the job is for, in 1 to 200 characters"`
	Arguments []argument2 `yaml:"step_arguments" is:"a list of step arguments"`
	Workflows []workflow2 `yaml:"workflows" is:"a mapping of workflow names" keys:"workflow name"`
}

// Tags implements fieldtag.Tagger.
func (file2) Tags() map[string]string {
	return map[string]string{
		"Arguments": `add:"a list of the values that steps hand on, or step_arguments: [] for none"`,
		"Workflows": `nonempty:"add at least one workflow" add:"a mapping of workflow names"`,
	}
}

// An argument2 is a value that steps take and make.
type argument2 struct {
	Name        string        `yaml:"name" as:"name" add:"a name, such as name: report"`
	Description string        `yaml:"description" add:"what the value is"`
	Type        OutputType    `yaml:"type" oneof:"string,file_path" add:"type: string, or type: file_path"`
	Review      *review2      `yaml:"review"`
	Schema      ContentSchema `yaml:"json_schema" as:"schema"`
}

type review2 struct {
	Strategy     string            `yaml:"strategy" oneof:"individual,matches_together"`
	Instructions string            `yaml:"instructions" as:"filled" add:"what the reviewer is to judge"`
	Agent        map[string]string `yaml:"agent"`
	Context      struct {
		Changed   bool `yaml:"all_changed_filenames"`
		Unchanged bool `yaml:"unchanged_matching_files"` // ignored: an output is always reviewed as a whole
	} `yaml:"additional_context"`
	Depth string `yaml:"review_depth" oneof:"standard,lightweight"`
}

// Tags implements fieldtag.Tagger.
func (review2) Tags() map[string]string {
	return map[string]string{
		"Strategy": `add:"strategy: individual, or strategy: matches_together"`,
		"Agent":    `is:"a mapping of a program to the name of its subagent, such as {claude: reviewer}"`,
	}
}

type workflow2 struct {
	Name       string  `yaml:",key"`
	Summary    string  `yaml:"summary" as:"summary" add:"what the workflow does, in 1 to 200 characters"`
	Agent      string  `yaml:"agent" as:"filled"`
	CommonInfo string  `yaml:"common_job_info_provided_to_all_steps_at_runtime"`
	Steps      []step2 `yaml:"steps" is:"a list of steps" nonempty:"add at least one step"`
	Closing    string  `yaml:"post_workflow_instructions" as:"filled"`
}

// Tags implements fieldtag.Tagger.
func (workflow2) Tags() map[string]string {
	return map[string]string{
		"Steps": `add:"a list of at least one step"`,
	}
}

type step2 struct {
	Name         string  `yaml:"name" as:"workflow name" unique:"" add:"a name, such as name: draft"`
	Instructions string  `yaml:"instructions" as:"filled"`
	Sub          *sub2   `yaml:"sub_workflow"`
	Inputs       []use2  `yaml:"inputs" is:"a mapping of step arguments" keys:"name"`
	Outputs      []use2  `yaml:"outputs" is:"a mapping of step arguments" keys:"name"`
	Requirements []pair2 `yaml:"process_requirements" is:"a mapping of names to requirements" keys:"filled"`
	// the former name
	Attributes []pair2 `yaml:"process_quality_attributes" is:"a mapping of names to requirements" keys:"filled"`
}

type sub2 struct {
	Workflow string `yaml:"workflow_name" as:"filled" add:"the workflow's name"`
	Job      string `yaml:"workflow_job" as:"filled"`
}

// A use2 is a step argument that a step takes or makes.
type use2 struct {
	Name     string   `yaml:",key"`
	Required bool     `yaml:"required" default:"true"`
	Review   *review2 `yaml:"review"` // for an output
}

type pair2 struct {
	Name string `yaml:",key"`
	Text string `yaml:",value" as:"filled"`
}

// isFormat2 reports whether a file is of format 2. It reports an error if the file is also of our own format.
func (d *decoder) isFormat2() bool {
	workflows := d.Find("workflows").Target().Kind
	if !d.Has(place{"step_arguments"}) && !(d.Has(place{"workflows"}) && workflows == yaml.MappingNode) {
		return false
	}
	switch {
	case d.Has(place{"steps"}):
		d.FaultAt(place{"steps"}, "mixes two formats: with step_arguments, or workflows as a mapping, each workflow "+
			"has its own steps; move them there")
	case workflows == yaml.SequenceNode:
		d.FaultAt(place{"workflows"},
			"mixes two formats: with step_arguments, workflows is a mapping of names, and each has its own steps")
	}

	return true
}

// decode2 decodes a file of format 2 into a job.
func (d *decoder) decode2(root yamltree.Value, j *Job) {
	if d.Faults() > 0 {
		return
	}

	var f file2
	d.Decode(root, &f)
	j.Name = f.Name
	j.Summary = f.Summary
	j.Format = 2
	declared := map[string]bool{"": true}
	for i := range f.Arguments {
		a := &f.Arguments[i]
		if declared[a.Name] && a.Name != "" && !d.Full() {
			d.WarnAt(place{"step_arguments", i, "name"},
				"%s appears twice, and the first one counts: rename or remove this one", yamltree.Quote(a.Name))
		}
		if !declared[a.Name] && a.Schema.File != "" {
			j.files = append(j.files, namedFile{a.Schema.File, &a.Schema, place{"step_arguments", i, "json_schema"}})
		}
		declared[a.Name] = true
	}
	for i := range f.Workflows {
		w := &f.Workflows[i]
		made := Workflow{Name: w.Name, Summary: w.Summary, CommonInfo: w.CommonInfo, Agent: w.Agent, Closing: w.Closing}
		made.Steps = d.steps(&f, w)
		made.Inputs = parameters(made.Steps)
		for _, s := range made.Steps {
			made.add(Entry{s.ID}, nil)
		}

		j.Workflows = append(j.Workflows, made)
		j.Steps = append(j.Steps, made.Steps...)
	}
	j.index()

	passed := map[string]bool{}
	for i := range j.Workflows {
		w := &j.Workflows[i]
		j.passOn(w, passed)
		if len(w.Inputs) > maxInputs && !d.Full() {
			d.FaultAt(place{"workflows", w.Name},
				"takes more than %d inputs, with those of the workflows that it calls: have fewer", maxInputs)
		}
	}
	d.checkCalls(j, func(i int, s *Step) place {
		w := &j.Workflows[i]
		return place{"workflows", w.Name, "steps", w.Find(s.ID), "sub_workflow", "workflow_name"}
	})
}

// maxInputs limits the inputs of a workflow, since those of a chain of workflows add up.
const maxInputs = 200

// passOn adds to a workflow's inputs what its nested workflows of this job take and no earlier step makes: it
// has to come from outside. passed are the workflows that are done.
func (j *Job) passOn(w *Workflow, passed map[string]bool) {
	if passed[w.Name] {
		return // or a circle, which is reported as an error
	}
	passed[w.Name] = true
	made := map[string]bool{}
	for _, s := range w.Steps {
		for _, o := range s.Outputs {
			made[o.Name] = true
		}

		if s.Call == nil || s.Call.Job != "" && s.Call.Job != j.Name || j.Workflow(s.Call.Workflow) == nil {
			continue
		}
		of := j.Workflow(s.Call.Workflow)
		j.passOn(of, passed)
		for _, p := range of.Inputs {
			if !made[p.Name] && len(w.Inputs) <= maxInputs && w.Input(p.Name) == nil {
				w.Inputs = append(w.Inputs, p)
			}
		}
	}
}

// argument returns the argument that a step uses, or nil if it is not declared.
func (f *file2) argument(name string) *argument2 {
	if i := slices.IndexFunc(f.Arguments, func(a argument2) bool { return a.Name == name }); i >= 0 {
		return &f.Arguments[i]
	}
	return nil
}

// undeclared reports an output that is not declared.
func (d *decoder) undeclared(f *file2, name string, at place) {
	if !d.Has(place{"step_arguments"}) || d.Full() {
		return // the missing key is already an error
	}
	names := xslices.Map(f.Arguments, func(a argument2) string { return a.Name })
	d.FaultAt(at, "%s is not among the step_arguments (%s): correct the name, or declare it there",
		yamltree.Quote(name), nearest(name, names, "they are "))
}

// maxMakers limits the steps that may have made the newest value, to the nearest ones.
const maxMakers = 100

// steps makes the steps of a workflow.
func (d *decoder) steps(f *file2, w *workflow2) (all []Step) {
	makers := map[string][]string{} // for each argument: the earlier steps that make it, nearest first
	for i := range w.Steps {
		s, at := &w.Steps[i], place{"workflows", w.Name, "steps", i}
		made := Step{
			ID:           s.Name,
			Workflow:     w.Name,
			Name:         strings.ReplaceAll(s.Name, "_", " "),
			Instructions: s.Instructions,
		}
		switch {
		case s.Sub != nil && s.Instructions != "":
			d.FaultAt(at, "has instructions and sub_workflow: write exactly one")
		case s.Sub != nil:
			made.Call = &Call{Job: s.Sub.Job, Workflow: s.Sub.Workflow}
		case s.Instructions == "" && !d.Has(at, "instructions"):
			d.FaultAt(at, "has neither instructions nor sub_workflow: add instructions, what the agent is to do")
		}
		made.Description = firstLine(made.Instructions)
		if made.Call != nil {
			made.Description = "The workflow " + made.Call.String() + ", step by step"
		}
		d.stepInputs(f, s, &made, makers, at)
		for _, use := range s.Outputs {
			a := f.argument(use.Name)
			if a == nil {
				d.undeclared(f, use.Name, append(slices.Clip(at), "outputs", use.Name))
				continue
			}
			made.Outputs = append(made.Outputs, Output{
				Name:        a.Name,
				Type:        a.Type,
				Description: a.Description,
				Required:    use.Required,
				Schema:      a.Schema,
			})
			if here := append(slices.Clip(at), "outputs", use.Name); made.Call != nil && use.Review != nil {
				d.FaultAt(append(here, "review"),
					"is of a step that is a workflow, and nobody would review it: move it to the step of that "+
						"workflow that makes the output")
			} else if made.Call != nil && s.Sub.Job != "" && s.Sub.Job != f.Name &&
				(a.Review != nil || a.Schema.File != "" || a.Schema.JSON != nil) {
				d.WarnAt(here, "is made by a workflow of another job, where the review and the json_schema of this "+
					"step argument do not count: that job has its own")
			}
			for _, r := range []*review2{use.Review, a.Review} {
				if r != nil && made.Call == nil { // otherwise the steps of that workflow have it
					made.Reviews = append(made.Reviews, r.of(a.Name))
				}
			}
		}
		for _, o := range made.Outputs {
			makers[o.Name] = append([]string{made.ID}, makers[o.Name][:min(len(makers[o.Name]), maxMakers-1)]...)
		}
		if len(s.Attributes) > 0 {
			d.WarnAt(append(slices.Clip(at), "process_quality_attributes"),
				"is the former name of process_requirements: rename it")
		}

		if r := requirements(slices.Concat(s.Requirements, s.Attributes)); r != nil && made.Call != nil {
			d.FaultAt(at, "has process_requirements and sub_workflow, and nobody would judge them: move them to the "+
				"steps of that workflow")
		} else if r != nil {
			made.Reviews = append(made.Reviews, *r)
		}
		all = append(all, made)
	}
	return all
}

// stepInputs adds the inputs of a step. makers has the earlier steps that make an argument, nearest first.
func (d *decoder) stepInputs(f *file2, s *step2, made *Step, makers map[string][]string, at place) {
	for _, use := range s.Inputs {
		at := append(slices.Clip(at), "inputs", use.Name)
		a := f.argument(use.Name)
		if a == nil {
			if !d.Full() {
				d.WarnAt(at, "%s is not among the step_arguments, so it is taken as a text: declare it there",
					yamltree.Quote(use.Name))
			}
			a = &argument2{Name: use.Name, Type: Text}
		}
		if use.Review != nil {
			d.FaultAt(append(slices.Clip(at), "review"),
				"an input has no review: move it to the output, or to the step argument")
		}
		in := Input{Name: a.Name, Description: a.Description, Optional: !use.Required, Type: a.Type}
		if from := makers[a.Name]; from != nil {
			in = Input{File: a.Name, FromStep: from[0], From: from, Optional: !use.Required}
			for _, id := range from {
				if !slices.Contains(made.Dependencies, id) {
					made.Dependencies = append(made.Dependencies, id)
				}
			}
		}
		made.Inputs = append(made.Inputs, in)
	}
}

// of returns the review of an output.
func (r *review2) of(output string) Review {
	return Review{
		RunEach:      output,
		Criteria:     []Criteria{{Name: output, Question: strings.TrimSpace(r.Instructions)}},
		Together:     r.Strategy == "matches_together",
		Brief:        r.Depth == "lightweight",
		OtherOutputs: r.Context.Changed,
		Agent:        r.Agent["claude"],
	}
}

// requirements returns the review of how a step was done, or nil.
func requirements(all []pair2) *Review {
	if len(all) == 0 {
		return nil
	}

	r := &Review{
		RunEach: "step",
		Account: true,
		Guidance: new("Judge how the work was done, by the author's account of it and by the outputs. " +
			"What a requirement says MUST or SHALL be fails if it is not so. What SHOULD be fails only if it was " +
			"easy to do and was not done. What MAY be never fails: remark on it."),
	}
	r.Criteria = xslices.Map(all, func(p pair2) Criteria { return Criteria{Name: p.Name, Question: p.Text} })
	return r
}

// firstLine returns the first Markdown heading of a text, or else its first line, at most 300 characters.
func firstLine(text string) string {
	first := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			first = strings.TrimSpace(heading)
			break
		}
		first = cmp.Or(first, line)
	}

	const most = 300
	if runes := []rune(first); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return first
}

// parameters returns the values that steps take from outside.
func parameters(steps []Step) (all []Parameter) {
	known := map[string]int{} // by name
	for _, s := range steps {
		for _, in := range s.Inputs {
			if in.Name == "" {
				continue
			}
			if i, ok := known[in.Name]; ok {
				all[i].Required = all[i].Required || !in.Optional
				continue
			}
			known[in.Name] = len(all)
			all = append(all, Parameter{
				Name:        in.Name,
				Description: in.Description,
				Required:    !in.Optional,
				Type:        in.Type,
			})
		}
	}
	return all
}

// maxSchemaNodes limits a schema that is written into the file, since decoding it takes quadratic time.
const maxSchemaNodes = 20_000

// hasFewerNodes reports whether a tree has fewer nodes than are left.
func hasFewerNodes(n *yaml.Node, left *int) bool {
	n = yamltree.Target(n)
	*left--
	return *left > 0 && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !hasFewerNodes(c, left) })
}

// schemaForm decodes a JSON Schema, or the path of its file.
func schemaForm(d *yamltree.Decoder, v value, to any) {
	s := to.(*ContentSchema)
	if v.Target().Kind != yaml.MappingNode {
		s.File, _ = d.Text(v, "a JSON Schema, or the path of its file", "path")
		return
	}
	if !hasFewerNodes(v.Target(), new(maxSchemaNodes)) {
		d.Fault(v.At(), "is a JSON Schema of more than %d keys and values: shorten it", maxSchemaNodes)
		return
	}
	value, err := contentschema.Value(v.Target())
	if err == nil {
		s.JSON, err = json.Marshal(value)
	}
	if err != nil {
		d.Fault(v.At(), "is not a JSON Schema: %v", err)
	} else if _, err := s.Compile(""); err != nil {
		d.Fault(v.At(), "%v", err)
	}
}
