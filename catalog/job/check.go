package job

import (
	"fmt"
	"math/big"
	"strings"

	"deepwork/catalog/internal/yamltree"
)

// checkSteps checks what steps say of each other and of themselves: unique ids,
// dependencies that exist and go in no circle, from_step, run_each.
func (d *decoder) checkSteps(j *Job) {
	j.steps = make(map[string]int, len(j.Steps))
	for i := range j.Steps {
		id, at := j.Steps[i].ID, d.stepNodes[i].id
		if at == nil {
			continue
		}
		if first, ok := j.steps[id]; ok {
			d.FaultIn(yamltree.At(at), fmt.Sprintf("steps[%d].id", i), "%s is the id of steps[%d] too, in line %d: give each step an id of its own",
				yamltree.Quote(id), first, d.stepNodes[first].id.Line)
			continue
		}
		j.steps[id] = i
	}
	for i := range j.Steps {
		d.checkDependencies(j, i)
		d.checkRunEach(j, i)
	}
	d.checkCircles(j)
}

func (d *decoder) checkDependencies(j *Job, i int) {
	s, nodes := &j.Steps[i], &d.stepNodes[i]
	declared := make(map[string]bool, len(s.Dependencies))
	for k, dep := range s.Dependencies {
		at, index := yamltree.At(nodes.dependencies[k].node), nodes.dependencies[k].index
		if declared[dep] {
			d.WarnIn(at, fmt.Sprintf("steps[%d].dependencies[%d]", i, index), "%s stands twice: remove one", yamltree.Quote(dep))
		}
		declared[dep] = true
		if _, ok := j.steps[dep]; !ok {
			d.unknownStep(j, at, func() string { return fmt.Sprintf("steps[%d].dependencies[%d]", i, index) }, dep)
		}
	}
	for k, spot := range nodes.fromSteps {
		at := spot.node
		if at == nil {
			continue
		}
		from := s.Inputs[k].FromStep
		path := func() string { return fmt.Sprintf("steps[%d].inputs[%d].from_step", i, spot.index) }
		if t, ok := j.steps[from]; !ok {
			d.unknownStep(j, yamltree.At(at), path, from)
		} else if t == i {
			d.FaultIn(yamltree.At(at), path(), "a step cannot take a file from itself: name the earlier step that makes it")
		} else if !declared[from] {
			d.FaultIn(yamltree.At(at), path(), "%s is not among the dependencies of this step: add it to dependencies", yamltree.Quote(from))
		}
	}
}

// unknownStep reports a reference to a step that does not exist.
func (d *decoder) unknownStep(j *Job, at yamltree.Position, path func() string, id string) {
	if d.Full() {
		return
	}
	ids := make([]string, 0, len(j.Steps))
	for i := range j.Steps {
		if j.Steps[i].ID != "" {
			ids = append(ids, j.Steps[i].ID)
		}
	}
	if hint := yamltree.Suggest(id, ids); hint != "" {
		d.FaultIn(at, path(), "there is no step %s: did you mean %s?", yamltree.Quote(id), hint)
	} else {
		d.FaultIn(at, path(), "there is no step %s: the steps are %s", yamltree.Quote(id), yamltree.Join(ids))
	}
}

func (d *decoder) checkRunEach(j *Job, i int) {
	s, nodes := &j.Steps[i], &d.stepNodes[i]
	if len(s.Reviews) == 0 {
		return
	}
	outputs := make(map[string]bool, len(s.Outputs))
	for k := range s.Outputs {
		outputs[s.Outputs[k].Name] = true
	}
	for k, spot := range nodes.runEach {
		at, each := spot.node, s.Reviews[k].RunEach
		if at == nil || each == "step" || outputs[each] {
			continue
		}
		if d.Full() {
			continue
		}
		names := []string{"step"}
		for k := range s.Outputs {
			names = append(names, s.Outputs[k].Name)
		}
		path := fmt.Sprintf("steps[%d].reviews[%d].run_each", i, spot.index)
		if hint := yamltree.Suggest(each, names); hint != "" {
			d.FaultIn(yamltree.At(at), path, "%s is neither step nor an output of this step: did you mean %s?", yamltree.Quote(each), hint)
		} else {
			d.FaultIn(yamltree.At(at), path, "%s is neither step nor an output of this step: write one of %s", yamltree.Quote(each), yamltree.Join(names))
		}
	}
}

// checkCircles reports each dependency that closes a circle.
func (d *decoder) checkCircles(j *Job) {
	g := graph{job: j}
	g.circle = func(step, dependency int, circle []int) {
		for _, i := range circle {
			d.stepNodes[i].circular = true
		}
		if d.Full() {
			return
		}
		spot := d.stepNodes[step].dependencies[dependency]
		at, path := yamltree.At(spot.node), fmt.Sprintf("steps[%d].dependencies[%d]", step, spot.index)
		if len(circle) == 1 {
			d.FaultIn(at, path, "a step cannot depend on itself: remove it")
			return
		}
		d.FaultIn(at, path, "the dependencies go in a circle, %s: remove one of them", trailText(j, circle))
	}
	g.visitAll()
	d.needs = g.needs
}

// trailText is `a -> b -> a`, shortened in its middle where it is long.
func trailText(j *Job, circle []int) string {
	const most = 10
	var b strings.Builder
	for k, i := range circle {
		if len(circle) > most && k >= most/2 && k < len(circle)-most/2 {
			if k == most/2 {
				b.WriteString("… -> ")
			}
			continue
		}
		b.WriteString(yamltree.Clip(j.Steps[i].ID) + " -> ")
	}
	return b.String() + yamltree.Clip(j.Steps[circle[0]].ID)
}

// checkWorkflows checks that workflows have names of their own, and steps that
// exist, stand once, and come after what they depend on.
func (d *decoder) checkWorkflows(j *Job) {
	j.workflows = make(map[string]int, len(j.Workflows))
	used := make([]bool, len(j.Steps))
	order := order{d: d, job: j, later: new(big.Int), entries: make([]int, len(j.Steps))}
	for i := range j.Workflows {
		w, nodes := &j.Workflows[i], &d.workflowNodes[i]
		if nodes.name != nil {
			if first, ok := j.workflows[w.Name]; ok {
				d.FaultIn(yamltree.At(nodes.name), fmt.Sprintf("workflows[%d].name", i), "%s is the name of workflows[%d] too, in line %d: give each workflow a name of its own",
					yamltree.Quote(w.Name), first, d.workflowNodes[first].name.Line)
			} else {
				j.workflows[w.Name] = i
			}
		}
		if nodes.steps != nil && len(w.Entries) == 0 {
			d.WarnIn(yamltree.At(nodes.steps), fmt.Sprintf("workflows[%d].steps", i), "has no steps, so it cannot be started: name some, or remove the workflow")
		}
		refs := d.resolve(j, i)
		for _, r := range refs {
			used[r.step] = true
		}
		order.check(i, refs)
	}
	d.warnUnused(j, used)
}

// A ref is a step where a workflow names it.
type ref struct {
	step  int // index in Job.Steps
	entry *entryNodes
	spot
}

func (r ref) path(workflow int) string {
	if !r.entry.group {
		return fmt.Sprintf("workflows[%d].steps[%d]", workflow, r.entry.index)
	}
	return fmt.Sprintf("workflows[%d].steps[%d][%d]", workflow, r.entry.index, r.index)
}

// resolve finds the steps of a workflow, each at its first position.
func (d *decoder) resolve(j *Job, i int) []ref {
	w, nodes := &j.Workflows[i], &d.workflowNodes[i]
	refs := make([]ref, 0, len(w.Entries))
	first := make(map[int]int, len(w.Entries)) // step -> line
	for e, entry := range w.Entries {
		for m, id := range entry {
			r := ref{entry: &nodes.entries[e], spot: nodes.entries[e].members[m]}
			var ok bool
			if r.step, ok = j.steps[id]; !ok {
				d.unknownStep(j, yamltree.At(r.node), func() string { return r.path(i) }, id)
				continue
			}
			if line, ok := first[r.step]; ok {
				d.FaultIn(yamltree.At(r.node), r.path(i), "%s stands twice in this workflow, the first time in line %d: keep one of them", yamltree.Quote(id), line)
				continue
			}
			first[r.step] = r.node.Line
			refs = append(refs, r)
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
		if !used[i] && d.stepNodes[i].id != nil {
			d.WarnIn(yamltree.At(d.stepNodes[i].id), fmt.Sprintf("steps[%d]", i), "%s is in no workflow, so it never runs: name it in one, or remove it", yamltree.Quote(j.Steps[i].ID))
		}
	}
}
