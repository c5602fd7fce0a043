package job

import (
	"fmt"
	"math/big"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/jsontext"
)

// checkSteps checks the references of steps: unique ids, dependencies that exist and have no cycle,
// from_step, run_each.
func (d *decoder) checkSteps(j *Job) {
	j.steps = make(map[string]int, len(j.Steps))
	for i := range j.Steps {
		id, at := j.Steps[i].ID, d.steps[i].id
		if at == (spot{}) {
			continue
		}
		if first, ok := j.steps[id]; ok {
			d.faultAt(at, "%s is the id of steps[%d] too, in line %d: give each step its own id", yamltree.Quote(id), first, d.steps[first].id.at.Line)
			continue
		}
		j.steps[id] = i
	}
	for i := range j.Steps {
		d.checkDependencies(j, i)
		d.checkRunEach(j, i)
	}
	g := graph{d: d, job: j, state: make([]visit, len(j.Steps))}
	d.needs = make([]*big.Int, len(j.Steps))
	for i := range j.Steps {
		if g.state[i] == unseen {
			g.visit(i)
		}
	}
}

func (d *decoder) faultAt(s spot, format string, args ...any) {
	d.FaultIn(s.at, s.path, format, args...)
}

func (d *decoder) checkDependencies(j *Job, i int) {
	s, spots := &j.Steps[i], &d.steps[i]
	declared := make(map[string]bool, len(s.Dependencies))
	for k, dep := range s.Dependencies {
		at := spots.dependencies[k]
		if declared[dep] {
			d.WarnIn(at.at, at.path, "%s appears twice: remove one", yamltree.Quote(dep))
		}
		declared[dep] = true
		if _, ok := j.steps[dep]; !ok {
			d.unknownStep(j, at, dep)
		}
	}
	for k, at := range spots.fromSteps {
		from := s.Inputs[k].FromStep
		if at == (spot{}) {
			continue
		}
		if t, ok := j.steps[from]; !ok {
			d.unknownStep(j, at, from)
		} else if t == i {
			d.faultAt(at, "a step cannot take a file from itself: name the earlier step that makes it")
		} else if !declared[from] {
			d.faultAt(at, "%s is not among the dependencies of this step: add it to dependencies", yamltree.Quote(from))
		}
	}
}

// unknownStep reports a reference to a step that does not exist.
func (d *decoder) unknownStep(j *Job, at spot, id string) {
	if d.Full() {
		return
	}
	ids := make([]string, 0, len(j.Steps))
	for i := range j.Steps {
		if j.Steps[i].ID != "" {
			ids = append(ids, j.Steps[i].ID)
		}
	}
	hint := "the steps are " + yamltree.Join(ids)
	if near := jsontext.Nearest(id, ids); near != "" {
		hint = "did you mean " + near + "?"
	}
	d.faultAt(at, "there is no step %s: %s", yamltree.Quote(id), hint)
}

func (d *decoder) checkRunEach(j *Job, i int) {
	s, spots := &j.Steps[i], &d.steps[i]
	if len(s.Reviews) == 0 {
		return
	}
	names, known := []string{"step"}, map[string]bool{"step": true}
	for k := range s.Outputs {
		names, known[s.Outputs[k].Name] = append(names, s.Outputs[k].Name), true
	}
	for k, at := range spots.runEach {
		each := s.Reviews[k].RunEach
		if at == (spot{}) || known[each] || d.Full() {
			continue
		}
		hint := "write one of " + yamltree.Join(names)
		if near := jsontext.Nearest(each, names); near != "" {
			hint = "did you mean " + near + "?"
		}
		d.faultAt(at, "%s is neither step nor an output of this step: %s", yamltree.Quote(each), hint)
	}
}

// checkWorkflows checks that workflows have unique names, and steps that exist, occur once, and
// come after their dependencies.
func (d *decoder) checkWorkflows(j *Job) {
	j.workflows = make(map[string]int, len(j.Workflows))
	used := make([]bool, len(j.Steps))
	order := order{d: d, job: j, later: new(big.Int), entries: make([]int, len(j.Steps))}
	for i := range j.Workflows {
		w, spots := &j.Workflows[i], &d.workflows[i]
		if spots.name != (spot{}) {
			if first, ok := j.workflows[w.Name]; ok {
				d.faultAt(spots.name, "%s is the name of workflows[%d] too, in line %d: give each workflow its own name",
					yamltree.Quote(w.Name), first, d.workflows[first].name.at.Line)
			} else {
				j.workflows[w.Name] = i
			}
		}
		if spots.steps != (spot{}) && len(w.Entries) == 0 {
			d.WarnIn(spots.steps.at, spots.steps.path, "has no steps, so it cannot be started: name some, or remove the workflow")
		}
		refs := d.resolve(j, i)
		for _, r := range refs {
			used[r.step] = true
		}
		order.check(refs)
	}
	d.warnUnused(j, used)
}

// A ref is the mention of a step in a workflow.
type ref struct {
	step  int // index in Job.Steps
	entry int // index in Workflow.Entries
	spot
}

// resolve finds the steps of a workflow, each at its first position.
func (d *decoder) resolve(j *Job, i int) []ref {
	w := &j.Workflows[i]
	refs := make([]ref, 0, len(w.Entries))
	first := make(map[int]int, len(w.Entries)) // step -> line
	for e, entry := range w.Entries {
		for m, id := range entry {
			at := d.workflows[i].entries[e][m]
			step, ok := j.steps[id]
			if !ok {
				d.unknownStep(j, at, id)
			} else if line, twice := first[step]; twice {
				d.faultAt(at, "%s appears twice in this workflow, the first time in line %d: keep one of them", yamltree.Quote(id), line)
			} else {
				first[step] = at.at.Line
				refs = append(refs, ref{step, e, at})
			}
		}
	}
	return refs
}

func (d *decoder) warnUnused(j *Job, used []bool) {
	if len(j.Workflows) == 0 {
		if len(j.Steps) > 0 {
			d.WarnIn(yamltree.Position{}, "", "has no workflows, so none of its steps can be started: add workflows")
		}
		return
	}
	for i := range j.Steps {
		if !used[i] && d.steps[i].id != (spot{}) {
			d.WarnIn(d.steps[i].id.at, fmt.Sprintf("steps[%d]", i), "%s is in no workflow, so it never runs: name it in one, or remove it", yamltree.Quote(j.Steps[i].ID))
		}
	}
}
