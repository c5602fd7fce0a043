package job

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// entryFile is an entry of a workflow that is a mapping, as written.
type entryFile struct {
	ForEach
	Workflow string      `yaml:"workflow" as:"called"`
	Inputs   []CallInput `yaml:"inputs" as:"call inputs"`
	When     *Condition  `yaml:"when"`
	Repeat   *struct {
		Repeat
		Steps Sequence `yaml:"steps" as:"body" add:"steps: the ids of steps"`
	} `yaml:"repeat"`
	Steps Sequence `yaml:"steps" as:"body"`
}

// kinds are the keys that determine the kind of an entry, with the keys that may accompany each.
var kinds = map[string][]string{
	"for_each": {"steps", "at_once", "max_items", "isolation"},
	"when":     {"steps"},
	"repeat":   {},
	"workflow": {"inputs"},
}

// A Sequence says what a workflow does, in order.
type Sequence struct {
	Entries []Entry // may be empty, which is a warning; a for_each is one entry with all its steps
	// Forms are the forms of the entries; entries of one When or Repeat share a form. nil means that no entry
	// has a form.
	Forms []*Form

	calls []Step    // the steps that are workflows
	at    [][]place // for each id in Entries, its place in the file below the workflow's steps
}

// addForm decodes the n-th entry of the file, which is a mapping.
func (w *Sequence) addForm(d *yamltree.Decoder, n int, v value) {
	var kind, stray []string
	for i := 0; i+1 < len(v.Target().Content); i += 2 {
		if key := v.Target().Content[i].Value; kinds[key] != nil {
			kind = append(kind, key)
		}
	}
	if len(kind) != 1 {
		d.Fault(v.At(), "has %d of for_each, when, repeat and workflow: write exactly one; what needs more is a "+
			"workflow of its own", len(kind))
		w.add(Entry{""}, nil, n)
		return
	}
	for i := 0; i+1 < len(v.Target().Content); i += 2 {
		key := v.Target().Content[i].Value
		if key != kind[0] && !slices.Contains(kinds[kind[0]], key) &&
			slices.Contains([]string{"steps", "at_once", "max_items", "isolation", "inputs"}, key) {
			stray = append(stray, key)
		}
	}
	if stray != nil {
		d.Fault(v.At(), "%s does not go with %s: remove it", strings.Join(stray, ", "), kind[0])
	}
	f, faults := entryFile{ForEach: ForEach{AtOnce: defaultAtOnce, MaxItems: defaultMaxItems}}, d.Faults()
	d.Decode(v, &f)
	if kind[0] == "workflow" {
		w.call(f.call(), n)
		return
	}
	made := new(Form)
	steps := &f.Steps
	within := place{n, "steps"}
	switch kind[0] {
	case "for_each":
		made.ForEach = &f.ForEach
	case "when":
		if made.When = f.When; made.When == nil {
			made.When = new(Condition)
		}
	case "repeat":
		made.Repeat, within = new(Repeat), place{n, "repeat", "steps"}
		if f.Repeat != nil {
			made.Repeat, steps = &f.Repeat.Repeat, &f.Repeat.Steps
		}
	}
	made.Body, w.calls = steps.Entries, append(w.calls, steps.calls...)
	if len(made.Body) == 0 {
		if d.Faults() == faults {
			d.Fault(v.At(), "has no steps: add steps: [id], what is done")
		}
		made.Body = []Entry{{""}}
	}
	if made.ForEach == nil {
		for k, e := range made.Body {
			w.add(e, made, append(slices.Clip(within), k)...)
		}
		return
	}
	w.Entries, w.Forms, w.at = append(w.Entries, slices.Concat(made.Body...)), append(w.Forms, made), append(w.at, nil)
	for k, e := range made.Body {
		w.locate(e, append(slices.Clip(within), k))
	}
}

// add adds an entry with its place below the steps.
func (w *Sequence) add(e Entry, f *Form, at ...any) {
	w.Entries, w.Forms, w.at = append(w.Entries, e), append(w.Forms, f), append(w.at, nil)
	w.locate(e, at)
}

// call adds an entry that is a workflow.
func (w *Sequence) call(c *Call, at ...any) Entry {
	id := CallPrefix + c.String()
	w.calls = append(w.calls, Step{
		ID:          id,
		Name:        "Workflow " + c.String(),
		Description: "The workflow " + c.String() + ", step by step",
		Call:        c,
	})
	w.add(Entry{id}, nil, at...)
	return Entry{id}
}

// call returns the workflow that an entry names.
func (f *entryFile) call() *Call {
	c := &Call{Workflow: f.Workflow, Inputs: f.Inputs}
	if job, name, ok := strings.Cut(f.Workflow, "/"); ok {
		c.Job, c.Workflow = job, name
	}

	if c.Inputs == nil {
		c.Inputs = []CallInput{}
	}
	return c
}

// locate records the places of an entry's ids in the file.
func (w *Sequence) locate(e Entry, at place) {
	last := len(w.at) - 1
	for m := range e {
		w.at[last] = append(w.at[last], append(slices.Clip(at), m))
	}
}

// Form returns the form to which the entry at an index belongs, or nil.
func (w *Sequence) Form(index int) *Form {
	if index < 0 || index >= len(w.Forms) {
		return nil
	}
	return w.Forms[index]
}

// SameForms reports whether two versions of a workflow have the same forms, and call the same workflows.
func (w *Workflow) SameForms(other *Workflow) bool {
	forms := func(w *Workflow) (all []Form, calls []Call) {
		for i, f := range w.Forms {
			if f != nil && (i == 0 || w.Forms[i-1] != f) {
				all = append(all, *f)
			}
		}

		for _, s := range w.called() {
			calls = append(calls, *s.Call)
		}
		return all, calls
	}
	mine, calls := forms(w)
	theirs, otherCalls := forms(other)
	return reflect.DeepEqual(mine, theirs) && reflect.DeepEqual(calls, otherCalls)
}

// Shared reports whether several agents may work in the folder at the same time while an entry is done.
func (w *Workflow) Shared(index int) bool {
	f := w.Form(index)
	if f != nil && f.ForEach != nil {
		return f.ForEach.AtOnce > 1 && !f.Merges() ||
			slices.ContainsFunc(f.Body, func(e Entry) bool { return len(e) > 1 })
	}
	return len(w.Entries[index]) > 1
}

// Span returns the indices of the entries that belong to a form: from first to after-1.
func (w *Sequence) Span(f *Form) (first, after int) {
	first = slices.Index(w.Forms, f)
	for after = first; after < len(w.Forms) && w.Forms[after] == f; after++ {
	}
	return first, after
}

// A Part is one entry of a workflow, or all entries of one form.
type Part struct {
	Form    *Form // nil means one entry
	Entries []Entry
}

// Parts returns the entries in order, with those of each form together.
func (w *Sequence) Parts() (all []Part) {
	for i, e := range w.Entries {
		switch f := w.Form(i); {
		case f == nil:
			all = append(all, Part{Entries: []Entry{e}})
		case w.Form(i-1) != f:
			all = append(all, Part{f, f.Body})
		}
	}
	return all
}

// Item returns the id of a step for the item at an index of its list, such as port[3].
func Item(stepID string, index int) string { return stepID + "[" + strconv.Itoa(index) + "]" }

// SplitItem is the inverse of Item. item is false for the id of a step alone.
func SplitItem(id string) (stepID string, index int, item bool) {
	stepID, rest, found := strings.Cut(id, "[")
	digits, closed := strings.CutSuffix(rest, "]")
	n, err := strconv.Atoi(digits)
	if !found || !closed || err != nil || n < 0 || Item(stepID, n) != id {
		return id, 0, false
	}
	return stepID, n, true
}

// readEntry decodes an entry that is the id of a step, or a list of ids. The result has at least one id,
// which is "" if it is faulty.
func readEntry(d *yamltree.Decoder, v value) (e Entry) {
	member := func(what string, v value) {
		id, _ := d.Text(v, what, "filled")
		if name, ok := strings.CutPrefix(id, CallPrefix); ok {
			d.Fault(v.At(), "%s is no step: to have a workflow done here, write {workflow: %s}", yamltree.Quote(id),
				yamltree.Quote(name))
			id = ""
		}
		e = append(e, id)
	}
	if v.Target().Kind != yaml.SequenceNode {
		member("the id of a step, or a list of ids that run concurrently", v)
	} else if count, _ := d.List(v, "", func(_ int, v value) {
		if v.Target().Kind == yaml.SequenceNode {
			d.Fault(v.At(), "is a list inside of a group: groups do not nest, name the step itself")
			e = append(e, "")
			return
		}
		member("the id of a step", v)
	}); count == 0 {
		d.Fault(v.At(), "is an empty group: name the steps that run concurrently, or remove it")
		e = Entry{""}
	}

	return e
}

// entriesForm decodes the entries of a workflow; faulty ones keep their place.
func entriesForm(d *yamltree.Decoder, v value, to any) {
	w := to.(*Sequence)
	d.List(v, "a list of step ids, of lists of them, or of the forms for_each, when, repeat and workflow",
		func(n int, v value) {
			if v.Target().Kind == yaml.MappingNode {
				w.addForm(d, n, v)
				return
			}
			w.add(readEntry(d, v), nil, n)
		})
}

// bodyForm decodes the steps of a form.
func bodyForm(d *yamltree.Decoder, v value, to any) {
	w := to.(*Sequence)
	d.List(v, "a list of step ids, of lists of them, or of workflow entries", func(n int, v value) {
		if v.Target().Kind != yaml.MappingNode {
			w.add(readEntry(d, v), nil, n)
			return
		}

		for i := 0; i+1 < len(v.Target().Content); i += 2 {
			key := v.Target().Content[i].Value
			if kinds[key] != nil && key != "workflow" {
				d.Fault(v.At(), "is %s inside of a form: make a workflow of its own of it, and write workflow: "+
					"NAME here", key)
				w.add(Entry{""}, nil, n)
				return
			}
		}
		w.addForm(d, n, v)
	})
}

// callInputs decodes the inputs of a called workflow: for each name, the name of a value here, or a text.
func callInputs(d *yamltree.Decoder, v value, to any) {
	all := to.(*[]CallInput)
	*all = []CallInput{}
	d.Mapping(v, "a mapping of the workflow's inputs to outputs or inputs here, or to {value: text}", func(v value) {
		in := CallInput{Name: v.Key.Value}
		if v.Target().Kind == yaml.MappingNode {
			var given struct {
				Value *string `yaml:"value" written:"" add:"value: the text"`
			}
			d.Decode(v, &given)
			in.Value = given.Value
		} else {
			in.From, _ = d.Text(v, "the name of an output or input here, or {value: text}", "name")
		}
		*all = append(*all, in)
	})
}

// place returns the place of the entry with a call in the file, below the steps.
func (w *Workflow) place(call string) place {
	e := w.Find(call)
	at := w.at[e][slices.Index(w.Entries[e], call)]
	return at[:len(at)-1] // its entry has one member
}

// endChecks returns the checks that end rounds of a workflow, by the step after which they run.
func (w *Workflow) endChecks() map[string]*StepCheck {
	all := map[string]*StepCheck{}
	for _, f := range w.Forms {
		if f != nil && f.Repeat != nil && f.Repeat.Until.Run != nil {
			all[f.Body[len(f.Body)-1][0]] = &StepCheck{
				Name:    "until",
				Run:     f.Repeat.Until.Run,
				Timeout: f.Repeat.Until.Timeout,
				Ends:    true,
			}
		}
	}
	return all
}

// called returns the steps of a workflow that are workflows.
func (w *Workflow) called() (all []*Step) {
	for _, steps := range [][]Step{w.calls, w.Steps} {
		for i := range steps {
			if steps[i].Call != nil {
				all = append(all, &steps[i])
			}
		}
	}
	return all
}

// Untaken returns the inputs of a workflow that none of its steps takes, none of its conditions compares, and no
// workflow that is its step is given.
func (j *Job) Untaken(w *Workflow) []Parameter {
	if w == nil || len(w.Entries) == 0 || j.Format == 2 { // in format 2 the inputs are what the steps take
		return nil
	}

	taken := map[string]bool{}
	for e, entry := range w.Entries {
		for _, id := range entry {
			s := j.Step(id)
			if s == nil {
				continue // a workflow, or an error already
			}
			for _, in := range s.Inputs {
				taken[in.Name+in.File] = true // it has one of them; a file that no step made is an input's value
			}
		}
		if f := w.Form(e); f != nil && f.When != nil {
			taken[f.When.Input] = true
		} else if f != nil && f.Repeat != nil {
			taken[f.Repeat.Until.Input] = true
		}
	}
	for _, s := range w.called() {
		for _, in := range s.Call.Inputs {
			taken[in.From] = true
		}
	}

	return slices.DeleteFunc(slices.Clone(w.Inputs), func(p Parameter) bool { return taken[p.Name] })
}

// Within returns a workflow and those of the job that are its steps, and theirs.
func (j *Job) Within(w *Workflow) []*Workflow {
	all := []*Workflow{w}
	for i := 0; i < len(all); i++ {
		for _, s := range all[i].called() {
			of := j.Workflow(s.Call.Workflow)
			if of != nil && (s.Call.Job == "" || s.Call.Job == j.Name) && !slices.Contains(all, of) {
				all = append(all, of)
			}
		}
	}
	return all
}
