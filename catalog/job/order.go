package job

import "deepwork/catalog/internal/yamltree"

// order checks that no step of a workflow stands before, or in one group with,
// what it depends on.
type order struct {
	d       *decoder
	job     *Job
	needs   []stepSet // nil until the first workflow needs it
	later   stepSet   // the steps of the entry being checked, and of those after it
	entries []int     // step -> index of its entry, valid for the steps in later
}

func newOrder(d *decoder, j *Job) *order { return &order{d: d, job: j} }

func (o *order) check(workflow int, refs []ref) {
	// A file with this many faults will be checked again; the sets of a job
	// that is nothing but faults could be large.
	if len(refs) < 2 || o.d.Faults() >= MaxDiagnostics {
		return
	}
	if o.needs == nil {
		o.needs = closure(o.job)
		o.later = newStepSet(len(o.job.Steps))
		o.entries = make([]int, len(o.job.Steps))
	}
	for end := len(refs); end > 0; {
		start := end - 1
		for start > 0 && refs[start-1].entry == refs[start].entry {
			start--
		}
		for _, r := range refs[start:end] {
			o.later.add(r.step)
			o.entries[r.step] = r.entry.index
		}
		for _, r := range refs[start:end] {
			// No place is right for a step in a circle; the circle is reported.
			if !o.d.stepNodes[r.step].circular && o.needs[r.step].meets(o.later) {
				o.report(workflow, r)
			}
		}
		end = start
	}
	for _, r := range refs {
		o.later.remove(r.step)
	}
}

// report tells every direct dependency that comes too late; else the first that
// is needed through steps of which none comes too late by itself.
func (o *order) report(workflow int, r ref) {
	if o.d.Full() {
		return
	}
	step := &o.job.Steps[r.step]
	direct := false
	told := map[int]bool{}
	for _, dep := range step.Dependencies {
		if t, ok := o.job.steps[dep]; ok && t != r.step && o.later.has(t) && !told[t] {
			direct, told[t] = true, true
			o.tell(workflow, r, t, "")
		}
	}
	if direct {
		return
	}
	for _, dep := range step.Dependencies {
		t, ok := o.job.steps[dep]
		if !ok || o.needs[t] == nil || !o.needs[t].meets(o.later) {
			continue
		}
		for i := range o.job.Steps {
			if o.needs[t].has(i) && o.later.has(i) && i != r.step {
				o.tell(workflow, r, i, " through "+yamltree.Quote(dep))
				return
			}
		}
	}
}

func (o *order) tell(workflow int, r ref, needed int, through string) {
	id, need := yamltree.Quote(o.job.Steps[r.step].ID), yamltree.Quote(o.job.Steps[needed].ID)
	if o.entries[needed] == r.entry.index {
		o.d.FaultIn(yamltree.At(r.node), r.path(workflow), "%s is in one group with %s, which it depends on%s: put it into a later entry", id, need, through)
		return
	}
	o.d.FaultIn(yamltree.At(r.node), r.path(workflow), "%s stands before %s, which it depends on%s: put it behind", id, need, through)
}
