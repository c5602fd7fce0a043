package job

import (
	"slices"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/internal/yamltree"
)

// checkForms checks the forms of a workflow: what they name must have been made before, as a text or a list.
func (d *decoder) checkForms(j *Job, w *Workflow, at place) {
	for i, f := range w.Forms {
		if f == nil || i > 0 && w.Forms[i-1] == f || d.Full() {
			continue
		}
		here := slices.Concat(at, w.at[i][0][:1])
		first, after := w.Span(f)
		switch {
		case f.ForEach != nil:
			if d.Has(here, "for_each") {
				d.checkMade(j, w, 0, first, f.ForEach.Output, append(here, "for_each"), "before this entry", File,
					Files, Text)
			}

			if f.ForEach.Isolation != "" &&
				slices.ContainsFunc(w.Entries[i], func(id string) bool { return strings.HasPrefix(id, CallPrefix) }) {
				d.FaultAt(append(here, "isolation"),
					"has a workflow in its steps, whose session would not work in the worktree of the item: name "+
						"steps, or remove isolation")
			}
		case f.When != nil:
			d.checkCondition(j, w, f.When, 0, first, append(here, "when"), "before this entry")
			d.warnLeftOut(j, w, first, after, at)
		case f.Repeat != nil && d.Has(here, "repeat", "until"):
			d.checkCondition(j, w, &f.Repeat.Until, first, after, append(here, "repeat", "until"), "that is repeated")
		}
	}
}

// checkCondition checks that a condition has one subject, which must be a text, and one comparison. The
// subject may be an output of the steps in the entries with indexes from first to after-1; where describes
// these for errors.
func (d *decoder) checkCondition(j *Job, w *Workflow, c *Condition, first, after int, at place, where string) {
	if c.Run != nil || d.Has(at, "run") {
		last := w.Entries[after-1]
		switch given, _ := d.given(at, "output", "input", "is", "is_not", "in"); {
		case given != "":
			d.FaultAt(at, "has run and %s: write run alone, or a text and what it must be", given)
		case at[len(at)-1] == "when":
			d.FaultAt(at, "has run: a program ends rounds (repeat), and a condition compares a text: have a step run "+
				"the program, and say in an output what it found")
		case len(last) > 1 || strings.HasPrefix(last[0], CallPrefix):
			d.FaultAt(at, "has run, and the steps that are repeated do not end with one step, after which it could "+
				"run: add one")
		}

		return
	}
	if d.Has(at, "timeout") {
		d.FaultAt(at, "has timeout without run: remove it")
	}
	if given, count := d.given(at, "output", "input"); count != 1 && given != notMapping {
		d.FaultAt(at, "has %d of output and input: write exactly one, the text that it is about", count)
	}
	if given, count := d.given(at, "is", "is_not", "in"); count != 1 && given != notMapping {
		d.FaultAt(at, "has %d of is, is_not and in: write exactly one, as in is: \"yes\"", count)
	}
	if c.Output != "" {
		d.checkMade(j, w, first, after, c.Output, append(slices.Clip(at), "output"), where, Text)
	}

	if c.Input == "" {
		return
	}

	names := make([]string, len(w.Inputs))
	for i, p := range w.Inputs {
		names[i] = p.Name
		if p.Name == c.Input && p.Type != Text {
			d.FaultAt(append(slices.Clip(at), "input"), "%s is of type %s: only a text can be compared, type: string",
				yamltree.Quote(c.Input), p.Type)
		}
	}

	if !slices.Contains(names, c.Input) {
		hint := "declare it in its inputs"
		if len(names) > 0 {
			hint = nearest(c.Input, names, "its inputs are ")
		}
		d.FaultAt(append(slices.Clip(at), "input"), "the workflow has no input %s: %s", yamltree.Quote(c.Input), hint)
	}
}

// checkMade checks that a step in the entries with indexes from first to after-1 has an output of one of the
// types.
func (d *decoder) checkMade(
	j *Job, w *Workflow, first, after int, output string, at place, where string, types ...OutputType,
) {
	wanted := "only a text can be compared, type: string"
	if len(types) > 1 {
		wanted = "a list of items is of type string, file or files"
	}

	all, ok := w.made(j, first, after, "")
	if !ok {
		return // already an error
	}

	var names []string
	var newest *madeOutput
	for i, o := range all {
		if o.Name == output {
			newest = &all[i]
		} else if !o.each {
			names = append(names, o.Name)
		}
	}
	switch {
	case newest == nil && names == nil:
		d.FaultAt(at, "no step %s has an output: name the step that makes %s there", where, yamltree.Quote(output))
	case newest == nil:
		d.FaultAt(at, "no step %s has an output %s: %s", where, yamltree.Quote(output),
			nearest(output, names, "their outputs are "))
	case newest.each:
		d.FaultAt(at, "%s is made for each item, so that it is many values: name an output of a step that is done once",
			yamltree.Quote(output))
	case !slices.Contains(types, newest.Type) && newest.Type != "":
		d.FaultAt(at, "%s is of type %s: %s", yamltree.Quote(output), newest.Type, wanted)
	}
}

// warnLeftOut warns of steps after a condition that need what it may leave out.
func (d *decoder) warnLeftOut(j *Job, w *Workflow, first, after int, at place) {
	inside := slices.Concat(w.Entries[first:after]...)
	for e := after; e < len(w.Entries); e++ {
		for m, id := range w.Entries[e] {
			s := j.Step(id)
			if s == nil {
				continue // a workflow, or already an error
			}

			for _, in := range s.Inputs {
				if slices.Contains(inside, in.FromStep) {
					at := slices.Concat(at, w.at[e][m])
					if !d.Has(at) {
						at = at[:len(at)-1]
					}
					d.WarnAt(at, "%s takes %s from %s, which the condition may leave out: it has no value then",
						yamltree.Quote(id), yamltree.Quote(in.File), yamltree.Quote(in.FromStep))
				}
			}
		}
	}
}

// A madeOutput is what a later step can use: an output of a step, or an input of the workflow.
type madeOutput struct {
	*Output
	each bool // from a for_each, so it is a list
	sure bool // it always has a value
}

// made returns the outputs of the steps in the entries with indexes from first to after-1, and of those steps
// in the entry after them that come before the step before. ok is false if there is no such step.
func (w *Workflow) made(j *Job, first, after int, before string) (all []madeOutput, ok bool) {
	for e := first; e < len(w.Entries) && e <= after; e++ {
		f, entry := w.Form(e), w.Entries[e]
		if e == after {
			entry = entry[:max(slices.Index(entry, before), 0)]
		}
		for _, id := range entry {
			s := j.Step(id)
			if s == nil && !strings.HasPrefix(id, CallPrefix) {
				return all, false
			}

			each := e < after && f != nil && f.ForEach != nil
			for i := 0; s != nil && i < len(s.Outputs); i++ {
				o := &s.Outputs[i]
				all = append(all, madeOutput{o, each,
					each || o.Required && (f == nil || f.When == nil || f == w.Form(after))})
			}
		}
	}
	return all, true
}

// checkCalls checks that the workflows of this job that others call exist, get what they need, and do not
// call each other in a circle.
func (d *decoder) checkCalls(j *Job, at func(workflow int, step *Step) place) {
	names := xslices.Map(j.Workflows, func(x Workflow) string { return x.Name })
	const open, closed = 1, 2
	state := map[string]int{}

	var trail []string
	var visit func(i int)
	visit = func(i int) {
		w := &j.Workflows[i]
		state[w.Name] = open
		trail = append(trail, w.Name)
		for _, s := range w.called() {
			if d.Full() || s.Call.Job != "" && s.Call.Job != j.Name {
				continue // it is checked when a session begins
			}

			to := slices.Index(names, s.Call.Workflow)
			switch {
			case to < 0 && s.Call.Workflow != "":
				d.FaultAt(at(i, s), "this job has no workflow %s: %s", yamltree.Quote(s.Call.Workflow),
					nearest(s.Call.Workflow, names, "its workflows are "))
			case to < 0 || state[s.Call.Workflow] == closed:
			case state[s.Call.Workflow] == open:
				circle := append(slices.Clone(trail[slices.Index(trail, s.Call.Workflow):]), s.Call.Workflow)
				d.FaultAt(at(i, s), "the workflows call each other in a circle, %s: remove one of the calls",
					strings.Join(circle, " -> "))
			default:
				visit(to)
			}
			if to >= 0 {
				d.checkCallInputs(j, w, s, &j.Workflows[to], at(i, s))
				d.warnShared(j, w, s, &j.Workflows[to], at(i, s))
			}
		}
		trail = trail[:len(trail)-1]
		state[w.Name] = closed
	}
	for i := range j.Workflows {
		if state[j.Workflows[i].Name] == 0 {
			visit(i)
		}
	}
}

// warnShared warns of checks without files in a workflow, and in those that it calls, while other agents may
// change the folder.
func (d *decoder) warnShared(j *Job, w *Workflow, s *Step, of *Workflow, at place) {
	if !w.Shared(w.Find(s.ID)) {
		return
	}

	for _, of := range j.Within(of) {
		for _, id := range slices.Concat(of.Entries...) {
			for k := 0; j.Step(id) != nil && k < len(j.Step(id).Checks); k++ {
				if c := j.Step(id).Checks[k]; c.Files == nil && !d.Full() {
					d.WarnAt(at, "%s of workflow %s has the check %q without files, which here is bound to the "+
						"outputs alone, since other agents change the folder at the same time: name its files",
						yamltree.Quote(id), of.Name, c.Name)
				}
			}
		}
	}
}

// checkCallInputs checks the values that a call passes to a workflow.
func (d *decoder) checkCallInputs(j *Job, w *Workflow, s *Step, of *Workflow, at place) {
	if s.Call.Inputs == nil {
		return // values are passed by the names of the inputs
	}

	here := w.Find(s.ID)
	made, ok := w.made(j, 0, here, s.ID)
	if !ok {
		return // already an error
	}

	all := xslices.Map(w.Inputs, func(p Parameter) madeOutput {
		return madeOutput{Output: &Output{Name: p.Name, Type: p.Type}, sure: p.Required || p.Default != nil}
	})
	all = append(all, made...)
	available := xslices.Map(all, func(o madeOutput) string { return o.Name })
	each := w.Form(here) != nil && w.Form(here).ForEach != nil
	if each {
		available = append(available, ItemName)
	}
	takes := xslices.Map(of.Inputs, func(p Parameter) string { return p.Name })
	for _, p := range of.Inputs {
		if p.Required && p.Default == nil &&
			!slices.ContainsFunc(s.Call.Inputs, func(in CallInput) bool { return in.Name == p.Name }) {
			d.FaultAt(at, "the workflow %s needs the input %s: add it to inputs, with the name of an output or input "+
				"here, or {value: text}", of.Name, yamltree.Quote(p.Name))
		}
	}

	for _, in := range s.Call.Inputs {
		at := append(slices.Clip(at), "inputs", in.Name)
		to := of.Input(in.Name)
		from := (*madeOutput)(nil)
		sure := false
		for i := range all {
			if all[i].Name == in.From {
				from, sure = &all[i], sure || all[i].sure
			}
		}
		switch {
		case to == nil:
			d.FaultAt(at, "the workflow %s has no input %s: %s", of.Name, yamltree.Quote(in.Name),
				nearest(in.Name, takes, "its inputs are "))
		case in.From == "":
		case in.From == ItemName && each:
			if from != nil {
				d.FaultAt(at, "item is the item of the list here, and an output or input has this name, too: "+
					"rename that")
			}
		case from == nil:
			d.FaultAt(at, "no earlier step has an output %s, and the workflow has no input of this name: %s",
				yamltree.Quote(in.From), nearest(in.From, available, "there are "))
		case from.each && to.Type == File:
			d.FaultAt(at, "%s is a list, of all items, and the input %s of workflow %s is of type file: declare it as "+
				"type: files, or string for a JSON list", yamltree.Quote(in.From), yamltree.Quote(in.Name), of.Name)
		case !from.each && from.Type == Files && to.Type != Files:
			d.FaultAt(at, "%s is of type files, and the input %s of workflow %s of type %s: declare it as type: files",
				yamltree.Quote(in.From), yamltree.Quote(in.Name), of.Name, to.Type)
		case !sure && to.Required && to.Default == nil:
			d.WarnAt(at, "%s may have no value, and then workflow %s, which requires the input %s, cannot begin: "+
				"declare it as required: false", yamltree.Quote(in.From), of.Name, yamltree.Quote(in.Name))
		}
	}
}
