package job

import (
	"math/big"

	"deepwork/catalog/internal/yamltree"
)

// order checks that no step of a workflow comes before its dependencies, or in one group with them.
type order struct {
	d       *decoder
	job     *Job
	later   *big.Int // the steps of the entry being checked, and of those after it
	entries []int    // step -> index of its entry, valid for the steps in later
}

func (o *order) check(refs []ref) {
	// A file with this many faults will be checked again.
	if len(refs) < 2 || o.d.Faults() >= MaxDiagnostics {
		return
	}
	for end := len(refs); end > 0; {
		start := end - 1
		for start > 0 && refs[start-1].entry == refs[start].entry {
			start--
		}
		for _, r := range refs[start:end] {
			o.later.SetBit(o.later, r.step, 1)
			o.entries[r.step] = r.entry
		}
		for _, r := range refs[start:end] {
			// No position is right for a step in a cycle; the cycle is reported.
			if !o.d.steps[r.step].circular && o.needsLater(r.step) {
				o.report(r)
			}
		}
		end = start
	}
	for _, r := range refs {
		o.later.SetBit(o.later, r.step, 0)
	}
}

// needsLater reports whether a step depends on one in later.
func (o *order) needsLater(step int) bool {
	return new(big.Int).And(o.d.needs[step], o.later).Sign() != 0
}

// report reports every direct dependency that comes too late; if there is none, the first indirect
// one through steps that do not come too late themselves.
func (o *order) report(r ref) {
	if o.d.Full() {
		return
	}
	step := &o.job.Steps[r.step]
	direct := false
	reported := map[int]bool{}
	for _, dep := range step.Dependencies {
		if t, ok := o.job.steps[dep]; ok && t != r.step && o.later.Bit(t) == 1 && !reported[t] {
			direct, reported[t] = true, true
			o.fault(r, t, "")
		}
	}
	if direct {
		return
	}
	for _, dep := range step.Dependencies {
		t, ok := o.job.steps[dep]
		if !ok || !o.needsLater(t) {
			continue
		}
		for i := range o.job.Steps {
			if o.d.needs[t].Bit(i) == 1 && o.later.Bit(i) == 1 && i != r.step {
				o.fault(r, i, " through "+yamltree.Quote(dep))
				return
			}
		}
	}
}

func (o *order) fault(r ref, needed int, through string) {
	id, need := yamltree.Quote(o.job.Steps[r.step].ID), yamltree.Quote(o.job.Steps[needed].ID)
	if o.entries[needed] == r.entry {
		o.d.faultAt(r.spot, "%s is in one group with %s, which it depends on%s: put it into a later entry", id, need, through)
		return
	}
	o.d.faultAt(r.spot, "%s comes before %s, which it depends on%s: move it after that step", id, need, through)
}
