package job

import (
	"slices"
	"strings"

	"deepwork/catalog/internal/yamltree"
)

// An order checks the order of steps: dependencies must have no cycle, and workflows must follow them.
type order struct {
	d        *decoder
	job      *Job
	needs    [][]need // for each step
	circular []bool   // the steps in a cycle, for which no order is right
	used     []bool   // the steps in any workflow
	entries  []int    // for the workflow being checked: each step's turn, from 1; 0 means never
}

// A need is a dependency on an existing step: the k-th in the file.
type need struct{ step, k int }

// needs returns the dependencies of each step, without duplicates.
func needs(j *Job) [][]need {
	all := make([][]need, len(j.Steps))
	for i := range j.Steps {
		seen := make(map[string]bool)
		for k, id := range j.Steps[i].Dependencies {
			if step, ok := j.steps[id]; ok && !seen[id] {
				seen[id] = true
				all[i] = append(all[i], need{step, k})
			}
		}
	}
	return all
}

// checkCycles walks the dependencies depth first, visits each step once, and reports each dependency that
// closes a cycle.
func (o *order) checkCycles() {
	const open, closed = 1, 2
	state := make([]int, len(o.needs))
	var trail []int
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		trail = append(trail, i)
		for _, n := range o.needs[i] {
			switch state[n.step] {
			case open:
				o.circle(place{"steps", i, "dependencies", n.k}, trail[slices.Index(trail, n.step):])
			case closed:
			default:
				visit(n.step)
			}
		}
		trail = trail[:len(trail)-1]
		state[i] = closed
	}
	for i := range state {
		if state[i] == 0 {
			visit(i)
		}
	}
}

// circle reports a dependency that closes a cycle, such as a -> b -> a; a long cycle is shortened in the
// middle.
func (o *order) circle(at place, circle []int) {
	for _, i := range circle {
		o.circular[i] = true
	}
	if len(circle) == 1 {
		o.d.FaultAt(at, "a step cannot depend on itself: remove it")
		return
	}

	const most = 10
	var ids []string
	for k, i := range circle {
		switch {
		case len(circle) <= most || k < most/2 || k >= len(circle)-most/2:
			ids = append(ids, yamltree.Clip(o.job.Steps[i].ID))
		case k == most/2:
			ids = append(ids, "…")
		}
	}
	o.d.FaultAt(at, "the dependencies go in a circle, %s -> %s: remove one of them", strings.Join(ids, " -> "), ids[0])
}

// A ref is a reference to a step in a workflow.
type ref struct {
	step int // index in Job.Steps
	at   place
}

// checkWorkflow checks that the steps of a workflow exist, occur only once, and come after those on which
// they depend.
func (o *order) checkWorkflow(w *Workflow, at place) {
	if len(w.Entries) == 0 && o.d.Has(at) {
		o.d.WarnAt(at, "has no steps, so it cannot be started: name some, or remove the workflow")
	}
	refs := o.resolve(w, at)
	for _, r := range refs {
		if !o.circular[r.step] {
			o.checkStep(r)
		}
	}

	for _, r := range refs {
		step := &o.job.Steps[r.step]
		o.entries[r.step] = 0
		for _, c := range step.Checks {
			if c.Files == nil && w.Shared(w.Find(step.ID)) {
				o.d.WarnAt(r.at, "%s has the check %q without files, which here is bound to the outputs alone, since "+
					"other agents change the folder at the same time: name its files, or give the step an entry of "+
					"its own", yamltree.Quote(step.ID), c.Name)
			}
		}
	}
}

// resolve finds the steps of a workflow, and sets entries.
func (o *order) resolve(w *Workflow, at place) (refs []ref) {
	called := map[string]bool{}
	turn := 0 // counts the entries, and those in a form
	for e, entry := range w.Entries {
		turn++
		inside, after := 0, 0 // for the entries in a for_each: which one, and the index after its last
		for m, id := range entry {
			at := slices.Concat(at, w.at[e][m])
			if last := len(at) - 1; !o.d.Has(at) { // an id that is not in a list
				at = at[:last]
			}
			if f := w.Forms[e]; f != nil && f.ForEach != nil { // its steps are done one after another
				if m == 0 {
					after = len(f.Body[0])
				}
				for inside < len(f.Body)-1 && m >= after {
					inside++
					turn++
					after += len(f.Body[inside])
				}
			}
			if strings.HasPrefix(id, CallPrefix) {
				if called[id] {
					o.d.FaultAt(at, "the workflow %s appears twice in this one: keep one of them",
						yamltree.Quote(strings.TrimPrefix(id, CallPrefix)))
				}
				called[id] = true
				continue
			}
			step, ok := o.d.step(o.job, id, at)
			if !ok {
				continue
			}
			if o.entries[step] > 0 {
				first := slices.IndexFunc(refs, func(r ref) bool { return r.step == step })
				o.d.FaultAt(at, "%s appears twice in this workflow, the first time in line %d: keep one of them",
					yamltree.Quote(id), o.d.Find(refs[first].at...).At().Line)
				continue
			}
			o.used[step], o.entries[step] = true, turn
			refs = append(refs, ref{step, at})
		}
	}
	return refs
}

// checkStep reports the dependencies of a step that do not come before it.
func (o *order) checkStep(r ref) {
	for _, n := range o.needs[r.step] {
		id, need := yamltree.Quote(o.job.Steps[r.step].ID), yamltree.Quote(o.job.Steps[n.step].ID)
		switch here, there := o.entries[r.step], o.entries[n.step]; {
		case there > here:
			o.d.FaultAt(r.at, "%s comes before %s, which it depends on: move it after that step", id, need)
		case there == here:
			o.d.FaultAt(r.at, "%s is in one group with %s, which it depends on: put it into a later entry", id, need)
		}
	}
}
