package job

import "gopkg.in/yaml.v3"

// The shapes of the mappings of a job.yml. job.schema.json says the same to
// editors; a test holds the two together.
var (
	jobShape = newShape("a job",
		keyShape{"name", "the job's name, such as name: monthly_report"},
		keyShape{"version", `three numbers, such as version: "1.0.0"`},
		keyShape{"summary", "what the job is for, in 1 to 200 characters"},
		keyShape{"common_job_info_provided_to_all_steps_at_runtime", "what every step should know"},
		keyShape{"steps", "a list of at least one step"},
		keyShape{"description", ""},
		keyShape{"workflows", ""},
	)
	stepShape = newShape("a step",
		keyShape{"id", "an id, such as id: draft"},
		keyShape{"name", "a title for people"},
		keyShape{"description", "what the step does"},
		keyShape{"instructions_file", "the path of a Markdown file, such as instructions_file: steps/draft.md"},
		keyShape{"outputs", "a mapping of output names, or outputs: {} for none"},
		keyShape{"reviews", "a list of reviews, or reviews: [] for none"},
		keyShape{"inputs", ""},
		keyShape{"dependencies", ""},
		keyShape{"hooks", ""},
		keyShape{"stop_hooks", ""},
		keyShape{"exposed", ""},
		keyShape{"hidden", ""},
		keyShape{"agent", ""},
	)
	workflowShape = newShape("a workflow",
		keyShape{"name", "a name, such as name: new_report"},
		keyShape{"summary", "what the workflow does, in 1 to 200 characters"},
		keyShape{"steps", "a list of step ids"},
	)
)

// A spot is an item of a list where it stands. What was faulty is not in the
// model, so an item's index in the file can be larger than there.
type spot struct {
	node  *yaml.Node // nil where the item has no value of that kind
	index int
}

// stepNodes are the nodes of a step that checks over the whole job point at.
type stepNodes struct {
	id           *yaml.Node
	dependencies []spot // parallel to Step.Dependencies
	fromSteps    []spot // parallel to Step.Inputs
	runEach      []spot // parallel to Step.Reviews
	circular     bool   // whether its dependencies lead back to it
}

// workflowNodes are those of a workflow.
type workflowNodes struct {
	name    *yaml.Node
	steps   *yaml.Node
	entries []entryNodes // parallel to Workflow.Entries
}

type entryNodes struct {
	index   int
	members []spot // parallel to the Entry
	group   bool   // whether it is written as a list
}

func (d *decoder) job(j *Job, root *yaml.Node) {
	var fs [7]field
	if !d.object(field{root, root}, jobShape, fs[:]) {
		return
	}
	j.Name, _ = d.textIn("name", fs[0], identifier)
	j.Version, _ = d.textIn("version", fs[1], version)
	j.Summary, _ = d.textIn("summary", fs[2], summary)
	j.CommonInfo, _ = d.textIn("common_job_info_provided_to_all_steps_at_runtime", fs[3])
	j.Description = d.optionalText("description", fs[5])

	if steps, ok := d.list("steps", fs[4], "a list of steps"); ok {
		if len(steps) == 0 {
			d.add(fs[4].at(), "steps", "has no items: add at least one step")
		}
		j.Steps = make([]Step, 0, len(steps))
		d.stepNodes = make([]stepNodes, 0, len(steps))
		d.each("steps", steps, func(_ int, f field) {
			s, nodes := d.step(f)
			j.Steps = append(j.Steps, s)
			d.stepNodes = append(d.stepNodes, nodes)
		})
	}
	if workflows, ok := d.list("workflows", fs[6], "a list of workflows"); ok {
		j.Workflows = make([]Workflow, 0, len(workflows))
		d.workflowNodes = make([]workflowNodes, 0, len(workflows))
		d.each("workflows", workflows, func(_ int, f field) {
			w, nodes := d.workflow(f)
			j.Workflows = append(j.Workflows, w)
			d.workflowNodes = append(d.workflowNodes, nodes)
		})
	}
}

// list reads the list under a key; not ok where it is absent or no list.
func (d *decoder) list(name string, f field, what string) ([]*yaml.Node, bool) {
	if f.value == nil {
		return nil, false
	}
	d.into(name)
	defer d.out()
	return d.items(f, what)
}

// each calls read with each item of a list, with the path set to it.
func (d *decoder) each(name string, items []*yaml.Node, read func(int, field)) {
	d.into(name)
	defer d.out()
	for i, n := range items {
		d.item(i)
		read(i, field{key: n, value: n})
		d.out()
	}
}

// texts reads a list of texts and returns it with the spot of each.
func (d *decoder) texts(name string, f field, what string, rules ...textRule) (texts []string, spots []spot) {
	items, ok := d.list(name, f, what)
	if !ok {
		return nil, nil
	}
	d.each(name, items, func(i int, f field) {
		if s, ok := d.text(f, rules...); ok {
			texts, spots = append(texts, s), append(spots, spot{f.value, i})
		}
	})
	return texts, spots
}

func (d *decoder) workflow(f field) (w Workflow, nodes workflowNodes) {
	var fs [3]field
	if !d.object(f, workflowShape, fs[:]) {
		return w, nodes
	}
	var ok bool
	if w.Name, ok = d.textIn("name", fs[0], workflowName); ok {
		nodes.name = fs[0].value
	}
	w.Summary, _ = d.textIn("summary", fs[1], summary)
	items, ok := d.list("steps", fs[2], "a list of step ids, or of lists of them")
	if !ok {
		return w, nodes
	}
	nodes.steps = fs[2].key
	d.each("steps", items, func(i int, f field) {
		if entry, at := d.entry(i, f); len(entry) > 0 {
			w.Entries, nodes.entries = append(w.Entries, entry), append(nodes.entries, at)
		}
	})
	return w, nodes
}

func (d *decoder) entry(i int, f field) (entry Entry, at entryNodes) {
	at.index = i
	n := f.value
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.SequenceNode {
		if s, ok := d.stepID(f); ok {
			entry, at.members = Entry{s}, []spot{{node: f.value}}
		}
		return entry, at
	}
	at.group = true
	members, ok := d.items(f, "a list of step ids")
	if !ok {
		return nil, at
	}
	if len(members) == 0 {
		d.fault(placeOf(f.value), "is an empty group: name the steps that run concurrently, or remove it")
	}
	for i, m := range members {
		d.item(i)
		if kindOf(m) == "a list" {
			d.fault(placeOf(m), "is a list inside of a group: groups do not nest, name the step itself")
		} else if s, ok := d.stepID(field{m, m}); ok {
			entry, at.members = append(entry, s), append(at.members, spot{m, i})
		}
		d.out()
	}
	return entry, at
}

// stepID reads the id of a step that is named elsewhere; whether there is such
// a step is checked when all are read.
func (d *decoder) stepID(f field) (string, bool) {
	n := f.value
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode {
		d.fault(placeOf(n), "is %s, but must be the id of a step, or a list of ids that run concurrently", kindOf(n))
		return "", false
	}
	return d.text(f, filled)
}
