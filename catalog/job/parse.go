package job

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/jsontext"
)

// FileName is the name of the file that makes a folder a job.
const FileName = "job.yml"

// MaxBytes is the maximum size of a job.yml: 1 MiB.
const MaxBytes = yamltree.MaxBytes

// A Diagnostic is one error, or one warning, of a file, with its position.
type Diagnostic = yamltree.Diagnostic

// Diagnostics are all errors in one file, ordered by position.
type Diagnostics = yamltree.Diagnostics

// MaxDiagnostics is how many errors in one file are reported in full; one more Diagnostic gives the number of
// the others.
const MaxDiagnostics = yamltree.MaxDiagnostics

// A decoder turns the tree of one file into a Job, and collects all errors on the way. job.schema.json, for
// editors, says the same as the tags of the model; a test compares the two.
type decoder struct{ yamltree.Decoder }

type value = yamltree.Value

func newDecoder(file string) *decoder {
	return &decoder{yamltree.Decoder{File: file, Texts: rules, Forms: forms}}
}

// Parse reads the bytes of a job.yml. dir is the absolute path of the job's folder; file is its name in
// diagnostics. It never touches the disk and never panics. If the Job is nil, it returns all errors in the
// file, sorted by position; a Job may have Warnings. The Job retains source, which must not be changed
// afterwards: Parse(j.Dir, file, j.Source) gives an equal Job.
func Parse(dir, file string, source []byte) (*Job, Diagnostics) {
	d := newDecoder(file)
	root := d.Open(source)
	if root == nil {
		if d.Faults() == 0 {
			d.FaultIn(yamltree.Position{
				Line:   1,
				Column: 1,
			}, "",
				"is empty: write name, version, summary, common_job_info_provided_to_all_steps_at_runtime, steps and "+
					"workflows")
		}
		return nil, d.Diagnostics()
	}

	j := &Job{Dir: dir, Source: source, texts: new(texts)}
	if was := d.earlier(); was != "" {
		d.reportEarlier(was, dir)
		return nil, d.Diagnostics()
	}
	if d.isFormat2() {
		d.decode2(yamltree.Self(root), j)
	} else {
		j.Format = 1
		d.Decode(yamltree.Self(root), j)
		d.check(j)
	}
	if d.Faults() > 0 {
		return nil, d.Diagnostics()
	}

	sum := sha256.Sum256(source)
	j.Hash = hex.EncodeToString(sum[:])
	j.Warnings = d.Warnings()
	j.makeViews()
	return j, nil
}

// NameFault returns an error about the job's name in its file.
func (j *Job) NameFault(file, message string) Diagnostic { return j.at(file, message, "name") }

// Warning returns a warning about the value at a path in the job's file.
func (j *Job) Warning(file, message string, path ...any) Diagnostic {
	g := j.at(file, message, path...)
	g.Warning = true
	return g
}

// at returns an error about the value at a path in the job's file.
func (j *Job) at(file, message string, path ...any) Diagnostic {
	d := newDecoder(file)
	d.Open(j.Source)
	return d.At(message, path...)
}

// forms are the forms of values, by their names in the tags of the model.
var forms = map[string]yamltree.Form{
	"entries":     entriesForm,
	"body":        bodyForm,
	"call inputs": callInputs,
	"schema":      schemaForm,
	// Who judges a review.
	"judge": func(d *yamltree.Decoder, v value, to any) {
		_, *to.(*bool) = d.Text(v, "human", "judge")
	},
}

// A place is the path of a value in the file: keys and indices.
type place = []any

// check checks what spans several values: references to steps and outputs, cycles, the order of workflows.
// Values that already have an error are empty.
func (d *decoder) check(j *Job) {
	if d.Faults() >= MaxDiagnostics {
		return // the file will be checked again
	}

	j.index()
	for i := range j.Steps {
		s, at := &j.Steps[i], place{"steps", i}
		d.checkDependencies(j, i, at)
		d.checkRunEach(s, at)
		d.nameChecks(s, at)
		for k := range s.Outputs {
			o, at := &s.Outputs[k], place{"steps", i, "outputs", s.Outputs[k].Name, "schema"}
			if o.Schema.File != "" {
				j.files = append(j.files, namedFile{o.Schema.File, &o.Schema, at})
			}
			if o.Type == Text && d.Has(at) {
				d.FaultAt(at, "is of a text, and only files have a schema: write type: file, or remove schema")
			}
		}
		if s.InstructionsFile != "" {
			j.files = append(j.files, namedFile{s.InstructionsFile, nil, append(slices.Clip(at), "instructions_file")})
		}
		d.checkInputs(s, at)
		switch given, count := d.given(at, "instructions", "instructions_file"); {
		case given == notMapping || count == 1:
		case count == 0:
			d.FaultAt(at, "instructions_file is missing: add the path of a Markdown file, such as instructions_file: "+
				"steps/draft.md, or the text as instructions")
		default:
			d.FaultAt(at, "has instructions and instructions_file: write exactly one")
		}
		d.checkHooks(s.StopHooks, at, "stop_hooks")
		d.checkHooks(s.Hooks.AfterAgent, at, "hooks", "after_agent")
		d.checkHooks(s.Hooks.BeforeTool, at, "hooks", "before_tool")
		d.checkHooks(s.Hooks.BeforePrompt, at, "hooks", "before_prompt")
	}
	n := len(j.Steps)
	order := order{
		d:        d,
		job:      j,
		needs:    needs(j),
		circular: make([]bool, n),
		used:     make([]bool, n),
		entries:  make([]int, n),
	}
	order.checkCycles()
	for i := range j.Workflows {
		order.checkWorkflow(&j.Workflows[i], place{"workflows", i, "steps"})
		d.checkForms(j, &j.Workflows[i], place{"workflows", i, "steps"})
	}

	copies := 0
	for i := range j.Workflows {
		if w := &j.Workflows[i]; w.copies(w.endChecks()) {
			copies += len(j.Steps)
		}
	}
	if copies > maxCopies {
		d.FaultAt(place{"workflows"},
			"has too many workflows that call others or repeat until a program passes, for a job of %d steps: divide "+
				"the job", len(j.Steps))
	}
	d.checkCalls(j, func(i int, s *Step) place {
		return append(place{"workflows", i, "steps"}, j.Workflows[i].place(s.ID)...)
	})
	if len(j.Workflows) == 0 && len(j.Steps) > 0 {
		d.WarnAt(nil, "has no workflows, so none of its steps can be started: add workflows, or let 'deepwork jobs "+
			"convert' add one of all steps")
		return
	}

	for i := range j.Workflows {
		w := &j.Workflows[i]
		for _, p := range j.Untaken(w) {
			k := slices.IndexFunc(w.Inputs, func(in Parameter) bool { return in.Name == p.Name })
			d.WarnAt(place{"workflows", i, "inputs", k, "name"}, "no step takes %s, so the first step gets it: name "+
				"it in the inputs of the step that needs it, or remove it", yamltree.Quote(p.Name))
		}
	}
	for i := range j.Steps {
		if id := j.Steps[i].ID; !order.used[i] && id != "" {
			d.WarnAt(place{"steps", i, "id"}, "%s is in no workflow, so it never runs: name it in one, or remove it",
				yamltree.Quote(id))
		}
	}
}

func (d *decoder) checkDependencies(j *Job, i int, at place) {
	s := &j.Steps[i]
	declared := make(map[string]bool, len(s.Dependencies))
	for k, dep := range s.Dependencies {
		at := append(slices.Clip(at), "dependencies", k)
		if declared[dep] && dep != "" {
			d.WarnAt(at, "%s appears twice: remove one", yamltree.Quote(dep))
		}
		declared[dep] = true
		d.step(j, dep, at)
	}
	for k, in := range s.Inputs {
		at := append(slices.Clip(at), "inputs", k, "from_step")
		switch from, ok := d.step(j, in.FromStep, at); {
		case !ok:
		case from == i:
			d.FaultAt(at, "a step cannot take a file from itself: name the earlier step that makes it")
		case !declared[in.FromStep]:
			d.FaultAt(at, "%s is not among the dependencies of this step: add it to dependencies",
				yamltree.Quote(in.FromStep))
		case j.Steps[from].Output(in.File) == nil && in.File != "":
			names := make([]string, len(j.Steps[from].Outputs))
			for n, o := range j.Steps[from].Outputs {
				names[n] = o.Name
			}

			if at := append(slices.Clip(at[:len(at)-1]), "file"); len(names) == 0 {
				d.WarnAt(at, "step %s has no outputs, so the input is always empty: add one, or remove the input",
					in.FromStep)
			} else {
				d.WarnAt(at, "step %s has no output %s, so the input has the files of all its outputs: %s", in.FromStep,
					yamltree.Quote(in.File), nearest(in.File, names, "write one of "))
			}
		}
	}
}

// step returns the index of a step. It reports a reference to a missing step, unless errors in the steps
// themselves may explain that.
func (d *decoder) step(j *Job, id string, at place) (i int, ok bool) {
	i, ok = j.steps[id]
	if ok || id == "" || d.Full() {
		return i, ok
	}

	ids := make([]string, len(j.Steps))
	for i := range j.Steps {
		ids[i] = j.Steps[i].ID
		if identifier(ids[i]) != "" {
			return 0, false
		}
	}

	if len(ids) == 0 {
		return 0, false
	}

	d.FaultAt(at, "there is no step %s: %s", yamltree.Quote(id), nearest(id, ids, "the steps are "))
	return 0, false
}

// nearest returns a hint with the name that was probably meant, or else with all names.
func nearest(name string, all []string, these string) string {
	if near := jsontext.Nearest(name, all); near != "" {
		return "did you mean " + near + "?"
	}
	return these + yamltree.Join(all)
}

func (d *decoder) checkRunEach(s *Step, at place) {
	names, known := []string{"step"}, map[string]bool{"step": true, "": true}
	for _, o := range s.Outputs {
		names, known[o.Name] = append(names, o.Name), true
	}
	for k, r := range s.Reviews {
		if !known[r.RunEach] && !d.Full() {
			d.FaultAt(append(slices.Clip(at), "reviews", k, "run_each"),
				"%s is neither step nor an output of this step: %s",
				yamltree.Quote(r.RunEach), nearest(r.RunEach, names, "write one of "))
		}
	}
}

// checkInputs checks that each input has only the keys of one kind.
func (d *decoder) checkInputs(s *Step, at place) {
	const forms = "write either name and description, or file and from_step"
	for k := range s.Inputs {
		at := append(slices.Clip(at), "inputs", k)
		switch given, _ := d.given(at, "name", "description", "file", "from_step"); given {
		case "name, description", "file, from_step", notMapping:
		case "":
			d.FaultAt(at, "says nothing: %s", forms)
		case "name", "description", "file", "from_step":
			d.FaultAt(at, "has only %s: %s", given, forms)
		default:
			d.FaultAt(at, "mixes two kinds of input: %s", forms)
		}
	}
}

func (d *decoder) checkHooks(hooks []Hook, at place, path ...any) {
	for k := range hooks {
		at := append(slices.Concat(at, path), k)
		if given, count := d.given(at, "prompt", "prompt_file", "script"); count != 1 && given != notMapping {
			d.FaultAt(at, "has %d of prompt, prompt_file and script: write exactly one", count)
		}
	}
}

// notMapping is the result of given for a value that is not a mapping, which is already an error.
const notMapping = "no mapping"

// given returns which of these keys a mapping has, and how many.
func (d *decoder) given(at place, keys ...string) (given string, count int) {
	if d.Find(at...).Target().Kind != yaml.MappingNode {
		return notMapping, 0
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !d.Has(at, key) })
	return strings.Join(keys, ", "), len(keys)
}
