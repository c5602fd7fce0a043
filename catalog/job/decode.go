package job

import (
	"math/big"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// A Diagnostic is one fault, or one warning, of a file, with its position.
type Diagnostic = yamltree.Diagnostic

// Diagnostics are all faults of one file, ordered by position.
type Diagnostics = yamltree.Diagnostics

// MaxDiagnostics is the number of faults of one file that are reported in full; one more Diagnostic
// gives the number of the others.
const MaxDiagnostics = yamltree.MaxDiagnostics

// dialect is the wording of the faults of a job.yml.
var dialect = yamltree.Dialect{
	WrongKind:    "is %s, but must be %s",
	WrongKey:     "a key is %s, but must be text",
	Repeated:     "this key appears twice, the first time in line %d: keep one of them",
	More:         "%d more faults were found: fix the ones above first",
	MoreWarnings: "%d more warnings were found: fix the ones above first",
	Describe: func(what string, keys []string) string {
		return what + ", a mapping of " + strings.Join(keys, ", ")
	},
	UnknownKey: func(what string, keys []string, hint string) string {
		if hint != "" {
			return "unknown key: did you mean " + hint + "?"
		}
		return "unknown key: " + what + " has " + strings.Join(keys, ", ")
	},
	Kind: kindOf,
}

// kindOf returns the kind of a value.
func kindOf(n *yaml.Node) string {
	n = yamltree.Target(n)
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!timestamp":
		return "a date"
	case "!!null":
		return "empty"
	}
	return "text"
}

// A decoder turns the tree of one file into a Job, and collects all faults on the way. The shapes
// below are also in job.schema.json, for editors; a test compares the two.
type decoder struct {
	yamltree.Decoder
	steps     []stepSpots     // parallel to Job.Steps
	workflows []workflowSpots // parallel to Job.Workflows
	needs     []*big.Int      // of each step: see graph
}

type value = yamltree.Value

// A spot is the position of a value that is checked when all are read; the zero value means that
// it is absent or faulty.
type spot struct {
	at   yamltree.Position
	path string
}

func (d *decoder) spot(v value) spot { return spot{yamltree.At(v.Node), d.Path()} }

// stepSpots are the spots of a step that checks of the whole job use.
type stepSpots struct {
	id           spot
	dependencies []spot // parallel to Step.Dependencies
	fromSteps    []spot // parallel to Step.Inputs
	runEach      []spot // parallel to Step.Reviews
	stopHooks    []Hook
	circular     bool // whether its dependencies form a cycle
}

// workflowSpots are the spots of a workflow.
type workflowSpots struct {
	name, steps spot
	entries     [][]spot // parallel to Workflow.Entries
}

var required, optional = yamltree.Required, yamltree.Optional

func (d *decoder) job(j *Job) yamltree.Shape {
	return yamltree.Shape{What: "a job", Keys: []yamltree.Key{
		required("name", "the job's name, such as name: monthly_report", func(v value) {
			d.into(&j.Name, identifier)(v)
			j.nameAt = v.At()
		}),
		required("version", `three numbers, such as version: "1.0.0"`, d.into(&j.Version, version)),
		required("summary", "what the job is for, in 1 to 200 characters", d.into(&j.Summary, summary)),
		required("common_job_info_provided_to_all_steps_at_runtime", "what every step should know", d.into(&j.CommonInfo)),
		required("steps", "a list of at least one step", func(list value) {
			var s Step
			var spots stepSpots
			shape := d.step(&s, &spots) // shared by all steps: slower to create than a step to read
			count, ok := d.List(list, "a list of steps", func(i int, v value) {
				if i == 0 {
					n := len(list.Target().Content)
					j.Steps, d.steps = make([]Step, 0, n), make([]stepSpots, 0, n)
				}
				s, spots = Step{}, stepSpots{}
				d.Mapping(v, shape)
				s.Hooks.AfterAgent = append(s.Hooks.AfterAgent, spots.stopHooks...)
				j.Steps, d.steps = append(j.Steps, s), append(d.steps, spots)
			})
			if ok && count == 0 {
				d.Fault(list.At(), "has no items: add at least one step")
			}
		}),
		optional("description", d.pointer(&j.Description)),
		optional("workflows", func(v value) {
			d.List(v, "a list of workflows", func(_ int, v value) {
				var w Workflow
				var spots workflowSpots
				d.Mapping(v, d.workflow(&w, &spots))
				j.Workflows, d.workflows = append(j.Workflows, w), append(d.workflows, spots)
			})
		}),
	}}
}

func (d *decoder) workflow(w *Workflow, spots *workflowSpots) yamltree.Shape {
	return yamltree.Shape{What: "a workflow", Keys: []yamltree.Key{
		required("name", "a name, such as name: new_report", d.named(&w.Name, &spots.name, workflowName)),
		required("summary", "what the workflow does, in 1 to 200 characters", d.into(&w.Summary, summary)),
		required("steps", "a list of step ids", func(v value) {
			_, ok := d.List(v, "a list of step ids, or of lists of them", func(_ int, v value) {
				if entry, members := d.entry(v); len(entry) > 0 {
					w.Entries, spots.entries = append(w.Entries, entry), append(spots.entries, members)
				}
			})
			if ok {
				spots.steps = d.spot(yamltree.Self(v.Key))
			}
		}),
	}}
}

func (d *decoder) entry(v value) (entry Entry, members []spot) {
	member := func(v value) {
		if s, ok := d.stepID(v); ok {
			entry, members = append(entry, s), append(members, d.spot(v))
		}
	}
	if v.Target().Kind != yaml.SequenceNode {
		member(v)
		return entry, members
	}
	count, ok := d.List(v, "a list of step ids", func(_ int, v value) {
		if v.Target().Kind == yaml.SequenceNode {
			d.Fault(yamltree.At(v.Node), "is a list inside of a group: groups do not nest, name the step itself")
		} else {
			member(v)
		}
	})
	if ok && count == 0 {
		d.Fault(yamltree.At(v.Node), "is an empty group: name the steps that run concurrently, or remove it")
	}
	return entry, members
}

// stepID reads the id of a step defined elsewhere; that the step exists is checked when all are
// read.
func (d *decoder) stepID(v value) (string, bool) {
	if n := v.Target(); n.Kind != yaml.ScalarNode {
		d.Fault(yamltree.At(n), "is %s, but must be the id of a step, or a list of ids that run concurrently", kindOf(n))
		return "", false
	}
	return d.text(v, filled)
}
